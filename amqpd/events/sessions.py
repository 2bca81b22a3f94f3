"""What is said of connections, channels and consumers.

What comes in: one of them. What goes out: the facts of its events, by RabbitMQ's names.
Rules: 1. `pid` is what tells one connection or channel from all others, as text: events that belong together are
found by it, and nothing else is. 2. Addresses and the protocol look as Erlang writes them, because the plugin's do.
Not here: when something is told (`exchange.py`), how it is written (`messages.py`).

Source: rabbit_reader.erl (CREATION_EVENT_KEYS, AUTH_NOTIFICATION_INFO_KEYS), rabbit_channel.erl,
rabbit_amqqueue_process.erl (`emit_consumer_created`); seen with RabbitMQ 3.10.8.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Any

from amqpd.events.messages import terms
from amqpd.session.credit import Subscription
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.vocabulary.records import Arguments
from amqpd.vocabulary.states import TLS_FIELDS

Facts = dict[str, Any]

PROTOCOL = "{0,9,1}"
# Of what a stranger may choose, in a refusal.
TEXT_CHARACTERS_MAX = 255


def connection_pid(node: str, connection_id: str) -> str:
    return f"<{node}.{connection_id}>"


def channel_pid(node: str, channel: ChannelBase) -> str:
    return f"<{node}.{channel.connection.id}.{channel.id}>"


def login(connection: ConnectionBase, user: str, reason: str = "") -> Facts:
    """What is empty is left out, as the plugin does. `reason`: why it was refused, as numbers of characters, which is
    how the plugin says it."""
    host, _, peer_host, peer_port = _ends(connection.name)
    said: Facts = {
        "connection_type": "network",
        "name": user[:TEXT_CHARACTERS_MAX],
        "host": host,
        "connection_name": connection.name,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "protocol": PROTOCOL,
        "auth_mechanism": connection.auth_mechanism,
        "ssl": connection.peer.tls,
        "error": [ord(character) for character in reason[:TEXT_CHARACTERS_MAX]],
    }
    return {name: value for name, value in said.items() if value not in ("", [])}


def connection_created(connection: ConnectionBase, node: str, now_ms: int) -> Facts:
    host, port, peer_host, peer_port = _ends(connection.name)
    return {
        **_given_name(connection),
        "type": "network",
        "pid": connection_pid(node, connection.id),
        "name": connection.name,
        "port": port,
        "peer_port": peer_port,
        "host": host,
        "peer_host": peer_host,
        "ssl": connection.peer.tls,
        **_encryption(connection),
        "auth_mechanism": connection.auth_mechanism,
        "protocol": PROTOCOL,
        "user": connection.user,
        "vhost": connection.vhost,
        "timeout": connection.heartbeat_s,
        "frame_max": connection.frame_max,
        "channel_max": connection.channel_max,
        "client_properties": terms(connection.client_properties),
        "connected_at": now_ms,
        "node": node,
        "user_who_performed_action": connection.user,
    }


def _encryption(connection: ConnectionBase) -> Facts:
    """Empty where there is nothing to say. The serial number came with RabbitMQ 4.2."""
    facts = {name: connection.peer.facts.get(name) or "" for name in TLS_FIELDS}
    return {name: value for name, value in facts.items() if value or name != "peer_cert_serial_number"}


def connection_closed(connection: ConnectionBase, node: str) -> Facts:
    return {
        **_given_name(connection),
        "name": connection.name,
        "pid": connection_pid(node, connection.id),
        "node": node,
        "client_properties": terms(connection.client_properties),
    }


def channel_created(channel: ChannelBase, node: str) -> Facts:
    connection = channel.connection
    return {
        "pid": channel_pid(node, channel),
        "name": f"{connection.name} ({channel.id})",
        "connection": connection_pid(node, connection.id),
        "number": channel.id,
        "user": connection.user,
        "vhost": connection.vhost,
        "user_who_performed_action": connection.user,
    }


def channel_closed(channel: ChannelBase, node: str) -> Facts:
    return {"pid": channel_pid(node, channel), "user_who_performed_action": channel.connection.user}


def consumer_created(channel: ChannelBase, consumer: Subscription, arguments: Arguments, node: str) -> Facts:
    return {
        "consumer_tag": consumer.tag,
        "exclusive": consumer.exclusive,
        "ack_required": not consumer.no_ack,
        "channel": channel_pid(node, channel),
        **_queue_of(consumer),
        "prefetch_count": consumer.prefetch,
        "arguments": terms(arguments),
        "user_who_performed_action": channel.connection.user,
    }


def consumer_deleted(channel: ChannelBase, consumer: Subscription, node: str) -> Facts:
    return {
        "consumer_tag": consumer.tag,
        "channel": channel_pid(node, channel),
        **_queue_of(consumer),
        "user_who_performed_action": channel.connection.user,
    }


def _queue_of(consumer: Subscription) -> Facts:
    record = consumer.queue.record
    return {"queue": record.name, "vhost": record.vhost}


def _given_name(connection: ConnectionBase) -> Facts:
    given = connection.client_properties.get("connection_name")
    return {"user_provided_name": given} if isinstance(given, str) else {}


def _ends(name: str) -> tuple[str, int, str, int]:
    """Address and port of the broker, then of the client, from a connection's name."""
    peer, _, server = name.partition(" -> ")
    return (*_end(server), *_end(peer))


def _end(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return _erlang_address(host.strip("[]").partition("%")[0]), int(port) if port.isdigit() else 0


def _erlang_address(text: str) -> str:
    """127.0.0.1 is {127,0,0,1}, ::1 is {0,0,0,0,0,0,0,1}."""
    try:
        address = ip_address(text)
    except ValueError:
        return text
    packed = address.packed
    if isinstance(address, IPv6Address):
        return f"{{{','.join(str(int.from_bytes(packed[at : at + 2], 'big')) for at in range(0, 16, 2))}}}"
    return f"{{{','.join(map(str, packed))}}}"
