"""The inventory: what a running broker holds, as rows of plain values.

What comes in: the node, and filters by name. What goes out: rows (JSON objects), one for each connection, channel,
consumer, queue, exchange or binding, in no promised order.
Rules: 1. Pure, and nothing is changed. 2. Rows are made one by one over a copy of the names, because the broker goes
on between them: what has gone by then is left out. 3. The names of the members are those of RabbitMQ's management
interface where it has one for the same thing. 4. Figures of an exchange at several nodes may be added up, name by
name; `messages_delayed` (of the plugin rabbitmq_delayed_message_exchange) of all is unknown when it is at one of
them.
Not here: paging and bounds (`control/socket.py`), the commands that print rows (`commands/`), what is known of one
queue (`queue_facts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from amqpd.exchanges.delayed_message import DELAYED_MESSAGE
from amqpd.management.figures.overview import unroutable_of, vhosts
from amqpd.management.figures.queue_facts import queue_facts
from amqpd.node.connection_rates import ConnectionRates, told_safe
from amqpd.session.delivery_ages import timeout_ms
from amqpd.topology.policies import NO_POLICY
from amqpd.vocabulary.states import ConnectionState
from amqpd.wire.json_values import to_json

if TYPE_CHECKING:
    from amqpd.node.node import Node
    from amqpd.queues.port import QueuePort
    from amqpd.session.credit import Subscription
    from amqpd.session.ports import ChannelBase, ConnectionBase


CLIENT_NAME_LENGTH_MAX = 200
"""In rows of channels and consumers, of which there are many."""

Row = dict[str, Any]
Filters = Mapping[str, Any]
"""`vhost`, `user`: a name, or None for all"""


def connections(node: Node, filters: Filters, now: float) -> Iterator[Row]:
    """`now` is of the clock that `ConnectionBase.connected_at` was read from; `age_s` counts from there."""
    for connection in list(node.connections.values()):
        if connection.state is not ConnectionState.CLOSED and _wanted(filters, connection.vhost, connection.user):
            yield connection_row(connection, now, node.totals.traffic)


def connection_row(connection: ConnectionBase, now: float, traffic: ConnectionRates) -> Row:
    """The row of one connection, as in `connections`."""
    rates = traffic.of(connection)
    return {
        "id": connection.id,
        "name": connection.name,
        "user": connection.user,
        "vhost": connection.vhost,
        "state": _state(connection),
        "channels": len(connection.channels),
        "peer": connection.name.partition(" -> ")[0],
        "tls": connection.peer.tls,
        "tls_facts": dict(connection.peer.facts),
        "auth_mechanism": connection.auth_mechanism,
        "confirmed_rate": round(rates.confirmed, 1),
        "outbox_bytes": connection.outbox_bytes,
        "client_properties": to_json(connection.client_properties),
        "age_s": max(0.0, now - connection.connected_at),
        "bytes_in": connection.bytes_in,
        "bytes_out": connection.bytes_out,
        "bytes_in_rate": round(rates.octets_in, 1),
        "bytes_out_rate": round(rates.octets_out, 1),
        "published": connection.published,
        "published_rate": round(rates.published, 1),
        "frame_max": connection.frame_max,
        "channel_max": connection.channel_max,
        "timeout": connection.heartbeat_s,
    }


def channels(node: Node, filters: Filters) -> Iterator[Row]:
    for connection in list(node.connections.values()):
        if _wanted(filters, connection.vhost, connection.user):
            for channel in list(connection.channels.values()):
                yield channel_row(channel, node.totals.traffic)


def channel_row(channel: ChannelBase, traffic: ConnectionRates) -> Row:
    """The row of one channel, as in `channels`."""
    connection, confirms = channel.connection, channel.confirms
    delivered_rate, confirmed_rate, published_rate = traffic.of_channel(channel)
    return {
        "connection": connection.name,
        "connection_id": connection.id,
        "client_name": client_name(connection),
        "number": channel.id,
        "user": connection.user,
        "vhost": connection.vhost,
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": channel.unacked.count,
        "messages_unconfirmed": 0 if confirms is None else confirms.pending,
        "messages_uncommitted": 0 if channel.tx is None else channel.tx.messages,
        "acks_uncommitted": 0 if channel.tx is None else channel.tx.acknowledgements,
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.prefetch_shared,
        "confirm": confirms is not None,
        "transactional": channel.tx is not None,
        "published": channel.published,
        "publish_rate": round(published_rate, 1),
        "delivered": channel.next_tag - 1,
        "delivered_rate": round(delivered_rate, 1),
        "confirmed": told_safe(channel),
        "confirmed_rate": round(confirmed_rate, 1),
    }


def client_name(connection: ConnectionBase) -> str:
    """What the client calls itself; empty if it does not. It may be as long as a frame: of that a beginning."""
    given = connection.client_properties.get("connection_name")
    return given[:CLIENT_NAME_LENGTH_MAX] if isinstance(given, str) else ""


def consumers(node: Node, filters: Filters) -> Iterator[Row]:
    """`queue` is a filter too."""
    for connection in list(node.connections.values()):
        if not _wanted(filters, connection.vhost, connection.user):
            continue
        for channel in list(connection.channels.values()):
            for consumer in list(channel.consumers.values()):
                if filters.get("queue") in (None, consumer.queue.record.name):
                    yield consumer_row(channel, consumer)


def consumer_row(channel: ChannelBase, consumer: Subscription) -> Row:
    connection = channel.connection
    return {
        "vhost": connection.vhost,
        "queue": consumer.queue.record.name,
        "connection": connection.name,
        "connection_id": connection.id,
        "client_name": client_name(connection),
        "channel": channel.id,
        "user": connection.user,
        "consumer_tag": consumer.tag,
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.exclusive,
        "priority": consumer.priority,
        "own_timeout": consumer.ack_timeout_ms,
        # All of them, unless the queue has a single active one.
        "active": consumer.queue.is_active(consumer),
        "prefetch_count": consumer.prefetch,
        "consumer_timeout": timeout_ms(consumer, consumer.queue, channel.shared.limits.consumer_timeout_s),
        "messages_unacknowledged": consumer.unacked,
    }


def queue_row(node: Node, queue: QueuePort) -> Row:
    vhost = node.topology.vhosts.get(queue.record.vhost)
    policy = NO_POLICY if vhost is None else vhost.policy_of("queue", queue.record.name, queue.type)
    return queue_facts(queue, node.now_ms, policy)


def exchanges(node: Node, filters: Filters) -> Iterator[Row]:
    for name, vhost in list(node.topology.vhosts.items()):
        if not _wanted(filters, name):
            continue
        for state in list(vhost.exchanges.values()):
            record = state.record
            yield {
                "vhost": name,
                "name": record.name,
                "type": record.type,
                "durable": record.durable,
                "auto_delete": record.auto_delete,
                "internal": record.internal,
                "arguments": to_json(record.arguments),
                "unroutable": unroutable_of(node, name, record.name),
            }


def bindings(node: Node, filters: Filters) -> Iterator[Row]:
    """The explicit ones: not those of every queue to the default exchange."""
    for name, vhost in list(node.topology.vhosts.items()):
        if not _wanted(filters, name):
            continue
        for record in list(vhost.bindings()):
            yield {
                "vhost": name,
                "source": record.source,
                "destination": record.destination,
                "destination_type": record.destination_type,
                "routing_key": record.routing_key,
                "durable": record.durable,
                "arguments": to_json(record.arguments),
            }


LISTINGS: Mapping[str, Callable[[Node, Filters], Iterator[Row]]] = {
    "exchange list": exchanges,
    "binding list": bindings,
    "vhost status": vhosts,
}
"""by the command that asks; that of connections needs the time too, those of queues and clients the other nodes"""


def _state(connection: ConnectionBase) -> str:
    if connection.intake.blocked:
        return "blocked"
    # RabbitMQ's word for a publisher that is slowed down.
    return "flow" if connection.intake.throttled else connection.state.value


def _wanted(filters: Filters, vhost: str, user: str | None = None) -> bool:
    return filters.get("vhost") in (None, vhost) and filters.get("user") in (None, user)


PASSED = ("publish_in", "publish_out")
DELAYED = "messages_delayed"


def figures_of_exchange(node: Node, vhost: str, name: str) -> Row:
    """`publish_in`, `publish_out` and their rates, where something was published; `messages_delayed` of an exchange
    that is made for delayed messages."""
    row: Row = {}
    passed = node.routes.traffic.find(vhost, name)
    if passed is not None and passed.publish_in:
        row = {
            "publish_in": passed.publish_in,
            "publish_out": passed.publish_out,
            "publish_in_rate": round(passed.rate_in, 1),
            "publish_out_rate": round(passed.rate_out, 1),
        }
    contents = node.topology.vhosts.get(vhost)
    if contents is None or name not in contents.exchanges or contents.exchanges[name].record.type != DELAYED_MESSAGE:
        return row
    store = node.delayed.get(vhost)
    alike = (each for each in contents.exchanges.values() if each.record.type == DELAYED_MESSAGE)
    alone = len(list(islice(alike, 2))) == 1
    return row | {DELAYED: 0 if store is None else store.waiting_for(name, alone)}


def added(one: Row, other: Row) -> Row:
    """The figures of two nodes together."""
    found = {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other} if name != DELAYED}
    if DELAYED in one or DELAYED in other:
        delayed = one.get(DELAYED, 0), other.get(DELAYED, 0)
        found[DELAYED] = None if None in delayed else sum(delayed)
    return found
