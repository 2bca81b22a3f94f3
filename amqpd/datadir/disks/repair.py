"""Makes a disk that was left behind, emptied or replaced what the others are, while the node runs.

What comes in: the number of the disk. What goes out: a disk that counts again; or `NotRepaired`, with the reason, and
it may be tried again.
Rules: 1. A large journal is copied in rounds, each of one moment of a disk that has everything, with what came during
the round before, until that is little. The definitions are copied before the journal says that they are there. What
follows the moment of the last round, between two steps, waits for the disk that is repaired, up to a bound; when more
comes there are more rounds. 2. A disk that has lost anything is of a new generation, and counts for nothing until the
list has that. What would count at the next start is given up only while a majority has everything, and while what was
lost cannot count without them if it comes back. 3. One that is only behind is brought up in one transaction of each
round, and never counts for less than it did. 4. A directory of another node, or one that this node went on with
alone, is not erased. 5. Blocking, in threads; one repair at a time.
Not here: when (`watch.py`), what is copied (`copying.py`).
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import structlog

from amqpd.datadir.disk_record import has_record, read_record
from amqpd.datadir.disks.copying import (
    bytes_of,
    copy_definitions,
    copy_journal,
    definitions_moment,
    has_definitions_of,
    open_moment,
)
from amqpd.datadir.disks.election import named
from amqpd.datadir.disks.one_disk import OneDisk
from amqpd.datadir.disks.opening import FAILED, OpenDisks
from amqpd.datadir.disks.roster import draw
from amqpd.datadir.disks.standing import QUEUE_BYTES_MAX, DiskState
from amqpd.datadir.lock import DataDirectory, open_data_directory
from amqpd.errors import StartupError
from amqpd.journal.errors import JournalInUse, NewerJournalFormat
from amqpd.journal.sqlite.adoption import AdoptionSource
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.likeness import Likeness
from amqpd.topology.metadata.sqlite.sqlite_file import Leased, SqliteFile

MOMENT_S = 30.0
"""For the disk that is copied, to come to the end of a step."""
ENDED_S = 10.0
"""For the thread of a disk that was left behind, to close it."""
ROUND_BYTES = QUEUE_BYTES_MAX // 4
"""The next round is the last one when it has no more to read than this, or the last one had not more to write: what
comes meanwhile fits into memory."""
ROUNDS_MAX = 20
"""A disk that is written more slowly than messages come is never repaired: each round is as long as the last."""
LATE_S = 3 * MOMENT_S
"""A copy that has not got on for so long does not keep others from being repaired: one step of it takes milliseconds,
and at its end a log of some hundred megabytes is copied."""

log = structlog.get_logger(component="disks")


class Moment:
    """The tables of a disk that is copied, all as of one moment."""

    def __init__(self, disk: OneDisk) -> None:
        """Raises sqlite3.Error."""
        with ExitStack() as opened:
            self.journal = opened.enter_context(closing(open_moment(disk.path)))
            # Behind it: it has all that the journal says of it.
            self.definitions: sqlite3.Connection | None = None
            if disk.has_definitions:
                self.definitions = opened.enter_context(closing(definitions_moment(disk.definitions_path)))
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()


class NotRepaired(Exception):
    """A disk could not be repaired; the text is the reason."""


class Repair:
    """The repair of one disk by a copy of the others, while the node runs."""

    def __init__(self, disks: OpenDisks, number: int) -> None:
        self._disks = disks
        self._group = disks.group
        self._member = disks.group.members[number]
        self._number = number
        self._stopped = False
        self._moved_s = time.monotonic()
        """when the copy last got on"""
        self.ended = threading.Event()
        """the copy has, however"""
        self.generation: str | None = None
        """the new one, if it has one"""

    @property
    def directory(self) -> Path:
        return self._member.path

    def stop(self) -> None:
        """From any thread: it ends soon. What it has begun in the thread of another disk begins nothing any more."""
        with self._group.changed:
            self._stopped = True

    @property
    def late(self) -> bool:
        """The copy has not got on for long: a disk hangs."""
        return not self.ended.is_set() and time.monotonic() - self._moved_s > LATE_S

    def copy(self) -> Likeness:
        """The journal; the disk catches up then. Raises NotRepaired."""
        try:
            return self._copy_if_safe()
        finally:
            self.ended.set()

    def _copy_if_safe(self) -> Likeness:
        worker = self._member.worker
        if worker is not None and not worker.ended(ENDED_S):
            raise NotRepaired("the disk still hangs")
        try:
            self._hold_lock()
            self._require_ours()
            listed = self._is_listed()
            whole = listed and not self._member.damaged
            self._check_space()
            if not whole:
                if listed:
                    self._require_others()
                else:
                    self._require_no_way_back()
                self.generation = draw()
                self._disks.roster.mark_new(self._number, self.generation)
            return self._copy(whole=whole)
        except (StartupError, TimeoutError, JournalInUse, NewerJournalFormat, *FAILED) as error:
            raise NotRepaired(str(error)) from error

    def join(self) -> None:
        """It counts. Raises TimeoutError if it was left behind meanwhile, `roster.RosterUnwritten`."""
        generations = {} if self.generation is None else {self._number: self.generation}
        self._disks.roster.changes(lambda: sorted({*self._group.counting(), self._number}), generations)
        self._group.join(self._number)

    def _copy(self, *, whole: bool) -> Likeness:
        """In rounds; what was copied in all of them."""
        written = removed = nbytes = 0
        little = bytes_of(self._group.first().path.parent) <= ROUND_BYTES
        for number in range(ROUNDS_MAX):
            try:
                likeness = self._last_round(whole, new=not number) if little else self._round(whole, new=not number)
            except TimeoutError:
                # Too much came beside the last round; whatever else it was stops the next one.
                if not (little and number + 1 < ROUNDS_MAX and self._may_go_on()):
                    raise
                little = False
                continue
            written, removed = written + likeness.written, removed + likeness.removed
            nbytes += likeness.nbytes
            if little:
                likeness.written, likeness.removed, likeness.nbytes = written, removed, nbytes
                return likeness
            little = likeness.nbytes <= ROUND_BYTES
        raise NotRepaired(f"it is written more slowly than messages come: {ROUNDS_MAX} rounds were not enough")

    def _may_go_on(self) -> bool:
        return (
            not self._stopped and self._group.state(self._number) is DiskState.BEHIND and bool(self._group.reading())
        )

    def _round(self, whole: bool, *, new: bool) -> Likeness:
        """Nothing waits for it."""
        with closing(Moment(self._group.first())) as moment:
            return self._copied(moment, whole, new, self._goes_on)

    def _copied(self, moment: Moment, whole: bool, new: bool, goes_on: Callable[[], None]) -> Likeness:
        definitions = moment.definitions
        if definitions is not None and not has_definitions_of(definitions, self.directory):
            copy_definitions(definitions, self.directory, goes_on)
        others = [self._group.members[number].path / JOURNAL for number in self._group.reading()]
        likeness = copy_journal(moment.journal, self.directory, whole=whole, new=new, goes_on=goes_on, others=others)
        if likeness.mended:
            log.warning("damaged rows were taken from another disk", path=str(self.directory), rows=likeness.mended)
        return likeness

    def _last_round(self, whole: bool, *, new: bool) -> Likeness:
        moment, known, leased = self._moment()
        with closing(moment):
            likeness = self._copied(moment, whole, new, self._goes_on_in_step)
        disk = OneDisk(self.directory, keep_free_bytes=self._disks.keep_free_bytes)
        try:
            if leased is not None:
                disk.open_definitions(leased)
            disk.adopt(known)
            self._group.continue_repair(self._number, disk)
        except BaseException:
            disk.fail("its repair failed")
            disk.close()
            raise
        return likeness

    def _moment(self) -> tuple[Moment, AdoptionSource, Leased | None]:
        """And what the disk that is copied knows of its tables; None: it has no definitions."""
        numbers = self._group.reading()
        if not numbers:
            raise NotRepaired("no other disk has everything")
        like = next((each for each in numbers if self._group.state(each) is DiskState.IN), numbers[0])

        def work(disk: OneDisk) -> tuple[Moment, AdoptionSource, Leased | None]:
            self._goes_on()
            with ExitStack() as failing:
                moment = failing.enter_context(closing(Moment(disk)))
                self._group.begin_repair(self._number, like, lambda: not self._stopped)
                known = disk.adoption_source()
                leased = disk.ask(SqliteFile.leased) if disk.has_definitions else None
                failing.pop_all()
            return moment, known, leased

        try:
            return self._group.run_on(like, work, MOMENT_S)
        except TimeoutError:
            self.stop()  # should its turn come all the same
            raise

    def _goes_on(self) -> None:
        self._moved_s = time.monotonic()
        if self._stopped:
            raise TimeoutError("the repair was stopped")

    def _goes_on_in_step(self) -> None:
        """What follows waits for it."""
        self._goes_on()
        if self._group.state(self._number) is not DiskState.REPAIR:
            raise TimeoutError(self._member.unrepaired)

    def _hold_lock(self) -> None:
        """Of the directory that is there now. Raises StartupError, OSError."""
        held = self._disks.locks.pop(self._number, None)
        if held is not None:
            held.close()
        self._disks.locks[self._number] = lock = open_data_directory(self.directory)
        assert isinstance(lock, DataDirectory)

    def _require_ours(self) -> None:
        """What is in the directory may be erased. Raises NotRepaired, OSError."""
        record = read_record(self.directory)
        if record is not None and record.list.node != self._disks.roster.list.node:
            raise NotRepaired("it belongs to another node: empty it, or mount the right disk")
        if record is None and not has_record(self.directory) and (self.directory / JOURNAL).exists():
            raise NotRepaired("it has a journal of its own: empty it, or mount the right disk")

    def _is_listed(self) -> bool:
        """What it has counts at a start, if it can be read."""
        record = read_record(self.directory)
        mine = self._disks.roster.list.disks[self._number]
        return record is not None and record.whole and record.generation == mine.generation

    def _require_others(self) -> None:
        """What is on it may be needed at the next start, where it counts if it can be read. Raises NotRepaired."""
        counting, majority = len(self._group.counting()), self._group.standings.majority
        if counting < majority:
            raise NotRepaired(
                f"it is not emptied while only {counting} of the others have everything, and {majority} are needed: "
                "start the broker again when the directories are in place and can be written"
            )

    def _require_no_way_back(self) -> None:
        """What was in the directories that are lost cannot come back and be taken for what this node has, without the
        disks that go on here. Raises NotRepaired."""
        if paths := self._disks.roster.in_the_way(self._group.counting()):
            raise NotRepaired(
                f"what was in {named(map(str, paths))} was not erased (it was moved or unmounted, or cannot be "
                "written), and would count if it came back: bring it back and start the broker again, or, if it is "
                "lost for good, start the broker once with --accept-loss"
            )

    def _check_space(self) -> None:
        """Raises NotRepaired, OSError."""
        source = self._group.first().path.parent
        needed = bytes_of(source)
        with suppress(OSError):
            needed -= bytes_of(self.directory)
        free = shutil.disk_usage(self.directory).free
        if needed + self._disks.keep_free_bytes > free:
            wanted = (needed + self._disks.keep_free_bytes >> 20) + 1
            raise NotRepaired(f"it has {free >> 20} MB of free space, and a copy needs {wanted} MB")
