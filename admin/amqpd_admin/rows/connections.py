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

from amqpd.management.figures.inventory import channel_row, connection_row
from amqpd.node.node import Node
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.vocabulary.states import State
from amqpd_admin.others import Told
from amqpd_admin.rows.queues import address_of
from amqpd_admin.walks import is_here

Row = dict[str, Any]
TLS_FIELDS = (
    *("ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash"),
    *("peer_cert_subject", "peer_cert_issuer", "peer_cert_validity"),
)


def small(connection: ConnectionBase | Told) -> Row:
    if isinstance(connection, Told):
        return {name: connection.row[name] for name in ("vhost", "name", "user")}
    return {"vhost": connection.vhost, "name": connection.name, "user": connection.user}


def connection(node: Node, connection: ConnectionBase | Told) -> Row | None:
    """None for one that is gone."""
    if isinstance(connection, Told):
        return connection_fields(*connection, connection.row["connected_at_ms"])
    if connection.state is State.CLOSED:
        return None
    now_ms, row = round(time.time() * 1000), connection_row(connection, trio.current_time())
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
        # Of one without TLS it is known that there is nothing to say.
        **({} if row["tls"] else dict.fromkeys(TLS_FIELDS)),
        "host": server_host.strip("[]"),
        "port": int(server_port) if server_port.isdigit() else 0,
        **address_of(row["name"]),
        "recv_oct": row["bytes_in"],
        "send_oct": row["bytes_out"],
    }


def name_of(channel: ChannelBase | Told) -> str:
    if isinstance(channel, Told):
        return f"{channel.row['connection']} ({channel.row['number']})"
    return f"{channel.connection.name} ({channel.id})"


def small_channel(channel: ChannelBase | Told) -> Row:
    vhost = channel.row["vhost"] if isinstance(channel, Told) else channel.connection.vhost
    return {"vhost": vhost, "name": name_of(channel)}


def channel(node: Node, channel: ChannelBase | Told) -> Row | None:
    """None for one that is gone."""
    if isinstance(channel, Told):
        return channel_fields(*channel)
    return channel_fields(node.identity.name, channel_row(channel)) if is_here(channel) else None


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
    }
