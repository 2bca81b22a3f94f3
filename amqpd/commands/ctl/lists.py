"""`amqpd ctl`: lists of what a running broker has, in rabbitmqctl's columns.

What comes in: names of columns. What goes out: a table.
Rules: 1. A column that RabbitMQ has and amqpd does not is there, and empty: a script that asks for it goes on. 2.
What RabbitMQ shows as an Erlang process is the connection's id, which `close_connection` takes.
Not here: what is in the rows (`amqpd/management/figures/inventory.py`).

Source: rabbitmqctl 3.10's columns (https://www.rabbitmq.com/docs/man/rabbitmqctl.8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from amqpd.commands.ctl.call import CtlCall, command
from amqpd.commands.ctl.output import Arguments, Row
from amqpd.commands.ctl.vhosts import checked_columns
from amqpd.management.feature_flags import FLAGS

QUEUES = """name durable auto_delete arguments policy operator_policy effective_policy_definition pid owner_pid
exclusive exclusive_consumer_pid exclusive_consumer_tag messages_ready messages_unacknowledged
messages messages_ready_ram messages_unacknowledged_ram messages_ram messages_persistent
message_bytes message_bytes_ready message_bytes_unacknowledged message_bytes_ram
message_bytes_persistent head_message_timestamp disk_reads disk_writes consumers
consumer_utilisation consumer_capacity memory slave_pids synchronised_slave_pids state type leader
members online mirror_pids synchronised_mirror_pids confirm_on vhost"""
EXCHANGES = "name type durable auto_delete internal arguments policy vhost"
BINDINGS = "source_name source_kind destination_name destination_kind routing_key arguments vhost"
CONNECTIONS = """pid name port host peer_port peer_host ssl ssl_protocol ssl_key_exchange ssl_cipher ssl_hash
peer_cert_subject peer_cert_issuer peer_cert_validity state channels protocol auth_mechanism user vhost timeout
frame_max channel_max client_properties recv_oct recv_cnt send_oct send_cnt send_pend connected_at"""
CHANNELS = """pid connection name number user vhost transactional confirm consumer_count messages_unacknowledged
messages_uncommitted acks_uncommitted messages_unconfirmed prefetch_count global_prefetch_count"""
CONSUMERS = "queue_name channel_pid consumer_tag ack_required prefetch_count active activity_status arguments"


def _list(name: str, columns: str, first: str, said: str, rows: Callable[[CtlCall], list[dict[str, Any]]]) -> Any:
    known = tuple(columns.split())

    def listed(call: CtlCall, names: tuple[str, ...], **_: bool) -> None:
        wanted = checked_columns(names or tuple(first.split()), known)
        if name == "list_queues" and call.timeout_s is None:
            call.output.sentence("Timeout: 60.0 seconds ...")
        call.output.sentence(said.format(vhost=call.vhost))
        call.output.rows(filled(rows(call), known), wanted)

    listed.__doc__ = f"List {name.removeprefix('list_')}. Columns: {', '.join(known)}."
    made: Callable[..., Any] = click.argument("names", metavar="[COLUMN]...", nargs=-1)(listed)
    if name == "list_queues":
        # Of queues that are served somewhere else, or by nobody: one node shows what it has itself.
        for flag in ("--online", "--offline", "--local"):
            made = click.option(flag, is_flag=True, hidden=True)(made)
    return command(name)(made)


def filled(rows: Sequence[Row], known: Sequence[str]) -> list[Row]:
    nothing = dict.fromkeys(known)
    return [{**nothing, **row} for row in rows]


def _queues(call: CtlCall) -> list[dict[str, Any]]:
    found = call.rows("queue list", ("name",), vhost=call.vhost)
    return [{**row, "arguments": Arguments(row["arguments"])} for row in found]


def _exchanges(call: CtlCall) -> list[dict[str, Any]]:
    default = {"vhost": call.vhost, "name": "", "type": "direct", "durable": True, "arguments": {}}
    default |= {"auto_delete": False, "internal": False}
    found = [default, *call.rows("exchange list", ("name",), vhost=call.vhost)]
    return [{**row, "arguments": Arguments(row["arguments"])} for row in found]


def _bindings(call: CtlCall) -> list[dict[str, Any]]:
    """Also each queue's to the default exchange, as RabbitMQ lists them."""
    queues = call.rows("queue list", ("name",), vhost=call.vhost)
    order = ("source", "destination_type", "destination", "routing_key")
    implicit = [
        {"source": "", "destination": row["name"], "destination_type": "queue", "routing_key": row["name"]}
        for row in queues
    ]
    return [
        {
            "vhost": call.vhost,
            "source_name": row["source"],
            "source_kind": "exchange",
            "destination_name": row["destination"],
            "destination_kind": row["destination_type"],
            "routing_key": row["routing_key"],
            "arguments": Arguments(row.get("arguments", {})),
        }
        for row in (*implicit, *call.rows("binding list", order, vhost=call.vhost))
    ]


def _connections(call: CtlCall) -> list[dict[str, Any]]:
    return [
        {
            **row,
            **_ends(row["name"]),
            "pid": row["id"],
            "ssl": row["tls"],
            "protocol": "{0,9,1}",
            "recv_oct": row["bytes_in"],
            "send_oct": row["bytes_out"],
            "client_properties": Arguments(row["client_properties"]),
        }
        for row in call.rows("connection list", ("id",))
    ]


def _ends(name: str) -> dict[str, str]:
    """Of `127.0.0.1:50000 -> 127.0.0.1:5672`, or the same with `[::1]`."""
    peer, _, own = name.partition(" -> ")
    peer_host, _, peer_port = peer.rpartition(":")
    host, _, port = own.rpartition(":")
    return {"peer_host": peer_host.strip("[]"), "peer_port": peer_port, "host": host.strip("[]"), "port": port}


def _channels(call: CtlCall) -> list[dict[str, Any]]:
    return [
        {
            **row,
            "pid": f"{row['connection_id']}.{row['number']}",
            "connection": row["connection_id"],
            "name": f"{row['connection']} ({row['number']})",
        }
        for row in call.rows("channel list", ("connection_id", "number"))
    ]


def _consumers(call: CtlCall) -> list[dict[str, Any]]:
    return [
        {
            **row,
            "queue_name": row["queue"],
            "channel_pid": f"{row['connection_id']}.{row['channel']}",
            "activity_status": "up" if row["active"] else "single_active" if row["active"] is None else "waiting",
            "arguments": Arguments(),
        }
        for row in call.rows("consumer list", ("queue", "consumer_tag"), vhost=call.vhost)
    ]


LISTS: list[click.Command] = [
    _list("list_queues", QUEUES, "name messages", "Listing queues for vhost {vhost} ...", _queues),
    _list("list_exchanges", EXCHANGES, "name type", "Listing exchanges for vhost {vhost} ...", _exchanges),
    _list(
        "list_bindings",
        BINDINGS,
        "source_name source_kind destination_name destination_kind routing_key arguments",
        "Listing bindings for vhost {vhost}...",
        _bindings,
    ),
    _list("list_connections", CONNECTIONS, "user peer_host peer_port state", "Listing connections ...", _connections),
    _list(
        "list_channels",
        CHANNELS,
        "pid user consumer_count messages_unacknowledged",
        "Listing channels ...",
        _channels,
    ),
    _list(
        "list_consumers",
        CONSUMERS,
        "queue_name channel_pid consumer_tag ack_required prefetch_count active arguments",
        "Listing consumers in vhost {vhost} ...",
        _consumers,
    ),
]


@command("list_unresponsive_queues")
@click.option("--local", is_flag=True, hidden=True)
@click.option("--queue-timeout", hidden=True)
@click.argument("names", nargs=-1)
def list_unresponsive_queues(call: CtlCall, names: tuple[str, ...], **_: Any) -> None:
    """List queues that are out of service."""
    call.output.sentence(f"Listing unresponsive queues for vhost {call.vhost} ...")
    rows = [row for row in _queues(call) if row["state"] == "crashed"]
    call.output.rows(filled(rows, QUEUES.split()), checked_columns(names or ("name",), tuple(QUEUES.split())))


@command("list_feature_flags")
@click.argument("names", nargs=-1)
def list_feature_flags(call: CtlCall, names: tuple[str, ...]) -> None:
    """List RabbitMQ's feature flags: all are on."""
    call.output.sentence("Listing feature flags ...")
    known = ("name", "state", "stability", "provided_by", "desc", "doc_url")
    call.output.rows([dict(flag) for flag in FLAGS], checked_columns(names or ("name", "state"), known))
