"""The operations of an edge at one source that are not decided yet, in order.

What comes in: operations; the number up to which the leader says that all is decided. What goes out: their numbers;
messages that have them, also again; a lane for confirms.
Rules: 1. Numbers are 1, 2, 3 ..., without a gap (rule 1 of docs/decisions/remote-protocol.md). 2. An operation is
kept until it is decided (rule 4). Their bytes are bounded: beyond the bound the lane lags, and publishers to this
source wait, nobody else. 3. What was sent once is not changed, except that a publish which is given up is sent empty
(rule 9). What was not sent yet is added to: one run for several queues, and settles that follow each other, are one.
Not here: when they are sent (`edge.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from pamqp.exceptions import AMQPSoftError

from amqpd.journal.lane import Lane
from amqpd.kernel import Run
from amqpd.queues.receipt import Receipt
from amqpd.remote.formats import OPERATIONS_MAX, PARTS_MAX
from amqpd.remote.held import Range
from amqpd.remote.messages import DeliveryRange, Operation, Operations, Publish, Purge, Release, Settle, Settling

# What an edge keeps for one source while it hears nothing of the leader: half a second of a fast publisher's.
UNDECIDED_BYTES_MAX = 32 << 20
# What an operation takes beside its bodies, about.
OPERATION_BYTES = 200
# In one message, about: what is urgent for another source goes between two of them.
OPERATIONS_BYTES = 1 << 20
# Of settles that become one operation: each one looks at all parts that are there.
JOINED_PARTS_MAX = 512


class EdgeLane(Lane):
    """The lane of one source that another node leads: its numbers are those of the edge's operations (rule 6)."""

    def __init__(self) -> None:
        super().__init__(0, 0)
        self.journalled = False

    def force(self) -> None:
        pass  # each operation goes with the next batch that is sent


class Undecided:
    """One operation that is not decided, and what the edge keeps with it."""

    __slots__ = ("answer", "first_epoch", "is_transient", "nbytes", "operation", "receipt", "spoken")

    def __init__(
        self,
        operation: Operation,
        nbytes: int = 0,
        receipt: Receipt | None = None,
        answer: Callable[[int | AMQPSoftError], object] | None = None,
        spoken: list[tuple[int, Range]] | None = None,
        is_transient: bool = False,
    ) -> None:
        self.operation = operation
        self.nbytes = OPERATION_BYTES + nbytes
        self.receipt = receipt
        """of a publish: is told what is refused of it"""
        self.answer = answer
        """called when it is decided, with the number that it has to tell, of a purge; else with 0. A purge that its
        leader has not answered for too long is refused"""
        self.spoken = spoken or []
        """subscriptions, and deliveries of each, that the operation speaks of: they are claimed until it is
        decided"""
        self.first_epoch = 0
        """in which it was sent first; 0: it was not sent"""
        self.is_transient = is_transient
        """what it publishes is lost with the leader's process"""

    @property
    def gives_way(self) -> bool:
        """It gives back what it speaks of, so its claim gives way to a client's (rule 16)."""
        operation = self.operation
        return isinstance(operation, Release) or (
            isinstance(operation, Settle) and operation.kind is Settling.REQUEUE
        )


class UndecidedOperations:
    """All undecided operations of an edge at one source."""

    def __init__(self, lane: EdgeLane, bytes_max: int = UNDECIDED_BYTES_MAX) -> None:
        self._lane = lane
        self._bytes_max = bytes_max
        self._waiting: deque[Undecided] = deque()
        self.decided = 0
        """the operation with this number and all before it are decided"""
        self.nbytes = 0

    @property
    def last(self) -> int:
        """The number of the newest one, decided or not; 0: there was none."""
        return self.decided + len(self._waiting)

    @property
    def unsent(self) -> Undecided | None:
        """The newest one, if it can still be added to."""
        newest = self._waiting[-1] if self._waiting else None
        return newest if newest is not None and not newest.first_epoch else None

    def add(self, operation: Undecided) -> int:
        """Its number."""
        self._waiting.append(operation)
        self.resized(operation.nbytes)
        self._lane.gathering = self.last
        return self.last

    def publish(self, queue: int, run: Run, receipt: Receipt | None, is_transient: bool) -> int:
        """Its number. Several queues that are given the same run, one after the other, are one operation (rule 7)."""
        newest = self.unsent
        operation = None if newest is None or newest.receipt is not receipt else newest.operation
        if (
            newest is not None
            and isinstance(operation, Publish)
            and operation.run is run
            and len(operation.queues) < PARTS_MAX
        ):
            newest.operation = Publish((*operation.queues, queue), run)
            newest.is_transient = newest.is_transient and is_transient
            return self.last
        return self.add(Undecided(Publish((queue,), run), run.memory_bytes, receipt, is_transient=is_transient))

    def settle(self, kind: Settling, subscription: int, taken: list[Range]) -> int:
        """`taken`: of what clients hold of the subscription. How many more operations speak of it by this."""
        parts = [taken[at : at + PARTS_MAX] for at in range(0, len(taken), PARTS_MAX)]
        return sum([self._settle(kind, subscription, part) for part in parts])

    def _settle(self, kind: Settling, subscription: int, taken: list[Range]) -> bool:
        parts = [DeliveryRange(subscription, each.number, each.last) for each in taken]
        spoken, newest = [(subscription, each) for each in taken], self.unsent
        if newest is not None and isinstance(newest.operation, Settle) and newest.operation.kind is kind:
            joined = _joined(newest.operation.parts, parts)
            if len(joined) <= JOINED_PARTS_MAX:
                newest.operation = Settle(kind, joined)
                is_new = all(each != subscription for each, _ in newest.spoken)
                newest.spoken += spoken
                return is_new
        self.add(Undecided(Settle(kind, _joined((), parts)), spoken=spoken))
        return True

    def messages(self, sent: int, epoch: int) -> list[Operations]:
        """Those above `sent`, which go to a leader of this epoch now."""
        out, operations, first, maybe_below, nbytes = list[Operations](), list[Operation](), sent + 1, 0, 0
        for number, each in self.above(sent):
            if len(operations) == OPERATIONS_MAX or nbytes > OPERATIONS_BYTES:
                out.append(Operations(first, tuple(operations), maybe_below, self.decided))
                operations, first, maybe_below, nbytes = [], number, 0, 0
            operations.append(each.operation)
            nbytes += each.nbytes
            if not each.first_epoch:
                each.first_epoch = epoch
            elif each.first_epoch != epoch:
                maybe_below = number + 1
        if operations:
            out.append(Operations(first, tuple(operations), maybe_below, self.decided))
        return out

    def resized(self, more: int) -> None:
        """One of them takes so much more, or less, in bytes."""
        self.nbytes += more
        self._lane.lagging = self.nbytes > self._bytes_max

    def above(self, number: int) -> Iterator[tuple[int, Undecided]]:
        """Those with a higher number, in order, each with its own."""
        # From the end, where those are that were not sent: a deque is slow in its middle.
        count = min(self.last - number, len(self._waiting))
        found = list(islice(reversed(self._waiting), max(count, 0)))
        return enumerate(reversed(found), self.last - len(found) + 1)

    def decide(self, number: int) -> list[tuple[int, Undecided]]:
        """Those up to this number are decided, and leave; what the lane reports is the caller's to say, behind the
        refusals. Raises ValueError for a number that was not given."""
        if number > self.last:
            raise ValueError(f"operation {number} is decided, and {self.last} is the last one")
        done = []
        while self.decided < number:
            self.decided += 1
            operation = self._waiting.popleft()
            self.resized(-operation.nbytes)
            done.append((self.decided, operation))
        return done

    def give_up_publishes(self) -> None:
        """Each publish is refused, and has its number still: it is sent empty (rule 9)."""
        for _, each in self.above(0):
            self._give_up(each)

    def refuse_answers(self, why: AMQPSoftError) -> None:
        """Nobody waits for them any more: purges have this answer, what gives something back is as good as done."""
        for _, each in self.above(0):
            answer, each.answer = each.answer, None
            if answer is not None:
                answer(why if isinstance(each.operation, Purge) else 0)

    def give_up_lost(self, mark: int) -> None:
        """The same of transient ones above this mark that the leader's process before this one may have had, and
        which are lost with it."""
        for _, each in self.above(mark):
            if each.is_transient and each.first_epoch:
                self._give_up(each)

    def _give_up(self, each: Undecided) -> None:
        operation = each.operation
        if isinstance(operation, Publish) and operation.run is not None:
            receipt, each.receipt, each.operation = each.receipt, None, Publish((), None)
            self.resized(OPERATION_BYTES - each.nbytes)
            each.nbytes = OPERATION_BYTES
            if receipt is not None:
                receipt.give_up(0, operation.run.count)


def _joined(parts: tuple[DeliveryRange, ...], more: list[DeliveryRange]) -> tuple[DeliveryRange, ...]:
    """Both, with those that touch as one."""
    found = list(parts)
    for each in more:
        last = found[-1] if found else None
        if last is not None and last.subscription == each.subscription and last.last + 1 == each.first:
            found[-1] = DeliveryRange(each.subscription, last.first, each.last)
        else:
            found.append(each)
    return tuple(found)
