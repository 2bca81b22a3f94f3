"""What a client says of its deliveries, for queues and for the credit of consumers.

What comes in: entries that were taken out of a channel's ledger, and whether they are acknowledged, rejected or to be
requeued. What goes out: the same to each entry's queue; credit to its consumer.
Rules: 1. What a queue makes of it is the queue's: an error in it ends that queue's work and not the others'. 2. Each
entry is charged to the connection.
Not here: the ledger (`unacked.py`), tags and their errors (`channels.py`), very many at once (`steps.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from amqpd.session.ports import ChannelBase
from amqpd.session.unacked import Delivered

# What an entry is charged, in the unit of `flow/turns.py`, and what is rejected: each message of it may be
# counted, or leave a segment of its own.
ENTRY_WORK, REJECTED_A_WORK = 3, 4
# Messages in one step, the worst of which stand alone in their segments.
AT_ONCE_MAX = 4_096


def conclude(channel: ChannelBase, entries: list[Delivered], requeue: bool | None) -> None:
    """As `settle`, with the commit of the transaction if there is one."""
    if channel.tx is not None:
        channel.tx.settle(entries, requeue)
        channel.shared.turns.charge(channel.connection, len(entries))
    else:
        settle(channel, entries, requeue)


def portions(entries: list[Delivered]) -> Iterator[list[Delivered]]:
    """In pieces that are short enough for a step each."""
    if sum([entry.size for entry in entries]) <= AT_ONCE_MAX:
        yield entries
        return
    portion: list[Delivered] = []
    left = AT_ONCE_MAX
    for entry in entries:
        at = 0
        while at < entry.size:
            count = min(entry.size - at, left)
            portion.append(Delivered(entry.tag + at, count, entry.seq + at, entry.queue, entry.consumer))
            at += count
            left -= count
            if not left:
                yield portion
                portion, left = [], AT_ONCE_MAX
    if portion:
        yield portion


def settle(channel: ChannelBase, entries: list[Delivered], requeue: bool | None) -> None:
    """The messages are acknowledged (None), or rejected: to be requeued or not."""
    node = channel.shared
    work = ENTRY_WORK * len(entries)
    if requeue is not None:
        work += sum([entry.size for entry in entries]) // REJECTED_A_WORK
    if channel.deliveries:
        _trace(channel, entries, requeue)
    for entry in entries:
        try:
            if requeue is None:
                work += entry.queue.settle(entry.seq, entry.seq + entry.size - 1)
            else:
                if requeue:
                    entry.queue.requeue(entry.seq, entry.seq + entry.size - 1)
                else:
                    entry.queue.reject(entry.seq, entry.seq + entry.size - 1)
                node.to_dispatch.add(entry.queue)
        except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
            node.quarantine(entry.queue, error)
        _give_credit(channel, entry)
    node.turns.charge(channel.connection, work)


def _trace(channel: ChannelBase, entries: list[Delivered], requeue: bool | None) -> None:
    tracer, deliveries = channel.shared.tracer, channel.deliveries
    assert tracer is not None  # nobody else makes some
    assert deliveries is not None
    for entry in entries:
        if requeue is None:
            operation, outcome = "ack", "acknowledged"
        elif requeue:
            operation, outcome = "requeue", "requeued"
        else:
            operation, outcome = "reject", "dead_lettered" if entry.queue.dead_letters else "rejected"
        work = tracer.settled(deliveries, entry.tag, entry.size, operation, outcome)
        channel.shared.turns.charge(channel.connection, work)


def _give_credit(channel: ChannelBase, entry: Delivered) -> None:
    consumer = entry.consumer
    if consumer is None:
        channel.shared.to_dispatch.add(entry.queue)  # what looks at its figures sees that something happened
        return
    consumer.unacked -= entry.size
    channel.consumed -= entry.size
    channel.shared.to_dispatch.add(consumer.queue)
    if consumer.parked and consumer.waits_in is None:
        consumer.queue.credited(consumer)
    if channel.shared_queue:
        channel.shared.waking.add(channel.shared_queue)
