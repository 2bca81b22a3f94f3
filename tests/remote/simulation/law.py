"""What must hold, whatever happens to links, leaders and edges.

Rules: 1. Everything that is confirmed is in the committed sequence, once, in each queue that it went to. What was
refused is not confirmed. 2. What is settled in the sequence was settled by a client that had it, or purged; it is not
sent again. 3. What a client may have seen before is `redelivered`. 4. A message is held by one at a time, of those
whose session is attached in this epoch and whose claim was not refused. 5. Prefetch is never exceeded. 6. Publishes
of one channel are in each queue in their order; deliveries of a subscription too, except redelivered ones. 7. What
comes back is counted only when a client had it, or was sent it and has ended. 8. Counts of questions and purges are
those of all operations in front of them, and of none behind. 9. Both ledgers differ only after a fault that makes
them. 10. What is purged, or counted as ready, nobody may hold. 11. In the end everything is settled, nothing is
undecided or unanswered, and both ends have the same limits. 12. A claim that comes in time, within the claim wait of
a new leader or a lease of the link's end, is refused only if another client holds the message, or it was settled or
lost. 13. A publish is refused only by a queue with a bound, or when its client's edge gave it up. 14. What is held
without a session is ready after a lease. 15. A leader delivers when its first entry is committed, not before, and
within the claim wait. 16. A leader keeps nothing of what an edge has heard, or of an incarnation that another one has
followed.
Not a law: that a message on its way does not arrive after another client has settled it, when its claim was lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.remote.simulation.log import AnyRecord, Enqueued, EpochBegins, Returned, Settled

Message = tuple[int, int]
"""queue and sequence number"""


class LawBroken(AssertionError):
    """Something was lost, repeated, or misordered that must not be."""


class Law:
    """The law of one run."""

    def __init__(self) -> None:
        self.gone: set[int] = set()
        """queues that were deleted"""
        self.sequence: dict[tuple[int, int], int] = {}
        """queue and name -> number, of what is committed"""
        self.names: dict[Message, int] = {}
        self.dead: set[Message] = set()
        """settled in the committed sequence"""
        self.confirmed: set[int] = set()
        self.refused: set[int] = set()
        self.seen: set[tuple[int, int]] = set()
        """queue and name: a client has had it"""
        self.settled: set[Message] = set()
        """a client, which had it, has settled it"""
        self.returns: Counter[Message] = Counter()
        """how often a client had it, or one that has ended may have had it"""
        self.epochs: set[int] = set()
        """whose first entry is committed"""
        self.refused_claims: set[tuple[str, int, int]] = set()
        """forwarder, incarnation and place: a leader has refused it, whether its edge heard of that or not"""
        self._last_of: dict[tuple[int, int], int] = {}
        """queue and channel -> last name that is committed"""
        self._last_seq: dict[int, int] = defaultdict(int)

    # Publishers

    def confirm(self, name: int, queues: Iterable[int]) -> None:
        """A client hears that its message is safe."""
        if name in self.refused:
            raise LawBroken(f"message {name} was refused, and is confirmed")
        lacking = [each for each in queues if each not in self.gone and (each, name) not in self.sequence]
        if lacking:
            raise LawBroken(f"message {name} is confirmed, and queues {lacking} have not committed it")
        self.confirmed.add(name)

    def refuse(self, name: int, is_reason: bool) -> None:
        """`is_reason`: some queue of its route has a bound, or its edge gave it up."""
        if not is_reason:
            raise LawBroken(f"message {name} is refused, and no queue could be full")
        if name in self.confirmed:
            raise LawBroken(f"message {name} was confirmed, and is refused")
        self.refused.add(name)

    # The log

    def commit(self, record: AnyRecord, channel_of: dict[int, int]) -> None:
        """The next record of the committed sequence."""
        if isinstance(record, Enqueued):
            self._enqueued(record, channel_of[record.name])
        elif isinstance(record, Settled):
            for seq in range(record.first, record.last + 1):
                message = record.queue, seq
                if message in self.dead:
                    raise LawBroken(f"{message} is settled twice")
                if message not in self.names:
                    raise LawBroken(f"{message} is settled, and was never there")
                if not record.purged and message not in self.settled:
                    raise LawBroken(f"{message} is settled, and no client that had it has settled it")
                self.dead.add(message)
        elif isinstance(record, EpochBegins):
            self.epochs.add(record.epoch)
        elif isinstance(record, Returned):
            message = record.queue, record.seq
            if record.times > self.returns[message]:
                raise LawBroken(f"{message} has come back {record.times} times, and was had {self.returns[message]}")

    def _enqueued(self, record: Enqueued, channel: int) -> None:
        queue, seq, name = record
        if (queue, name) in self.sequence:
            raise LawBroken(f"queue {queue}: message {name} is there twice")
        if seq <= self._last_seq[queue]:
            raise LawBroken(f"queue {queue}: number {seq} follows {self._last_seq[queue]}")
        if name <= self._last_of.get((queue, channel), 0):
            raise LawBroken(f"queue {queue}: message {name} follows {self._last_of[queue, channel]} of its channel")
        self._last_of[queue, channel] = name
        self._last_seq[queue] = seq
        self.sequence[queue, name] = seq
        self.names[queue, seq] = name

    # Deliveries

    def sends(self, epoch: int, queue: int, seq: int) -> None:
        """The leader of this epoch sends it to some edge."""
        if epoch not in self.epochs:
            raise LawBroken(f"{(queue, seq)} is sent in epoch {epoch}, which has committed nothing yet")
        if (queue, seq) in self.dead:
            raise LawBroken(f"{(queue, seq)} is sent again, after its settling was committed")

    def receives(self, queue: int, seq: int, name: int, redelivered: bool) -> None:
        """A client has it now."""
        if not redelivered and (queue, name) in self.seen:
            raise LawBroken(f"queue {queue}: message {name} was delivered before, and is not redelivered")
        self.seen.add((queue, name))
        self.returns[queue, seq] += 1

    def holders(self, held: Iterable[tuple[Message, str]]) -> None:
        """What clients hold, with valid claims, at one moment."""
        by: dict[Message, str] = {}
        for message, holder in held:
            if message in by:
                raise LawBroken(f"{message} is held by {by[message]} and by {holder}")
            by[message] = holder

    def purges(self, queue: int, seq: int, holders: Iterable[str]) -> None:
        """A leader purges it."""
        for holder in holders:
            raise LawBroken(f"{(queue, seq)} is purged, and {holder} holds it")

    # The end

    def end(self, live: dict[int, dict[int, int]]) -> None:
        """Everything was consumed."""
        for queue, messages in live.items():
            if messages and queue not in self.gone:
                raise LawBroken(f"queue {queue}: {sorted(messages)[:5]} are left")
