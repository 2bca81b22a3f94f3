"""What goes in must come out: judges a history of publishes and deliveries that a broker was killed under.

After the total-queue checker of Jepsen (jepsen/checker.clj): attempted, acknowledged and dequeued as
multisets; lost and unexpected must be empty, duplicated and recovered are counted. Stricter here, as we
know more: a delivery counts only if it was settled afterwards, per queue; order and the `redelivered`
flag are checked.

What comes in: a `History`, after a full drain. What goes out: a `Verdict`.
Rules (per queue): 1. lost: confirmed, and no delivery of it was settled. 2. unexpected: delivered, though
never attempted for this queue, or refused (nack), or returned as unroutable. 3. resurrected: delivered
after a settlement that was proven to be on disk. 4. misordered: first deliveries of one publisher's
messages are in the order of its publishes. 5. unflagged: delivered a second time in one incarnation without
`redelivered`; after a kill the outcome of what was in flight is unknown, so such duplicates are only
counted. 6. A message that may be dead-lettered is lost when it is settled neither in its queue nor among the dead
letters, and moved twice when it is settled for sure in both.
Not here: collecting (`workload.py`, `drain.py`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from .history import CONFIRMED, REFUSED, UNKNOWN, History, PublisherHistory, QueueHistory, ranges

Found = dict[tuple[str, str], list[int]]
"""(queue, publisher) -> sequences"""


@dataclass
class Verdict:
    lost: Found = field(default_factory=dict)
    unexpected: Found = field(default_factory=dict)
    resurrected: Found = field(default_factory=dict)
    misordered: Found = field(default_factory=dict)
    unflagged: Found = field(default_factory=dict)
    moved_twice: Found = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def valid(self) -> bool:
        found = (self.lost, self.unexpected, self.resurrected, self.misordered, self.unflagged, self.moved_twice)
        return not any(found) and not self.violations

    def text(self) -> str:
        lines = [", ".join(f"{name} {count}" for name, count in self.counts.items())]
        for name in ("lost", "unexpected", "resurrected", "misordered", "unflagged", "moved_twice"):
            found: Found = getattr(self, name)
            lines.append(f"{name} = {sum(map(len, found.values()))}")
            lines += [f"  {queue} from {pub}: {ranges(seqs)}" for (queue, pub), seqs in found.items()]
        return "\n".join([*lines, *self.violations])


def check(history: History, *, acks_are_durable: bool = True) -> Verdict:
    """Judge a drained history. `acks_are_durable=False` is for brokers that promise nothing about
    acknowledgements over a crash (RabbitMQ's classic queues): rule 3 is then counted and not failed."""
    verdict = Verdict()
    for publisher in history.publishers.values():
        verdict.violations += publisher.violations
        verdict.counts["attempted"] += publisher.attempted
        verdict.counts["confirmed"] += publisher.outcomes.count(CONFIRMED)
        verdict.counts["refused"] += publisher.outcomes.count(REFUSED)
        verdict.counts["unknown"] += publisher.outcomes.count(UNKNOWN)
        verdict.counts["returned"] += len(publisher.returned)
    seen: dict[str, Seen] = {}
    for queue in history.queues.values():
        verdict.violations += queue.violations
        verdict.counts["settled_for_sure"] += len(queue.settle_sure)
        seen[queue.name] = _check_queue(history, queue, verdict)
        if queue.counted_as:
            verdict.counts[queue.counted_as] += len(seen[queue.name].delivered)
    for publisher in history.publishers.values():
        for name in publisher.queues:
            _check_publisher(publisher, name, seen, verdict)
    if not acks_are_durable:
        verdict.counts["resurrected"] = sum(map(len, verdict.resurrected.values()))
        verdict.resurrected = {}
    return verdict


class Seen(NamedTuple):
    """(publisher, sequence) of what a queue gave, of what was settled in it, and of what was so for sure."""

    delivered: set[tuple[str, int]]
    settled: set[tuple[str, int]]
    sure: set[tuple[str, int]]


def _check_queue(history: History, queue: QueueHistory, verdict: Verdict) -> Seen:
    seen: dict[tuple[str, int], int] = {}  # -> the incarnation of its latest delivery
    settled: set[tuple[str, int]] = set()
    sure: set[tuple[str, int]] = set()
    newest: dict[tuple[str, int], int] = {}
    for index, (name, sequence, redelivered, incarnation) in enumerate(queue.deliveries):
        message = (name, sequence)
        verdict.counts["delivered"] += 1
        if not _expected(history, queue.name, name, sequence):
            _note(verdict.unexpected, queue.name, name, sequence)
        if message in sure:
            _note(verdict.resurrected, queue.name, name, sequence)
        if message in seen:
            verdict.counts["duplicated"] += 1
            if not redelivered and seen[message] == incarnation:
                _note(verdict.unflagged, queue.name, name, sequence)
            elif not redelivered:
                verdict.counts["duplicated_unflagged_after_kill"] += 1
        elif queue.lane_of is not None:
            lane = name, queue.lane_of(sequence)
            if sequence < newest.get(lane, -1):
                _note(verdict.misordered, queue.name, name, sequence)
            newest[lane] = max(newest.get(lane, -1), sequence)
        seen[message] = incarnation
        if index in queue.settle_sent or index in queue.settle_sure:
            settled.add(message)
        if index in queue.settle_sure:
            sure.add(message)
    return Seen(set(seen), settled, sure)


def _check_publisher(publisher: PublisherHistory, queue: str, seen: dict[str, Seen], verdict: Verdict) -> None:
    """What came out of the queue, or as a dead letter instead."""
    here, dead_letters = seen[queue], seen.get(publisher.dead, Seen(set(), set(), set()))
    for sequence, outcome in enumerate(publisher.outcomes):
        message = (publisher.name, sequence)
        if sequence in publisher.unroutable:
            continue
        if outcome == CONFIRMED and message not in here.settled and message not in dead_letters.settled:
            if publisher.may_vanish(sequence):
                verdict.counts["expired into nothing"] += 1
            else:
                _note(verdict.lost, queue, publisher.name, sequence)
        if outcome == UNKNOWN and (message in here.delivered or message in dead_letters.delivered):
            verdict.counts["recovered"] += 1
        if message in here.sure and message in dead_letters.sure:
            _note(verdict.moved_twice, queue, publisher.name, sequence)


def _expected(history: History, queue: str, name: str, sequence: int) -> bool:
    publisher = history.publishers.get(name)
    return (
        publisher is not None
        and (queue in publisher.queues or queue == publisher.dead)
        and 0 <= sequence < publisher.attempted
        and sequence not in publisher.unroutable
        and publisher.outcomes[sequence] != REFUSED
    )


def _note(found: Found, queue: str, publisher: str, sequence: int) -> None:
    found.setdefault((queue, publisher), []).append(sequence)
