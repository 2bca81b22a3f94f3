"""A sample for each queue.

What comes in: the node, which groups of families are wanted, which queues. What goes out: families with a row for
each queue; or of all of them together.
Rules: 1. The groups have the names of RabbitMQ's tables, which `/metrics/detailed` asks for. 2. Each queue is asked
once, whatever number of families is wanted, and only the numbers are kept. 3. A queue that is gone when its turn
comes is left out, and so is one whose leader is another node.
Not here: which endpoint has which (`endpoints.py`).

Source: prometheus_rabbitmq_core_metrics_collector.erl of RabbitMQ (groups and names).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan

import trio

from amqpd.node.node import Node
from amqpd.queues.facts import LEFT, TIME_IN_QUEUE_MS
from amqpd.queues.port import Statistics
from amqpd.queues.queue import Queue
from amqpd.vocabulary.records import QueueRecord
from amqpd_admin.metrics.families import COUNTER, GAUGE, HISTOGRAM, Family, Part, Row, one
from amqpd_admin.metrics.messages import WAYS, of_type
from amqpd_admin.metrics.node_sums import AT_ONCE, NodeSums
from amqpd_admin.metrics.ours import buckets

LABELS = ("vhost", "queue")
COARSE, CONSUMERS, METRICS, DELIVERY, PUBLISHED = (
    "queue_coarse_metrics",
    "queue_consumer_count",
    "queue_metrics",
    "queue_delivery_metrics",
    "channel_queue_exchange_metrics",
)
OURS, TIMES, LEAVING = "amqpd_queue_metrics", "amqpd_time_in_queue", "amqpd_messages_left"


@dataclass(frozen=True)
class Of:
    """A family of queues: `value` says one queue's number; `total` that of all, if it makes sense."""

    family: Family
    value: Callable[[Queue, Statistics, int], float | None]
    total: Callable[[NodeSums], float] | None = None


def _of(
    name: str,
    says: str,
    value: Callable[[Queue, Statistics, int], float | None],
    total: Callable[[NodeSums], float] | None = None,
    kind: str = GAUGE,
) -> Of:
    return Of(Family(name, kind, says, LABELS), value, total)


_CONSUMERS = _of(
    "queue_consumers", "Consumers of queues", lambda q, s, n: s.consumers, lambda sums: sums.lengths["consumers"]
)
_DELIVERY_NAMES = {
    "queue_get_ack": "delivered_get_manual_ack",
    "queue_get": "delivered_get_auto_ack",
    "queue_messages_delivered_ack": "delivered_consume_manual_ack",
    "queue_messages_delivered": "delivered_consume_auto_ack",
    "queue_messages_redelivered": "redelivered",
    "queue_messages_acked": "acknowledged",
    "queue_get_empty": "get_empty",
}


def _delivery(name: str, way: str) -> Of:
    says, count = WAYS[way]
    return _of(name, says, lambda q, s, n: count(q.facts), lambda sums: count(sums.all_queues), COUNTER)


GROUPS: dict[str, tuple[Of, ...]] = {
    COARSE: (
        _of(
            "queue_messages_ready", "Messages that nobody has", lambda q, s, n: s.ready, lambda k: k.lengths["ready"]
        ),
        _of(
            "queue_messages_unacked",
            "Messages that consumers have not acknowledged",
            lambda q, s, n: s.unacked,
            lambda sums: sums.lengths["unacked"],
        ),
        _of(
            "queue_messages",
            "Messages, ready or not acknowledged",
            lambda q, s, n: s.ready + s.unacked,
            lambda sums: sums.lengths["ready"] + sums.lengths["unacked"],
        ),
    ),
    CONSUMERS: (_CONSUMERS,),
    METRICS: (
        _CONSUMERS,
        _of(
            "queue_consumer_capacity", "Share of the time in which consumers can take", lambda q, s, n: s.utilisation
        ),
        _of("queue_consumer_utilisation", "The same as the capacity", lambda q, s, n: s.utilisation),
        _of(
            "queue_process_memory_bytes",
            "What messages take in memory",
            lambda q, s, n: s.memory_bytes,
            lambda sums: sums.lengths["memory_bytes"],
        ),
        _of(
            "queue_messages_bytes",
            "Size of messages, ready or not acknowledged",
            lambda q, s, n: s.ready_bytes + s.unacked_bytes,
            lambda sums: sums.lengths["ready_bytes"] + sums.lengths["unacked_bytes"],
        ),
        _of(
            "queue_messages_ready_bytes",
            "Size of ready messages",
            lambda q, s, n: s.ready_bytes,
            lambda sums: sums.lengths["ready_bytes"],
        ),
        _of(
            "queue_messages_unacked_bytes",
            "Size of messages that are not acknowledged",
            lambda q, s, n: s.unacked_bytes,
            lambda sums: sums.lengths["unacked_bytes"],
        ),
    ),
    DELIVERY: tuple(_delivery(name, way) for name, way in _DELIVERY_NAMES.items()),
    PUBLISHED: (
        _of(
            "queue_messages_published",
            "Messages that came into queues",
            lambda q, s, n: q.facts.accepted - q.facts.recovered,
            lambda sums: sum(each.accepted - each.recovered for each in sums.queues.values()),
            COUNTER,
        ),
    ),
    OURS: (
        _of(
            "queue_oldest_message_age_seconds",
            "Age of the oldest message",
            lambda q, s, now_ms: None if s.oldest_ms is None else max(0, now_ms - s.oldest_ms) / 1000,
        ),
        _of(
            "queue_messages_dead_lettered",
            "Messages that went to a dead letter exchange",
            lambda q, s, n: q.facts.dead_lettered,
            kind=COUNTER,
        ),
        _of(
            "queue_messages_refused",
            "Messages that it did not take, because it was full",
            lambda q, s, n: q.facts.refused,
            kind=COUNTER,
        ),
    ),
}


def totals(sums: NodeSums, groups: Sequence[str]) -> Iterator[Part]:
    """Of all queues together; counters with those of queues that are gone."""
    for each in _distinct(groups):
        if each.total is not None:
            yield one(f"rabbitmq_{each.family.name}", each.family.kind, each.family.help, each.total(sums))


async def each_queue(
    node: Node, groups: Sequence[str], wanted: Callable[[str, str], bool], prefix: str, ours: str
) -> list[Part]:
    """`wanted` is asked with a virtual host and a name; `prefix` stands before RabbitMQ's names, `ours` before
    ours."""
    seen = _Seen(_distinct(groups), TIMES in groups, LEAVING in groups)
    for at, queue in enumerate(list(node.queues.values()), 1):
        if not (queue.is_deleted or queue.is_remote) and wanted(queue.record.vhost, queue.record.name):
            seen.add(queue, node.now_ms)
        if at % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    return list(seen.parts(prefix, ours))


class _Seen:
    """Numbers of queues, in arrays: a hundred thousand rows would take long to free, in one step."""

    def __init__(self, families: Sequence[Of], times: bool, left: bool) -> None:
        self._families = families
        self._wants_times, self._wants_left = times, left
        self._records: list[QueueRecord] = []
        self._kinds: list[str] = []
        self._columns = [array("d") for _ in families]
        """NaN where there is nothing to tell"""
        self._times, self._left = array("Q"), array("Q")
        """as many for each queue as it has buckets, or reasons"""

    def add(self, queue: Queue, now_ms: int) -> None:
        said = queue.statistics(now_ms)
        self._records.append(queue.record)
        self._kinds.append(of_type(queue.type))
        for each, column in zip(self._families, self._columns, strict=True):
            value = each.value(queue, said, now_ms)
            column.append(nan if value is None else value)
        if self._wants_times:
            self._times.extend(said.time_in_queue)
        if self._wants_left:
            self._left.extend(said.totals[reason] for reason in LEFT)

    def parts(self, prefix: str, ours: str) -> Iterator[Part]:
        own = {each.family.name for each in GROUPS[OURS]}
        for each, column in zip(self._families, self._columns, strict=True):
            begins = ours if each.family.name in own else prefix
            yield replace(each.family, name=begins + each.family.name), self._rows(column)
        if self._families:
            says = "1 for each queue, with its type"
            yield Family(f"{prefix}queue_info", GAUGE, says, (*LABELS, "queue_type", "membership")), self._info()
        says = "How long messages stood in the queue until they were delivered"
        yield Family(f"{ours}queue_time_in_queue_seconds", HISTOGRAM, says, LABELS), self._histograms()
        says = "Messages that left the queue, and why"
        yield Family(f"{ours}queue_messages_left", COUNTER, says, (*LABELS, "reason")), self._reasons()

    def _rows(self, column: array[float]) -> Iterator[Row]:
        for record, value in zip(self._records, column, strict=True):
            if not isnan(value):
                yield (record.vhost, record.name), value

    def _info(self) -> Iterator[Row]:
        for record, kind in zip(self._records, self._kinds, strict=True):
            yield (record.vhost, record.name, kind, "leader"), 1

    def _histograms(self) -> Iterator[Row]:
        size = len(TIME_IN_QUEUE_MS) + 1
        for at, record in enumerate(self._records if self._wants_times else ()):
            yield (record.vhost, record.name), buckets(self._times[at * size : (at + 1) * size]), None

    def _reasons(self) -> Iterator[Row]:
        for at, record in enumerate(self._records if self._wants_left else ()):
            for number, reason in enumerate(LEFT):
                yield (record.vhost, record.name, reason), self._left[at * len(LEFT) + number]


def _distinct(groups: Sequence[str]) -> list[Of]:
    """A family may be in two groups."""
    return list({each.family.name: each for group in groups for each in GROUPS.get(group, ())}.values())
