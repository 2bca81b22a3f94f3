"""`amqpd ctl`: what is done to a running broker: queues deleted and purged, connections closed, alarms, traces.

What comes in: rabbitmqctl's words. What goes out: what was done.
Not here: what is checked and done (`amqpd/management/`), what a stopped broker has, too (`users.py`, `vhosts.py`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from amqpd.commands.ctl.call import DATA, UNAVAILABLE, USAGE, CtlCall, Failed, command
from amqpd.commands.running import NobodyThere
from amqpd.management.errors import NotFound, Unavailable

AWAITED_S = 300.0
LOOK_S = 0.2


@command("delete_queue", {NotFound: USAGE})
@click.argument("queue")
@click.option("-e", "--if-empty", is_flag=True)
@click.option("-u", "--if-unused", is_flag=True)
def delete_queue(call: CtlCall, queue: str, if_empty: bool, if_unused: bool) -> None:
    """Delete a queue with ITS MESSAGES."""
    conditions = [name for name, said in (("empty", if_empty), ("unused", if_unused)) if said]
    only = f" if queue is {' and '.join(conditions)}" if conditions else ""
    call.said.sentence(f"Deleting queue '{queue}' on vhost '{call.vhost}'{only} ...")
    done = call.ask("queue delete", vhost=call.vhost, name=queue, if_empty=if_empty, if_unused=if_unused)
    gone = done["messages"]
    # Of a queue whose leader does not answer nobody knows.
    count = "" if gone is None else f" with {gone} ready messages"
    call.said.sentence(f"Queue was successfully deleted{count}")


@command("purge_queue")
@click.argument("queue")
def purge_queue(call: CtlCall, queue: str) -> None:
    """Delete all messages that are ready in a queue."""
    call.said.sentence(f"Purging queue '{queue}' in vhost '{call.vhost}' ...")
    call.ask("queue purge", vhost=call.vhost, name=queue)


@command("close_connection")
@click.argument("connection", metavar="PID")
@click.argument("explanation")
def close_connection(call: CtlCall, connection: str, explanation: str) -> None:
    """Close the connection that list_connections shows with this pid."""
    call.said.sentence(f"Closing connection {connection}, reason: {explanation}...")
    call.ask("connection close", id=connection, reason=explanation)


@command("close_all_connections")
@click.argument("explanation")
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
    call.said.sentence(f"Closing all connections{where}, reason: {explanation}...")
    which: dict[str, Any] = {"all": True} if every else {"vhost": call.vhost}
    closed, missing = _closed(call, explanation, **which)
    call.said.sentence(f"Closed {closed} connections")
    _refuse_missing(missing)


@command("close_all_user_connections")
@click.argument("username")
@click.argument("explanation")
def close_all_user_connections(call: CtlCall, username: str, explanation: str) -> None:
    """Close all connections of a user."""
    call.said.sentence(f"Closing connections of user {username}, reason: {explanation}...")
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
    call.said.sentence(f'Starting tracing for vhost "{call.vhost}" ...')
    call.ask("trace on", vhost=call.vhost)
    call.said.sentence(f"Trace enabled for vhost {call.vhost}")


@command("trace_off")
def trace_off(call: CtlCall) -> None:
    """End that."""
    call.said.sentence(f'Stopping tracing for vhost "{call.vhost}" ...')
    call.ask("trace off", vhost=call.vhost)
    call.said.sentence(f"Trace disabled for vhost {call.vhost}")


@command("ping")
def ping(call: CtlCall) -> None:
    """Say whether the broker runs and answers."""
    call.said.sentence("Will ping the broker. Timeout: 60000 ms.")
    call.ask("status")
    call.said.sentence("Ping succeeded")


@command("node_health_check")
def node_health_check(call: CtlCall) -> None:
    """Say whether the broker runs, without an alarm and with all its queues in service."""
    status = call.ask("status")
    call.said.sentence(f"Checking health of node {status['node']} ...")
    if status["alarms"]:
        raise Failed(f"resource alarm(s) in effect: {', '.join(status['alarms'])}", UNAVAILABLE)
    if status["queues_out_of_service"]:
        raise Failed("queues are out of service: see `amqpd status`", UNAVAILABLE)
    call.said.sentence("Health check passed")


@command("await_startup")
def await_startup(call: CtlCall) -> None:
    """Wait until the broker runs."""
    _await(call, AWAITED_S if call.timeout_s is None else call.timeout_s)


@command("await_online_nodes")
@click.argument("count", type=int)
def await_online_nodes(call: CtlCall, count: int) -> None:
    """Wait until this many members of the cluster are there."""
    timeout_s = AWAITED_S if call.timeout_s is None else call.timeout_s
    call.said.sentence(f"Will wait for at least {count} nodes to join the cluster. Timeout: {timeout_s:g} seconds.")
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
