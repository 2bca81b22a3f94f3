"""The disks of one node: each with a thread and a queue of its own, all with the same steps in the same order.

What comes in: steps, questions; what a disk raises. What goes out: when a majority has a step; answers of the first
disk that has everything; disks that were left behind, with the reason.
Rules: 1. `standing.py` counts; everything of it is asked with `changed` held. 2. A disk that fails, is too slow or
gives what it should not is left behind: nothing is written to it any more, and its thread closes it. 3. A disk
without space tries the same step again. 4. Any thread may call.
Not here: what steps are (`mirror.py`), what is done in a disk's thread (`worker.py`), repairs (`repair.py`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import structlog

from amqpd.datadir.disks.standing import Standings, State
from amqpd.datadir.disks.worker import CLOSE_S, Member, Step, Worker
from amqpd.errors import StorageFailure
from amqpd.journal.errors import DiskFailure, DiskFull, DisksLost
from amqpd.journal.sqlite.disk import SqliteDisk

_log = structlog.get_logger("amqpd.journal")

T = TypeVar("T")


class DiskGroup:
    """Of one node."""

    def __init__(self, members: list[Member]) -> None:
        """Those that are open have the same, and count."""
        self.members = members
        self.changed = threading.Condition()
        self.standings = Standings(len(members), [each.number for each in members if each.disk is not None])
        self.closing = False
        self.bug: Exception | None = None
        """of a step: what waits for it raises this, and ends the node"""
        self.at_change: Callable[[], None] = lambda: None
        """called by any thread when a disk was left behind"""
        for each in members:
            if each.disk is not None:
                self._start(each, each.disk)

    # Steps

    def hand(self, step: Step, nbytes: int) -> int:
        """Its number. Disks that are over the bound by it are left behind."""
        with self.changed:
            over = self.standings.hand(nbytes)
            for member, disk in zip(self.members, self.standings.disks, strict=True):
                if disk.state is not State.BEHIND:
                    member.steps.append(step)
            handed, states = self.standings.handed, [disk.state for disk in self.standings.disks]
            self.changed.notify_all()
        for number in over:
            self.leave(number, _OVER[states[number]])
        return handed

    def wait(self, step: int) -> None:
        """Until a majority has it. Raises DiskFull and DisksLost, after which it may be waited for again, and
        DiskFailure."""
        with self.changed:
            while self.standings.stored < step:
                if self.bug is not None:
                    raise self.bug
                if not self.standings.counting:
                    raise DiskFailure(self.sentence())
                if not self.standings.may_store(step):
                    if self.standings.counting >= self.standings.majority:
                        raise DiskFull(f"no space left on {self._full()}")
                    raise DisksLost(self.sentence())
                self.changed.wait()

    def leave(self, number: int, reason: str, *, damaged: bool = False, gone: bool = False) -> None:
        """The disk counts no more; `damaged`: nor does what it has; `gone`: its files are not those that are open. A
        second time it does nothing."""
        member = self.members[number]
        with self.changed:
            if self.standings.disks[number].state is State.BEHIND:
                return
            self.standings.leave(number)
            member.reason, member.gone = reason, gone
            member.damaged = member.damaged or damaged or gone
            member.steps.clear()
            counting, majority = self.standings.counting, self.standings.majority
            self.changed.notify_all()
        _log.error("disk left behind", path=str(member.path), reason=reason, disks=counting, needed=majority)
        self.at_change()

    def sentence(self) -> str:
        """Which disks were left behind, and why."""
        left = "; ".join(f"{member.path}: {member.reason}" for member in self.members if member.reason)
        return (
            f"{self.standings.counting} of {len(self.members)} data directories can be written, and "
            f"{self.standings.majority} are needed ({left})"
        )

    # Questions

    def reading(self) -> list[int]:
        """Disks that have everything, in the order of the list."""
        with self.changed:
            return self.standings.reading()

    def ask(self, question: Callable[[SqliteDisk], T]) -> tuple[int, T]:
        """The number of the first disk that answers, and its answer. One that fails is left behind, unless there is
        no other. Raises what the question raises."""
        numbers = self.reading()
        for at, number in enumerate(numbers):
            answer = self.ask_one(number, question, last=at == len(numbers) - 1)
            if answer is not None:
                return number, answer[0]
        raise DiskFailure(self.sentence())

    def ask_one(self, number: int, question: Callable[[SqliteDisk], T], *, last: bool) -> tuple[T] | None:
        """None: the disk failed, and was left behind. `last`: it raises, then."""
        member = self.members[number]
        with member.using:
            if member.disk is None:
                return None
            try:
                return (question(member.disk),)
            except StorageFailure as error:
                if last:
                    raise
                reason = str(error)
        self.leave(number, reason, damaged=True)
        return None

    def state(self, number: int) -> State:
        with self.changed:
            return self.standings.disks[number].state

    def counting(self) -> list[int]:
        """Those that count, whatever waits for them."""
        with self.changed:
            return [number for number, disk in enumerate(self.standings.disks) if disk.counts]

    def first(self) -> SqliteDisk:
        """A disk that has everything."""
        for number in self.reading():
            if (disk := self.members[number].disk) is not None:
                return disk
        raise DiskFailure(self.sentence())

    def run_on(self, number: int, work: Callable[[SqliteDisk], T], timeout_s: float) -> T:
        """Between two steps of this disk, in its thread. Raises TimeoutError, and what `work` raises."""
        return self._worker(number).run(work, timeout_s)

    # Repairs

    def begin_repair(self, number: int, like: int) -> None:
        """By `run_on` the disk `like`: what is not stored there yet, and all that follows, waits for this one too.
        Raises TimeoutError if that one was left behind meanwhile."""
        with self.changed:
            if not self.standings.disks[like].counts:
                raise TimeoutError(f"{self.members[like].path} was left behind: {self.members[like].reason}")
            self.standings.repair(number, like)
            self.members[number].steps = deque(self.members[like].steps)

    def continue_repair(self, number: int, disk: SqliteDisk) -> None:
        """The disk is what the other one was at `begin_repair`: it catches up. Raises TimeoutError if it was left
        behind meanwhile."""
        member = self.members[number]
        with self.changed:
            self._repairing(number)
            member.disk, member.damaged, member.gone = disk, False, False
            self._start(member, disk)

    def caught_up(self, number: int) -> bool:
        """It has what a majority has. Raises TimeoutError as above."""
        with self.changed:
            self._repairing(number)
            return self.standings.disks[number].stored >= self.standings.stored

    def join(self, number: int) -> None:
        """It counts. Raises TimeoutError as above."""
        with self.changed:
            self._repairing(number)
            self.standings.join(number)
            self.members[number].reason = ""
            self.changed.notify_all()

    def close(self) -> None:
        """What was handed out is stored as far as the disks allow, then each is closed by its thread."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        for each in self.members:
            if each.worker is not None and not each.worker.ended(CLOSE_S):
                _log.error("disk does not answer: it is left as it is", path=str(each.path))

    def _repairing(self, number: int) -> None:
        if self.standings.disks[number].state is not State.REPAIR:
            raise TimeoutError(self.members[number].reason)

    def _worker(self, number: int) -> Worker:
        worker = self.members[number].worker
        if worker is None:
            raise TimeoutError(f"{self.members[number].path} is not open")
        return worker

    def _start(self, member: Member, disk: SqliteDisk) -> None:
        member.worker = Worker(self, member, disk)

    def _full(self) -> str:
        states = zip(self.members, self.standings.disks, strict=True)
        return " and ".join(str(member.path) for member, disk in states if disk.state is State.FULL)


_OVER = {
    State.IN: "it is too slow: too much waits for it",
    State.REPAIR: "too much was written while it was repaired",
    State.FULL: "it has no space",
}
