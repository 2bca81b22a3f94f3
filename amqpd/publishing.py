"""From a run of publishes to the queues that take it: checks, routes, returns, confirms.

What comes in: a run and the channel it came by. What goes out: the run, to queues; basic.return; what the channel's
confirms must know.
Rules: 1. A publish takes effect wholly between two ticks: no queue has it before all checks are passed. 2. Routes are
remembered by the raw arguments of the publish, and void when the topology moves. 3. A run is one decision: what is
equal in bytes up to the body goes the same way, but where chance decides. 4. What is `plain` pays for nothing of what
others need.
Not here: frames (`channels.py`, `content.py`), where it goes (`routing.py`, `exchanges/`), what a queue does with it
(`queues/`).

Source: AMQP 0-9-1 section 1.8.3.7 of the reference; https://www.rabbitmq.com/docs/publishers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pamqp.exceptions import (
    AMQPAccessRefused,
    AMQPNotFound,
    AMQPNotImplemented,
    AMQPPreconditionFailed,
)

from amqpd.claims import BCC
from amqpd.delays import delayed_header
from amqpd.kernel import Run, encode_content
from amqpd.properties import REPLY_TO, X_DEATH, Properties
from amqpd.propertylist import REPLY_TO as REPLY_TO_FLAG
from amqpd.propertylist import PropertyList
from amqpd.replies import PREFIX, ReplyConsumer
from amqpd.rewriting import mark_of, unmarked, with_properties
from amqpd.routing import Route, count_unroutable, parts, queues_of
from amqpd.transaction import Routed
from amqpd.unroutable import NACK, Outcome

if TYPE_CHECKING:
    from amqpd.channels import Channel
    from amqpd.connection import Connection
    from amqpd.queues.queue import Queue

# A publisher with more different (exchange, routing key, flags) at a time than fit into so much memory resolves them
# anew: some 25,000 with names of usual lengths, for a whole connection.
ROUTES_BYTES_MAX = 8 * 1024 * 1024
# What a route takes beside its names, which are there twice: as they came, and as text.
ROUTE_BYTES = 288
# What one transaction may hold back, or one message of the largest size: it is in memory until the commit, and no
# alarm helps, for a publisher that is blocked cannot commit.
TX_BYTES_MAX = 64 * 1024 * 1024


def publish(channel: Channel, run: Run) -> None:
    """Take the run in. Raises what RabbitMQ answers to what it may not do."""
    node, connection = channel.node, channel.connection
    if node.alarms:
        connection.intake.block()
    if node.quotas.active:
        node.quotas.charge(connection, run, node.now_ms)
    connection.publishing = True
    connection.published += run.count
    connection.published_bytes += run.count * run.body_size
    if run.body_size > node.limits.message_bytes_max:
        check_size(channel, run.body_size)
    if connection.routes_version != node.topology.version:
        forget_routes(connection)
    key = run.key
    route = connection.routes.get(key) or _resolve(channel, key)
    properties = node.properties.read(run.properties)
    queues = route.queues
    if queues is None or not properties.plain:
        _publish_looked_at(channel, run, route, properties)
    elif channel.tx is None:
        accept(channel, run, queues, properties, route)
    else:
        _hold(channel, Routed(run, queues, properties, route))


def accept(
    channel: Channel,
    run: Run,
    queues: tuple[Queue, ...],
    properties: Properties,
    route: Route,
    replies: tuple[ReplyConsumer, ...] = (),
    delay_ms: int = 0,
) -> bool:
    """The run goes to its queues, or waits for `delay_ms`; what becomes of it when there are none is decided; its
    confirm is due. What a queue refuses (`x-overflow`: reject-publish) is the end of the run, and is refused to the
    publisher though others took it. Whether all of it was taken."""
    node, waits, taken = channel.node, False, run.count
    audit = node.audit
    if audit.active:
        audit.begin(channel, run.count, route, properties)
    if len(queues) > 1:
        node.turns.copied(channel.connection, len(queues))
    for queue in queues:
        part = run
        if queue.refuses:
            saved = audit.save()
            room = queue.room(run)
            taken = min(taken, room)
            if room < run.count:
                queue.turn_away(run.part(room, run.count))
                node.dirty[queue] = None
            audit.restore(saved)
            if room < run.count:
                if not room:
                    continue
                part = run.part(0, room)
        if queue.publish(part, properties):
            waits = True
        node.dirty[queue] = None
        if node.congestion.queues and node.congestion.slows(queue):
            channel.connection.intake.congested[queue] = None
    if replies:
        for reply in replies:
            node.replies.deliver(reply, run)
    elif not queues:
        if delay_ms:
            waits = node.delay(channel.connection.vhost, run, properties, delay_ms)
        else:
            taken = _unroutable(channel, run, route)
    if audit.active:
        audit.end(run.count, run.body_size, bool(queues or replies or delay_ms), route.mandatory)
    confirms = channel.confirms
    if confirms is not None:
        if confirms.accept(taken, node.journal.index if waits else None):
            node.confirms_due[channel] = None
        elif waits:
            node.confirm_waiters[channel] = None
        if taken < run.count:
            confirms.refuse(run.count - taken)
            node.confirms_due[channel] = None
    return taken == run.count


def _unroutable(channel: Channel, run: Run, route: Route) -> int:
    """Nobody takes the run: returned, refused or dropped. How many of its messages are to be confirmed."""
    node, connection = channel.node, channel.connection
    told = route.mandatory
    if route.mandatory:
        for i in range(run.count):
            connection.write(_return(channel, run, i))
        count_unroutable(node, connection.vhost, route.exchange, Outcome.RETURNED, run.count)
    taken = run.count
    if route.unroutable == NACK and channel.confirms is not None:
        told, taken = True, 0
        count_unroutable(node, connection.vhost, route.exchange, Outcome.NACKED, run.count)
    if not told:
        count_unroutable(node, connection.vhost, route.exchange, Outcome.DROPPED, run.count)
    return taken


def _publish_looked_at(channel: Channel, run: Run, route: Route, properties: Properties) -> None:
    """A run whose properties say more than how it is stored, or whose way depends on more than its routing key."""
    node, vhost = channel.node, channel.connection.vhost
    keys: tuple[str, ...] = (route.routing_key,)
    if not properties.plain:
        _check_properties(channel, route, properties)
        keys += properties.routing_keys
        delay_ms = properties.delay_ms
        rewritten = _rewritten(channel, run, properties, delay_ms)
        if rewritten is not run:
            run, properties = rewritten, node.properties.read(rewritten.properties)
        if delay_ms:
            _take(channel, Routed(run, (), properties, route, delay_ms=delay_ms))
            return
    queues = route.queues
    if queues is not None and len(keys) == 1:
        _take(channel, Routed(run, queues, properties, route))
        return
    replies: tuple[ReplyConsumer, ...] = ()
    if not route.exchange:
        found = {key: node.replies.find(vhost, key) for key in keys if key.startswith(PREFIX)}
        replies = tuple(consumer for consumer in found.values() if consumer is not None)
    for part in parts(route, run):
        queues = queues_of(node, vhost, route, keys, part, properties)
        _take(channel, Routed(part, queues, properties, route, replies))


def _take(channel: Channel, routed: Routed) -> None:
    if channel.tx is None:
        accept(channel, *routed)
    else:
        _hold(channel, routed)


def _hold(channel: Channel, routed: Routed) -> None:
    """Until tx.commit."""
    transaction = channel.tx
    assert transaction is not None
    transaction.publish(routed)
    if transaction.nbytes > max(TX_BYTES_MAX, channel.node.limits.message_bytes_max):
        raise AMQPPreconditionFailed(f"transaction of {transaction.nbytes} bytes is too large")


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
    entrance = node.routes.entrance(node, connection.vhost, exchange)
    route = Route(node, connection.vhost, entrance, routing_key, bool(flags & 1))
    _check_topic(channel, route, routing_key)
    if not exchange and routing_key.startswith(PREFIX):
        route.queues = None  # a requester comes and goes without a change of the topology
    connection.routes_bytes += ROUTE_BYTES + 2 * len(key)
    if connection.routes_bytes > ROUTES_BYTES_MAX:
        forget_routes(connection)
    connection.routes[key] = route
    return route


def forget_routes(connection: Connection) -> None:
    """They are too many, or the topology has moved."""
    connection.routes.clear()
    connection.routes_bytes = 0
    connection.routes_version = connection.node.topology.version


def _check_topic(channel: Channel, route: Route, routing_key: str) -> None:
    if route.is_topic:
        user, vhost = channel.connection.user, channel.connection.vhost
        variables = {"username": user, "vhost": vhost}
        channel.node.access.require_topic(user, vhost, "write", route.exchange, routing_key, variables)


def check_size(channel: Channel, body_size: int) -> None:
    limit = channel.node.limits.message_bytes_max
    if body_size > limit:
        raise AMQPPreconditionFailed(f"message size {body_size} is larger than configured max size {limit}")


def _check_properties(channel: Channel, route: Route, properties: Properties) -> None:
    """What a publisher claims must be true or at least readable. In RabbitMQ's order."""
    connection = channel.connection
    if properties.reply_to == REPLY_TO and channel.reply_consumer is None:
        raise AMQPPreconditionFailed("fast reply consumer does not exist")
    if properties.problem is not None:
        raise AMQPPreconditionFailed(properties.problem)
    for key in properties.routing_keys:
        _check_topic(channel, route, key)
    user_id = properties.user_id
    if user_id is not None and user_id != connection.user and not connection.may_impersonate:
        raise AMQPPreconditionFailed(
            f"user_id property set to '{user_id}' but authenticated user was '{connection.user}'"
        )


def _rewritten(channel: Channel, run: Run, properties: Properties, delay_ms: int = 0) -> Run:
    """As it is routed and delivered: with the name for replies, without BCC, without marks that only the broker
    makes. One that waits keeps its BCC until then, and says in its headers that it waits."""
    if properties.headers is not None and X_DEATH in properties.headers and mark_of(run):
        run = unmarked(run)
    replies = properties.reply_to == REPLY_TO
    if not (replies or delay_ms or properties.has_bcc):
        return run
    changed = PropertyList(run.properties)
    if replies:
        assert channel.reply_consumer is not None
        changed.set_text(REPLY_TO_FLAG, channel.reply_consumer.name)
    if delay_ms:
        changed.set_headers(delayed_header(delay_ms))
    elif properties.has_bcc:
        changed.remove_headers((BCC,))
    return with_properties(run, changed.raw())


def _return(channel: Channel, run: Run, i: int) -> bytes:
    payload = b"\x00\x3c\x00\x32\x01\x38\x08NO_ROUTE" + run.names
    head = b"\x01" + channel.id.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + b"\xce" + encode_content(run, i, channel.id, channel.connection.frame_max)
