"""The disks of one node: each with a thread and a queue of its own, all with the same steps in the same order.

What comes in: steps, questions; what a disk raises. What goes out: when a majority has a step; answers of the first
disk that has everything; disks that were left behind, with the reason.
Rules: 1. `standing.py` counts; everything of it is asked with `changed` held. 2. A disk that fails, is too slow or
gives what it should not is left behind: nothing is written to it any more, and its thread closes it. 3. A disk
without space tries the same step again. 4. One that has not answered for `HANG_S` is left behind while the others are
a majority; else nothing is hoped from it until it answers. 5. Any thread may call.
Not here: what steps are (`mirror.py`), what is done in a disk's thread (`worker.py`), reads (`questions.py`), repairs
(`repair.py`).
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import structlog

from amqpd.datadir.disks.one_disk import OneDisk
from amqpd.datadir.disks.standing import DiskState, Standings
from amqpd.datadir.disks.worker import Member, Step, Worker
from amqpd.journal.errors import DiskFailure, DiskFull, DisksLost
from amqpd.storage.bounded import HANG_S, BoundedCalls
from amqpd.storage.closing import leave_open

# How often it is looked which disks do not answer.
LOOK_S = 0.5
# When nobody has looked for so long the process did not run (SIGSTOP, a machine that slept): no disk is blamed.
GAP_S = 4 * LOOK_S
# At the end, disks that hang are not waited for any longer: what was confirmed is on a majority.
CLOSE_S = 5.0

_log = structlog.get_logger("amqpd.journal")

T = TypeVar("T")


class DiskGroup:
    """The disks of one node, each with a thread and a queue of the same steps."""

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
        self.answered = threading.Condition()
        """notified when a question to any disk has its answer"""
        self._looked_s = self._since_s = -math.inf
        """when it was looked last which disks answer; since when the process has run without a gap"""
        self._lags: dict[int, tuple[int, float]] = {}
        """of disks that have less than a majority: what they have, and since when that is so"""
        self._ends_s = math.inf
        """from then on nobody waits for disks any more"""
        for each in members:
            if each.disk is not None:
                self._start(each, each.disk)

    # Steps

    def hand(self, step: Step, nbytes: int) -> int:
        """Its number. Disks that are over the bound by it are left behind."""
        with self.changed:
            over = self.standings.hand(nbytes)
            for member, disk in zip(self.members, self.standings.disks, strict=True):
                if disk.state is not DiskState.BEHIND:
                    member.steps.append(step)
            handed, states = self.standings.handed, [disk.state for disk in self.standings.disks]
            self.changed.notify_all()
        for number in over:
            self.leave(number, _OVER[states[number]])
        return handed

    def wait(self, step: int, *, however_long: bool = False) -> None:
        """Until a majority has it. Raises DiskFull and DisksLost, after which it may be waited for again, and
        DiskFailure. `however_long`: what it is may take each disk longer than `HANG_S`."""
        with self.changed:
            while self.standings.stored < step:
                if self.bug is not None:
                    raise self.bug
                if not self.standings.counting:
                    raise DiskFailure(self.sentence())
                if not self.standings.may_store(step):
                    if self.standings.answering >= self.standings.majority:
                        raise DiskFull(f"no space left on {self._full()}")
                    raise DisksLost(self.sentence())
                if self.ending:
                    raise DisksLost("the node ends")
                if not (self.changed.wait(LOOK_S) or however_long):
                    self.look()

    def look(self) -> None:
        """Which disks have not answered for long."""
        with self.changed:
            now_s = time.monotonic()
            if now_s - self._looked_s > GAP_S:
                self._since_s = now_s
                self._lags.clear()
            self._looked_s = now_s
            disks = self.standings.disks
            late = [each.number for each in self.members if self._is_late(each, now_s)]
            on_time = sum(disk.counts and number not in late for number, disk in enumerate(disks))
            for number in late:
                reason = f"it did not answer for {HANG_S:g} s"
                if not disks[number].counts or on_time >= self.standings.majority:
                    if self._lags_long(number, now_s):
                        self.leave(number, reason)
                elif disks[number].state is not DiskState.SLOW:
                    self.standings.mark_slow(number)
                    self.members[number].reason = reason
                    _log.error("disk does not answer", path=str(self.members[number].path), reason=reason)
                    self.changed.notify_all()

    def _is_late(self, member: Member, now_s: float) -> bool:
        if member.worker is None or self.standings.disks[member.number].state is DiskState.BEHIND:
            return False
        stored = self.standings.disks[member.number].stored
        if stored >= self.standings.stored:
            self._lags.pop(member.number, None)
        elif self._lags.get(member.number, (-1, 0.0))[0] != stored:
            self._lags[member.number] = stored, now_s
        return member.worker.late(now_s, self._since_s)

    def _lags_long(self, number: int, now_s: float) -> bool:
        """What it is at the others have had for long: they need not be so slow themselves."""
        worker = self.members[number].worker
        if worker is not None and worker.reads_late():
            return True
        return number in self._lags and now_s - self._lags[number][1] > HANG_S

    def answers(self, number: int) -> None:
        """It does something again."""
        with self.changed:
            if not self.standings.answers(number):
                return
            self.members[number].reason = ""
            self.changed.notify_all()
        _log.info("disk answers again", path=str(self.members[number].path))

    def end_soon(self) -> None:
        """The node ends: after a while nobody waits for disks that do not answer."""
        with self.changed:
            self._ends_s = min(self._ends_s, time.monotonic() + CLOSE_S)

    @property
    def ending(self) -> bool:
        """That while has passed."""
        return time.monotonic() >= self._ends_s

    def leave(self, number: int, reason: str, *, damaged: bool = False, gone: bool = False) -> None:
        """The disk counts no more; `damaged`: nor does what it has; `gone`: its files are not those that are open. A
        second time it does nothing. One that is repaired meanwhile keeps the reason why it has to be: who repairs it
        tells why that failed."""
        member = self.members[number]
        with self.changed:
            if self.standings.disks[number].state is DiskState.BEHIND:
                return
            counted = self.standings.leave(number)
            member.unrepaired = reason
            if counted:
                member.reason = reason
            member.gone = gone
            member.damaged = member.damaged or damaged or gone
            member.steps.clear()
            counting, majority = self.standings.counting, self.standings.majority
            self.changed.notify_all()
        if counted:
            _log.error("disk left behind", path=str(member.path), reason=reason, disks=counting, needed=majority)
        self.at_change()

    def sentence(self) -> str:
        """Which disks were left behind, and why."""
        left = "; ".join(f"{member.path}: {member.reason}" for member in self.members if member.reason)
        return (
            f"{self.standings.answering} of {len(self.members)} data directories can be written, and "
            f"{self.standings.majority} are needed ({left})"
        )

    # What is known of them

    def reading(self) -> list[int]:
        """Disks that have everything, in the order of the list."""
        with self.changed:
            return self.standings.reading()

    def state(self, number: int) -> DiskState:
        with self.changed:
            return self.standings.disks[number].state

    def counting(self) -> list[int]:
        """Those that count, whatever waits for them."""
        with self.changed:
            return [number for number, disk in enumerate(self.standings.disks) if disk.counts]

    def others_count(self, number: int) -> bool:
        """Beside this one some do, even if they do not have everything yet."""
        return any(each != number for each in self.counting())

    def first(self) -> OneDisk:
        """A disk that has everything. Raises DisksLost while none has: a disk that counts has the rest in its queue;
        DiskFailure when none counts."""
        for number in self.reading():
            if (disk := self.members[number].disk) is not None:
                return disk
        raise self.none_has_everything()

    def none_has_everything(self) -> DisksLost | DiskFailure:
        """The error to raise when no disk has everything."""
        if not self.counting():
            return DiskFailure(self.sentence())
        return DisksLost(f"no data directory has the last transaction yet: {self.sentence()}")

    def run_on(self, number: int, work: Callable[[OneDisk], T], timeout_s: float) -> T:
        """Between two steps of this disk, in its thread. Raises TimeoutError, and what `work` raises."""
        return self._worker(number).run(work, timeout_s)

    # Repairs

    def begin_repair(self, number: int, like: int, wanted: Callable[[], bool] = lambda: True) -> None:
        """By `run_on` the disk `like`: what is not stored there yet, and all that follows, waits for this one too.
        `wanted`: asked with `changed` held; the caller may have gone, since a disk may hang. Raises TimeoutError if
        it is not, if that disk was left behind meanwhile, or if this one is repaired already."""
        with self.changed:
            if not wanted():
                raise TimeoutError("the repair was stopped")
            if not self.standings.disks[like].counts:
                raise TimeoutError(f"{self.members[like].path} was left behind: {self.members[like].reason}")
            if (state := self.standings.disks[number].state) is not DiskState.BEHIND:
                raise TimeoutError(f"{self.members[number].path} is not left behind ({state.value})")
            self.standings.repair(number, like)
            self.members[number].steps = deque(self.members[like].steps)

    def continue_repair(self, number: int, disk: OneDisk) -> None:
        """The disk is what the other one was at `begin_repair`: it catches up. Raises TimeoutError if it was left
        behind meanwhile."""
        member = self.members[number]
        with self.changed:
            self._repairing(number)
            member.disk, member.damaged, member.gone = disk, False, False
            self._start(member, disk)

    def has_caught_up(self, number: int) -> bool:
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
        end_s = time.monotonic() + CLOSE_S
        for each in self.members:
            if each.worker is not None and not each.worker.ended(max(end_s - time.monotonic(), 0.0)):
                _log.error("disk does not answer: it is left as it is", path=str(each.path))
                leave_open(each.worker)

    def answering(self, number: int) -> bool:
        """After `close`: its thread has ended."""
        worker = self.members[number].worker
        return worker is None or worker.ended(0)

    def _repairing(self, number: int) -> None:
        if self.standings.disks[number].state is not DiskState.REPAIR:
            raise TimeoutError(self.members[number].unrepaired)

    def _worker(self, number: int) -> Worker:
        worker = self.members[number].worker
        if worker is None:
            raise TimeoutError(f"{self.members[number].path} is not open")
        return worker

    def _start(self, member: Member, disk: OneDisk) -> None:
        member.reader = BoundedCalls(str(member.path), self.answered)
        member.worker = Worker(self, member, disk)

    def _full(self) -> str:
        states = zip(self.members, self.standings.disks, strict=True)
        return " and ".join(str(member.path) for member, disk in states if disk.state is DiskState.FULL)


_OVER = {
    DiskState.IN: "it is too slow: too much waits for it",
    DiskState.REPAIR: "too much was written while it was repaired",
    DiskState.FULL: "it has no space",
    DiskState.SLOW: "it does not answer: too much waits for it",
}
