"""Opens the directories of a node that has several, and makes a majority of them equal.

What comes in: their paths; whether the operator accepts losses. What goes out: `OpenDisks`, with a majority that has
everything; or StartupError, with one sentence.
Rules: 1. Nothing is written before it is clear which of them has everything (`election.py`). 2. The incarnation of
this process is promised by a majority before anything else is written, so that what a disk has that was away never
counts for more than what comes now. 3. Only as many are made equal here as a majority needs; the others are repaired
while the node runs (`repair.py`). 4. A directory that cannot be read counts for nothing, and is named. 5. Of the
definitions the one with most is taken, only when all of it was read and has everything that it promised; whether it
has all is the journal's word (`datadir/pairing.py`). Without one that is whole an older one is taken when the
operator accepts losses. The same revision is not the same contents.
Not here: one directory (`datadir/opening.py`), copying (`copying.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog
import trio

from amqpd.datadir.disk_record import DiskList, Listed, Record, has_record, read_record, write_record
from amqpd.datadir.disks.copying import copy_definitions, copy_journal, definitions_moment, open_moment
from amqpd.datadir.disks.election import (
    Chosen,
    Position,
    SeenDirectory,
    StartRefused,
    choose,
    enough,
    furthest,
    is_inside,
    next_list,
    not_named,
    of_last_incarnation,
)
from amqpd.datadir.disks.group import CLOSE_S, DiskGroup
from amqpd.datadir.disks.mirror import MirroredDisk
from amqpd.datadir.disks.mirrored_file import open_definitions
from amqpd.datadir.disks.one_disk import OneDisk
from amqpd.datadir.disks.roster import DiskRoster, RosterUnwritten, draw
from amqpd.datadir.disks.standing import majority_of
from amqpd.datadir.disks.worker import Member
from amqpd.datadir.lock import DataDirectory, Unusable, open_data_directory
from amqpd.datadir.opening import METADATA_DB, Pair, misfits_of, opened
from amqpd.datadir.pairing import WAY_OUT
from amqpd.errors import StartupError
from amqpd.journal.errors import DiskFailure, DiskFull, JournalInUse, NewerJournalFormat, NotAJournal
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.own_names import own_names
from amqpd.storage.bounded import end_within
from amqpd.topology.metadata.sqlite.database import close_database, examine_database, open_database
from amqpd.topology.metadata.sqlite.glance import Glance, glance
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.sqlite.verification import DatabaseContents
from amqpd.topology.metadata.store import MetadataStoreError, NewerMetadataFormat


class DefinitionsChoice:
    """Chooses the `metadata.db` with which one start of a node with several directories goes on."""

    def __init__(self, paths: list[Path], *, accept_loss: bool) -> None:
        self._paths = [each / METADATA_DB for each in paths]
        self._accept_loss = accept_loss
        self._found: dict[int, tuple[Glance | None, DatabaseContents | None]] = {}
        """those of candidates that are whole"""
        self.lost = False
        """what was taken lacks some, and the operator accepts it"""

    def choose(self, candidates: Mapping[int, object], members: list[int]) -> int | None:
        """`candidates`: of two with the same revision the one with the greater value is taken. None: there are none.
        Raises StartRefused, OSError."""
        reasons = []
        for at in candidates:
            try:
                contents = examine_database(self._paths[at])
            except NewerMetadataFormat as error:
                raise StartRefused(str(error)) from error
            except MetadataStoreError as error:
                reasons.append(str(error))
                continue
            if self._is_there(at):
                self._found[at] = glance(self._paths[at]), contents
        if self._found:
            return max(self._found, key=lambda at: (self._revision(at), candidates[at], -at))
        others = [at for at in members if at not in candidates and self._is_there(at)]
        if not reasons and not others:
            return None
        if self._accept_loss:
            return self._least_lost([*candidates, *others], reasons)
        missing = [str(self._paths[at]) for at in candidates if not self._is_there(at)]
        if missing:
            reasons.append(f"{' and '.join(missing)} {'are' if missing[1:] else 'is'} missing")
        raise StartRefused(
            f"no data directory has all definitions ({'; '.join(reasons)}): restore a backup, or start once with "
            "--accept-loss to go on with what can be read"
        )

    def are_same(self, at: int, best: int) -> bool:
        """Nothing is to be copied."""
        return at == best or (at in self._found and self._found[at] == self._found.get(best))

    def _least_lost(self, those: list[int], reasons: list[str]) -> int:
        """The first one that can be opened. Raises StartRefused."""
        self.lost = True
        for at in [each for each in those if self._is_there(each)]:
            path = self._paths[at]
            try:
                opened = open_database(path, accept_loss=True)
                if opened.mark is not None:
                    opened.mark.close()
                close_database(opened.connection, path)
            except MetadataStoreError as error:
                reasons.append(str(error))
            else:
                return at
        raise StartRefused(
            f"no data directory has definitions that can be read ({'; '.join(dict.fromkeys(reasons))})"
        )

    def _revision(self, at: int) -> int:
        contents = self._found[at][1]
        return -1 if contents is None else contents.revision

    def _is_there(self, at: int) -> bool:
        path = self._paths[at]
        return path.exists() and path.stat().st_size > 0


FAILED = (JournalDamaged, DiskFailure, DiskFull, NotAJournal, MetadataStoreError, sqlite3.Error, OSError)

log = structlog.get_logger(component="opening")


@dataclass(slots=True)
class OpenDisks:
    """The data directories of one node, locked, and what is open of them."""

    paths: list[Path]
    locks: dict[int, DataDirectory]
    disk: MirroredDisk
    roster: DiskRoster
    incarnation: int
    keep_free_bytes: int
    inside: list[int] = field(default_factory=list)
    """directories that had everything at the start"""
    definitions_lost: bool = False
    """some were, and the operator accepts it"""
    left_out: list[str] = field(default_factory=list)
    """paths of directories that the list before this start has, and the setting not"""

    @property
    def directory(self) -> Path:
        """The first one that had everything at the start."""
        return self.paths[self.inside[0]]

    @property
    def group(self) -> DiskGroup:
        return self.disk.group

    def close(self) -> None:
        """The locks, when everything else is closed."""
        self.close_each(self.let_go)

    def let_go(self, at: int) -> None:
        """The lock of one directory."""
        self.locks[at].close()

    def close_each(self, close: Callable[[int], None]) -> None:
        """The last thing that is done with each directory. One that hangs is not waited for: the system lets its lock
        go with the process."""
        self.roster.close()
        closing = [partial(close, at) for at in self.locks if self.group.answering(at)]
        if not end_within(closing, CLOSE_S):
            log.error("data directories do not answer: they are left as they are")


def open_disks(
    paths: list[Path],
    *,
    accept_loss: bool,
    keep_free_bytes: int = 0,
    found: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> OpenDisks:
    """`found`: told the journals' names before one is opened, in this thread, if they can be read so and are of one
    node; raises StartupError. Blocking. Raises StartupError."""
    with ExitStack() as failing:
        opening = _Opening(paths, accept_loss, keep_free_bytes, failing, found)
        try:
            opened = opening.run()
        except StartRefused as refused:
            raise StartupError(str(refused)) from refused
        except (NewerJournalFormat, JournalInUse, *FAILED) as error:
            raise StartupError(str(error)) from error
        except RosterUnwritten as error:
            raise StartupError(f"{error}: correct that first") from error
        failing.pop_all()
    return opened


class _Opening:
    """A start that is under way."""

    def __init__(
        self,
        paths: list[Path],
        accept_loss: bool,
        keep_free_bytes: int,
        failing: ExitStack,
        found: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._paths = paths
        self._accept_loss = accept_loss
        self._keep_free_bytes = keep_free_bytes
        self._failing = failing
        self._found = found
        self._locks: dict[int, DataDirectory] = {}
        self._seen = [SeenDirectory(str(path)) for path in paths]
        self._disks: dict[int, OneDisk] = {}
        self._damaged: set[int] = set()
        self._definitions = DefinitionsChoice(paths, accept_loss=accept_loss)
        self._definitions_of: int | None = None
        """the directory whose definitions all get"""

    def run(self) -> OpenDisks:
        self._lock()
        chosen = choose(self._seen, accept_loss=self._accept_loss)
        self._tell(chosen)
        self._open(chosen)
        before = chosen.newest or self._first_list(chosen)
        if chosen.newest is not None:
            enough(self._seen, chosen.newest, list(self._disks), accept_loss=self._accept_loss)
        elif not self._disks:
            raise StartRefused(self._seen[chosen.members[0]].unusable)
        best = furthest(self._positions())
        incarnation = max(chosen.promised, before.version[0], self._positions()[best][0]) + 1
        self._promise(before, incarnation)
        chosen.members = list(self._disks)
        self._choose_definitions(before)
        inside = self._make_equal(best, before, incarnation)
        # What was empty and was made equal is open by now, too, and is not of the list before.
        left = [at for at in chosen.members if at in self._disks]
        accepting = self._accept_loss and len(left) < majority_of(len(before.disks))
        roster = DiskRoster(self._paths, incarnation, None if accepting else before)
        following = next_list(self._seen, before, before.node, (incarnation, 0), inside, draw)
        roster.begin(following, sorted({*inside, *self._disks}), before)
        members = self._members(inside)
        disk = MirroredDisk(DiskGroup(members), incarnation)
        disk.accepted = [sentence for at in inside for sentence in self._disks[at].accepted]
        if accepting:
            disk.accepted.append(
                f"{len(chosen.members)} of {len(before.disks)} data directories have the node's data: what only the "
                "others had is gone"
            )
        left_out = [] if chosen.newest is None else not_named(self._seen, chosen.newest)
        for path in left_out:
            log.warning("data directory is not named any more, and is not kept up", data_dir=path)
        lost, keep = self._definitions.lost, self._keep_free_bytes
        return OpenDisks(self._paths, self._locks, disk, roster, incarnation, keep, inside, lost, left_out)

    def _lock(self) -> None:
        devices: dict[int, str] = {}
        places: dict[tuple[int, int], str] = {}
        for at, (path, seen) in enumerate(zip(self._paths, self._seen, strict=True)):
            try:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
                found = path.stat()
                if (other := places.setdefault((found.st_dev, found.st_ino), seen.path)) != seen.path:
                    raise StartRefused(
                        f"{seen.path} and {other} are the same directory: name each once with --data-dir"
                    )
                self._locks[at] = self._failing.enter_context(open_data_directory(path))
                seen.record = read_record(path)
                seen.has_record = has_record(path)
                seen.has_journal = (path / JOURNAL).exists()
            except (Unusable, OSError) as error:
                seen.unusable = getattr(error, "strerror", None) or str(error)
                log.error("data directory cannot be used", data_dir=seen.path, reason=seen.unusable)
                continue
            if (beside := devices.setdefault(found.st_dev, seen.path)) != seen.path:
                log.warning(
                    "data directories are on one file system: when that fails, both do",
                    data_dir=seen.path,
                    beside=beside,
                )

    def _tell(self, chosen: Chosen) -> None:
        """Whose these are. Copies of a running node's directories lack what that one has written since, so this comes
        before it is asked what they have."""
        told = [names for at in chosen.members if (names := own_names(self._paths[at] / JOURNAL))]
        if len({names["identity"] for names in told}) == 1:
            self._found(told[0])

    def _open(self, chosen: Chosen) -> None:
        for accept_loss in (False, True) if self._accept_loss else (False,):
            for at in chosen.members:
                self._open_one(at, accept_loss, new=chosen.newest is None)
            if self._disks:
                return

    def _open_one(self, at: int, accept_loss: bool, *, new: bool = False) -> None:
        path = self._paths[at]
        try:
            if not (new or (path / JOURNAL).exists()):
                raise DiskFailure(f"{path / JOURNAL} is missing")
            keep = self._keep_free_bytes
            disk = OneDisk(path, keep_free_bytes=keep, accept_loss=accept_loss)
            self._failing.callback(disk.forsake)
            disk.examine()
        except FAILED as error:
            self._gives_up(at, str(error))
        else:
            self._disks[at] = disk
            self._damaged.discard(at)
            self._seen[at].unusable = ""

    def _gives_up(self, at: int, reason: str) -> None:
        log.error("data directory cannot be used", data_dir=str(self._paths[at]), reason=reason)
        self._seen[at].unusable = reason
        self._damaged.add(at)
        disk = self._disks.pop(at, None)
        if disk is not None:
            disk.forsake()

    def _first_list(self, chosen: Chosen) -> DiskList:
        """Of a node that has one directory by now, which is to have several: that one alone."""
        (origin,) = chosen.members
        return DiskList(draw(), (0, 0), (Listed(draw(), self._seen[origin].path, True),))

    def _promise(self, before: DiskList, incarnation: int) -> None:
        """A majority of the list, or what the operator accepts, takes nothing from an earlier process any more."""
        for at in list(self._disks):
            record = self._seen[at].record
            generation = before.disks[0].generation if record is None else record.generation
            try:
                promised = Record(generation, True, incarnation, before)
                self._seen[at].record = write_record(self._paths[at], promised)
            except OSError as error:
                self._gives_up(at, f"{self._paths[at]}: {error.strerror or error}")
        enough(self._seen, before, list(self._disks), accept_loss=self._accept_loss)

    def _positions(self) -> dict[int, Position]:
        return {at: disk.position for at, disk in self._disks.items()}

    def _choose_definitions(self, before: DiskList) -> None:
        """Raises StartRefused, OSError."""
        positions = self._positions()
        candidates = of_last_incarnation(positions)
        # Equal revisions of one incarnation are equal contents, unless somebody has written one by itself: not one
        # that was left behind is taken then.
        order = {at: (positions[at], is_inside(self._seen[at], before)) for at in candidates}
        self._definitions_of = self._definitions.choose(order, list(self._disks))

    def _make_equal(self, best: int, before: DiskList, incarnation: int) -> list[int]:
        """The directories that have everything: a majority of the setting."""
        is_new = self._disks[best].index == 0
        positions = self._positions()
        equal = [at for at, position in positions.items() if position == positions[best]]
        lagging = [at for at in positions if at not in equal]
        others = [at for at in self._locks if at not in positions]
        needed = majority_of(len(self._paths))
        inside = [at for at in equal if self._has_definitions(at)]  # one that has not is not emptied for it
        for at in (*lagging, *others):
            if not inside or (len(inside) >= needed and not (is_new and at in others)):
                break
            if self._like(at, inside[0], before, incarnation, whole=at in lagging):
                inside.append(at)
        if len(inside) < needed:
            there = f"{len(inside)} of {len(self._paths)} data directories can be used"
            raise StartRefused(f"{there}, and {needed} are needed ({self._reasons()})")
        return sorted(inside)

    def _like(self, at: int, other: int, before: DiskList, incarnation: int, *, whole: bool) -> bool:
        """Whether the directory has now what the other one has."""
        path, disk = self._paths[at], self._disks.pop(at, None)
        if disk is not None:
            disk.forsake()
        log.info("data directory is made equal", data_dir=str(path), like=str(self._paths[other]))
        try:
            if not whole:
                self._seen[at].record = write_record(path, Record(draw(), False, incarnation, before))
            self._copy_definitions(at)  # before it counts for more because of its journal
            with closing(open_moment(self._paths[other] / JOURNAL)) as source:
                copy_journal(source, path, whole=whole)
        except FAILED as error:
            self._gives_up(at, str(error))
            return False
        self._open_one(at, accept_loss=False)
        return at in self._disks

    def _has_definitions(self, at: int) -> bool:
        """A directory with everything else has them now, too."""
        try:
            self._copy_definitions(at)
        except (sqlite3.Error, OSError) as error:
            self._gives_up(at, str(error))
            return False
        return True

    def _copy_definitions(self, at: int) -> None:
        """Not of a node whose definitions are in a cluster's store, or that is new. Raises sqlite3.Error, OSError."""
        like = self._definitions_of
        if like is not None and not self._definitions.are_same(at, like):
            with closing(definitions_moment(self._paths[like] / METADATA_DB)) as moment:
                copy_definitions(moment, self._paths[at])

    def _members(self, inside: list[int]) -> list[Member]:
        members = []
        for at, path in enumerate(self._paths):
            member = Member(at, path, self._disks.get(at) if at in inside else None)
            if at not in inside:
                member.damaged = at not in self._disks
                was = "it is new, or was emptied" if member.damaged else "it is behind"
                member.reason = self._seen[at].unusable or was
                if (disk := self._disks.pop(at, None)) is not None:
                    disk.forsake()
            members.append(member)
        return members

    def _reasons(self) -> str:
        return "; ".join(f"{each.path}: {each.unusable}" for each in self._seen if each.unusable)


async def open_disks_of(
    paths: list[Path], *, accept_loss: bool, keep_free_bytes: int, found: Callable[[Mapping[str, str]], None]
) -> OpenDisks:
    """Opens the directories as `open_disks` does, in a thread. Raises StartupError."""
    make = partial(open_disks, paths, accept_loss=accept_loss, keep_free_bytes=keep_free_bytes, found=found)
    return await trio.to_thread.run_sync(make)


async def pair_on_disks(disks: OpenDisks, *, accept_loss: bool) -> Pair:
    """The journal and the definitions of several directories, opened as a pair. Raises StartupError."""
    lost = await trio.to_thread.run_sync(misfits_of, disks.disk, disks.directory / METADATA_DB)
    if lost and not accept_loss:
        raise StartupError(f"{lost[0]}; {WAY_OUT}")
    for sentence in (*disks.disk.accepted, *lost):
        log.warning("the loss of messages is accepted", what=sentence)
    store = await opened(SqliteStore.on(partial(open_definitions, disks.group)), disks.directory)
    pair = Pair(disks.disk, store)
    pair.suspect = bool(lost or disks.definitions_lost)
    return pair
