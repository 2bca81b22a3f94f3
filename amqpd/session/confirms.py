"""Publisher confirms of one channel: which publishes are safe, which were refused, and what the client was told.

What comes in: accepted publishes, each with the lanes that it waits for, or none; what was refused, at once or later.
What goes out: the delivery tag up to which everything is confirmed, and the tags to refuse.
Rules: 1. Tags count publishes from 1 on after confirm.select. 2. Confirms keep tag order: what is safe waits for what
was published before it; so one `multiple` acknowledges all of a tick. 3. Each tag once. A refusal is told at once, in
front of those that wait; a `multiple` covers a refused tag only after its basic.nack, and is never itself one. 4. A
few are acknowledged one by one: some clients count the acknowledgements that come, and RabbitMQ, whose messages
become safe one by one, hardly ever gathers so few.
Not here: the frame (`channels.py`), when a lane reports (`journal/lane.py`, `durability.py`).

Source: https://www.rabbitmq.com/docs/confirms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from amqpd.audit.publication import Confirming
from amqpd.journal.lane import Lane, Lanes

# Up to this number are acknowledged one by one, with 21 bytes each; more with one `multiple`. Tests of clients
# publish two or three; a client that publishes without waiting has far more on the way.
SINGLE_ACKS_MAX = 8


class Waiting:
    """Publishes after those of the entry before, up to `last`, with what they all wait for beside that entry."""

    __slots__ = ("last", "numbers")

    def __init__(self, last: int, numbers: list[tuple[Lane, int]]) -> None:
        self.last = last
        """the last of them that was not refused; if all were, the last one before them"""
        self.numbers = numbers
        """each lane, and the number that it has to report"""


class Confirms(Confirming):
    """The publishes of one channel in confirm mode: safe, refused, told."""

    __slots__ = (
        "_acknowledged",
        "_awaited",
        "_refused",
        "_waiting",
        "confirmed",
        "number",
        "offered",
        "refusals",
        "registered",
        "unsaid",
        "unsettled",
    )

    def __init__(self) -> None:
        super().__init__()
        self.offered = 0
        """the last publish that its queues have taken or refused; those after it, up to `published`, have their
        numbers and are being offered"""
        self.confirmed = 0
        """the last publish that is safe; it was not refused"""
        self.refusals = 0
        """how many were refused"""
        self.registered: Lane | None = None
        """the lane at which the channel is to be looked at again (`durability.py`)"""
        self._acknowledged = 0
        self._refused: deque[tuple[int, int]] = deque()
        """(first, last), ascending and not touching, of those refused after `_acknowledged`"""
        self.unsaid: list[tuple[int, int]] = []
        """(first, last) publish numbers that were refused, and no basic.nack has told of it yet"""
        self._waiting: deque[Waiting] = deque()
        self._awaited: dict[Lane, int] = {}
        """the highest number of each lane that some entry of `_waiting` waits for, or has waited for"""
        self.number = 0
        """of the journal's transaction that `unsettled` is about"""
        self.unsettled: dict[int, None] | None = None
        """the queues that have something of what waits for it, and that were not settled since; None: its commit is
        to be waited for, whatever is settled"""

    def accept(self, count: int, lanes: Lanes) -> bool:
        """The next `count` of the publishes that have numbers were taken; they are safe when each of the lanes has
        reported what gathers in it now, at once without any. True when something is confirmed already, False when it
        waits."""
        if not count:
            return False
        self.offered += count
        waiting = self._waiting
        if not waiting and not lanes:
            self.confirmed = self.offered
            return True
        fresh: list[tuple[Lane, int]] | None = None
        for lane in lanes:
            number = lane.gathering
            if self._awaited.get(lane, 0) != number:
                self._awaited[lane] = number
                if fresh is None:
                    fresh = [(lane, number)]
                else:
                    fresh.append((lane, number))
        if fresh is not None:
            waiting.append(Waiting(self.offered, fresh))
        else:
            # It waits for nothing that those before it do not wait for.
            waiting[-1].last = self.offered
        return False

    @property
    def pending(self) -> int:
        """How many are neither safe nor refused."""
        refused = sum(last - first + 1 for first, last in self._refused if first > self.confirmed)
        return self.published - self.confirmed - refused

    def refuse(self, count: int) -> None:
        """The next `count` of the publishes that have numbers were not taken by some queue."""
        first, last = self.offered + 1, self.offered + count
        self.unsaid.append((first, last))
        self.refusals += count
        self.offered = last
        refused = self._refused
        if refused and refused[-1][1] + 1 == first:
            first = refused.pop()[0]
        refused.append((first, last))

    def refuse_waiting(self, first: int, last: int) -> None:
        """Publishes first..last, which wait, were not taken after all; nothing is done for those that were refused
        before, by another queue. The lane that refuses them reports its number after that; those behind them go on
        waiting for it. Raises ValueError if some do not wait."""
        if not (self.confirmed < first <= last <= self.offered):
            raise ValueError(f"publishes {first} to {last} do not wait: {self.confirmed} is confirmed")
        for low, high in _without(self._refused, first, last):
            self._refuse_waiting(low, high)

    def _refuse_waiting(self, first: int, last: int) -> None:
        self.unsaid.append((first, last))
        self.refusals += last - first + 1
        self._refused = _merged(self._refused, first, last)
        taken = next(low for low, high in self._refused if low <= first <= high) - 1
        for entry in self._waiting:
            if entry.last > last:
                break
            # An entry of which nothing is left is kept: those behind it may rest on what it waits for.
            entry.last = min(entry.last, taken)

    def refused(self) -> Iterator[int]:
        """The publishes to tell of with a basic.nack each, before anything else is confirmed; told once. One by one,
        since a `multiple` would refuse what waits before it."""
        refused, self.unsaid = self.unsaid, []
        for first, last in refused:
            yield from range(first, last + 1)

    def rests_on(self, number: int, queues: list[int]) -> bool:
        """What was accepted last has the journal's transaction `number` to wait for, or these queues to be settled:
        those that it went to, by their ids. False if that does not help, since something that waits for the same
        transaction is not known so."""
        if number != self.number:
            self.number, self.unsettled = number, {}
        unsettled = self.unsettled
        if unsettled is None:
            return False
        for queue_id in queues:
            unsettled[queue_id] = None
        return True

    def rests_on_commit(self, number: int) -> None:
        """What was accepted last has the journal's transaction `number` to wait for, and nothing else does."""
        self.number, self.unsettled = number, None

    def settled(self, queue_id: int) -> bool:
        """One of the queues is: whether none is left, so that the commit is not waited for any more."""
        unsettled = self.unsettled
        if unsettled is None:
            return False
        unsettled.pop(queue_id, None)
        if unsettled:
            return False
        self._need_no_write(self.number)
        return True

    def _need_no_write(self, number: int) -> None:
        awaited = self._awaited
        lanes = {lane for lane, awaits in awaited.items() if lane.writes and awaits == number}
        for lane in lanes:
            # What is published now waits again.
            del awaited[lane]
        for entry in reversed(self._waiting):
            if not lanes:
                break
            for pair in list(entry.numbers):
                if pair[0] in lanes and pair[1] == number:
                    entry.numbers.remove(pair)
                    lanes.discard(pair[0])

    def advance(self) -> bool:
        """Some lane has reported, or a commit is not waited for any more: whether more is confirmed than before."""
        waiting, before = self._waiting, self.confirmed
        while waiting:
            entry = waiting[0]
            for lane, number in entry.numbers:
                if lane.reported < number:
                    return self.confirmed > before
            waiting.popleft()
            self.confirmed = entry.last
        self._awaited.clear()  # of lanes that may be gone
        return self.confirmed > before

    def awaits(self, lane: Lane) -> bool:
        """Something waits for what this lane has not reported."""
        return any(of is lane and of.reported < number for entry in self._waiting for of, number in entry.numbers)

    def waits_for(self) -> Lane | None:
        """A lane that has not reported what the first publish that waits needs of it; None: nothing waits."""
        if self._waiting:
            for lane, number in self._waiting[0].numbers:
                if lane.reported < number:
                    return lane
        return None

    def due(self) -> int:
        """How many publishes, `confirmed` the last of them, the client was not told of yet; from now on it counts as
        told. No basic.ack is due for 0."""
        refused, told = self._refused, self._acknowledged
        while refused and refused[0][1] <= told:
            refused.popleft()
        self._acknowledged = self.confirmed
        return self.confirmed - told

    @property
    def told(self) -> int:
        """How many publishes the client was told of that they are safe."""
        told = self._acknowledged
        later = sum(high - max(low, told + 1) + 1 for low, high in self._refused if high > told)
        return told - (self.refusals - later)

    def singly(self, count: int) -> list[int]:
        """The tags to acknowledge one by one, when `due` was `count`: those of the last `count` that were not
        refused. Empty when one `multiple` is to say it."""
        if count > SINGLE_ACKS_MAX:
            return []
        first, confirmed = self.confirmed - count + 1, self.confirmed
        tags: list[int] = []
        for low, high in self._refused:
            if low > confirmed:
                break
            tags += range(first, low)
            first = max(first, high + 1)
        tags += range(first, confirmed + 1)
        return tags


def _without(ranges: deque[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """What is left of first..last without them."""
    found: list[tuple[int, int]] = []
    for low, high in ranges:
        if high >= first and low <= last:
            if low > first:
                found.append((first, low - 1))
            first = high + 1
    if first <= last:
        found.append((first, last))
    return found


def _merged(ranges: deque[tuple[int, int]], first: int, last: int) -> deque[tuple[int, int]]:
    """With first..last, which none of them overlaps; those that touch become one."""
    found: deque[tuple[int, int]] = deque()
    for low, high in sorted([*ranges, (first, last)]):
        if found and found[-1][1] + 1 == low:
            low = found.pop()[0]
        found.append((low, high))
    return found
