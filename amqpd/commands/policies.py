"""`amqpd policy` and `amqpd operator-policy`: arguments for many queues and exchanges at once.

What comes in: names, patterns, definitions as JSON. What goes out: changed records; lists.
Rules: 1. A policy that the broker could not use is refused here, with RabbitMQ's words. 2. Both kinds have the same
commands.
Not here: which policy applies (`topology/policies.py`), the keys (`topology/policy_keys.py`), how a change reaches
the broker (`metadata.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from amqpd.commands.metadata import (
    Plan,
    change,
    check_filter,
    check_name,
    data_dir_option,
    found_vhost,
    json_cell,
    json_option,
    json_value,
    read,
    show,
)
from amqpd.topology.policies import APPLY_TO, check_policy
from amqpd.topology.policy_keys import PolicyInvalid
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Delete, PolicyRecord, Put

KINDS = {False: "policy", True: "operator policy"}
SET_HELP = """Set the {kind} NAME in VHOST: what matches PATTERN gets DEFINITION, from now on and until the
    {kind} changes; queues and exchanges that exist too.

    PATTERN is a regular expression, searched for anywhere in the name: write ^ and $ where you mean the
    whole name. DEFINITION is a JSON object.

    \b
    {keys}

    \b
    Examples:
      {examples}
    """
POLICY_KEYS = """Of queues:
      message-ttl, expires                          milliseconds
      max-length, max-length-bytes                  messages, bytes of bodies
      overflow                                      drop-head, reject-publish, reject-publish-dlx
      dead-letter-exchange, dead-letter-routing-key
      dead-letter-strategy, delivery-limit          quorum queues only
      consumer-timeout                              milliseconds
      audit                                         off, admin, counts, sample(0.01), full
    Of exchanges:
      alternate-exchange                            takes what no binding matches
      unroutable                                    drop, nack or the name of an exchange"""
OPERATOR_KEYS = """Limits, of which the tighter one of policy and operator policy counts:
      message-ttl, expires                          milliseconds
      max-length, max-length-bytes                  messages, bytes of bodies
      delivery-limit                                quorum queues only
    The operator's word:
      overflow                                      drop-head, reject-publish, reject-publish-dlx"""


@click.group()
def policy() -> None:
    """Give arguments to many queues and exchanges at once, by their names.

    One policy at most applies to a queue or an exchange: of those that match, the one with the highest
    priority. What a queue was declared with goes before its policy; of two limits the tighter one counts. A
    change takes effect at once, on queues that exist too.

    \b
    Examples:
      amqpd policy set / short-lived '^events\\.' '{"message-ttl": 60000}' --apply-to queues
      amqpd policy set / dead '^orders' '{"dead-letter-exchange": "dead"}' --priority 5
      amqpd policy list
    """


@click.group("operator-policy")
def operator_policy() -> None:
    """Set limits that users' own policies and arguments cannot lift.

    An operator policy applies beside the ordinary one, chosen in the same way. It may only hold limits, and
    of a limit that both have the tighter one counts.

    \b
    Examples:
      amqpd operator-policy set / bounded '.*' '{"max-length": 1000000}' --apply-to queues
      amqpd operator-policy list
    """


def _add_set(group: click.Group, operator: bool, keys: str, examples: str) -> None:
    kind = KINDS[operator]

    @group.command("set", help=SET_HELP.format(kind=kind, keys=keys, examples=examples))
    @click.argument("vhost")
    @click.argument("name")
    @click.argument("pattern")
    @click.argument("definition")
    @click.option(
        "--priority", type=int, default=0, show_default=True, help="Of two that match, the higher one applies."
    )
    @click.option(
        "--apply-to",
        default="all",
        show_default=True,
        metavar="WHAT",
        help=f"One of: {', '.join(APPLY_TO)}.",
    )
    @data_dir_option
    def set_policy(
        vhost: str, name: str, pattern: str, definition: str, priority: int, apply_to: str, data_dir: Path
    ) -> None:
        check_name(kind, name)
        record = PolicyRecord(
            vhost, name, pattern, apply_to, json_value("definition", definition), priority, operator
        )
        try:
            check_policy(record)
        except PolicyInvalid as error:
            raise click.ClickException(f"the {kind} is not valid: {error}") from error
        change(data_dir, lambda topology: Plan([Put(record)], [found_vhost(topology, vhost).key]))
        click.echo(f"set the {kind} '{name}' in virtual host '{vhost}'")


def _add_clear(group: click.Group, operator: bool) -> None:
    kind = KINDS[operator]

    @group.command(
        "clear",
        help=f"""Take the {kind} NAME out of VHOST. What it applied to falls back to the next one that matches.

    \b
    Example:
      amqpd {group.name} clear / short-lived
    """,
    )
    @click.argument("vhost")
    @click.argument("name")
    @data_dir_option
    def clear(vhost: str, name: str, data_dir: Path) -> None:
        def plan(topology: Topology) -> Plan:
            found_vhost(topology, vhost)
            held = topology.vhosts[vhost].policies
            found = (held.operator_policies if operator else held.policies).get(name)
            if found is None:
                raise click.ClickException(f"there is no {kind} '{name}' in virtual host '{vhost}'")
            return Plan([Delete(found.key)])

        change(data_dir, plan)
        click.echo(f"cleared the {kind} '{name}' in virtual host '{vhost}'")


def _add_list(group: click.Group, operator: bool) -> None:
    @group.command(
        "list",
        help=f"""List them: those that go first, first.

    \b
    Example:
      amqpd {group.name} list --vhost / --json
    """,
    )
    @click.option("--vhost", help="Only of this virtual host.")
    @json_option
    @data_dir_option
    def list_policies(vhost: str | None, as_json: bool, data_dir: Path) -> None:
        topology = read(data_dir)
        check_filter(topology, vhost)
        rows = [
            _row(record, as_json)
            for at in sorted(topology.vhosts)
            if vhost in (None, at)
            for record in sorted(topology.vhosts[at].policies.records(), key=lambda each: (-each.priority, each.name))
            if record.operator == operator
        ]
        show(rows, ("vhost", "name", "pattern", "apply-to", "definition", "priority"), as_json)


def _row(record: PolicyRecord, as_json: bool) -> dict[str, Any]:
    return {
        "vhost": record.vhost,
        "name": record.name,
        "pattern": record.pattern,
        "apply-to": record.apply_to,
        "definition": json_cell(dict(record.definition), as_json),
        "priority": record.priority,
    }


_add_set(
    policy,
    operator=False,
    keys=POLICY_KEYS,
    examples="""amqpd policy set / short-lived '^events\\.' '{"message-ttl": 60000}' --apply-to queues
      amqpd policy set / lost '' '{"alternate-exchange": "lost"}' --apply-to exchanges""",
)
_add_set(
    operator_policy,
    operator=True,
    keys=OPERATOR_KEYS,
    examples="""amqpd operator-policy set / bounded '.*' '{"max-length": 1000000}' --apply-to queues""",
)
for _operator, _group in ((False, policy), (True, operator_policy)):
    _add_clear(_group, _operator)
    _add_list(_group, _operator)
