"""What a client can make too much for one turn, in steps: to close a channel or a connection, to settle deliveries.

What comes in: the channel or connection, what is to be done. What goes out: iterators for `Intake.begin`, which
carries out as many steps as the turn has time for, the others in later turns.
Rules: 1. Each step charges what it visited, and is short: a thousand microseconds at most. 2. Between two steps
everybody else is served: whatever is being given back gets nothing more (`Channel.released`). 3. The connection's
later frames wait until the last step was done, so what a client sees happens in the order sent.
Not here: the budget (`flow/turns.py`), what a step means for a queue (`queues/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from pamqp.exceptions import AMQPAccessRefused, AMQPPreconditionFailed, AMQPSoftError

from amqpd.faults import CONNECTION
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.session.settling import conclude, portions, settle
from amqpd.vocabulary.states import ConnectionState

# Entries of the ledger in one step.
ENTRIES_MAX = 256
# What is charged, in the unit of `flow/turns.py`.
CONSUMER_WORK, CHANNEL_WORK, QUEUE_WORK = 4, 5, 40


def releasing(channel: ChannelBase) -> Iterator[None]:
    """Give back what the channel has of others': consumers, unacked messages."""
    turns, connection = channel.shared.turns, channel.connection
    channel.released = True
    consumers = list(channel.consumers.values())
    if channel.joining is not None:
        consumers.append(channel.joining)
        channel.joining = None
    for consumer in consumers:
        channel.remove_consumer(consumer)
        turns.charge(connection, CONSUMER_WORK)
        yield
    channel.remove_reply_consumer()
    yield from _giving_up(channel)
    channel.end_unfinished()
    while channel.unacked.count:
        entries, _ = channel.unacked.settle_through(0, ENTRIES_MAX)
        for portion in portions(entries):
            settle(channel, portion, True)
            yield
    turns.charge(connection, CHANNEL_WORK)


def _giving_up(channel: ChannelBase) -> Iterator[None]:
    """Its transaction: what that settled goes back as what is unacked does."""
    transaction = channel.tx
    if transaction is None:
        return
    settled, transaction.settled = transaction.settled, []
    for entries, _ in settled:
        for at in range(0, len(entries), ENTRIES_MAX):
            for portion in portions(entries[at : at + ENTRIES_MAX]):
                settle(channel, portion, True)
                yield
    transaction.end()
    channel.tx = None


def closing(channel: ChannelBase, done: Callable[[], None]) -> Iterator[None]:
    """Release the channel, then `done`."""
    yield from releasing(channel)
    if not channel.closed and channel.connection.state is ConnectionState.RUNNING:
        done()


def leaving(connection: ConnectionBase, done: Callable[[], None] | None = None) -> Iterator[None]:
    """Give back what the connection has of others', and delete the queues that are its alone; then `done`."""
    node = connection.shared
    connection.finish(connection.give_back_routes)
    for channel in connection.channels.values():
        channel.released = True
        connection.finish(channel.end_unfinished)
    for channel in list(connection.channels.values()):
        try:
            yield from releasing(channel)
        except Exception as error:  # noqa: BLE001 - the next ones are released though this one fails
            node.faults.contain(CONNECTION, connection.name, error)
        connection.finish(partial(connection.forget_channel, channel))
        yield
    for queue in node.owned_queues(connection.id):
        connection.finish(partial(node.end_queue, queue))
        node.turns.charge(connection, QUEUE_WORK)
        yield
    if done is not None:
        done()


def settling(
    channel: ChannelBase, first: int, last: int, multiple: bool, requeue: bool | None, method_id: bytes
) -> Iterator[None]:
    """As `Channel.settle`; an error in the middle closes the channel."""
    try:
        yield from _settling(channel, first, last, multiple, requeue)
    except AMQPSoftError as error:
        channel.fail(error, method_id)


def _settling(channel: ChannelBase, first: int, last: int, multiple: bool, requeue: bool | None) -> Iterator[None]:
    unacked = channel.unacked
    if not multiple:
        while first <= last:
            end = min(last, first + ENTRIES_MAX - 1)
            entries, unknown = unacked.settle(first, end)
            conclude(channel, entries, requeue)
            if unknown is not None:
                raise AMQPPreconditionFailed(f"unknown delivery tag {unknown}")
            first = end + 1
            yield
        return
    # What is delivered between two steps was not meant.
    through = last or unacked.newest_tag
    while not channel.released and unacked.count:
        entries, unknown = unacked.settle_through(through, ENTRIES_MAX)
        if unknown is not None:
            raise AMQPPreconditionFailed(f"unknown delivery tag {unknown}")
        for portion in portions(entries):
            conclude(channel, portion, requeue)
            yield
        if entries[-1].tag + entries[-1].size > through:
            return


def recovering(channel: ChannelBase, done: Callable[[], None]) -> Iterator[None]:
    """Requeue all that is unacked, then `done`."""
    through = channel.unacked.newest_tag
    more = channel.unacked.count > 0
    while more and not channel.released:
        entries, _ = channel.unacked.settle_through(through, ENTRIES_MAX)
        for portion in portions(entries):
            settle(channel, portion, True)
            yield
        more = entries[-1].tag + entries[-1].size <= through
    if not channel.released:
        done()


def checking_consumers(connection: ConnectionBase, done: Callable[[], None]) -> Iterator[None]:
    """Cancel the consumers whose user may not read their queues any more; then `done`."""
    access, turns = connection.shared.access, connection.shared.turns
    for channel in list(connection.channels.values()):
        for consumer in list(channel.consumers.values()):
            if channel.consumers.get(consumer.tag) is not consumer:
                continue
            try:
                access.require(connection.user, connection.vhost, "read", "queue", consumer.queue.record.name)
            except AMQPAccessRefused:
                consumer.cancelled()
                channel.remove_consumer(consumer)
            turns.charge(connection, CONSUMER_WORK)
            yield
    done()
