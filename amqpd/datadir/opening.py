"""Opens what a broker has on its disk: the journal and the metadata store, as a pair.

What comes in: the data directory, locked; whether the operator accepts losses. What goes out: both, open and whole,
or StartupError with one sentence and no file changed.
Rules: 1. Nothing is written to either before both were looked at. 2. What was accepted as lost is in the log.
3. A full disk does not keep them from being opened: a reserve is given up for it.
Not here: what a loss is (`journal/sqlite/trust.py`, `topology/metadata/sqlite/promises.py`, `pairing.py`), recovery
(`broker.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import structlog
import trio

from amqpd.datadir.pairing import METADATA, METADATA_REVISION, WAY_OUT, JournalFacts, MetadataFacts, misfits
from amqpd.datadir.reserves import hold_for_metadata, hold_for_next_start, index_is_safe, release_for_metadata
from amqpd.errors import NotYet, StartupError
from amqpd.journal.errors import DiskFailure, DiskFull, JournalInUse, NotAJournal
from amqpd.journal.errors import NewerJournalFormat as NewerJournal
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.node_disk import NodeDisk
from amqpd.journal.transaction import JournalTransaction
from amqpd.storage.probe import disk_error
from amqpd.storage.wal import why_less
from amqpd.topology.metadata.sqlite.batch import LEASED_BITS
from amqpd.topology.metadata.sqlite.database import refuse_incomplete
from amqpd.topology.metadata.sqlite.glance import glance
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import (
    MetadataStore,
    MetadataStoreError,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreUnreached,
)

METADATA_DB = "metadata.db"
LOOK_S = 1.0
"""How soon the journal knows of a change of the metadata."""
CLOCK = "clock_ms"
"""of the journal's names: the broker's time when it was written last, or some seconds before"""
NOTE_LOOKS = 5
"""After this number of looks the metadata know how far the journal is: two small commits, while there is traffic. An
older copy that lacks less than that may go unnoticed."""

log = structlog.get_logger(component="opening")


class BrokerMetadataStore(MetadataStore, Protocol):
    """A metadata store with what the broker asks of it beside the contract of all stores."""

    @property
    def accepted(self) -> list[str]:
        """What was lost when it was opened in spite of that: sentences."""
        ...

    threads: trio.CapacityLimiter
    """those in which it works"""


class Pair:
    """The journal and the metadata store of a node, both open; `open_pair` makes it, or `open_cluster_pair`
    (`cluster.py`)."""

    def __init__(self, disk: NodeDisk, store: BrokerMetadataStore, leased_bits: int = LEASED_BITS) -> None:
        """`leased_bits` of a revision count what the store does not keep."""
        self.disk = disk
        self.store = store
        self._leased_bits = leased_bits
        self.full = False
        """the disk is, and the journal's reserve was given up"""
        self.suspect = False
        """metadata may be missing: an older copy or none was accepted"""
        self._behind = ""
        """why the last note of both could not be written"""
        self._noted: tuple[str, int] | None = None
        """what the metadata store says of the journal, when that is known"""
        self._clock_ms: Callable[[], int] | None = None

    @property
    def last_ms(self) -> int:
        """The broker's time as the journal knows it; 0: it never noted one."""
        return int(self.disk.names.get(CLOCK, "0"))

    def _note_clock(self) -> None:
        """With the journal's next transaction."""
        if self._clock_ms is not None:
            self.disk.note(**{CLOCK: str(self._clock_ms())})

    async def begin(self, clock_ms: Callable[[], int] | None = None) -> int:
        """The journal is recovered, and an incarnation begins: with a transaction of nothing, so that a copy of the
        journal from before it is older than what `note` says. The index of the last one; a full disk takes none.
        `clock_ms`: the broker's time, which is kept among the journal's names for the next start."""
        self._clock_ms = clock_ms
        self._note_clock()
        with suppress(DiskFull):
            await trio.to_thread.run_sync(self.disk.commit, JournalTransaction(self.disk.index + 1))
        return self.disk.index

    def applied(self, revision: int) -> None:
        """The metadata store has this revision, and the journal's next transaction says so: a queue's deletion, and
        what clients publish behind a change, is on the disk together with the revision that it came behind."""
        self.disk.note(**{METADATA_REVISION: str(revision >> self._leased_bits)})

    async def run(self, threads: trio.CapacityLimiter) -> None:
        """Keep the notes, until cancelled: an older copy of one of the files is told by the other one's note."""
        for look in itertools.count(1):
            await trio.sleep(LOOK_S)
            await self.note(threads, both=look % NOTE_LOOKS == 0)

    async def note(
        self, threads: trio.CapacityLimiter | None = None, *, both: bool = True, ends: bool = False
    ) -> None:
        """Each says in writing which the other one is, and how far (the metadata only if `both`); nothing is written
        when nothing has changed. On a full disk, while another process holds the metadata, or while their store does
        not answer, the notes stay as they were. `threads`: the limiter of what else writes the journal; `ends`: no
        transaction follows, so the time is written at once."""
        try:
            revision = await self.store.refresh() >> self._leased_bits
            names = {METADATA: await self.store.identity(), METADATA_REVISION: str(revision)}
            if ends and self._clock_ms is not None:
                names[CLOCK] = str(self._clock_ms())
            if any(self.disk.names.get(name) != value for name, value in names.items()):
                await trio.to_thread.run_sync(partial(self.disk.set_names, **names), limiter=threads)
            journal = self.disk.names["identity"], self.disk.stored_index
            if both and self._noted is None:
                self._noted = await self.store.journal()
            if both and self._noted != journal:
                self._note_clock()
                await self.store.set_journal(*journal)
                self._noted = journal
        except (DiskFull, StoreFull, StoreBusy, StoreUnreached) as error:
            if str(error) != self._behind:
                log.warning("the journal and the metadata could not note each other yet", reason=str(error))
            self._behind = str(error)
        else:
            self._behind = "" if both else self._behind


async def open_pair(
    directory: Path,
    *,
    accept_loss: bool,
    keep_free_bytes: int = 0,
    say: Callable[[str], None] | None = None,
    found: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> Pair:
    """`keep_free_bytes`: see `SqliteDisk`; `say`: is told what is done, from any thread; `found`: told the
    journal's names before anything is written, raises StartupError. Raises StartupError."""

    def report_progress(rows: int, read: int) -> None:
        if say is not None:
            say(f"it starts, and has read {read:,} of the {rows:,} rows of the journal's index")

    make = partial(SqliteDisk, directory, keep_free_bytes=keep_free_bytes, accept_loss=accept_loss)
    disk = await opened(trio.to_thread.run_sync(make), directory)
    try:
        found(disk.names)
        lost = await trio.to_thread.run_sync(misfits_of, disk, directory / METADATA_DB)
        await opened(trio.to_thread.run_sync(disk.examine, report_progress), directory)
        if lost and not accept_loss:
            # What the metadata lack by what they say themselves has more ways out: their copies.
            await opened(trio.to_thread.run_sync(refuse_incomplete, directory / METADATA_DB), directory)
            raise StartupError(f"{lost[0]}; {WAY_OUT}")
        for sentence in (*disk.accepted, *lost):
            log.warning("the loss of messages is accepted", what=sentence)
        store, full = await opened(_open_store(directory / METADATA_DB, disk, accept_loss=accept_loss), directory)
    except BaseException:
        disk.forsake()
        raise
    pair = Pair(disk, store)
    pair.full = full
    pair.suspect = bool(lost or store.accepted)
    return pair


def misfits_of(disk: NodeDisk, metadata: Path) -> list[str]:
    """How the journal and this metadata.db do not fit: a sentence each."""
    seen = glance(metadata)
    if seen is None:
        return []  # opening it says what is wrong
    journal = JournalFacts(str(disk.path), disk.names["identity"], disk.index, disk.names)
    lost = misfits(journal, MetadataFacts(str(metadata), *seen))
    if lost:
        # A damaged log makes an older database. It is read only now: at each other start opening the store reads it.
        journal, logs = journal._replace(log=why_less(disk.path)), why_less(metadata)
        lost = misfits(journal, MetadataFacts(str(metadata), *seen, logs))
    return lost


async def _open_store(path: Path, disk: SqliteDisk, *, accept_loss: bool) -> tuple[SqliteStore, bool]:
    """The store, and whether the disk is so full that a reserve had to be given up for it."""
    directory = path.parent
    with suppress(StoreFull):
        store = await _open_safely(path, accept_loss)
        hold_for_metadata(directory)
        return store, False
    if release_for_metadata(directory):
        with suppress(StoreFull):
            store = await _open_safely(path, accept_loss)
            hold_for_next_start(directory)
            return store, True
    await trio.to_thread.run_sync(disk.release_reserve)
    return await _open_safely(path, accept_loss), True


async def _open_safely(path: Path, accept_loss: bool) -> SqliteStore:
    if not index_is_safe(path.parent):
        raise StoreFull(f"there is no space on the disk for {path}")
    return await SqliteStore.open(path, accept_loss=accept_loss)


async def opened(opening: Awaitable[Any], directory: Path) -> Any:
    """What stands in the way of opening the data is one sentence. Raises StartupError."""
    try:
        return await opening
    except (JournalDamaged, StoreDamaged) as error:
        unreadable = await trio.to_thread.run_sync(disk_error, directory)
        raise StartupError(unreadable or str(error)) from error
    except StoreUnreached as error:
        raise NotYet(str(error)) from error
    except (NewerJournal, NotAJournal, JournalInUse, DiskFailure, MetadataStoreError) as error:
        raise StartupError(str(error)) from error
