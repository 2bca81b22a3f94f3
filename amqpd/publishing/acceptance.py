"""What becomes of a publish that is checked and routed: into its queues, returned, refused; its confirm.

What comes in: a run, its channel, the queues that it reaches. What goes out: the run, to queues; basic.return; what
the channel's confirms must know.
Rules: 1. A run that goes to few queues goes into all of them at once; one that goes to many in steps, with others'
turns between them, and is confirmed when the last one has it. 2. Whatever happens meanwhile, a publish that has begun
goes to all of its queues. 3. It has its numbers before the first of them is offered it: one that another node leads
may refuse it later, and names them then (`session/durability.py`). 4. What meets a queue whose leader is about to
be this node, or another one, waits: it is neither taken nor refused before that is decided.
Not here: checks and routes (`publish.py`), what a queue does with it (`queues/`).

Source: AMQP 0-9-1 section 1.8.3.7 of the reference; https://www.rabbitmq.com/docs/publishers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from pamqp.exceptions import AMQPConnectionForced, AMQPPreconditionFailed

from amqpd.audit.publication import Publication
from amqpd.flow.disk_space import LARGE_BYTES_MIN
from amqpd.flow.leader_moves import MOVED, WAIT_MS
from amqpd.flow.turns import COPY_WORK
from amqpd.journal.lane import NONE, Lanes, joined
from amqpd.kernel import Run, encode_content
from amqpd.message.properties import Properties
from amqpd.publishing.offering import offer
from amqpd.publishing.ports import PublishingChannel, PublishingNode
from amqpd.publishing.replies import ReplyConsumer
from amqpd.publishing.routes import Route
from amqpd.publishing.routing import count_unroutable
from amqpd.publishing.unroutable import NACK, UnroutableOutcome
from amqpd.queues.port import QueuePort
from amqpd.session.confirms import Confirms
from amqpd.session.durability import CommonReceipt, ConfirmReceipt
from amqpd.session.ports import ConnectionBase

# A run goes into at most this number of queues in one step, about a millisecond.
COPIES_AT_ONCE = 500


def accept(
    node: PublishingNode,
    channel: PublishingChannel,
    run: Run,
    queues: tuple[QueuePort, ...],
    properties: Properties,
    route: Route,
    replies: tuple[ReplyConsumer, ...] = (),
    delay_ms: int = 0,
    common: CommonReceipt | None = None,
) -> bool:
    """The run goes to its queues, or waits for `delay_ms`; what becomes of it when there are none is decided; its
    confirm is due. What a queue refuses (`x-overflow`: reject-publish) is the end of the run, and is refused to the
    publisher though others took it. `common`: of the transaction that it belongs to. Whether all of it was taken, as
    far as that is known now."""
    publication = _begin(node, channel, run, route, properties) if node.audit.active else None
    if len(queues) > 1:
        node.turns.charge(channel.connection, COPY_WORK * len(queues))
    count, confirms, receipt = run.count, channel.confirms, None
    if confirms is not None:
        if node.remote:
            receipt = _receipt(node, channel, confirms, queues)
        confirms.published += count
    route.passed.count(count, count * len(queues))
    fitting = (
        len(queues) == 1
        or run.nbytes * len(queues) < LARGE_BYTES_MIN
        or node.disk_space.fits(run, queues, properties)
    )
    taken, waits = 0, NONE
    if fitting:
        taken, waits = offer(
            node, queues, run, properties, publication, channel.connection, receipt=receipt or common
        )
    if taken < 0:
        taken = 0
    if replies:
        for reply in replies:
            node.replies.deliver(reply, run)
    elif not queues:
        if delay_ms:
            kept = node.delay(channel.connection.vhost, run, delay_ms, publication)
            waits, taken = kept or NONE, taken if kept is not None else 0
        else:
            taken = _unroutable(node, channel, run, route)
    if publication is not None:
        node.audit.end(publication, run.body_size, bool(queues or replies or delay_ms), route.mandatory)
    accepted(node, channel, count, taken, waits, True)
    if receipt is not None:
        receipt.offered(taken)
    if not fitting:
        _refuse_unconfirmed(channel, run, queues)
    return taken == count


def _receipt(
    node: PublishingNode, channel: PublishingChannel, confirms: Confirms, queues: tuple[QueuePort, ...]
) -> ConfirmReceipt | None:
    """For a run that is numbered next, if one of its queues may refuse it later."""
    for queue in queues:
        if queue.is_remote:
            return ConfirmReceipt(node.durability, channel, confirms.published + 1)
    return None


def accept_slowly(
    node: PublishingNode,
    channel: PublishingChannel,
    run: Run,
    queues: tuple[QueuePort, ...],
    properties: Properties,
    route: Route,
    replies: tuple[ReplyConsumer, ...] = (),
    delay_ms: int = 0,
    common: CommonReceipt | None = None,
) -> Generator[None, None, bool]:
    """As `accept`, step by step, also when the channel is closed meanwhile."""
    if len(queues) <= COPIES_AT_ONCE:
        return accept(node, channel, run, queues, properties, route, replies, delay_ms, common)
    publication = _begin(node, channel, run, route, properties) if node.audit.active else None
    route.passed.count(run.count, run.count * len(queues))
    confirms, receipt = channel.confirms, None
    if confirms is not None:
        receipt = _receipt(node, channel, confirms, queues)
        confirms.published += run.count
    fitting = node.disk_space.fits(run, queues, properties)
    waits, taken = NONE, run.count if fitting else 0
    for at in range(0, len(queues) if fitting else 0, COPIES_AT_ONCE):
        if at:
            yield
        part = tuple(queue for queue in queues[at : at + COPIES_AT_ONCE] if not queue.is_deleted)
        node.turns.charge(channel.connection, COPY_WORK * len(part))
        part_taken, part_waits = offer(
            node, part, run, properties, publication, channel.connection, receipt=receipt or common
        )
        waits, taken = joined(waits, part_waits), max(0, min(taken, part_taken))
    moved = has_left(channel.connection, queues)
    if moved or any(queue.is_away for queue in queues):
        taken = 0  # its leader has moved meanwhile: what it took before may be in no log
    for reply in replies:
        node.replies.deliver(reply, run)
    if publication is not None:
        node.audit.end(publication, run.body_size, True, route.mandatory)
    if not channel.closed:
        if moved:
            raise AMQPConnectionForced(MOVED)
        for lane in waits:
            # The copies that wait may have an earlier number of it than the one that gathers now.
            lane.force()
        accepted(node, channel, run.count, taken, waits, False)
        if receipt is not None:
            receipt.offered(taken)
        if not fitting:
            _refuse_unconfirmed(channel, run, queues)
    return taken == run.count


def _begin(
    node: PublishingNode, channel: PublishingChannel, run: Run, route: Route, properties: Properties
) -> Publication:
    """The run's publication in the audit log."""
    audit, connection = node.audit, channel.connection
    return audit.begin(connection, channel.id, channel.confirms, channel.tx is not None, run.count, route, properties)


def _refuse_unconfirmed(channel: PublishingChannel, run: Run, queues: tuple[QueuePort, ...]) -> None:
    """It does not fit on the disk. With confirms that is a basic.nack, in a transaction the commit says so; others
    would never learn of it. Raises AMQPPreconditionFailed."""
    if channel.confirms is None and channel.tx is None:
        raise AMQPPreconditionFailed(
            f"message of {run.body_size} bytes for {len(queues)} queues is larger than the disk"
        )


def once_led(
    node: PublishingNode, channel: PublishingChannel, queues: tuple[QueuePort, ...]
) -> Generator[None, None, tuple[QueuePort, ...] | None]:
    """The queues as they are when none of them is on its way to another node or to this one; None: the client is
    gone. Raises AMQPConnectionForced if one has left since the client connected, or is on its way for too long: it
    finds the leader when it connects again."""
    connection, moves, until_ms = channel.connection, node.leader_moves, node.now_ms + WAIT_MS
    vhost, names = connection.vhost, [queue.record.name for queue in queues]
    while True:
        away = [queue for queue in queues if queue.is_away]
        moving = next((queue.record.source for queue in away if moves.is_moving(queue.record.source)), None)
        if moving is None or node.now_ms >= until_ms:
            break
        yield from moves.wait(connection, moving, until_ms)
        if channel.closed or connection.ended:
            return None
        queues = node.queues_named(vhost, names)
    if moving is not None or has_left(connection, away):
        raise AMQPConnectionForced(MOVED)
    return queues


def has_left(connection: ConnectionBase, queues: Iterable[QueuePort]) -> bool:
    """One of them was led by this node when the connection was opened, or after that, and is not any more."""
    return any(queue.is_away and queue.left_at > connection.opened_at for queue in queues)


def accepted(
    node: PublishingNode, channel: PublishingChannel, count: int, taken: int, waits: Lanes, at_once: bool
) -> None:
    """Of the channel's publishes that have the next numbers `taken` were taken; they are confirmed when they are
    safe. `at_once`: see `Durability.accepted`."""
    confirms = channel.confirms
    if confirms is not None:
        if confirms.accept(taken, waits):
            node.durability.due[channel] = None
        elif waits:
            node.durability.accepted(channel, confirms, waits, at_once)
        if taken < count:
            confirms.refuse(count - taken)
            node.durability.due[channel] = None


def _unroutable(node: PublishingNode, channel: PublishingChannel, run: Run, route: Route) -> int:
    """Nobody takes the run: returned, refused or dropped. How many of its messages are to be confirmed."""
    connection = channel.connection
    told = route.mandatory
    if route.mandatory:
        for i in range(run.count):
            connection.write(_return(channel, run, i))
        count_unroutable(node, connection.vhost, route.exchange, UnroutableOutcome.RETURNED, run.count)
    taken = run.count
    if route.unroutable == NACK and channel.confirms is not None:
        told, taken = True, 0
        count_unroutable(node, connection.vhost, route.exchange, UnroutableOutcome.NACKED, run.count)
    if not told:
        count_unroutable(node, connection.vhost, route.exchange, UnroutableOutcome.DROPPED, run.count)
    return taken


def _return(channel: PublishingChannel, run: Run, i: int) -> bytes:
    payload = b"\x00\x3c\x00\x32\x01\x38\x08NO_ROUTE" + run.names
    head = b"\x01" + channel.id.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + b"\xce" + encode_content(run, i, channel.id, channel.connection.frame_max)
