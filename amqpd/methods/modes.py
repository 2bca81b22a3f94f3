"""confirm.select, tx.select, commit, rollback: the two modes that a publishing channel may be in, never both.

Source: section 1.9; https://www.rabbitmq.com/docs/confirms, https://www.rabbitmq.com/docs/semantics.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial

from pamqp import commands
from pamqp.exceptions import AMQPConnectionForced, AMQPPreconditionFailed

from amqpd.channels import Channel
from amqpd.flow.leader_moves import MOVED
from amqpd.flow.turns import COPY_WORK
from amqpd.node.node import Handlers
from amqpd.publishing.acceptance import accept_slowly, has_left
from amqpd.publishing.routing import MAKING_WORK
from amqpd.publishing.transaction import ChannelTransaction
from amqpd.queues.port import QueuePort
from amqpd.session.confirms import Confirms
from amqpd.session.durability import CommonReceipt, Decision
from amqpd.session.settling import portions, settle

# What a publish or a settled stretch of a transaction takes, in the unit of `flow/turns.py`.
COMMIT_WORK = 4
SETTLED_AT_ONCE = 100

PARTIAL = "partial tx completion"


def confirm_select(channel: Channel, method: commands.Confirm.Select) -> None:
    if channel.tx is not None:
        raise AMQPPreconditionFailed("cannot switch from tx to confirm mode")
    if channel.confirms is None:
        channel.confirms = Confirms()
    if not method.nowait:
        channel.send(commands.Confirm.SelectOk())


def tx_select(channel: Channel, method: commands.Tx.Select) -> None:
    if channel.confirms is not None:
        raise AMQPPreconditionFailed("cannot switch from confirm to tx mode")
    if channel.tx is None:
        channel.tx = ChannelTransaction(channel)
    channel.send(commands.Tx.SelectOk())


def tx_commit(channel: Channel, method: commands.Tx.Commit) -> None:
    """Answered when all that was published is on disk, as a confirm would be."""
    transaction = _required(channel)
    channel.tx = ChannelTransaction(channel)
    steps = channel.node.holds.commit(channel.connection, _work(transaction), _commit(channel, transaction))
    channel.connection.intake.carry_out(channel, steps, b"\x00\x5a\x00\x14")


def _work(transaction: ChannelTransaction) -> int:
    """What its commit will be charged, about."""
    pieces = len(transaction.publishes) + sum(len(entries) for entries, _ in transaction.settled)
    return COMMIT_WORK * pieces + COPY_WORK * transaction.copies


def _commit(channel: Channel, transaction: ChannelTransaction) -> Iterator[None]:
    """The steps of a commit, which take so much work, under a hold if they fit into one."""
    node, complete, delayed, receipt = channel.node, True, False, CommonReceipt()
    used: dict[QueuePort, None] = {}
    transaction.end()
    for run, queues, route, replies, delay_ms in transaction.publishes:
        properties = node.properties.read(run.properties, True)
        left = yield from _of_now(channel, queues)
        used.update(dict.fromkeys(left))
        delayed |= delay_ms > 0
        # A requester may have gone since, too: then its name is a queue that is not there.
        replies = tuple(reply for reply in replies if node.replies.is_open(reply))
        complete &= yield from accept_slowly(node, channel, run, left, properties, route, replies, delay_ms, receipt)
        node.turns.charge(channel.connection, COMMIT_WORK)
        yield
    for entries, requeue in transaction.settled:
        for at in range(0, len(entries), SETTLED_AT_ONCE):
            some = entries[at : at + SETTLED_AT_ONCE]
            used.update(dict.fromkeys(entry.queue for entry in some))
            for portion in portions(some):
                # Each may come into another transaction of the journal, of a commit that does not hold it.
                node.journal.unwritten.together()
                settle(channel, portion, requeue)
                node.turns.charge(channel.connection, COMMIT_WORK * len(portion))
                yield
    if channel.closed or channel.closing:
        return
    if has_left(channel.connection, used):
        raise AMQPConnectionForced(MOVED)
    if not complete or any(queue.is_away for queue in used):
        # A queue was full, or its leader is another node; what others took stays, as in RabbitMQ.
        raise AMQPPreconditionFailed(PARTIAL)
    lanes = dict.fromkeys(queue.lane for queue in used)
    if delayed:
        lanes[node.journal.lane] = None  # of what is delayed, wherever it goes then
    node.durability.when_durable(_decided(channel), tuple(lanes), receipt)


def _decided(channel: Channel) -> Callable[[Decision], None]:
    """The channel waits until this is called with what became of its commit."""
    connection = channel.connection

    def answered(decision: Decision) -> None:
        if decision is Decision.REFUSED:
            # As RabbitMQ, when all of it is decided: what others took stays.
            raise AMQPPreconditionFailed(PARTIAL)
        channel.send(commands.Tx.CommitOk())

    resume = channel.suspend(answered)

    def decided(decision: Decision) -> None:
        if decision is Decision.LOST:
            connection.guard(partial(connection.force_close, MOVED))
        else:
            resume(decision)

    return decided


def _of_now(channel: Channel, queues: Iterable[QueuePort]) -> Generator[None, None, tuple[QueuePort, ...]]:
    """What the publishes were routed to are names: a queue may be gone since, or made again (as in RabbitMQ), and its
    leader may have become this node."""
    node, work = channel.node, 0
    left: list[QueuePort] = []
    for queue in queues:
        found: QueuePort | None = queue
        if queue.is_deleted or queue.is_away:
            record, before = queue.record, node.work_left
            found = node.ports.get((record.vhost, record.name))
            # The look may have made it, and there may be very many.
            work += before - node.work_left
            node.work_left = before
        if found is not None:
            left.append(found)
        if work >= MAKING_WORK:
            node.turns.charge(channel.connection, work)
            work = 0
            yield
    node.turns.charge(channel.connection, work)
    # Some may have gone while others did something.
    return tuple(queue for queue in left if not queue.is_deleted)


def tx_rollback(channel: Channel, method: commands.Tx.Rollback) -> None:
    channel.connection.intake.begin(_rollback(channel, _required(channel)))


def _rollback(channel: Channel, transaction: ChannelTransaction) -> Iterator[None]:
    settled, transaction.settled = transaction.settled, []
    for entries, _ in settled:
        for at in range(0, len(entries), SETTLED_AT_ONCE):
            some = entries[at : at + SETTLED_AT_ONCE]
            channel.unacked.restore(some)
            channel.node.turns.charge(channel.connection, COMMIT_WORK * len(some))
            yield
    transaction.end()
    if not (channel.closed or channel.closing):
        channel.tx = ChannelTransaction(channel)
        channel.send(commands.Tx.RollbackOk())


def _required(channel: Channel) -> ChannelTransaction:
    if channel.tx is None:
        raise AMQPPreconditionFailed("channel is not transactional")
    assert isinstance(channel.tx, ChannelTransaction)
    return channel.tx


METHODS: Handlers = {
    commands.Confirm.Select: confirm_select,
    commands.Tx.Select: tx_select,
    commands.Tx.Commit: tx_commit,
    commands.Tx.Rollback: tx_rollback,
}
