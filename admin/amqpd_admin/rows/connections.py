"""Connections and channels in RabbitMQ's fields.

What comes in: connections, channels; rows of other nodes. What goes out: rows by RabbitMQ's names, of what is in
`amqpd/management/figures/inventory.py`.

Source: https://www.rabbitmq.com/docs/http-api-reference, /api/connections and /api/channels; fields as observed of
RabbitMQ 3.10.
"""

from __future__ import annotations

import time
from typing import Any

import trio

from amqpd.management.figures.inventory import CLIENT_NAME_LENGTH_MAX, channel_row, client_name, connection_row
from amqpd.node.node import Node
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.vocabulary.states import TLS_FIELDS, ConnectionState
from amqpd_admin.others import Told
from amqpd_admin.rows.queues import address_of, named
from amqpd_admin.walks import is_here

Row = dict[str, Any]
CALLED = "user_provided_name"


def small(connection: ConnectionBase | Told) -> Row:
    if isinstance(connection, Told):
        row = connection.row
        return {name: row[name] for name in ("vhost", "name", "user")} | {CALLED: _own_name(connection)}
    return {
        "vhost": connection.vhost,
        "name": connection.name,
        "user": connection.user,
        CALLED: client_name(connection),
    }


def text_of(connection: ConnectionBase | Told) -> str:
    """Where a list looks for what is searched for: the connection's name, and what its client calls itself."""
    if isinstance(connection, Told):
        return f"{connection.row['name']} {_own_name(connection)}"
    return f"{connection.name} {client_name(connection)}"


def _own_name(connection: Told) -> str:
    """Of another node's row what would have been too long is left out."""
    given = connection.row.get("client_properties", {}).get("connection_name")
    return given[:CLIENT_NAME_LENGTH_MAX] if isinstance(given, str) else ""


def text_of_channel(channel: ChannelBase | Told) -> str:
    """As `text_of`."""
    return f"{name_of(channel)} {_own_name_of_channel(channel)}"


def _own_name_of_channel(channel: ChannelBase | Told) -> str:
    return str(channel.row.get("client_name", "")) if isinstance(channel, Told) else client_name(channel.connection)


def connection(node: Node, connection: ConnectionBase | Told) -> Row | None:
    """None for one that is gone."""
    if isinstance(connection, Told):
        return connection_fields(*connection, connection.row["connected_at_ms"])
    if connection.state is ConnectionState.CLOSED:
        return None
    now_ms, row = round(time.time() * 1000), connection_row(connection, trio.current_time(), node.totals.traffic)
    return connection_fields(node.identity.name, row, now_ms - round(row["age_s"] * 1000))


def connection_fields(node: str, row: Row, connected_at_ms: int) -> Row:
    """Of a row as `inventory.connection_row` has it."""
    server_host, _, server_port = row["name"].partition(" -> ")[2].rpartition(":")
    # Of another node's row what would have been too long is left out.
    properties = row.get("client_properties", {})
    given = properties.get("connection_name")
    named = {"user_provided_name": given} if isinstance(given, str) else {}
    return {
        "name": row["name"],
        **named,
        "node": node,
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "user": row["user"],
        "user_who_performed_action": row["user"],
        "vhost": row["vhost"],
        "state": row["state"],
        "channels": row["channels"],
        "channel_max": row["channel_max"],
        "frame_max": row["frame_max"],
        "timeout": row["timeout"],
        "connected_at": connected_at_ms,
        "client_properties": properties,
        "ssl": row["tls"],
        **_encryption(row),
        **_of_newer_nodes(row),
        "host": server_host.strip("[]"),
        "port": int(server_port) if server_port.isdigit() else 0,
        **address_of(row["name"]),
        "recv_oct": row["bytes_in"],
        "send_oct": row["bytes_out"],
        **_rates(row),
    }


def _encryption(row: Row) -> Row:
    """Of one without TLS it is known that there is nothing to say; a node of an earlier version says nothing."""
    said = row.get("tls_facts", {})
    return {name: said.get(name) for name in TLS_FIELDS} if said or not row["tls"] else {}


def _of_newer_nodes(row: Row) -> Row:
    """What a node of an earlier version does not say."""
    found = {"auth_mechanism": row.get("auth_mechanism"), "send_pend": row.get("outbox_bytes")}
    return {name: value for name, value in found.items() if value is not None}


def _rates(row: Row) -> Row:
    """A node of an earlier version says none."""
    if "bytes_in_rate" not in row:
        return {}
    published = {"publish": row["published"], "publish_details": {"rate": row["published_rate"]}}
    return {
        "recv_oct_details": {"rate": row["bytes_in_rate"]},
        "send_oct_details": {"rate": row["bytes_out_rate"]},
        "message_stats": published,
    }


def name_of(channel: ChannelBase | Told) -> str:
    if isinstance(channel, Told):
        return f"{channel.row['connection']} ({channel.row['number']})"
    return f"{channel.connection.name} ({channel.id})"


def small_channel(channel: ChannelBase | Told) -> Row:
    vhost = channel.row["vhost"] if isinstance(channel, Told) else channel.connection.vhost
    return {"vhost": vhost, "name": name_of(channel), CALLED: _own_name_of_channel(channel)}


def channel(node: Node, channel: ChannelBase | Told) -> Row | None:
    """None for one that is gone."""
    if isinstance(channel, Told):
        return channel_fields(*channel)
    if not is_here(channel):
        return None
    return channel_fields(node.identity.name, channel_row(channel, node.totals.traffic))


def channel_fields(node: str, row: Row) -> Row:
    """Of a row as `inventory.channel_row` has it."""
    return {
        "name": f"{row['connection']} ({row['number']})",
        "node": node,
        "number": row["number"],
        "user": row["user"],
        "user_who_performed_action": row["user"],
        "vhost": row["vhost"],
        "state": "running",
        "confirm": row["confirm"],
        "transactional": row["transactional"],
        "consumer_count": row["consumer_count"],
        "messages_unacknowledged": row["messages_unacknowledged"],
        "messages_unconfirmed": row["messages_unconfirmed"],
        "messages_uncommitted": row["messages_uncommitted"],
        "acks_uncommitted": row["acks_uncommitted"],
        "prefetch_count": row["prefetch_count"],
        "global_prefetch_count": row["global_prefetch_count"],
        "connection_details": {"name": row["connection"], **address_of(row["connection"])},
        **named(row),
        **_channel_stats(row),
    }


def _channel_stats(row: Row) -> Row:
    """As RabbitMQ: nothing of a channel that has neither published nor got anything."""
    stats: Row = {}
    if row.get("published"):
        stats |= {"publish": row["published"], "publish_details": {"rate": row.get("publish_rate", 0.0)}}
    if row.get("confirmed"):
        stats |= {"confirm": row["confirmed"], "confirm_details": {"rate": row.get("confirmed_rate", 0.0)}}
    if row.get("delivered"):
        stats |= {"deliver_get": row["delivered"], "deliver_get_details": {"rate": row.get("delivered_rate", 0.0)}}
    return {"message_stats": stats} if stats else {}
