"""`amqpd ctl`: virtual hosts, with their limits, policies and parameters.

What comes in: rabbitmqctl's words. What goes out: changed metadata; lists.
Not here: what is checked and done (`amqpd/management/`).
"""

from __future__ import annotations

import click

from amqpd.commands.ctl.call import DATA, USAGE, CtlCall, Failed, command
from amqpd.commands.ctl.output import Document, Tags, compact, term
from amqpd.commands.options import json_value
from amqpd.management.errors import AlreadyExists, NotFound
from amqpd.management.metadata import limits, parameters, policies, vhosts
from amqpd.topology.policies import APPLY_TO

VHOST_COLUMNS = ("name", "tracing", "description", "tags", "default_queue_type", "cluster_state", "metadata")


@command("add_vhost")
@click.argument("vhost_name", metavar="VHOST")
@click.option("--description", default="")
@click.option("--tags", default="", help="Words, with commas between them.")
@click.option("--default-queue-type")
def add_vhost(call: CtlCall, vhost_name: str, description: str, tags: str, default_queue_type: str | None) -> None:
    """Add a virtual host; one that is there stays as it is."""
    call.output.sentence(f'Adding vhost "{vhost_name}" ...')
    words = [each for each in tags.split(",") if each]
    try:
        call.change(vhosts.add, vhost_name, description, default_queue_type, words)
    except AlreadyExists:
        return


@command("delete_vhost", codes={NotFound: DATA})
@click.argument("vhost_name", metavar="VHOST")
def delete_vhost(call: CtlCall, vhost_name: str) -> None:
    """Delete a virtual host with its queues and THEIR MESSAGES."""
    call.output.sentence(f'Deleting vhost "{vhost_name}" ...')
    call.change(vhosts.delete, vhost_name)


@command("list_vhosts")
@click.argument("columns", nargs=-1)
def list_vhosts(call: CtlCall, columns: tuple[str, ...]) -> None:
    """List virtual hosts: name, tracing, description, tags, default_queue_type."""
    wanted = checked_columns(columns or ("name",), VHOST_COLUMNS)
    call.output.sentence("Listing vhosts ...")
    traced = _traced(call) if "tracing" in wanted else set()
    rows = [
        {
            **dict.fromkeys(VHOST_COLUMNS),
            "name": row["name"],
            "description": row["description"],
            "tags": Tags(row["tags"]),
            "default_queue_type": row["default_queue_type"] or "undefined",
            "tracing": row["name"] in traced,
        }
        for row in call.change(vhosts.listed)
    ]
    call.output.rows(rows, wanted)


def _traced(call: CtlCall) -> set[str]:
    return {row["vhost"] for row in call.rows("trace list", ("vhost",))}


@command("set_vhost_tags")
@click.argument("vhost_name", metavar="VHOST")
@click.argument("tags", nargs=-1)
def set_vhost_tags(call: CtlCall, vhost_name: str, tags: tuple[str, ...]) -> None:
    """Give a virtual host these tags instead of those that it has."""
    call.output.sentence(f'Setting tags for vhost "{vhost_name}" to [{", ".join(tags)}] ...')
    call.change(vhosts.set_tags, vhost_name, tags)


@command("set_vhost_limits", "definition")
def set_vhost_limits(call: CtlCall, definition: str) -> None:
    """Set limits of a virtual host, by an object of JSON: max-connections, max-queues."""
    call.output.sentence(f'Setting vhost limits to "{definition}" for vhost "{call.vhost}" ...')
    call.change(limits.put, "vhost", call.vhost, json_value("definition", definition))


@command("clear_vhost_limits")
def clear_vhost_limits(call: CtlCall) -> None:
    """Lift all limits of a virtual host."""
    call.output.sentence(f'Clearing vhost "{call.vhost}" limits ...')
    call.change(limits.clear, "vhost", call.vhost)


@command("list_vhost_limits")
@click.option("--global", "every", is_flag=True)
def list_vhost_limits(call: CtlCall, every: bool) -> None:
    """List the limits of one virtual host, or of all."""
    where = "all vhosts" if every else f'vhost "{call.vhost}"'
    call.output.sentence(f"Listing limits for {where} ...")
    found: dict[str, Document] = {}
    for row in call.change(limits.listed, None if every else call.vhost):
        if row["of"] == "vhost":
            found.setdefault(row["name"], Document())[row["limit"]] = row["value"]
    if every:
        call.output.rows(
            [{"vhost": name, "limits": each} for name, each in sorted(found.items())], ("vhost", "limits")
        )
    elif call.output.as_json:
        # rabbitmqctl's form of it, in which the limits are a text; without any, a list of none.
        call.output.object({"result": "ok", "value": term(found[call.vhost])}) if found else call.output.result("[]")
    else:
        call.output.result(term(found[call.vhost]) if found else "")


def _add_policies(name: str, said: str, operator: bool) -> list[click.Command]:
    words = name.replace("_", " ")

    @command(f"set_{name}")
    @click.option("--priority", type=int, default=0)
    @click.option("--apply-to", type=click.Choice(APPLY_TO), default="all")
    @click.argument("policy")
    @click.argument("pattern")
    @click.argument("definition")
    def put(call: CtlCall, policy: str, pattern: str, definition: str, priority: int, apply_to: str) -> None:
        """Give what matches a pattern these arguments, by an object of JSON."""
        call.output.sentence(
            f'Setting {said} "{policy}" for pattern "{pattern}" to "{definition}" with priority "{priority}" '
            f'for vhost "{call.vhost}" ...'
        )
        value = json_value("definition", definition)
        call.change(policies.put, operator, call.vhost, policy, pattern, value, priority, apply_to)

    @command(f"clear_{name}", "policy")
    def clear(call: CtlCall, policy: str) -> None:
        """Take a policy away."""
        call.output.sentence(f'Clearing {words} "{policy}" on vhost "{call.vhost}" ...')
        call.change(policies.clear, operator, call.vhost, policy)

    @command(f"list_{name.removesuffix('y')}ies")
    def listed(call: CtlCall) -> None:
        """List policies of a virtual host."""
        call.output.sentence(f'Listing {"policies" if not operator else f"{said}s"} for vhost "{call.vhost}" ...')
        rows = call.change(policies.listed, operator, call.vhost)
        columns = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
        call.output.rows([{**row, "definition": Document(row["definition"])} for row in rows], columns)

    return [put, clear, listed]


POLICIES = [
    *_add_policies("policy", "policy", False),
    *_add_policies("operator_policy", "operator policy override", True),
]


@command("set_parameter", "component name value")
def set_parameter(call: CtlCall, component: str, name: str, value: str) -> None:
    """Set a parameter of a component, by JSON."""
    call.output.sentence(
        f'Setting runtime parameter "{name}" for component "{component}" to "{value}" in vhost "{call.vhost}" ...'
    )
    call.change(parameters.put, call.vhost, component, name, json_value("value", value))


@command("clear_parameter", "component name")
def clear_parameter(call: CtlCall, component: str, name: str) -> None:
    """Take a parameter away."""
    call.output.sentence(
        f'Clearing runtime parameter "{name}" for component "{component}" on vhost "{call.vhost}" ...'
    )
    call.change(parameters.clear, call.vhost, component, name)


@command("list_parameters")
def list_parameters(call: CtlCall) -> None:
    """List parameters of a virtual host."""
    call.output.sentence(f'Listing runtime parameters for vhost "{call.vhost}" ...')
    rows = call.change(parameters.listed, call.vhost)
    call.output.rows([{**row, "value": compact(row["value"])} for row in rows], ("component", "name", "value"))


@command("set_global_parameter", "name value")
def set_global_parameter(call: CtlCall, name: str, value: str) -> None:
    """Set a parameter of no virtual host, by JSON."""
    call.output.sentence(f'Setting global runtime parameter "{name}" to "{value}" ...')
    call.change(parameters.put_global, name, json_value("value", value))


@command("clear_global_parameter", "name")
def clear_global_parameter(call: CtlCall, name: str) -> None:
    """Take a global parameter away."""
    call.output.sentence(f'Clearing global runtime parameter "{name}" ...')
    call.change(parameters.clear_global, name)


@command("list_global_parameters")
def list_global_parameters(call: CtlCall) -> None:
    """List parameters of no virtual host."""
    call.output.sentence("Listing global runtime parameters ...")
    rows = call.change(parameters.listed_global)
    call.output.rows([{**row, "value": compact(row["value"])} for row in rows], ("name", "value"))


@command("set_cluster_name", "name")
def set_cluster_name(call: CtlCall, name: str) -> None:
    """Name the cluster, for people."""
    call.output.sentence(f"Setting cluster name to {name} ...")
    call.change(parameters.put_global, "cluster_name", name)


def checked_columns(columns: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Also those that come as one word, with commas. Raises Failed."""
    wanted = tuple(name for each in columns for name in each.split(",") if name)
    strange = [name for name in wanted if name not in known]
    if strange:
        raise Failed(
            f"Info key(s) {','.join(strange)} are not supported: there are {', '.join(known)}",
            USAGE,
        )
    return wanted
