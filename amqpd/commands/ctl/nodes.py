"""`amqpd ctl`: the node and its cluster, definitions, and what is done to a running broker: queues deleted and
purged, connections closed, traces.

What comes in: rabbitmqctl's words. What goes out: what is known of the node; files; what was done.
Not here: `amqpd status`, `cluster` and `definitions`, which say more; what is checked and done (`amqpd/management/`).
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from amqpd import __version__
from amqpd.commands.ctl.call import DATA, UNAVAILABLE, USAGE, CtlCall, Failed, command
from amqpd.commands.definitions import read_file, warn_of, write
from amqpd.commands.running import NobodyThere
from amqpd.management import feature_flags
from amqpd.management.errors import BadArgument, NotFound, Unavailable
from amqpd.management.feature_flags import ALL
from amqpd.management.metadata import definitions
from amqpd.vocabulary.escapes import readable_json


@command("version")
def version(call: CtlCall) -> None:
    """Say which version this is."""
    call.output.result(__version__)


@command("status")
def status(call: CtlCall) -> None:
    """Show the node: alarms, what is open, what is in memory."""
    found = call.ask("status")
    if call.output.formatter == "json":
        call.output.result(json.dumps({**found, "amqpd_version": __version__}))
        return
    call.output.sentence(f"Status of node {found['node']} ...")
    call.output.result(f"Runtime\n\namqpd version: {__version__}\nNode name: {found['node']}")
    alarms = ", ".join(found["alarms"]) or "(none)"
    call.output.result(f"\nAlarms\n\n{alarms}")
    totals = {"Connection count": "connections", "Queue count": "queues", "Virtual host count": "vhosts"}
    lines = "\n".join(f"{name}: {found[key]}" for name, key in totals.items())
    call.output.result(f"\nTotals\n\n{lines}")


@command("cluster_status")
def cluster_status(call: CtlCall) -> None:
    """Show the nodes of the cluster."""
    found = call.ask("status")
    running, alarms = nodes_running(found), found["alarms_of_nodes"]
    if call.output.formatter == "json":
        names = sorted({each["name"] for each in alarms})
        call.output.result(readable_json({"running_nodes": running, "alarms": names}))
        return
    call.output.sentence(f"Cluster status of node {found['node']} ...")
    call.output.result("Running Nodes\n\n" + "\n".join(running))
    on = [f"{each['name']} alarm on node {each['node']}" for each in alarms]
    call.output.result("\nAlarms\n\n" + ("\n".join(on) or "(none)"))


@command("enable_feature_flag")
@click.option("--opt-in", is_flag=True, hidden=True)
@click.option("--experimental", is_flag=True, hidden=True)
@click.argument("feature_flag")
def enable_feature_flag(call: CtlCall, feature_flag: str, **_: bool) -> None:
    """Enable a feature flag, or `all`: each is on from the beginning, so nothing changes."""
    if feature_flag == ALL:
        call.output.sentence("Enabling all feature flags ...")
        return
    call.output.sentence(f'Enabling feature flag "{feature_flag}" ...')
    try:
        feature_flags.enable(feature_flag)
    except BadArgument:
        raise Failed(f"This feature flag is not supported: '{feature_flag}'", USAGE) from None


@command("export_definitions", "path")
@click.option("--format", "kind", type=click.Choice(("json",)), default="json")
def export_definitions(call: CtlCall, path: str, kind: str) -> None:
    """Write all definitions to a file; - is standard output."""
    text = call.change(definitions.exported)
    warn_of(text)
    if path == "-":
        call.output.result(text)
        return
    call.output.sentence(f'Exporting definitions in JSON to a file at "{path}" ...')
    try:
        write(Path(path), text)
    except click.ClickException as error:
        raise Failed(error.format_message(), DATA) from None


@command("import_definitions", "[path]")
@click.option("--format", "kind", type=click.Choice(("json",)), default="json")
@click.option("--skip-if-unchanged", is_flag=True)
def import_definitions(call: CtlCall, path: str | None, kind: str, **_: Any) -> None:
    """Make the broker have what a file says, or standard input. What is there otherwise stays so."""
    said = "standard input" if path in (None, "-") else f'a file at "{path}"'
    call.output.sentence(f"Importing definitions in JSON from {said} ...")
    try:
        wanted = read_file(Path(path or "-"), None)
    except click.ClickException as error:
        raise Failed(error.format_message(), DATA) from None
    try:
        call.change(definitions.import_definitions, wanted, as_rabbitmq=True)
    except definitions.ImpossibleDefinitions as error:
        raise Failed(str(error), DATA) from None
    call.output.sentence("Successfully started definition import.")


AWAITED_S = 300.0
LOOK_S = 0.2


@command("delete_queue", "queue", {NotFound: USAGE})
@click.option("-e", "--if-empty", is_flag=True)
@click.option("-u", "--if-unused", is_flag=True)
def delete_queue(call: CtlCall, queue: str, if_empty: bool, if_unused: bool) -> None:
    """Delete a queue with ITS MESSAGES."""
    conditions = [name for name, said in (("empty", if_empty), ("unused", if_unused)) if said]
    only = f" if queue is {' and '.join(conditions)}" if conditions else ""
    call.output.sentence(f"Deleting queue '{queue}' on vhost '{call.vhost}'{only} ...")
    done = call.ask("queue delete", vhost=call.vhost, name=queue, if_empty=if_empty, if_unused=if_unused)
    gone = done["messages"]
    # Of a queue whose leader does not answer nobody knows.
    count = "" if gone is None else f" with {gone} ready messages"
    call.output.sentence(f"Queue was successfully deleted{count}")


@command("purge_queue", "queue")
def purge_queue(call: CtlCall, queue: str) -> None:
    """Delete all messages that are ready in a queue."""
    call.output.sentence(f"Purging queue '{queue}' in vhost '{call.vhost}' ...")
    call.ask("queue purge", vhost=call.vhost, name=queue)


@command("close_connection")
@click.argument("connection", metavar="PID")
@click.argument("explanation")
def close_connection(call: CtlCall, connection: str, explanation: str) -> None:
    """Close the connection that list_connections shows with this pid."""
    call.output.sentence(f"Closing connection {connection}, reason: {explanation}...")
    call.ask("connection close", id=connection, reason=explanation)


@command("close_all_connections", "explanation")
@click.option("--global", "every", is_flag=True, help="In all virtual hosts.")
@click.option("--per-connection-delay", hidden=True)
@click.option("--limit", hidden=True)
def close_all_connections(
    call: CtlCall, explanation: str, every: bool, per_connection_delay: str | None, limit: str | None
) -> None:
    """Close all connections in a virtual host."""
    if limit not in (None, "0") or per_connection_delay not in (None, "0"):
        raise Failed("--limit and --per-connection-delay are not known here: all are closed at once", USAGE)
    where = "" if every else f" in vhost {call.vhost}"
    call.output.sentence(f"Closing all connections{where}, reason: {explanation}...")
    which: dict[str, Any] = {"all": True} if every else {"vhost": call.vhost}
    closed, missing = _closed(call, explanation, **which)
    call.output.sentence(f"Closed {closed} connections")
    _refuse_missing(missing)


@command("close_all_user_connections", "username explanation")
def close_all_user_connections(call: CtlCall, username: str, explanation: str) -> None:
    """Close all connections of a user."""
    call.output.sentence(f"Closing connections of user {username}, reason: {explanation}...")
    _refuse_missing(_closed(call, explanation, user=username)[1])


def _closed(call: CtlCall, explanation: str, **which: Any) -> tuple[int, dict[str, str]]:
    """How many; which nodes did not answer, with what is known of them."""
    try:
        done = call.ask("connection close", reason=explanation, **which)
    except NotFound:
        return 0, {}
    return done["closed"], done["nodes_missing"]


def _refuse_missing(missing: dict[str, str]) -> None:
    """Raises Failed."""
    if missing:
        silent = "\n".join(f"node {name}, which {why}" for name, why in sorted(missing.items()))
        raise Failed(f"connections of these nodes were not closed:\n{silent}", UNAVAILABLE)


@command("trace_on")
def trace_on(call: CtlCall) -> None:
    """Copy all messages of a virtual host to the exchange amq.rabbitmq.trace."""
    call.output.sentence(f'Starting tracing for vhost "{call.vhost}" ...')
    call.ask("trace on", vhost=call.vhost)
    call.output.sentence(f"Trace enabled for vhost {call.vhost}")


@command("trace_off")
def trace_off(call: CtlCall) -> None:
    """End that."""
    call.output.sentence(f'Stopping tracing for vhost "{call.vhost}" ...')
    call.ask("trace off", vhost=call.vhost)
    call.output.sentence(f"Trace disabled for vhost {call.vhost}")


@command("ping")
def ping(call: CtlCall) -> None:
    """Say whether the broker runs and answers."""
    call.output.sentence("Will ping the broker. Timeout: 60000 ms.")
    call.ask("status")
    call.output.sentence("Ping succeeded")


@command("node_health_check")
def node_health_check(call: CtlCall) -> None:
    """Say whether the broker runs, without an alarm and with all its queues in service."""
    status = call.ask("status")
    call.output.sentence(f"Checking health of node {status['node']} ...")
    if status["alarms"]:
        raise Failed(f"resource alarm(s) in effect: {', '.join(status['alarms'])}", UNAVAILABLE)
    if status["queues_out_of_service"]:
        raise Failed("queues are out of service: see `amqpd status`", UNAVAILABLE)
    call.output.sentence("Health check passed")


@command("await_startup")
def await_startup(call: CtlCall) -> None:
    """Wait until the broker runs."""
    _await(call, AWAITED_S if call.timeout_s is None else call.timeout_s)


@command("await_online_nodes")
@click.argument("count", type=int)
def await_online_nodes(call: CtlCall, count: int) -> None:
    """Wait until this many members of the cluster are there."""
    timeout_s = AWAITED_S if call.timeout_s is None else call.timeout_s
    call.output.sentence(f"Will wait for at least {count} nodes to join the cluster. Timeout: {timeout_s:g} seconds.")
    ends = time.monotonic() + timeout_s
    while (there := len(nodes_running(_await(call, ends - time.monotonic())))) < count:
        if time.monotonic() > ends:
            raise Failed(f"{there} of {count} nodes are there after {timeout_s:g} seconds", DATA)
        time.sleep(LOOK_S)


@command("wait")
@click.argument("pidfile", required=False, type=click.Path(path_type=Path))
@click.option("-P", "--pid", type=int)
def wait(call: CtlCall, pidfile: Path | None, pid: int | None) -> None:
    """Wait until the broker runs. Its data directory says which; the pid does not count."""
    _await(call, AWAITED_S if call.timeout_s is None else call.timeout_s)


def _await(call: CtlCall, timeout_s: float) -> dict[str, Any]:
    ends = time.monotonic() + timeout_s
    while True:
        try:
            return call.ask("status")
        except (Unavailable, NobodyThere):
            if time.monotonic() > ends:
                raise Failed(f"no broker answers after {timeout_s:g} seconds", DATA) from None
        time.sleep(LOOK_S)


def nodes_running(status: dict[str, Any]) -> list[str]:
    """Members of the cluster, the node that was asked first."""
    node = status["node"]
    return [node, *(name for name in status.get("cluster", {}).get("members", ()) if name != node)]
