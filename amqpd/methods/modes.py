"""confirm.select, tx.select, commit, rollback: the two modes that a publishing channel may be in, never both.

Source: section 1.9; https://www.rabbitmq.com/docs/confirms, https://www.rabbitmq.com/docs/semantics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pamqp import commands
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.confirms import Confirms
from amqpd.publishing import accept
from amqpd.transaction import Transaction

if TYPE_CHECKING:
    from amqpd.channels import Channel
    from amqpd.node import Handlers
    from amqpd.queues.queue import Queue


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
        channel.tx = Transaction()
    channel.send(commands.Tx.SelectOk())


def tx_commit(channel: Channel, method: commands.Tx.Commit) -> None:
    """Answered when all that was published is on disk, as a confirm would be."""
    transaction = _required(channel)
    channel.tx = Transaction()
    complete = True
    for routed in transaction.publishes:
        complete &= accept(channel, *routed._replace(queues=tuple(_of_now(channel, routed.queues))))
    for entries, requeue in transaction.settled:
        channel.let_go(entries, requeue)
    if not complete:
        # A queue was full; what others took stays, as in RabbitMQ.
        raise AMQPPreconditionFailed("partial tx completion")
    channel.node.when_durable(channel.suspend(lambda: channel.send(commands.Tx.CommitOk())))


def _of_now(channel: Channel, queues: Iterable[Queue]) -> Iterator[Queue]:
    """What the publishes were routed to are names: a queue may be gone since, or made anew (as in RabbitMQ)."""
    for queue in queues:
        record = queue.record
        found = channel.node.queues.get((record.vhost, record.name)) if queue.deleted else queue
        if found is not None:
            yield found


def tx_rollback(channel: Channel, method: commands.Tx.Rollback) -> None:
    channel.unacked.restore(_required(channel).settled_entries())
    channel.tx = Transaction()
    channel.send(commands.Tx.RollbackOk())


def _required(channel: Channel) -> Transaction:
    if channel.tx is None:
        raise AMQPPreconditionFailed("channel is not transactional")
    return channel.tx


METHODS: Handlers = {
    commands.Confirm.Select: confirm_select,
    commands.Tx.Select: tx_select,
    commands.Tx.Commit: tx_commit,
    commands.Tx.Rollback: tx_rollback,
}
