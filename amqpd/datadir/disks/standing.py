"""How far each disk of a node is, and what a majority of them has.

What comes in: which disks are listed; what was handed to each, and what each has stored. What goes out: up to where
everything is stored by a majority; which disk has to be left behind.
Rules: 1. A disk is a prefix of one total order of steps, numbered from 1 in each incarnation of the process: it
stores them in order, without holes. 2. A majority is one of all that are listed, whatever their state: more than
half. 3. A disk that is not `IN` counts for nothing. 4. What waits for one disk is bounded, in bytes and in steps: a
disk over the bound is left behind. 5. `stored` never goes back. 6. Pure: no I/O.
Not here: threads (`mirror.py`), which disks a start goes on with (`election.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

# What waits for one disk in memory, at most. A disk that writes 100 MB a second may be late by half a second, and a
# copy of a busy journal must be made before so much has come.
QUEUE_BYTES_MAX = 64 << 20
QUEUE_STEPS_MAX = 20_000


class DiskState(Enum):
    """The state of one disk of a node: whether the disk gets steps, and whether it counts."""

    IN = "in"
    """it has, or is soon to have, everything; it counts"""
    FULL = "full"
    """it has no space, and tries again; it counts with what it has stored"""
    SLOW = "slow"
    """it has not answered for long; it counts with what it has stored, and nothing else is hoped from it"""
    REPAIR = "repair"
    """it is being repaired: what is handed to it waits, and it does not count"""
    BEHIND = "behind"
    """nothing is handed to it any more; it does not count"""


@dataclass(slots=True)
class DiskStanding:
    """One disk of a node: its state, the last step that it has stored, and the steps that wait for it."""

    state: DiskState = DiskState.BEHIND
    stored: int = 0
    """the last step that it has"""
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    """(step, bytes) of what was handed to it and is not stored"""
    waiting_bytes: int = 0

    @property
    def counts(self) -> bool:
        return self.state in (DiskState.IN, DiskState.FULL, DiskState.SLOW)


def majority_of(listed: int) -> int:
    """Of this number of disks."""
    return listed // 2 + 1


class Standings:
    """The states of all disks of a node, by the number of their place in the list."""

    def __init__(self, listed: int, inside: Iterable[int]) -> None:
        """`inside`: those that have everything, at step 0."""
        if listed < 1:
            raise ValueError("no disk is listed")
        self.disks = [DiskStanding() for _ in range(listed)]
        for number in inside:
            self.disks[number].state = DiskState.IN
        self.handed = 0
        """the last step"""
        self.stored = 0
        """the last one that a majority has"""

    @property
    def majority(self) -> int:
        return majority_of(len(self.disks))

    @property
    def counting(self) -> int:
        """How many disks count."""
        return sum(disk.counts for disk in self.disks)

    @property
    def answering(self) -> int:
        """How many of them answer, with space or without."""
        return sum(disk.state in (DiskState.IN, DiskState.FULL) for disk in self.disks)

    @property
    def able(self) -> int:
        """How many of them answer and have space."""
        return sum(disk.state is DiskState.IN for disk in self.disks)

    def may_store(self, step: int) -> bool:
        """A majority has it, or may soon: each disk that counts, answers and does not wait for space."""
        hoped = sum(disk.counts and (disk.state is DiskState.IN or disk.stored >= step) for disk in self.disks)
        return self.stored >= step or hoped >= self.majority

    def hand(self, nbytes: int) -> list[int]:
        """The next step is handed to all that count or are repaired; those that are over the bound by it."""
        self.handed += 1
        over = []
        for number, disk in enumerate(self.disks):
            if disk.state is DiskState.BEHIND:
                continue
            disk.waiting.append((self.handed, nbytes))
            disk.waiting_bytes += nbytes
            # One step may be larger than the bound: it is for a disk that has nothing else to do.
            full = disk.waiting_bytes > QUEUE_BYTES_MAX and len(disk.waiting) > 1
            if full or len(disk.waiting) > QUEUE_STEPS_MAX:
                over.append(number)
        return over

    def has_stored(self, number: int, step: int) -> bool:
        """The disk has everything up to this step. Whether a majority has more than before. Of a disk that was left
        behind meanwhile nothing is heard."""
        disk = self.disks[number]
        if disk.state is DiskState.BEHIND:
            return False
        if step != disk.stored + 1 or not disk.waiting or disk.waiting[0][0] != step:
            raise ValueError(f"disk {number} stored step {step} after {disk.stored}")
        disk.waiting_bytes -= disk.waiting.popleft()[1]
        disk.stored = step
        if disk.state is DiskState.FULL:
            disk.state = DiskState.IN
        return self._count()

    def mark_full(self, number: int) -> None:
        """It has no space for its next step, and has nothing of that."""
        if self.disks[number].state in (DiskState.IN, DiskState.SLOW):
            self.disks[number].state = DiskState.FULL

    def mark_slow(self, number: int) -> None:
        """It has not answered for long, and others do not suffice without it."""
        if self.disks[number].state in (DiskState.IN, DiskState.FULL):
            self.disks[number].state = DiskState.SLOW

    def answers(self, number: int) -> bool:
        """It does something again. Whether that is news."""
        if self.disks[number].state is not DiskState.SLOW:
            return False
        self.disks[number].state = DiskState.IN
        return True

    def leave(self, number: int) -> bool:
        """It counts no more. Whether it did."""
        disk = self.disks[number]
        counted = disk.counts
        disk.state, disk.waiting_bytes = DiskState.BEHIND, 0
        disk.waiting.clear()
        return counted

    def repair(self, number: int, like: int) -> None:
        """It is being made what disk `like` is at this moment: what that one has not stored yet waits for it too."""
        disk, source = self.disks[number], self.disks[like]
        if disk.state is not DiskState.BEHIND or not source.counts:
            raise ValueError(f"disk {number} is {disk.state.value}, disk {like} is {source.state.value}")
        disk.state, disk.stored = DiskState.REPAIR, source.stored
        disk.waiting, disk.waiting_bytes = deque(source.waiting), source.waiting_bytes

    def join(self, number: int) -> bool:
        """It is repaired, and counts from now on. Whether a majority has more than before."""
        disk = self.disks[number]
        if disk.state is not DiskState.REPAIR:
            raise ValueError(f"disk {number} is {disk.state.value}")
        disk.state = DiskState.IN
        return self._count()

    def reading(self) -> list[int]:
        """Those that have everything that is stored, in the order of the list."""
        return [n for n, disk in enumerate(self.disks) if disk.counts and disk.stored >= self.stored]

    def _count(self) -> bool:
        reached = sorted((disk.stored for disk in self.disks if disk.counts), reverse=True)
        if len(reached) < self.majority or reached[self.majority - 1] <= self.stored:
            return False
        self.stored = reached[self.majority - 1]
        return True
