"""`amqpd policy` and `amqpd operator-policy`: arguments for many queues and exchanges at once.

What comes in: names, patterns, definitions as JSON. What goes out: policies set and cleared; lists.
Rules: both kinds have the same commands.
Not here: what is checked and done (`amqpd/management/metadata/policies.py`), which policy applies
(`topology/policies.py`).
"""

from __future__ import annotations

from pathlib import Path

import click

from amqpd.commands.metadata import carry_out
from amqpd.commands.options import data_dir_option, json_option, json_value
from amqpd.commands.tables import json_cells, show
from amqpd.management.metadata import policies
from amqpd.management.metadata.policies import KINDS
from amqpd.topology.policies import APPLY_TO

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
        value = json_value("definition", definition)
        carry_out(data_dir, policies.put, operator, vhost, name, pattern, value, priority, apply_to)
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
        carry_out(data_dir, policies.clear, operator, vhost, name)
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
        rows = carry_out(data_dir, policies.listed, operator, vhost)
        columns = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
        show(json_cells(rows, "definition", as_json), columns, as_json)


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
