"""What RabbitMQ has no name for.

What comes in: the running broker, a look at it. What goes out: families named `amqpd_*`.
Rules: 1. Units are in the names, seconds and bytes. 2. What is told elsewhere as JSON (`amqpd status`, the scrub, the
audit log, the cluster) is the same here.
Not here: single queues (`queues.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from amqpd import KERNEL, KERNEL_REASON, __version__
from amqpd.node.node import Node
from amqpd.node.totals import QueueCounts
from amqpd.publishing.unroutable import UnroutableOutcome
from amqpd.queues.facts import LEFT, TIME_IN_QUEUE_MS
from amqpd_admin.metrics.families import COUNTER, GAUGE, HISTOGRAM, UNTYPED, Family, Part, Row, one
from amqpd_admin.metrics.messages import of_type
from amqpd_admin.metrics.node_sums import NodeSums

LAGS = ("transactions", "lag_bytes", "sources_behind")
BOUNDS = (*(str(bound / 1000) for bound in TIME_IN_QUEUE_MS), "+Inf")


def kernel() -> Part:
    labels = {"kernel": KERNEL, "reason": KERNEL_REASON or "compiled", "version": __version__}
    return Family("amqpd_kernel_info", UNTYPED, "The kernel in use, and why", tuple(labels)), [
        (tuple(labels.values()), 1)
    ]


def buckets(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Of `Facts.time_in_queue`, as Prometheus has them: each with those below it."""
    found, total = [], 0
    for bound, count in zip(BOUNDS, counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found


def queues(node: Node, sums: NodeSums) -> Iterator[Part]:
    """What happened in all queues, and how they are."""
    counts = sums.all_queues
    # How long all of them waited together is not counted: there is no sum.
    times = Family(
        "amqpd_time_in_queue_seconds", HISTOGRAM, "How long messages stood in queues until they were delivered"
    )
    yield times, [((), buckets(counts.time_in_queue), None)]
    yield one("amqpd_oldest_message_age_seconds", GAUGE, "Age of the oldest message of all queues", sums.oldest_s)
    yield (
        Family("amqpd_messages_left", COUNTER, "Messages that left queues, and why", ("queue_type", "reason")),
        [((of_type(kind), reason), _left(of, reason)) for kind, of in sums.queues.items() for reason in LEFT],
    )
    yield one("amqpd_messages_dead_lettered", COUNTER, "Of those, that went to an exchange", counts.dead_lettered)
    yield one("amqpd_messages_refused", COUNTER, "Messages that full queues did not take", counts.refused)
    unroutable = node.unroutable.totals()
    yield (
        Family("amqpd_messages_unroutable", COUNTER, "Messages that no binding led to a queue", ("outcome",)),
        [((outcome.value,), unroutable[outcome]) for outcome in UnroutableOutcome],
    )
    delayed = sum(store.ready_count for store in node.delayed.values())
    gauges = (
        ("amqpd_message_bytes_in_memory", "What messages take in memory", sums.lengths["memory_bytes"]),
        ("amqpd_messages_delayed", "Messages that wait for their time", delayed),
        ("amqpd_messages_orphaned", "Messages whose queue nobody knows", node.orphans.messages),
        ("amqpd_queues_out_of_service", "Queues in which a bug was met", sums.lengths["out_of_service"]),
        ("amqpd_queues_fenced", "Queues of which something is damaged", sums.lengths["fenced"]),
    )
    for name, says, value in gauges:
        yield one(name, GAUGE, says, value)


def _left(of: QueueCounts, reason: str) -> int:
    if reason == "acked":
        return of.acked_by_clients + of.auto_acked + of.got_auto_acked
    return int(getattr(of, reason))


def broker(node: Node, figures: Mapping[str, Any]) -> Iterator[Part]:
    """Journal, audit log, scrub, bugs; spans and the cluster if there are some."""
    journal, audit, scrub = node.journal, figures["audit"], figures["scrub"]
    gauges = (
        ("amqpd_journal_stored_transaction", "The last transaction that is on the disk", journal.stored_index),
        ("amqpd_journal_committed_transaction", "The last that cannot be undone", journal.committed_index),
        ("amqpd_journal_gathered_bytes", "Of bodies, that wait for the next transaction", journal.gathered_bytes),
        ("amqpd_journal_lagging", "1 while replicas do not answer in time", int(journal.lagging)),
        ("amqpd_audit_buffered_rows", "Rows of the audit log that are not written yet", audit["rows"]),
        ("amqpd_audit_spool_bytes", "Size of the spool file that is written", audit["spool_bytes"]),
        ("amqpd_audit_spool_files_waiting", "Spool files that are not Parquet yet", audit["spool_files_waiting"]),
        ("amqpd_audit_gap", "1 while the audit log cannot be written", int(audit["gap_since"] is not None)),
        ("amqpd_scrub_progress_ratio", "How much of the pass that goes on is read", scrub["progress"]),
        ("amqpd_scrub_last_pass_timestamp_seconds", "When the last pass ended", _posix(scrub["last_pass_finished"])),
        ("amqpd_scrub_damaged_rows", "Damaged rows of the journal that were found", scrub["damaged_rows_found"]),
        ("amqpd_scrub_damaged_records", "Other damage that was found", scrub["damaged_records_found"]),
    )
    for name, says, value in gauges:
        yield one(name, GAUGE, says, value)
    yield one(
        "amqpd_audit_files_written", COUNTER, "Files of the audit log that were written", audit["files_written"]
    )
    events = node.event_exchange.copies
    yield one(
        "amqpd_events_published",
        COUNTER,
        "Events that were published to amq.rabbitmq.event",
        0 if events is None else events.published,
    )
    yield one(
        "amqpd_events_dropped",
        COUNTER,
        "Events that were dropped: too many at a time, or memory or disk was short",
        0 if events is None else events.dropped,
    )
    faults: list[Row] = [((reach,), count) for reach, count in node.faults.counts.items()]
    yield Family("amqpd_faults", COUNTER, "Bugs that were met, by what they ended", ("reach",)), faults
    spans: Mapping[str, int] = figures.get("spans", {})
    for name, value in spans.items():
        kind = GAUGE if name == "waiting" else COUNTER
        yield one(f"amqpd_spans_{name}", kind, f"Spans of traced messages: {name}", value)
    yield from _cluster(figures.get("cluster", {}))


def _cluster(facts: Mapping[str, Any]) -> Iterator[Part]:
    """Under the names of `ClusterStatistics`."""
    for name, value in facts.items():
        words = name.removesuffix("_total").replace("_", " ")
        if name.endswith("_total"):
            yield one(f"amqpd_cluster_{name.removesuffix('_total')}", COUNTER, f"Since the start: {words}", value)
        elif name not in ("peers", "members"):
            # Of what is said in sentences, how many there are.
            number = len(value) if isinstance(value, list) else float(value)
            yield one(f"amqpd_cluster_{name}", GAUGE, f"Now: {words}", number)
    for name in LAGS if facts.get("peers") else ():
        family = Family(
            f"amqpd_cluster_peer_{name}",
            GAUGE,
            f"Of a peer of a set whose leader this is: {name}",
            ("peer", "members"),
        )
        yield family, [((lag["peer"], ",".join(lag["members"])), lag[name]) for lag in facts["peers"]]


def _posix(moment: str | None) -> float | None:
    return None if moment is None else datetime.fromisoformat(moment).timestamp()
