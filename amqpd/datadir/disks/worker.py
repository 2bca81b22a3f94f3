"""The thread of one disk.

What comes in: steps, and what is to be done between two of them. What goes out: what is stored, into the standings.
Rules: 1. A step is taken off the queue when the disk has it. 2. DiskFull: the reserve is given up, and the same step
tried again until there is space. 3. Any other failure of the disk leaves it behind. 4. When nothing is to be done for
a while, the disk does its housekeeping; after a long one what is kept for the next backlog goes, too. 5. A disk that
was left behind is closed as it is; one whose files are not there any more stays open until the process ends
(`datadir/presence.py` says why).
Not here: which disks count (`standing.py`), what a majority has (`group.py`).
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from amqpd.datadir.disks.one_disk import OneDisk
from amqpd.datadir.disks.standing import DiskState, Standings
from amqpd.errors import StorageFailure
from amqpd.journal.errors import DiskFull
from amqpd.journal.writer import RESTING_S
from amqpd.storage.bounded import HANG_S, BoundedCall, BoundedCalls
from amqpd.storage.closing import leave_open

FULL_RETRY_S = 0.25
HOUSEKEEPING_IDLE_S = 1.0
_log = structlog.get_logger("amqpd.journal")

T = TypeVar("T")
Step = Callable[[OneDisk], object]


@dataclass(slots=True)
class Member:
    """One disk of the list."""

    number: int
    path: Path
    """of its data directory"""
    disk: OneDisk | None
    """None: it is not open"""
    reason: str = ""
    """why it does not count"""
    unrepaired: str = ""
    """why it was left the last time, maybe while it was repaired"""
    damaged: bool = False
    """what it has cannot be trusted"""
    gone: bool = False
    """its files are not those that are open"""
    steps: deque[Step] = field(default_factory=deque)
    """what waits for it; the first one may be under way"""
    worker: Worker | None = None
    reader: BoundedCalls | None = None
    """the thread in which it is read; closed before the disk is"""


class NodeDisks(Protocol):
    """The disks of the node; see `group.DiskGroup`."""

    changed: threading.Condition
    standings: Standings
    closing: bool
    bug: Exception | None

    def leave(self, number: int, reason: str, *, damaged: bool = False) -> None: ...

    def answers(self, number: int) -> None:
        """The disk does something again."""
        ...


class Worker:
    """The thread of one disk, which begins at once."""

    def __init__(self, group: NodeDisks, member: Member, disk: OneDisk) -> None:
        """The group's `changed` may be held by the caller."""
        self._group = group
        self._member = member
        self._disk = disk
        self._beside: deque[Step] = deque()
        self._short = False
        """its reserve was given up"""
        self._ended = False
        """nothing is done any more"""
        self._resting = True
        """housekeeping has nothing left to do, as before the first step"""
        self._shrunk = False
        """nor has what is done after a long rest"""
        self._idle_since_s = time.monotonic()
        """when the last step ended, or housekeeping found no space"""
        self.began_s: float | None = None
        """since when something is under way, by time.monotonic"""
        self.answered_elsewhere: BoundedCall[Any] | None = None
        """what was being read here when another disk, asked later, had answered it, or nobody waited for it any
        more"""
        self._thread = threading.Thread(target=self._run, name=f"disk {member.number}", daemon=True)
        self._thread.start()

    def ended(self, timeout_s: float) -> bool:
        """The disk is closed, or has been by then."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def late(self, now_s: float, since_s: float) -> bool:
        """What is under way has been for `HANG_S`; nothing counts that was before `since_s`."""
        began_s = self.began_s
        return (began_s is not None and now_s - max(began_s, since_s) > HANG_S) or self.reads_late()

    def reads_late(self) -> bool:
        """It reads for `HANG_S` what another disk has read meanwhile."""
        reader, elsewhere = self._member.reader, self.answered_elsewhere
        if reader is None or elsewhere is None or reader.under_way is not elsewhere:
            return False
        return reader.busy_s() > HANG_S

    def run(self, work: Callable[[OneDisk], T], timeout_s: float) -> T:
        """Between two steps, in the disk's thread. Raises TimeoutError, at once when the disk is closed."""
        done = threading.Event()
        answers: list[T] = []
        errors: list[Exception] = []

        def beside(disk: OneDisk) -> None:
            try:
                answers.append(work(disk))
            except Exception as error:  # noqa: BLE001 - the caller's, who gets it
                errors.append(error)
            finally:
                done.set()

        with self._group.changed:
            if self._ended:
                raise TimeoutError(f"{self._member.path} is not open any more")
            self._beside.append(beside)
            self._group.changed.notify_all()
        if not done.wait(timeout_s):
            raise TimeoutError(f"{self._member.path} did not answer")
        if errors:
            raise errors[0]
        return answers[0]

    @property
    def _left(self) -> bool:
        return self._group.standings.disks[self._member.number].state is DiskState.BEHIND

    def _run(self) -> None:
        group, member = self._group, self._member
        try:
            while (work := self._next()) is not None:
                self.began_s = time.monotonic()
                work()
                self.began_s = None
                group.answers(member.number)
        except StorageFailure as error:
            group.leave(member.number, str(error), damaged=True)
        except Exception as error:  # noqa: BLE001 - a bug: what waits for the journal raises it, and ends the node
            with group.changed:
                group.bug = error
                group.changed.notify_all()
        self._end()

    def _next(self) -> Callable[[], object] | None:
        """What is to be done now; None: nothing ever again."""
        with self._group.changed:
            while not self._left:
                if self._beside:
                    beside = self._beside.popleft()
                    return partial(beside, self._disk)
                if self._member.steps:
                    return self._step
                if self._group.closing:
                    return None
                wait_s = self._housekeeping_s - time.monotonic()
                if wait_s <= 0:
                    return self._housekeeping
                self._group.changed.wait(None if wait_s == math.inf else wait_s)
        return None

    @property
    def _housekeeping_s(self) -> float:
        """When it is due, if nothing else is to be done until then."""
        if self._resting and self._shrunk:
            return math.inf
        return self._idle_since_s + (RESTING_S if self._resting else HOUSEKEEPING_IDLE_S)

    def _step(self) -> None:
        group, member = self._group, self._member
        with group.changed:
            if not member.steps:
                return
            step, number = member.steps[0], group.standings.disks[member.number].stored + 1
        self._resting = self._shrunk = False
        try:
            step(self._disk)
        except DiskFull as error:
            self._has_no_space(str(error))
            return
        self._idle_since_s = time.monotonic()
        with group.changed:
            if self._left:
                return
            member.steps.popleft()
            group.standings.has_stored(member.number, number)
            group.changed.notify_all()
        if self._short:
            self._short = not self._disk.restore_reserve()

    def _has_no_space(self, reason: str) -> None:
        group, member = self._group, self._member
        if not self._short:
            _log.warning("disk full: it tries again", path=str(member.path), reason=reason)
        # Each time: a log that was copied into the database is begun again, and takes no space then.
        self._disk.release_reserve()
        self._short = True
        with group.changed:
            group.standings.mark_full(member.number)
            group.changed.notify_all()
            if group.closing:
                member.steps.clear()
            elif not self._left:
                group.changed.wait_for(lambda: self._left or group.closing, FULL_RETRY_S)

    def _housekeeping(self) -> None:
        rests = self._resting
        try:
            more, full = self._disk.vacuum_step(rests), False
        except DiskFull:
            more, full = True, True
        if self._short:
            self._short = not self._disk.restore_reserve()
        if full or self._short:
            self._idle_since_s = time.monotonic()  # it is tried again later
        if rests:
            self._shrunk = not more
        else:
            self._resting = not more and not self._short

    def _end(self) -> None:
        member, disk = self._member, self._disk
        self.began_s = None
        with self._group.changed:
            self._ended = True
            left, self._beside = self._beside, deque()
        for beside in left:
            beside(disk)
        if member.reader is not None:
            member.reader.close()
            member.reader.ended(None)
        member.disk = None
        if member.gone:
            leave_open(disk)
            return
        if self._left:
            disk.fail(member.reason)
        try:
            disk.close()
        except (sqlite3.Error, StorageFailure, OSError) as error:
            _log.warning("disk could not be closed", path=str(member.path), reason=str(error))
            leave_open(disk)
