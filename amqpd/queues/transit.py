"""Messages that died or fell due here, on their way to queues that other nodes lead.

What comes in: a stretch of messages of one backlog; the queues that are given what they become; what those refuse;
that all is decided. What goes out: which of the messages are done, and which have to go again, and where to.
Rules: 1. A message stays where it is, as nobody's, until each remote queue has decided about what became of it. So
a link, a leader or this process can be lost in between, and nothing is (rule 22 of
docs/decisions/remote-protocol.md). 2. Queues of this node come last: they get theirs in the tick in which the message
leaves its own. What goes to remote queues again is no second one for them. 3. What a queue refuses comes again for
that queue alone, if it has to be *kept*; else it is lost there, and counted. What nobody can say any more whether it
was taken comes again in any case. 4. Of one backlog a bounded number is on its way at a time.
Not here: the way there (`amqpd/remote/edge.py`), which queues (`amqpd/publishing`), what leaves the backlog then
(`removal.py`, `delayed.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from amqpd.kernel import Run
from amqpd.queues.receipt import Receipt
from amqpd.vocabulary.records import QueueRecord

# On their way from one backlog; at least one message may be. What is undecided at one source has a bound of its own
# (`amqpd/remote/operations.py`).
TRANSIT_MESSAGES_MAX, TRANSIT_BYTES_MAX = 2_000, 4 << 20
# Of one stretch this much goes in one operation, about: a link has others to serve.
PIECE_BYTES_MAX = 1 << 20

Names = tuple[str, ...]
"""of queues, in the virtual host of the backlog"""


class TransitReceipt(Receipt):
    """The receipt of what goes to some of the queues: what is refused by one of them counts as refused by all."""

    def __init__(self, keeps: bool) -> None:
        self.names: Names = ()
        self.refused = 0
        """messages that are lost there"""
        self.again: list[tuple[int, int]] = []
        """(low, high) of what has to go there again"""
        self._keeps = keeps

    def refuse(self, low: int, high: int) -> None:
        if self._keeps:
            self.again.append((low, high))
        else:
            self.refused += high - low

    def give_up(self, low: int, high: int) -> None:
        self.again.append((low, high))

    def repeats(self, at: int) -> bool:
        """The message has to go there again."""
        return any(low <= at < high for low, high in self.again)


class Transit:
    """Some messages of one backlog that follow each other."""

    def __init__(self, first: int, reason: str = "", names: Names | None = None) -> None:
        """`first`: of the messages in the backlog; `reason`: why they died; `names`: the queues that are to have
        them, when others have them already."""
        self.first = first
        self.reason = reason
        self.names = names
        self.count = self.nbytes = self.publication = 0
        """that are on their way; what they take; the first one in the audit log, 0 if that does not record"""
        self.repeats = False
        """a queue is to be given some of them again"""
        self._local: Names = ()
        self._keeps = False
        self._receipts: dict[tuple[int, str], TransitReceipt] = {}

    def begin(self, run: Run, publication: int, keeps: bool, local: Names) -> None:
        """The run goes to remote queues now, and then to these local ones. `keeps`: what is refused is."""
        self.count, self.nbytes, self.publication = run.count, run.memory_bytes, publication
        self._keeps, self._local = keeps, local

    def receipt(self, record: QueueRecord) -> TransitReceipt:
        """For this queue. One for all queues of a source, to which one operation can go then, unless it has to be
        known which of them has refused."""
        key = record.source, record.name if self._keeps else ""
        receipt = self._receipts.get(key)
        if receipt is None:
            receipt = self._receipts[key] = TransitReceipt(self._keeps)
        receipt.names += (record.name,)
        return receipt

    @property
    def refused(self) -> int:
        """Messages that are lost, each counted for each source where it is."""
        return sum([receipt.refused for receipt in self._receipts.values()])

    def lost(self) -> None:
        """Nobody knows what became of them."""
        for receipt in self._receipts.values():
            receipt.give_up(0, self.count)

    def outcome(self) -> list[tuple[int, int, Names | None]]:
        """All is decided: (first, last, queues that have to have these messages now), in order. No queue: they are
        done with. None: nobody has them, so it is to be found out once more where they go."""
        receipts = list(self._receipts.values())
        bounds = {0, self.count}
        for receipt in receipts:
            for part in receipt.again:
                bounds.update(part)
        self.repeats = len(bounds) > 2 or any(receipt.again for receipt in receipts)
        return list(self._parts(receipts, sorted(bounds)))

    def _parts(self, receipts: list[TransitReceipt], bounds: list[int]) -> Iterator[tuple[int, int, Names | None]]:
        for low, high in pairwise(bounds):
            again = [receipt for receipt in receipts if receipt.repeats(low)]
            names: Names | None = self._local
            if again and len(again) == len(receipts) and self.names is None:
                names = None
            elif again:
                names = tuple([name for receipt in again for name in receipt.names]) + self._local
            yield self.first + low, self.first + high - 1, names


class Transits:
    """What is on its way from one backlog, summed up."""

    def __init__(self) -> None:
        self.count = self.nbytes = 0

    def are_full(self) -> bool:
        """Nothing more goes until some of it is decided."""
        return self.count >= TRANSIT_MESSAGES_MAX or self.nbytes >= TRANSIT_BYTES_MAX

    def begins(self, transit: Transit) -> None:
        """It is on its way now."""
        self.count += transit.count
        self.nbytes += transit.nbytes

    def ends(self, transit: Transit) -> None:
        """It is decided."""
        self.count -= transit.count
        self.nbytes -= transit.nbytes


def piece_end(run: Run, low: int, high: int) -> int:
    """Of messages low..high-1 of the run, which are alike: behind as many of them as go in one operation."""
    return min(high, low + max(1, PIECE_BYTES_MAX * run.count // max(1, run.nbytes)))
