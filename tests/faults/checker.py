"""What goes in must come out: judges a history of publishes and deliveries that a broker was killed under.

After the total-queue checker of Jepsen (jepsen/checker.clj): attempted, acknowledged and dequeued as
multisets; lost and unexpected must be empty, duplicated and recovered are counted. Stricter here, as we
know more: a delivery counts only if it was settled afterwards, per queue; order and the `redelivered`
flag are checked.

What comes in: a `History`, after a full drain. What goes out: a `Verdict`.
Rules (per queue): 1. lost: confirmed, and no delivery of it was settled. 2. unexpected: delivered, though
never attempted for this queue, or refused (nack), or returned as unroutable. 3. resurrected: delivered
after a settlement that was proven to be on disk. 4. misordered: first deliveries of one publisher's
messages are in the order of its publishes. 5. unflagged: delivered a second time in one life without
`redelivered`; after a kill the outcome of what was in flight is unknown, so such duplicates are only
counted.
Not here: collecting (`workload.py`, `drain.py`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .history import CONFIRMED, REFUSED, UNKNOWN, History, QueueHistory, ranges

Found = dict[tuple[str, str], list[int]]
"""(queue, publisher) -> sequences"""


@dataclass
class Verdict:
    lost: Found = field(default_factory=dict)
    unexpected: Found = field(default_factory=dict)
    resurrected: Found = field(default_factory=dict)
    misordered: Found = field(default_factory=dict)
    unflagged: Found = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def valid(self) -> bool:
        found = (self.lost, self.unexpected, self.resurrected, self.misordered, self.unflagged)
        return not any(found) and not self.violations

    def text(self) -> str:
        lines = [", ".join(f"{name} {count}" for name, count in self.counts.items())]
        for name in ("lost", "unexpected", "resurrected", "misordered", "unflagged"):
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
    for queue in history.queues.values():
        verdict.violations += queue.violations
        verdict.counts["settled_for_sure"] += len(queue.settle_sure)
        _check_queue(history, queue, verdict)
    if not acks_are_durable:
        verdict.counts["resurrected"] = sum(map(len, verdict.resurrected.values()))
        verdict.resurrected = {}
    return verdict


def _check_queue(history: History, queue: QueueHistory, verdict: Verdict) -> None:
    seen: dict[tuple[str, int], int] = {}  # -> the life of its latest delivery
    settled: set[tuple[str, int]] = set()
    sure: set[tuple[str, int]] = set()
    newest: dict[str, int] = {}
    for index, (name, sequence, redelivered, life) in enumerate(queue.deliveries):
        message = (name, sequence)
        verdict.counts["delivered"] += 1
        if not _expected(history, queue.name, name, sequence):
            _note(verdict.unexpected, queue.name, name, sequence)
        if message in sure:
            _note(verdict.resurrected, queue.name, name, sequence)
        if message in seen:
            verdict.counts["duplicated"] += 1
            if not redelivered and seen[message] == life:
                _note(verdict.unflagged, queue.name, name, sequence)
            elif not redelivered:
                verdict.counts["duplicated_unflagged_after_kill"] += 1
        else:
            if sequence < newest.get(name, -1):
                _note(verdict.misordered, queue.name, name, sequence)
            newest[name] = max(newest.get(name, -1), sequence)
        seen[message] = life
        if index in queue.settle_sent or index in queue.settle_sure:
            settled.add(message)
        if index in queue.settle_sure:
            sure.add(message)
    for publisher in history.publishers.values():
        if queue.name not in publisher.queues:
            continue
        for sequence, outcome in enumerate(publisher.outcomes):
            if sequence in publisher.unroutable:
                continue
            if outcome == CONFIRMED and (publisher.name, sequence) not in settled:
                _note(verdict.lost, queue.name, publisher.name, sequence)
            if outcome == UNKNOWN and (publisher.name, sequence) in seen:
                verdict.counts["recovered"] += 1


def _expected(history: History, queue: str, name: str, sequence: int) -> bool:
    publisher = history.publishers.get(name)
    return (
        publisher is not None
        and queue in publisher.queues
        and 0 <= sequence < publisher.attempted
        and sequence not in publisher.unroutable
        and publisher.outcomes[sequence] != REFUSED
    )


def _note(found: Found, queue: str, publisher: str, sequence: int) -> None:
    found.setdefault((queue, publisher), []).append(sequence)
