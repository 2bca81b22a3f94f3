"""Looks at figures again and again, so that rates are those of the last seconds, and how it was can be asked later.

What comes in: the node, a clock, what is known of the machine; who asks for which samples. What goes out: samples in
the queues' facts; series.
Rules: 1. Once a second, queues to which something happened lately: a thousand at a time, and then everybody else. 2.
Each five seconds what they have done is added up, and the sums are one sample of the node: idle queues cost nothing,
and the sample costs the same however many queues there are. 3. A single queue, connection or virtual host is looked
at only while somebody asks for its samples: the first ask begins it, and it ends `WATCHED_MS` after the last one. 4.
The `LARGEST` queues with messages are looked at as if somebody asked for them, so that at an incident there is a
past. Which they are is found among those to which something happened, and once a minute among all. 5. At most
`WATCHED_MAX` of them: one that is asked for by itself takes the place of the one that was asked for longest
ago, and the rows of a list take what places are free.
Not here: what a sample of a queue's facts is (`queues/facts.py`), how samples are kept (`samples.py`), sums
(`node/totals.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from resource import RUSAGE_SELF, getrusage

import trio

from amqpd.flow.congestion import MEASURE_S
from amqpd.management.attention.watch import AttentionWatch
from amqpd.management.figures.samples import GLOBAL, STEP_MS, Series
from amqpd.management.figures.totals import CHURN, churn, queue_of, update_queue
from amqpd.node.node import Node
from amqpd.node.totals import NOTHING, SUMS
from amqpd.queues.port import QueuePort
from amqpd.session.ports import ConnectionBase
from amqpd.vocabulary.states import ConnectionState

# Facts take a sample each five seconds at most; this decides how late.
SAMPLING_S = 1.0
# A quarter of a millisecond; where what they did is added up, a whole one.
QUEUES_AT_ONCE = 1000
# The queues that an incident is about are mostly among these.
LARGEST = 100
LARGEST_OF_ALL_MS = 60_000
# As many as are on the longest page of a list, and the largest queues. Each takes 12 KB and, each five seconds, some
# microseconds.
WATCHED_MAX = 500 + LARGEST
# Somebody who looks asks each few seconds or minutes, and finds what was when a page is loaded again later.
WATCHED_MS = 600_000
WATCHED_AT_ONCE = 100

_OF_QUEUE = ("publish", "deliver_get", "redeliver", "ack", "messages_ready", "messages_unacknowledged")
OF_MESSAGES = ("messages", *_OF_QUEUE)
OF_CONNECTION = ("recv_oct", "send_oct")
OF_NODE = (
    *("messages", *SUMS),
    *CHURN,
    *("mem_used", "disk_free", "sockets_used", "context_switches"),
)
"""by RabbitMQ's names"""

_PLACES = [SUMS.index(name) for name in _OF_QUEUE]

Look = Callable[[], Sequence[int] | None]
"""figures as they are now; None: what has them is gone"""


class _Watched:
    """The series of one thing that somebody asks for."""

    __slots__ = ("asked_ms", "look", "series")

    def __init__(self, names: tuple[str, ...], look: Look) -> None:
        self.series = Series(names)
        self.look = look
        self.asked_ms = 0


class Sampler:
    """Takes samples of the figures of one node, at fixed intervals, for rates and for series over time."""

    def __init__(self, node: Node, clock_ms: Callable[[], int], machine: Callable[[], tuple[int, int]]) -> None:
        """`clock_ms`: since the epoch, never going back. `machine`: memory of the process and free space of the disk
        in bytes, as they were seen last."""
        self._node = node
        self._clock_ms = clock_ms
        self._machine = machine
        self._publishers_ms = clock_ms()
        self._step = -1
        """the last one of which there is a sample"""
        self._watched: dict[Hashable, _Watched] = {}
        """who was asked for longest ago is first"""
        self._largest: list[QueuePort] = []
        self._looked_at_all_ms = -LARGEST_OF_ALL_MS
        self.of_node = Series(OF_NODE, GLOBAL)
        self.watch = AttentionWatch(node, clock_ms)
        """what may need somebody"""

    @property
    def now_ms(self) -> int:
        """By the clock of the samples."""
        return self._clock_ms()

    async def run(self) -> None:
        """Until cancelled. The node's clock is one second old at the most: the pump's timer tells it."""
        while True:
            await trio.sleep(SAMPLING_S)
            await self._look()

    async def _look(self) -> None:
        node, now_ms = self._node, self._clock_ms()
        due = now_ms // STEP_MS > self._step
        happened = list[QueuePort]()
        for at, dispatched in enumerate(list(node.active), 1):
            queue = queue_of(node, dispatched)
            if queue is not None:
                queue.facts.sample(node.now_ms)
            # Until something happens to it again: most of very many queues are idle.
            idle = queue is None or not queue.is_served or queue.facts.settled
            if queue is not None and (due or idle):
                happened.append(queue)
                update_queue(node, queue)
                self.watch.look(queue)
            if idle:
                del node.active[dispatched]
            if at % QUEUES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        if due:
            self._step = now_ms // STEP_MS
            seconds = max(1.0, (now_ms - self._publishers_ms) / 1000)
            self._publishers_ms = now_ms
            await self._look_at_publishers(seconds)
            node.totals.keep_vhosts(node.topology.vhosts)
            self.of_node.add(now_ms, self._figures())
            await self.watch.look_around()
            await self._find_largest(happened, now_ms)
            await self._look_at_watched(now_ms)

    async def _find_largest(self, happened: list[QueuePort], now_ms: int) -> None:
        """Rule 4. `happened`: queues to which something happened."""
        candidates = dict.fromkeys([*self._largest, *happened])
        if now_ms - self._looked_at_all_ms >= LARGEST_OF_ALL_MS:
            self._looked_at_all_ms = now_ms
            candidates = dict.fromkeys(self._node.queues.values())
        found, walk = list[QueuePort](), iter(candidates)
        while some := list(islice(walk, QUEUES_AT_ONCE)):
            filled = [queue for queue in some if _length(queue) and queue.is_served]
            found = heapq.nlargest(LARGEST, [*found, *filled], key=_length)
            await trio.lowlevel.checkpoint()
        self._largest = found
        for queue in found:
            self.of_queue(queue, alone=True)

    async def _look_at_publishers(self, seconds: float) -> None:
        """So long after the last time."""
        node = self._node
        looked_at = 0
        for connection in list(node.connections.values()):
            node.totals.update_connection(connection)
            if connection.id in node.connections:  # it has not gone meanwhile
                node.totals.traffic.look(connection, node.now_ms)
            looked_at += 1 + len(connection.channels)
            if looked_at >= QUEUES_AT_ONCE:
                looked_at = 0
                await trio.lowlevel.checkpoint()
        node.totals.update_unroutable(node.unroutable)
        for rated in list(node.totals.rated.values()):
            rated.sample(node.now_ms)
        for at, passed in enumerate(node.routes.traffic.all(), 1):
            passed.sample(seconds)
            if at % QUEUES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    def _figures(self) -> Sequence[int]:
        node = self._node
        used = getrusage(RUSAGE_SELF)
        return (
            *_of_sums(node.totals.sums),
            *churn(node).values(),
            *(*self._machine(), len(node.connections), used.ru_nvcsw + used.ru_nivcsw),
        )

    async def _look_at_watched(self, now_ms: int) -> None:
        for at, (thing, watched) in enumerate(list(self._watched.items()), 1):
            figures = watched.look() if now_ms - watched.asked_ms < WATCHED_MS else None
            if figures is not None:
                watched.series.add(now_ms, figures)
            else:
                self._watched.pop(thing, None)
            if at % WATCHED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    # Rule 3

    def of_queue(self, queue: QueuePort, *, alone: bool) -> Series | None:
        """Its series, from the first ask on; None when too many things are asked for. `alone`: not in a list."""
        return self._watch(queue, OF_MESSAGES, lambda: _of_queue(self._node, queue), alone)

    def of_connection(self, connection: ConnectionBase, *, alone: bool) -> Series | None:
        """The samples of one connection, as `of_queue` gives those of a queue."""
        return self._watch(connection, OF_CONNECTION, lambda: _of_connection(connection), alone)

    def of_vhost(self, name: str, *, alone: bool) -> Series | None:
        """The samples of all queues of a virtual host together."""
        return self._watch(("vhost", name), OF_MESSAGES, lambda: _of_vhost(self._node, name), alone)

    def _watch(self, thing: Hashable, names: tuple[str, ...], look: Look, alone: bool) -> Series | None:
        watched, now_ms = self._watched.pop(thing, None), self._clock_ms()
        if watched is None:
            first = next(iter(self._watched), None)
            if len(self._watched) >= WATCHED_MAX and first is not None:
                if not alone:
                    return None
                del self._watched[first]
            watched = _Watched(names, look)
            figures = look()
            if figures is None:
                return None
            watched.series.add(now_ms, figures)
        watched.asked_ms = now_ms
        self._watched[thing] = watched
        return watched.series


def _length(queue: QueuePort) -> int:
    return queue.ready_count + queue.unacked_count


def _of_sums(sums: Sequence[int]) -> Sequence[int]:
    """With all messages in front."""
    return (sums[-2] + sums[-1], *sums)


def _of_queue(node: Node, queue: QueuePort) -> Sequence[int] | None:
    record = queue.record
    found = node.queues.get((record.vhost, record.name))
    if found is not queue:
        return None
    facts = found.facts
    counters = (facts.accepted - facts.recovered, facts.delivered, facts.redelivered, facts.acked_by_clients)
    return _of_sums((*counters, found.ready_count, found.unacked_count))


def _of_connection(connection: ConnectionBase) -> Sequence[int] | None:
    return None if connection.state is ConnectionState.CLOSED else (connection.bytes_in, connection.bytes_out)


def _of_vhost(node: Node, name: str) -> Sequence[int] | None:
    """As of the last look at each of its queues."""
    if name not in node.topology.vhosts:
        return None
    sums = node.totals.sums_by_vhost.get(name, NOTHING)
    return _of_sums([sums[at] for at in _PLACES])


async def run_measurements(node: Node, run_effects: Callable[[], None]) -> None:
    """Let the node see how fast crowded queues drain, and go on with publishers that need not wait any more. Until
    cancelled."""
    while True:
        await trio.sleep(MEASURE_S)
        if node.congestion.queues or node.quotas.waiting:
            node.measure()
            run_effects()
