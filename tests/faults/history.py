"""What clients did and saw, over all incarnations of a broker: the evidence that the checker judges.

What comes in: publishers and consumers write down what they sent and received, as it happens.
What goes out: the history as values, and as text with sequence numbers folded into ranges.
Rules: 1. A message is (publisher, sequence); sequences of a publisher start at 0, grow by one, are used
once. 2. Written down *before* it is sent (publishes, settlements), *after* it has been received
(confirms, deliveries): so that a kill in between leaves an unknown outcome, never a false certainty. 3. An
incarnation ends with a kill. A clean restart is the same incarnation, as nothing may be forgotten over it. 4. Each
object is written by one thread.
Not here: the judgement (`checker.py`), the sockets (`workload.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

UNKNOWN, CONFIRMED, REFUSED = 0, 1, 2


class Delivery(NamedTuple):
    publisher: str
    sequence: int
    redelivered: bool
    incarnation: int


@dataclass
class PublisherHistory:
    """`outcomes[sequence]` is UNKNOWN until a confirm (ack) or a refusal (nack) has come for it. `dead` is where
    messages may come out instead; `may_vanish` says which may come out nowhere; `sent_ms` when each was sent, in
    milliseconds since the epoch."""

    name: str
    queues: tuple[str, ...]
    dead: str = ""
    may_vanish: Callable[[int], bool] = lambda sequence: False
    sent_ms: array[int] = field(default_factory=lambda: array("q"))
    outcomes: bytearray = field(default_factory=bytearray)
    unroutable: set[int] = field(default_factory=set)
    returned: set[int] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)

    @property
    def attempted(self) -> int:
        return len(self.outcomes)

    def attempt(self, count: int, now_ms: int = 0) -> int:
        """Note `count` further publishes; the sequence of the first."""
        first = len(self.outcomes)
        self.sent_ms.extend([now_ms] * count)
        self.outcomes += bytes(count)
        return first

    def resolve(self, first: int, last: int, outcome: int) -> None:
        """Confirm or refusal for first..last. Each may come once; a return comes before its confirm."""
        if any(self.outcomes[first : last + 1]):
            self.violations.append(f"{self.name}: a second confirm within {first}..{last}")
        self.outcomes[first : last + 1] = bytes([outcome]) * (last + 1 - first)
        in_question = self.unroutable.intersection(range(first, last + 1))
        late = in_question - self.returned
        if late:
            self.violations.append(f"{self.name}: confirmed before the return came: {ranges(late)}")

    def sequences(self, outcome: int) -> list[int]:
        return [sequence for sequence, seen in enumerate(self.outcomes) if seen == outcome]


@dataclass
class QueueHistory:
    """`settle_sent` and `settle_sure` are indexes into `deliveries`: an acknowledgement was sent for it,
    and a later answer proves that it is on disk. A delivery in neither went back to the queue. `lane_of` says of
    sequence numbers which of them are in order among each other (None: no order); `rank_of` what must not rise while
    the queue is emptied; `earliest_ms` before when a message must not come. A dead letter queue says of which queue,
    and for which reason; `counted_as` is the name under which its messages are counted."""

    name: str
    dead_letters_of: str = ""
    reason: str = ""
    lane_of: Callable[[int], int] | None = lambda sequence: 0
    rank_of: Callable[[int], int] | None = None
    earliest_ms: Callable[[int], int] | None = None
    counted_as: str = ""
    deliveries: list[Delivery] = field(default_factory=list)
    settle_sent: set[int] = field(default_factory=set)
    settle_sure: set[int] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)


@dataclass
class History:
    publishers: dict[str, PublisherHistory] = field(default_factory=dict)
    queues: dict[str, QueueHistory] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    incarnation: int = 0

    def text(self) -> str:
        """Everything that one needs to think about a failure, without a line per message."""
        lines = [*self.events]
        for publisher in self.publishers.values():
            queues = ", ".join(publisher.queues)
            lines += [
                f"publisher {publisher.name} -> {queues}: attempted {publisher.attempted}",
                f"  confirmed {ranges(publisher.sequences(CONFIRMED))}",
                f"  refused {ranges(publisher.sequences(REFUSED))}",
                f"  unknown {ranges(publisher.sequences(UNKNOWN))}",
            ]
        for queue in self.queues.values():
            lines.append(f"queue {queue.name}: {len(queue.deliveries)} deliveries")
            of: dict[tuple[int, str], list[tuple[int, int]]] = {}
            for index, delivery in enumerate(queue.deliveries):
                of.setdefault((delivery.incarnation, delivery.publisher), []).append((index, delivery.sequence))
            for (incarnation, name), mine in sorted(of.items()):
                sent = [sequence for index, sequence in mine if index in queue.settle_sent]
                sure = [sequence for index, sequence in mine if index in queue.settle_sure]
                lines.append(f"  incarnation {incarnation} from {name}: {ranges(sequence for _, sequence in mine)}")
                lines.append(f"    settled {ranges(sent)}; for sure {ranges(sure)}")
        return "\n".join(lines)


def ranges(numbers: Iterable[int]) -> str:
    """`0-3 7 9-10`: a set of numbers for people."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(f"{low}-{high}" if high > low else str(low) for low, high in parts) or "none"
