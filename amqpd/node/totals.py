"""What connections, channels and queues counted that are gone: a counter that operators look at never goes back. And
what all queues counted, as of the last look at each.

What comes in: each of them as it goes; queues to which something happened, now and then; how many came. What goes
out: sums since the start, to be added to what those that are there have counted; sums that may be looked at as often
as one likes.
Rules: 1. Nothing is done here for a message: what a connection or a queue counts anyway is added up once, when it
goes. 2. A connection keeps what its closed channels counted until it goes itself, so one look at a connection sees
each of its publishes once. 3. What a queue or a connection has added to `sums` stands in it: only the difference is
added, so idle queues are not looked at. 4. What was published is counted where it came from: one message that goes to
ten queues is one, and a dead letter is none.
Not here: what is there now (`flow/client_counters.py`), a queue's own counts (`queues/facts.py`), who asks
(`admin/amqpd_admin/metrics/`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from operator import attrgetter

from amqpd.node.connection_rates import ConnectionRates, confirmed
from amqpd.publishing.unroutable import Unroutable, UnroutableOutcome
from amqpd.queues.facts import TIME_IN_QUEUE_MS, Facts, taken
from amqpd.session.ports import ChannelBase, ConnectionBase

COUNTED = (
    "accepted",
    "recovered",
    "delivered",
    "redelivered",
    "got",
    "got_nothing",
    "got_auto_acked",
    "auto_acked",
    "acked_by_clients",
    "rejected",
    "expired",
    "dropped",
    "delivery_limit",
    "purged",
    "withdrawn",
    "dead_lettered",
    "refused",
)
"""of `Facts`"""
TAKEN = ("deliver_get", "redeliver", "ack", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty")
"""what queues count, by RabbitMQ's names"""
SENT = ("publish", "confirm", "recv_oct", "send_oct")
"""what connections count"""
LOST = ("return_unroutable", "drop_unroutable")
"""what reached no queue"""
SUMS = (*SENT, *LOST, *TAKEN, "messages_ready", "messages_unacknowledged")
"""of all of them together: counters, then levels"""
COUNTERS = len(SUMS) - 2
_NOT_OF_QUEUES = (0,) * (len(SENT) + len(LOST))
NOTHING = (0,) * len(SUMS)
SAMPLE_MS = 5_000
"""between two samples of what was published to a virtual host, at least"""
_counted = attrgetter(*COUNTED)


class QueueCounts:
    """The counts of all queues of one type together, in the order of `names`; `time_in_queue` as in `Facts`."""

    names = COUNTED

    def __init__(self) -> None:
        self.counted = [0] * len(COUNTED)
        self.time_in_queue = [0] * (len(TIME_IN_QUEUE_MS) + 1)

    def add(self, more: Facts | QueueCounts) -> None:
        self.counted = [a + b for a, b in zip(self.counted, _counted(more), strict=True)]
        self.time_in_queue = [a + b for a, b in zip(self.time_in_queue, more.time_in_queue, strict=True)]

    def __getattr__(self, name: str) -> int:
        """One of them by its name, as `Facts` has it."""
        if name not in COUNTED:
            raise AttributeError(name)
        return self.counted[COUNTED.index(name)]


class ConnectionCounts:
    """The counts of one connection with its channels, or of many. Bytes are those of bodies, or through sockets."""

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


class Rated:
    """A counter of one virtual host, and how fast it grows."""

    def __init__(self) -> None:
        self.count = 0
        self._before = self._sample = (0, 0)

    def sample(self, now_ms: int) -> None:
        then_ms, count = self._sample
        if now_ms >= then_ms + SAMPLE_MS:
            # Nobody looked while nothing happened: there were as many still one sample ago.
            self._before = (max(then_ms, now_ms - 2 * SAMPLE_MS), count)
            self._sample = (now_ms, self.count)

    def rate(self, now_ms: int) -> float:
        """Messages a second."""
        self.sample(now_ms)
        begin_ms, count = self._before
        return (self.count - count) / (max(now_ms - begin_ms, 1000) / 1000)


class Totals:
    """The totals of one node since its start, with what is gone by now."""

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
        self.rated: dict[tuple[str, str], Rated] = {}
        """by virtual host and name, of what was counted there: `publish` (of clients and operators), and `LOST`"""
        self.traffic = ConnectionRates()
        """of the connections that are there"""

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
        self.traffic.gone(connection)
        self.of_connections.add(connection)
        self.update_connection(connection, last=True)
        connection.counted_in, connection.counted_out = connection.bytes_in, connection.bytes_out

    def socket_closed(self, connection: ConnectionBase) -> None:
        """Count the last bytes of a closed socket. Called behind `connection_gone`; may be called again."""
        self.update_connection(connection)
        self.of_connections.bytes_in += connection.bytes_in - connection.counted_in
        self.of_connections.bytes_out += connection.bytes_out - connection.counted_out
        connection.counted_in, connection.counted_out = connection.bytes_in, connection.bytes_out

    def queue_gone(self, vhost: str, kind: str, facts: Facts) -> None:
        """It is deleted, or its leader is another node now."""
        self.of_queues.setdefault(kind, QueueCounts()).add(facts)
        self.update_queue(vhost, facts, 0, 0)

    def update_queue(self, vhost: str, facts: Facts, ready: int, unacked: int) -> None:
        """Add to the sums what one queue has done since its last update."""
        now = (*_NOT_OF_QUEUES, *taken(partial(getattr, facts)), ready, unacked)
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

    def update_connection(self, connection: ConnectionBase, *, last: bool = False) -> None:
        """Add to the sums what it has published and was told to be safe, and what went through its socket, since its
        last update. `last`: it goes, with confirms that its socket may never have taken."""
        before = connection.summed
        now = (connection.published, connection.bytes_in, connection.bytes_out)
        # Before it opens a virtual host it counts for none: its first bytes are in the first look behind that.
        if (now == before[:3] and not last) or not connection.vhost:
            return
        connection.summed = (*now, confirmed(connection))
        published, bytes_in, bytes_out, told = (
            is_now - was for is_now, was in zip(connection.summed, before, strict=True)
        )
        grown = (0, told, bytes_in, bytes_out)
        _add(self.sums, grown)
        _add(self.sums_by_vhost.setdefault(connection.vhost, list(NOTHING)), grown)
        if published:
            self.count_published(connection.vhost, published)

    def count_published(self, vhost: str, count: int) -> None:
        """`count` messages came for this virtual host."""
        _add(self.sums, (count,))
        _add(self.sums_by_vhost.setdefault(vhost, list(NOTHING)), (count,))
        self.rated.setdefault((vhost, SENT[0]), Rated()).count += count

    def update_unroutable(self, unroutable: Unroutable) -> None:
        """Add to the sums what reached no queue since the last update, in each virtual host."""
        for vhost in unroutable.vhosts():
            of_vhost = unroutable.of_vhost(vhost)
            for name, outcome in zip(LOST, (UnroutableOutcome.RETURNED, UnroutableOutcome.DROPPED), strict=True):
                rated = self.rated.get((vhost, name))
                count = of_vhost[outcome] - (0 if rated is None else rated.count)
                if not count:
                    continue
                if rated is None or count < 0:
                    # One of that name was deleted, and made again.
                    count, rated = of_vhost[outcome], Rated()
                    self.rated[vhost, name] = rated
                rated.count += count
                at = SUMS.index(name)
                self.sums[at] += count
                self.sums_by_vhost.setdefault(vhost, list(NOTHING))[at] += count

    def keep_vhosts(self, names: Collection[str]) -> None:
        """There are no others any more."""
        if not self.sums_by_vhost.keys() <= set(names):
            for name in [each for each in self.sums_by_vhost if each not in names]:
                _add(self.of_gone_vhosts, self.sums_by_vhost.pop(name))
                for counted in (SENT[0], *LOST):
                    self.rated.pop((name, counted), None)


def _add(sums: list[int], more: Sequence[int]) -> None:
    for at, value in enumerate(more):
        sums[at] += value
