"""From a run of publishes to the queues that take it: checks and routes.

What comes in: a run and the channel it came by. What goes out: the run and its queues, to be accepted or held for a
transaction.
Rules: 1. No queue has a publish before all checks are passed and its whole route is known. 2. Routes are
remembered by the raw arguments of the publish, and void when the topology moves. 3. A run is one decision: what is
equal in bytes up to the body goes the same way, except where chance decides. 4. Plain publishes skip optional work.
5. The tracer is told only of what is traced, and whether it is that decides.
Not here: frames (`channels.py`, `message/content.py`), where it goes (`routing.py`, `exchanges/`), what a queue does
with it (`queues/`).

Source: AMQP 0-9-1 section 1.8.3.7 of the reference; https://www.rabbitmq.com/docs/publishers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from pamqp.exceptions import (
    AMQPAccessRefused,
    AMQPNotFound,
    AMQPNotImplemented,
    AMQPPreconditionFailed,
)

from amqpd.exchanges import Reads
from amqpd.kernel import Run
from amqpd.message.claims import BCC
from amqpd.message.delays import delayed_header
from amqpd.message.properties import REPLY_TO, X_DEATH, Properties
from amqpd.message.propertylist import REPLY_TO as REPLY_TO_FLAG
from amqpd.message.propertylist import PropertyList
from amqpd.message.rewriting import mark_of, unmarked, with_properties
from amqpd.publishing.acceptance import COPIES_AT_ONCE, accept, accept_slowly, once_led
from amqpd.publishing.ports import PublishingChannel, PublishingNode
from amqpd.publishing.replies import PREFIX, ReplyConsumer
from amqpd.publishing.routes import ROUTE_BYTES, Route
from amqpd.publishing.routing import Steps, parts, queue_steps, remote_of, resolve, resolve_alone
from amqpd.publishing.transaction import ChannelTransaction, Routed
from amqpd.queues.port import QueuePort
from amqpd.tracing.tracer import SPAN_WORK, Publishing

# A publisher with more different (exchange, routing key, flags) at a time than fit into so much memory resolves them
# again: some 25,000 with names of usual lengths, for a whole connection.
ROUTES_BYTES_MAX = 8 * 1024 * 1024


# Routing keys of CC and BCC with which a message is routed in one step.
KEYS_AT_ONCE = 16
# Longer properties are mostly read for each run: tables of many small values take longest.
HEADER_BYTES_FREE: Final = 32
HEADER_BYTES_A_WORK: Final = 16
# What a new route takes beside looking up its queues: permissions, mostly.
ROUTE_WORK: Final = 10
# To tell the tracer of the publish and of its route.
TOLD_WORK: Final = 2 * SPAN_WORK
PUBLISH_ID = b"\x00\x3c\x00\x28"


def publish(node: PublishingNode, channel: PublishingChannel, run: Run) -> None:
    """Take the run in. Raises what RabbitMQ answers to what it may not do."""
    connection = channel.connection
    if node.tracer is not None:
        channel.traced_publish = node.tracer.begin(connection, run)
    if node.quotas.active:
        node.quotas.charge(connection, run, node.now_ms)
    count, body_size, body_bytes, _ = run.measures
    connection.publishing = True
    connection.published += count
    channel.published += count
    connection.published_bytes += body_bytes
    header_size = run.header_size
    if header_size > HEADER_BYTES_FREE:
        node.turns.charge(connection, header_size // HEADER_BYTES_A_WORK)
    if body_size > node.limits.message_bytes_max:
        check_size(channel, body_size)
    routes = channel.routes
    if routes.version != node.topology.version:
        forget_routes(node, channel)
    key = run.key
    route = routes.known.get(key)
    if route is None:
        route = _new_route(node, channel, key)
        if not _resolved(node, channel, key, route):
            channel.connection.intake.carry_out(channel, _publish_slowly(node, channel, run, key, route), PUBLISH_ID)
            return
    _publish(node, channel, run, route)


def _publish(node: PublishingNode, channel: PublishingChannel, run: Run, route: Route) -> None:
    properties = node.properties.read(run.properties)
    queues = route.queues
    if queues is None or not properties.plain or channel.traced_publish is not None:
        steps = _publish_looked_at(node, channel, run, route, properties)
    elif channel.tx is None and len(queues) <= COPIES_AT_ONCE:
        accept(node, channel, run, queues, properties, route)
        return
    else:
        steps = _take(node, channel, Routed(run, queues, properties, route))
    if steps is not None:
        channel.connection.intake.carry_out(channel, steps, PUBLISH_ID)


def _publish_looked_at(
    node: PublishingNode, channel: PublishingChannel, run: Run, route: Route, properties: Properties
) -> Iterator[None] | None:
    """A run whose properties say more than how it is stored, or whose way depends on more than its routing key. The
    steps that are left to do, if it takes long."""
    vhost = channel.connection.vhost
    keys: tuple[str, ...] = (route.routing_key,)
    if not properties.plain:
        _check_properties(node, channel, route, properties)
        keys += properties.routing_keys
        delay_ms = properties.delay_ms
        rewritten = _rewritten(channel, run, properties, delay_ms)
        if rewritten is not run:
            run, properties = rewritten, node.properties.read(rewritten.properties)
        if delay_ms:
            if channel.traced:
                node.trace_publish(channel, run, keys, ())
            return _take(node, channel, Routed(run, (), properties, route, delay_ms=delay_ms))
    queues = route.queues
    if queues is not None and len(keys) == 1:
        return _take(node, channel, Routed(run, queues, properties, route))
    replies: tuple[ReplyConsumer, ...] = ()
    if not route.exchange:
        found = {key: node.replies.find(vhost, key) for key in keys if key.startswith(PREFIX)}
        replies = tuple(consumer for consumer in found.values() if consumer is not None)
    if route.light and len(keys) <= KEYS_AT_ONCE and not (route.reads & Reads.CHANCE or node.makes_queues):
        queues = _looked_up(node, channel, route, keys, run, properties)
        if channel.traced:
            node.trace_publish(channel, run, keys, queues)
        return _take(node, channel, Routed(run, queues, properties, route, replies))
    return _route_slowly(node, channel, run, route, keys, properties, replies)


def _publish_slowly(
    node: PublishingNode, channel: PublishingChannel, run: Run, key: bytes, route: Route
) -> Iterator[None]:
    """Where the routing key alone takes long to look up."""
    connection, version = channel.connection, node.topology.version
    yield from _charged(node, channel, resolve(node, connection.vhost, route))
    if channel.closed:
        return
    if version == node.topology.version and version == channel.routes.version:
        _remember(node, channel, key, route)
    properties = node.properties.read(run.properties)
    queues = route.queues
    if queues is not None and properties.plain:
        steps = _take(node, channel, Routed(run, queues, properties, route))
    else:
        steps = _publish_looked_at(node, channel, run, route, properties)
    if steps is not None:
        yield from steps


def _route_slowly(
    node: PublishingNode,
    channel: PublishingChannel,
    run: Run,
    route: Route,
    keys: tuple[str, ...],
    properties: Properties,
    replies: tuple[ReplyConsumer, ...],
) -> Iterator[None]:
    """Where it takes long to look up where the run goes: in parts, if chance decides for each of its messages."""
    vhost = channel.connection.vhost
    for part in parts(route, run):
        queues = yield from _charged(node, channel, queue_steps(node, vhost, route, keys, part, properties))
        if channel.closed:
            return
        if channel.traced:
            node.trace_publish(channel, part, keys, queues)
        steps = _take(node, channel, Routed(part, queues, properties, route, replies))
        if steps is not None:
            yield from steps


def _looked_up(
    node: PublishingNode,
    channel: PublishingChannel,
    route: Route,
    keys: tuple[str, ...],
    run: Run,
    properties: Properties,
) -> tuple[QueuePort, ...]:
    """At once, where it is light: each takes little, but a read may hold thousands."""
    connection = channel.connection
    steps = queue_steps(node, connection.vhost, route, keys, run, properties)
    while True:
        try:
            node.turns.charge(connection, next(steps))
        except StopIteration as end:
            found: tuple[QueuePort, ...] = end.value
            return found


def _charged(
    node: PublishingNode, channel: PublishingChannel, steps: Steps
) -> Generator[None, None, tuple[QueuePort, ...]]:
    turns, connection = node.turns, channel.connection
    while True:
        try:
            work = next(steps)
        except StopIteration as end:
            found: tuple[QueuePort, ...] = end.value
            return found
        turns.charge(connection, work)
        yield


def _take(node: PublishingNode, channel: PublishingChannel, routed: Routed) -> Iterator[None] | None:
    """It is accepted, or held for its transaction; the steps that are left to do, if it goes to very many queues, or
    to one whose leader is not this node."""
    if channel.traced_publish is not None:
        _tell_routed(node, channel.traced_publish, routed)
    taken = True
    if channel.tx is not None:
        _hold(channel, routed)
    elif (node.remote and remote_of(routed.queues) is not None) or len(routed.queues) > COPIES_AT_ONCE:
        return _accept_slowly(node, channel, routed)
    else:
        taken = accept(node, channel, *routed)
    if channel.traced_publish is not None:
        _tell_published(node, channel, channel.traced_publish, routed, taken)
    return None


def _accept_slowly(node: PublishingNode, channel: PublishingChannel, routed: Routed) -> Iterator[None]:
    queues = yield from once_led(node, channel, routed.queues)
    if queues is None:
        return
    taken = yield from accept_slowly(node, channel, *routed._replace(queues=queues))
    if channel.traced_publish is not None:
        _tell_published(node, channel, channel.traced_publish, routed, taken)


def _hold(channel: PublishingChannel, routed: Routed) -> None:
    """Until tx.commit."""
    transaction = channel.tx
    assert isinstance(transaction, ChannelTransaction)
    transaction.publish(routed)


def _new_route(node: PublishingNode, channel: PublishingChannel, key: bytes) -> Route:
    """The route of a publish with this method payload (from the exchange on), not resolved yet. Raises what RabbitMQ
    raises."""
    size = key[0]
    exchange = key[1 : 1 + size].decode("utf-8", "surrogateescape")
    routing_key = key[2 + size : 2 + size + key[1 + size]].decode("utf-8", "surrogateescape")
    flags = key[-1]
    connection = channel.connection
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
    entrance = node.routes.entrance(connection.vhost, exchange)
    route = Route(entrance, routing_key, bool(flags & 1))
    _check_topic(node, channel, route, routing_key)
    node.turns.charge(connection, ROUTE_WORK)
    return route


def route_by_key(node: PublishingNode, channel: PublishingChannel, key: bytes) -> Route | None:
    """The route of publishes with this method payload, which is remembered; None if it takes long to look up. Raises
    what RabbitMQ raises."""
    route = _new_route(node, channel, key)
    return route if _resolved(node, channel, key, route) else None


def _resolved(node: PublishingNode, channel: PublishingChannel, key: bytes, route: Route) -> bool:
    """Whether it could be looked up at once; it is remembered then."""
    connection = channel.connection
    if node.makes_queues and route.exchange:
        return False
    if route.alone:
        before = node.work_left
        node.turns.charge(connection, resolve_alone(node, connection.vhost, route))
        if before != node.work_left:
            # It has made the queue, of a source that begins.
            node.turns.charge(connection, before - node.work_left)
            node.work_left = before
    elif route.light:
        steps = resolve(node, connection.vhost, route)
        try:
            while True:
                node.turns.charge(connection, next(steps))
        except StopIteration:
            pass
    else:
        return False
    _remember(node, channel, key, route)
    return True


def _remember(node: PublishingNode, channel: PublishingChannel, key: bytes, route: Route) -> None:
    routes = channel.routes
    requests = not route.exchange and route.routing_key.startswith(PREFIX)
    if channel.traced or requests or (node.remote and remote_of(route.queues or ()) is not None):
        # Every publish is looked at; a requester comes and goes without a change of the topology, and so do moves.
        route.queues = None
    # The names are there twice: as they came, and as text.
    nbytes = ROUTE_BYTES + 2 * len(key) + route.share_queues(routes.queues)
    if routes.nbytes + nbytes > ROUTES_BYTES_MAX:
        forget_routes(node, channel)
        nbytes = ROUTE_BYTES + 2 * len(key) + route.share_queues(routes.queues)
    routes.nbytes += nbytes
    node.routes.memory.charge(routes, nbytes)
    routes.known[key] = route


def forget_routes(node: PublishingNode, channel: PublishingChannel) -> None:
    """They are too many, or the topology has moved."""
    channel.connection.give_back_routes()
    channel.routes.version = node.topology.version


def _check_topic(node: PublishingNode, channel: PublishingChannel, route: Route, routing_key: str) -> None:
    if route.is_topic:
        user, vhost = channel.connection.user, channel.connection.vhost
        variables = {"username": user, "vhost": vhost}
        node.access.require_topic(user, vhost, "write", route.exchange, routing_key, variables)


def check_size(channel: PublishingChannel, body_size: int) -> None:
    limit = channel.shared.limits.message_bytes_max
    if body_size > limit:
        raise AMQPPreconditionFailed(f"message size {body_size} is larger than configured max size {limit}")


def _check_properties(node: PublishingNode, channel: PublishingChannel, route: Route, properties: Properties) -> None:
    """What a publisher claims must be true or at least readable. In RabbitMQ's order."""
    connection = channel.connection
    if properties.reply_to == REPLY_TO and channel.reply_consumer is None:
        raise AMQPPreconditionFailed("fast reply consumer does not exist")
    if properties.problem is not None:
        raise AMQPPreconditionFailed(properties.problem)
    for key in properties.routing_keys:
        _check_topic(node, channel, route, key)
    user_id = properties.user_id
    if user_id is not None and user_id != connection.user and not connection.may_impersonate:
        raise AMQPPreconditionFailed(
            f"user_id property set to '{user_id}' but authenticated user was '{connection.user}'"
        )


def _rewritten(channel: PublishingChannel, run: Run, properties: Properties, delay_ms: int = 0) -> Run:
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


def _tell_routed(node: PublishingNode, publishing: Publishing, routed: Routed) -> None:
    """Its queues are known."""
    if node.tracer is not None:
        node.tracer.routed(publishing, [queue.record.name for queue in routed.queues])


def _tell_published(
    node: PublishingNode, channel: PublishingChannel, publishing: Publishing, routed: Routed, taken: bool
) -> None:
    """All that can be done with it at once is done. `taken`: all of it, by each queue, or by nobody because nobody
    was to have it."""
    if node.tracer is None:
        return
    if channel.tx is not None:
        outcome = "held"
    elif not taken:
        outcome = "refused"
    elif routed.delay_ms:
        outcome = "delayed"
    else:
        outcome = "routed" if routed.queues or routed.replies else "unroutable"
    node.tracer.published(publishing, routed.run, outcome)
    node.turns.charge(channel.connection, TOLD_WORK)
