"""What connections, channels and queues counted that are gone: a counter that operators look at never goes back. And
what all queues counted, as of the last look at each.

What comes in: each of them as it goes; queues to which something happened, now and then; how many came. What goes
out: sums since the start, to be added to what those that are there have counted; sums that may be looked at as often
as one likes.
Rules: 1. Nothing is done here for a message: what a connection or a queue counts anyway is added up once, when it
goes. 2. A connection keeps what its closed channels counted until it goes itself, so one look at a connection sees
each of its publishes once. 3. What a queue has added to `sums` stands in its facts: only the difference is added, so
idle queues are not looked at.
Not here: what is there now (`limiting/census.py`), a queue's own counts (`queues/facts.py`), who asks
(`admin/amqpd_admin/metrics/`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter

from amqpd.queues.facts import TIME_IN_QUEUE_MS, Facts
from amqpd.session.ports import ChannelBase, ConnectionBase

COUNTED = (
    *("accepted", "recovered", "delivered", "redelivered", "got", "got_nothing", "got_auto_acked"),
    *("auto_acked", "acked_by_clients", "rejected", "expired", "dropped", "delivery_limit", "purged", "withdrawn"),
    *("dead_lettered", "refused"),
)
"""of `Facts`"""
SUMS = ("publish", "deliver_get", "redeliver", "ack", "messages_ready", "messages_unacknowledged")
"""of all queues together, by RabbitMQ's names: counters, then levels"""
COUNTERS = 4
NOTHING = (0,) * len(SUMS)
_counted = attrgetter(*COUNTED)


class QueueCounts:
    """Of all queues of one type together, in the order of `names`; `time_in_queue` as in `Facts`."""

    names = COUNTED

    def __init__(self) -> None:
        self.counted = [0] * len(COUNTED)
        self.time_in_queue = [0] * (len(TIME_IN_QUEUE_MS) + 1)

    def add(self, facts: Facts) -> None:
        self.counted = [a + b for a, b in zip(self.counted, _counted(facts), strict=True)]
        self.time_in_queue = [a + b for a, b in zip(self.time_in_queue, facts.time_in_queue, strict=True)]

    def merge(self, other: QueueCounts) -> None:
        self.counted = [a + b for a, b in zip(self.counted, other.counted, strict=True)]
        self.time_in_queue = [a + b for a, b in zip(self.time_in_queue, other.time_in_queue, strict=True)]

    def __getattr__(self, name: str) -> int:
        """One of them by its name, as `Facts` has it."""
        if name not in COUNTED:
            raise AttributeError(name)
        return self.counted[COUNTED.index(name)]

    def copy(self) -> QueueCounts:
        found = QueueCounts()
        found.counted, found.time_in_queue = list(self.counted), list(self.time_in_queue)
        return found


class ConnectionCounts:
    """Of one connection with its channels, or of many. Bytes are those of bodies, or through sockets."""

    def __init__(self) -> None:
        self.published = self.published_bytes = 0
        self.to_confirm = self.confirmed = 0
        """publishes in confirm mode; those of them that the client was told to be safe"""
        self.bytes_in = self.bytes_out = 0

    def add(self, connection: ConnectionBase) -> None:
        self.published += connection.published
        self.published_bytes += connection.published_bytes
        self.to_confirm += connection.closed_to_confirm
        self.confirmed += connection.closed_confirmed
        self.bytes_in += connection.bytes_in
        self.bytes_out += connection.bytes_out
        for channel in list(connection.channels.values()):
            if channel.confirms is not None:
                self.to_confirm += channel.confirms.published
                self.confirmed += channel.confirms.told

    def copy(self) -> ConnectionCounts:
        found = ConnectionCounts()
        for name, value in vars(self).items():
            setattr(found, name, value)
        return found


class Totals:
    """Of one node, since its start."""

    def __init__(self) -> None:
        self.connections_opened = self.connections_closed = 0
        """that have opened a virtual host"""
        self.channels_opened = self.channels_closed = 0
        self.queues_declared = 0
        """how often a client asked for a queue, and had one"""
        self.queues_created = self.queues_deleted = 0
        """of this node"""
        self.of_connections = ConnectionCounts()
        """that are gone"""
        self.of_queues: dict[str, QueueCounts] = {}
        """that are gone, by type"""
        self.sums = list(NOTHING)
        """of all queues, those that are gone included, in the order of `SUMS`; as of the last look at each"""
        self.sums_by_vhost: dict[str, list[int]] = {}
        self.of_gone_vhosts = list(NOTHING)
        """what of `sums` is in none of `sums_by_vhost`"""

    def channel_gone(self, channel: ChannelBase) -> None:
        """Once for each."""
        self.channels_closed += 1
        connection, confirms = channel.connection, channel.confirms
        if confirms is not None:
            connection.closed_to_confirm += confirms.published
            connection.closed_confirmed += confirms.told

    def connection_gone(self, connection: ConnectionBase) -> None:
        """Once for each; what goes through its socket after that is told by `socket_closed`."""
        self.connections_closed += bool(connection.vhost)
        self.of_connections.add(connection)
        connection.counted_in, connection.counted_out = connection.bytes_in, connection.bytes_out

    def socket_closed(self, connection: ConnectionBase) -> None:
        """Behind `connection_gone`, once or more."""
        self.of_connections.bytes_in += connection.bytes_in - connection.counted_in
        self.of_connections.bytes_out += connection.bytes_out - connection.counted_out
        connection.counted_in, connection.counted_out = connection.bytes_in, connection.bytes_out

    def queue_gone(self, vhost: str, kind: str, facts: Facts) -> None:
        """It is deleted, or its home is another node now."""
        self.of_queues.setdefault(kind, QueueCounts()).add(facts)
        self.look_at(vhost, facts, 0, 0)

    def look_at(self, vhost: str, facts: Facts, ready: int, unacked: int) -> None:
        """The figures of one queue, as they are now."""
        published = facts.accepted - facts.recovered
        now = (published, facts.delivered, facts.redelivered, facts.acked, ready, unacked)
        before = facts.summed or NOTHING
        if now == before:
            return
        grown = [value - known for value, known in zip(now, before, strict=True)]
        facts.summed = now
        _add(self.sums, grown)
        of_vhost = self.sums_by_vhost.get(vhost)
        if of_vhost is None and facts.summed_in is None:
            of_vhost = self.sums_by_vhost[vhost] = list(NOTHING)
        if of_vhost is None:
            # The virtual host is gone, with what the queue had added.
            _add(self.of_gone_vhosts, grown)
        elif facts.summed_in is of_vhost or facts.summed_in is None:
            _add(of_vhost, grown)
            facts.summed_in = of_vhost
        else:
            # It is gone, and there is another one of that name: what stands in the queue stands in that now.
            _add(self.of_gone_vhosts, [0] * COUNTERS + [-level for level in before[COUNTERS:]])
            _add(of_vhost, grown[:COUNTERS] + list(now[COUNTERS:]))
            facts.summed_in = of_vhost

    def keep_vhosts(self, names: Collection[str]) -> None:
        """There are no others any more."""
        if not self.sums_by_vhost.keys() <= set(names):
            for name in [each for each in self.sums_by_vhost if each not in names]:
                _add(self.of_gone_vhosts, self.sums_by_vhost.pop(name))


def _add(sums: list[int], more: Sequence[int]) -> None:
    for at, value in enumerate(more):
        sums[at] += value
