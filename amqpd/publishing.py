"""From a run of publishes to the queues that take it: checks, routes, returns, confirms.

What comes in: a run and the channel it came by. What goes out: the run, to queues; basic.return; what the channel's
confirms must know.
Rules: 1. A publish takes effect wholly between two ticks: no queue has it before all checks are passed. 2. Routes are
remembered by the raw arguments of the publish, and void when the topology moves. 3. A run is one decision: what is
equal in bytes up to the body goes the same way.
Not here: frames (`channels.py`, `content.py`), matching (`exchanges/`), what a queue does with it (`queues/`).

Source: AMQP 0-9-1 section 1.8.3.7 of the reference; https://www.rabbitmq.com/docs/publishers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pamqp.exceptions import (
    AMQPAccessRefused,
    AMQPNotFound,
    AMQPNotImplemented,
    AMQPPreconditionFailed,
)

from amqpd.kernel import Run, encode_content
from amqpd.properties import Properties

if TYPE_CHECKING:
    from amqpd.channels import Channel
    from amqpd.queues.queue import Queue

# A publisher with more than this many different (exchange, routing key, flags) at a time resolves them anew. Some
# 1.5 kB each with the longest names, for a whole connection: 6 MB at the worst.
ROUTES_MAX = 4096
# What one transaction may hold back, or one message of the largest size: it is in memory until the commit, and no
# alarm helps, for a publisher that is blocked cannot commit.
TX_BYTES_MAX = 64 * 1024 * 1024

# Milliseconds, the whole of the string (https://www.rabbitmq.com/docs/ttl).
EXPIRATION = re.compile("[0-9]{1,18}")


class Route:
    """What a basic.publish with certain arguments leads to. `queues` is None when that depends on the headers."""

    __slots__ = ("exchange", "mandatory", "queues", "routing_key")

    def __init__(self, exchange: str, routing_key: str, mandatory: bool, queues: tuple[Queue, ...] | None) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.queues = queues


def publish(channel: Channel, run: Run) -> None:
    """Take the run in. Raises what RabbitMQ answers to what it may not do."""
    node, connection = channel.node, channel.connection
    if node.alarms:
        connection.intake.block()
    if node.quotas.active:
        node.quotas.charge(connection, run, node.now_ms)
    connection.publishing = True
    if run.body_size > node.limits.message_bytes_max:
        check_size(channel, run.body_size)
    if connection.routes_version != node.topology.version:
        connection.routes.clear()
        connection.routes_version = node.topology.version
    key = run.key
    route = connection.routes.get(key) or _resolve(channel, key)
    properties = node.properties.read(run.properties)
    if not properties.plain:
        _check_properties(channel, properties)
    queues = route.queues
    if queues is None:
        queues = node.route(connection.vhost, route.exchange, route.routing_key, properties.headers or {})
    if channel.tx is not None:
        channel.tx.publish(run, queues, properties, route.mandatory)
        if channel.tx.nbytes > max(TX_BYTES_MAX, node.limits.message_bytes_max):
            raise AMQPPreconditionFailed(f"transaction of {channel.tx.nbytes} bytes is too large")
    else:
        accept(channel, run, queues, properties, route.mandatory)


def accept(channel: Channel, run: Run, queues: tuple[Queue, ...], properties: Properties, mandatory: bool) -> None:
    """The run goes to its queues; it is returned when there are none; its confirm is due. What a queue refuses
    (`x-overflow`: reject-publish) is the end of the run, and is refused to the publisher though others took it."""
    node, waits, taken = channel.node, False, run.count
    for queue in queues:
        part = run
        if queue.refuses:
            room = queue.room(run)
            taken = min(taken, room)
            if room < run.count:
                queue.turn_away(run.part(room, run.count))
                node.dirty[queue] = None
                if not room:
                    continue
                part = run.part(0, room)
        if queue.publish(part, properties):
            waits = True
        node.dirty[queue] = None
        if node.congestion.queues and node.congestion.slows(queue):
            channel.connection.intake.congested[queue] = None
    if not queues and mandatory:
        for i in range(run.count):
            channel.connection.write(_return(channel, run, i))
    confirms = channel.confirms
    if confirms is not None:
        if confirms.accept(taken, node.journal.index if waits else None):
            node.confirms_due[channel] = None
        elif waits:
            node.confirm_waiters[channel] = None
        if taken < run.count:
            confirms.refuse(run.count - taken)
            node.confirms_due[channel] = None


def _resolve(channel: Channel, key: bytes) -> Route:
    """The route of a publish with this method payload (from the exchange on). Raises what RabbitMQ raises."""
    size = key[0]
    exchange = key[1 : 1 + size].decode("utf-8", "surrogateescape")
    routing_key = key[2 + size : 2 + size + key[1 + size]].decode("utf-8", "surrogateescape")
    flags = key[-1]
    connection, node = channel.connection, channel.node
    if flags & 2:
        raise AMQPNotImplemented("immediate=true")
    node.access.require(connection.user, connection.vhost, "write", "exchange", exchange)
    vhost = node.topology.vhosts[connection.vhost]
    if exchange:
        state = vhost.exchanges.get(exchange)
        if state is None:
            raise AMQPNotFound(f"no exchange '{exchange}' in vhost '{connection.vhost}'")
        if state.record.internal:
            raise AMQPAccessRefused(f"cannot publish to internal exchange '{exchange}' in vhost '{connection.vhost}'")
        if state.record.type == "topic":
            node.access.require_topic(
                connection.user,
                connection.vhost,
                "write",
                exchange,
                routing_key,
                {"username": connection.user, "vhost": connection.vhost},
            )
    by_headers = vhost.routes_on_headers(exchange)
    queues = None if by_headers else node.route(connection.vhost, exchange, routing_key, {})
    route = Route(exchange, routing_key, bool(flags & 1), queues)
    if len(connection.routes) >= ROUTES_MAX:
        connection.routes.clear()
    connection.routes[key] = route
    return route


def check_size(channel: Channel, body_size: int) -> None:
    limit = channel.node.limits.message_bytes_max
    if body_size > limit:
        raise AMQPPreconditionFailed(f"message size {body_size} is larger than configured max size {limit}")


def _check_properties(channel: Channel, properties: Properties) -> None:
    """What a publisher claims must be true or at least readable."""
    connection = channel.connection
    user_id = properties.user_id
    if user_id is not None and user_id != connection.user and not connection.may_impersonate:
        raise AMQPPreconditionFailed(
            f"user_id property set to '{user_id}' but authenticated user was '{connection.user}'"
        )
    if properties.expiration is not None and not EXPIRATION.fullmatch(properties.expiration):
        raise AMQPPreconditionFailed(f"invalid expiration '{properties.expiration}'")


def _return(channel: Channel, run: Run, i: int) -> bytes:
    payload = b"\x00\x3c\x00\x32\x01\x38\x08NO_ROUTE" + run.names
    head = b"\x01" + channel.id.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + b"\xce" + encode_content(run, i, channel.id, channel.connection.frame_max)
