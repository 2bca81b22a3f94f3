"""The operations of an edge at one source that are not decided yet, in order.

What comes in: operations; the number up to which the leader says that all is decided. What goes out: their numbers;
what is to be sent again; a lane for confirms.
Rules: 1. Numbers are 1, 2, 3 ..., without a gap (rule 1 of docs/decisions/remote-protocol.md). 2. An operation is
kept until it is decided (rule 4). Their bytes are bounded: beyond the bound the lane lags, and publishers to this
source wait, nobody else. 3. What was sent once is not changed, except that a publish which is given up is sent empty
(rule 9).
Not here: when they are sent (`edge.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from amqpd.journal.lane import Lane
from amqpd.queues.receipt import Receipt
from amqpd.remote.held import Range
from amqpd.remote.messages import Operation, Publish, Release, Settle, Settling

# What an edge keeps for one source while it hears nothing of the leader: half a second of a fast publisher's.
UNDECIDED_BYTES_MAX = 32 << 20
# What an operation takes beside its bodies, about.
OPERATION_BYTES = 200


class EdgeLane(Lane):
    """The lane of one source that another node leads: its numbers are those of the edge's operations (rule 6)."""

    def __init__(self) -> None:
        super().__init__(0, 0)
        self.journalled = False

    def force(self) -> None:
        pass  # each operation goes with the next batch that is sent


class Undecided:
    """One operation that is not decided, and what the edge keeps with it."""

    __slots__ = ("answer", "first_epoch", "nbytes", "operation", "receipt", "spoken")

    def __init__(
        self,
        operation: Operation,
        nbytes: int = 0,
        receipt: Receipt | None = None,
        answer: Callable[[int], object] | None = None,
        spoken: list[tuple[int, Range]] | None = None,
    ) -> None:
        self.operation = operation
        self.nbytes = OPERATION_BYTES + nbytes
        self.receipt = receipt
        """of a publish: is told what is refused of it"""
        self.answer = answer
        """called when it is decided, with the number that it has to tell, of a purge; else with 0"""
        self.spoken = spoken or []
        """subscriptions, and deliveries of each, that the operation speaks of: they are claimed until it is
        decided"""
        self.first_epoch = 0
        """in which it was sent first; 0: it was not sent"""

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
            operation = each.operation
            if isinstance(operation, Publish) and operation.run is not None:
                receipt, each.receipt, each.operation = each.receipt, None, Publish((), None)
                self.resized(OPERATION_BYTES - each.nbytes)
                each.nbytes = OPERATION_BYTES
                if receipt is not None:
                    receipt.give_up(0, operation.run.count)
