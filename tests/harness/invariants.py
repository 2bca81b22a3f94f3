"""What must hold in a node at every moment, whatever clients send: conservation, limits, bounds.

What comes in: a node. What goes out: nothing, or an AssertionError that says what does not add up.
Not here: whether the right messages went to the right place (`tests/queues/test_queue_model.py`).
"""

from __future__ import annotations

from collections import Counter

from amqpd.connection import WAIT_BYTES_MAX, Connection
from amqpd.flow.client_counters import CHANNELS, CONNECTIONS, NODE, USER, VHOST, Subject
from amqpd.node.node import Node
from amqpd.queues.messages import Messages
from amqpd.queues.queue import Queue
from amqpd.vocabulary.states import ConnectionState


def check_node(node: Node) -> None:
    unacked: Counter[Queue] = Counter()
    consumers: set[object] = set()
    for connection in node.connections.values():
        assert connection.state not in (ConnectionState.LINGERING, ConnectionState.CLOSED), (
            f"{connection.name} is closed and still known"
        )
        check_connection(connection)
        for channel in connection.channels.values():
            by_consumer: Counter[object] = Counter()
            entries = list(channel.unacked)
            assert [entry.tag for entry in entries] == sorted({entry.tag for entry in entries}), "tags out of order"
            assert channel.unacked.count == sum(entry.size for entry in entries)
            if channel.tx is not None:
                entries = entries + channel.tx.settled_entries()
            for entry in entries:
                unacked[entry.queue] += entry.size
                if entry.consumer is not None:
                    by_consumer[entry.consumer] += entry.size
            assert channel.consumed == sum(by_consumer.values()), "the channel's prefetch does not add up"
            for consumer in channel.consumers.values():
                assert consumer.unacked == by_consumer[consumer], "a consumer's prefetch does not add up"
            consumers |= set(channel.consumers.values())
    for replies in node.replies._consumers.values():
        channel = replies.channel
        assert channel.reply_consumer is replies, "a reply consumer that its channel does not know"
        assert channel.connection.channels.get(channel.id) is channel, "a reply consumer of a channel that is gone"
    for key, queue in node.queues.items():
        fresh = any(level.backlog.fresh for level in queue.messages.levels())
        assert not fresh or queue in node.to_dispatch, f"what came into queue {key} has no place: nobody will look"
        assert set(queue.consumers) <= consumers, f"queue {key} has consumers that are gone"
        check_queue(queue, unacked[queue])
    for store in node.delayed.values():
        for level in store.messages.levels():
            check_lane(level)
    check_census(node)


def check_census(node: Node) -> None:
    """The numbers that limits are held against, counted again."""
    client_counters, entered = node.client_counters, [each for each in node.connections.values() if each.vhost]
    counts: Counter[Subject] = Counter()
    for each in entered:
        node_name = (NODE, node.identity.name)
        counts.update((CONNECTIONS, *owner) for owner in ((VHOST, each.vhost), (USER, each.user), node_name))
        counts.update((CHANNELS, *owner) for owner in ((USER, each.user), node_name) for _ in each.channels)
    census = client_counters.census().counts.items()
    found = {subject: count for subject, count in census if subject[0] in (CONNECTIONS, CHANNELS)}
    assert found == counts
    for connection in entered:
        waits = connection in node.quotas.waiting or connection in node.turns.waiting
        assert waits or not connection.intake.throttled, "it would wait for ever"


def check_connection(connection: Connection) -> None:
    held = 0
    for channel in connection.channels.values():
        assert not channel.closed
        held += channel.held_bytes
        stops = channel.closing or channel.suspended or channel.content is not None
        assert channel.plain == (connection.state is ConnectionState.RUNNING and not stops)
        if not channel.suspended and not connection.choked:
            assert not channel.held, "a channel that waits for nothing holds frames"
    assert connection.intake.held_bytes == held, "the held bytes do not add up"


def check_queue(queue: Queue, unacked: int) -> None:
    backlog, removal = queue.backlog, queue.removal
    dying = sum(last - first + 1 for first, last, *_ in removal.pending or ())
    assert removal.pending_count == dying, f"{removal.pending_count} are said to be dying, {dying} are"
    assert backlog.unacked == unacked + dying, f"{backlog.unacked} unacked, {unacked} in channels, {dying} dying"
    for level in queue.messages.levels():
        check_lane(level)
        if level is queue.messages:
            unknown = [seq for seq in removal.counts if not level.store.holds(seq)]
            assert not unknown, f"delivery counts of {len(unknown)} messages that are gone"


def check_lane(level: Messages) -> None:
    assert level.backlog.ready >= 0
    fresh = sum(run.count for run in level.backlog.fresh)
    left = sum(segment.left for segment in level.store.segments) + fresh
    assert level.backlog.ready >= fresh, "what is fresh is ready"
    assert level.backlog.ready + level.backlog.unacked == left, (
        f"{level.backlog.ready} + {level.backlog.unacked} != {left}"
    )
    held = sum(segment.memory_bytes for segment in level.store.segments) + sum(
        run.memory_bytes for run in level.backlog.fresh
    )
    assert level.memory_bytes == held, "memory is not counted right"
    previous = -1
    for segment in level.store.segments:
        assert previous < segment.first <= segment.last, "segments overlap"
        assert 0 < segment.left <= segment.last - segment.first + 1
        previous = segment.last
    previous = -1
    for first, last in sorted(level.backlog.returned):
        assert previous < first <= last < level.store.cursor, "returned messages overlap"
        previous = last


def check_bounds(connection: Connection, chunk_bytes: int, answer_bytes_max: int) -> None:
    """What a connection holds after a receive of `chunk_bytes`, where no answer to one frame is larger than
    `answer_bytes_max`."""
    limits = connection.node.limits
    rest_max = max(limits.frame_max + 8, WAIT_BYTES_MAX) + chunk_bytes
    assert len(connection._rest) <= rest_max, f"{len(connection._rest)} bytes wait for the rest of a frame"
    outbox_max = 2 * limits.outbox_bytes_max + answer_bytes_max
    assert sum(map(len, connection.outbox)) <= outbox_max, f"{connection.outbox_bytes} bytes in the outbox"
