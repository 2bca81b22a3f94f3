"""The blocking half of the embedded store: the file, and the leased keys beside it.

What comes in: reads, and the calls of a group commit. What goes out: their outcomes, and the events that
were seen or made on the way, in `events` (and `missed_until`, when other processes' events are lost), for
the caller to take after each call, also one that raised.
Rules: 1. One thread at a time. 2. What a commit changes beside the file (counters, leased keys, events)
changes after COMMIT has returned; so a full disk, which SQLite rolls back, leaves everything as it was. 3. What a
call does depends on the file, on the leased keys, and on nothing else: files that were equal and get the same calls
in the same order stay equal. 4. Only a file that is one of several is of one process alone: what another one wrote
there is damage.
Not here: threads and turns (`store.py`), the group commit (`topology/metadata/sqlite/batch.py`), tables
(`tables.py`), opening and errors (`database.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

from amqpd.storage.files import mark_path
from amqpd.storage.mark import Mark
from amqpd.topology.metadata.sqlite.batch import LEASED_BITS, CommitRequest, GroupCommit, keys_of
from amqpd.topology.metadata.sqlite.database import (
    close_database,
    driver_of,
    empty_log,
    explained,
    open_database,
    transaction,
)
from amqpd.topology.metadata.sqlite.tables import (
    ADD_DROPPED,
    ADD_HISTORY,
    COUNT_DROPPED,
    CUT_DROPPED,
    CUT_HISTORY,
    DELETE_DROPPED,
    DELETE_ENTRIES,
    MEASURE_HISTORY,
    PUT_ENTRIES,
    READ_HISTORY,
    WRITE_STATE,
    checksum_matches,
    dropped_checksum,
    entries,
    entry_checksum,
    history_matches,
    read_entries,
    state_checksum,
)
from amqpd.topology.metadata.sqlite.verification import read_dropped, read_journal, read_state, write_journal
from amqpd.topology.metadata.store import (
    Compacted,
    DeleteKey,
    Event,
    MetadataEntry,
    Outcome,
    PutKey,
    Snapshot,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    bytes_of,
    prefix_end,
)
from amqpd.topology.metadata.tombstones import DROPPED_MAX

# A process that missed more transactions than this reads everything again.
HISTORY_REVISIONS_MAX = 10_000
# And more bytes are not kept either: large arguments would make the file many times as large as what exists. Half of
# them stay when it is cut, so that it is not cut in each commit.
HISTORY_BYTES_MAX = 16 * 1024 * 1024
# The history is cut once in this number of revisions, so that it is not paid in each commit.
HISTORY_CUT_EVERY = 1_000
# The tombstones are counted once in this number.
DROPPED_CUT_EVERY = 10_000
# After this number of looks of `sqlite.POLL_S` without a change (2 s) the log is emptied: damage in it cannot
# matter then. The next commit pays one more fsync, for the header of a new log.
QUIET_LOOKS = 8
# SQLite takes 32,766 parameters in a statement; a list of this length keeps the statement cache small.
KEYS_A_SELECT = 500


Leased = tuple[dict[str, MetadataEntry], int]
"""leased keys, and the transactions with such since the file's last revision"""


class _HistoryDamaged(Exception):
    """A part of the history cannot be trusted: as good as gone."""


class SqliteFile:
    """The database of one store: every call blocks, and one thread at a time may make it."""

    def __init__(
        self,
        path: Path,
        history_revisions_max: int = HISTORY_REVISIONS_MAX,
        accept_loss: bool = False,
        *,
        one_of_several: bool = False,
    ) -> None:
        """`one_of_several`: the node goes on without its disk, should that hang."""
        self.path = path
        self.one_of_several = one_of_several
        self.events: list[Event] = []
        self.missed_until: int | None = None
        self._leased: dict[str, MetadataEntry] = {}
        self._leased_steps = 0
        self._history_revisions_max = history_revisions_max
        self._data_version: int | None = None
        self._forgotten: set[int] = set()
        self._unlooked = DROPPED_CUT_EVERY
        # Looks since the last change; what another process left in the log is a change, too.
        self._quiet_looks = 0
        opened = open_database(path, accept_loss=accept_loss, mark_by_calls=one_of_several)
        self.identity, self.accepted = opened.identity, opened.accepted
        self._connection, self._mark = opened.connection, opened.mark
        self._driver = driver_of(self._connection)
        with explained(path):
            self._seen, self._compacted, *_ = read_state(self._driver, path, self.identity)
            self._history_bytes = sum(nbytes for _, nbytes in self._driver.execute(MEASURE_HISTORY))

    @property
    def revision(self) -> int:
        return (self._seen << LEASED_BITS) + self._leased_steps

    def get(self, key: str) -> MetadataEntry | None:
        with explained(self.path), transaction(self._driver, "BEGIN"):
            self._catch_up()
            return self._read([key]).get(key)

    def range(self, prefix: str) -> Snapshot:
        query = sa.select(entries).where(entries.c.key >= prefix)
        if (end := prefix_end(prefix)) is not None:
            query = query.where(entries.c.key < end)
        with explained(self.path), transaction(self._driver, "BEGIN"):
            self._catch_up()
            found = [self._entry(*row) for row in self._connection.execute(query)]
        found += [entry for key, entry in self._leased.items() if key.startswith(prefix)]
        return Snapshot(self.revision, sorted(found, key=lambda entry: entry.key))

    def refresh(self) -> int:
        with explained(self.path):
            (data_version,) = self._driver.execute("PRAGMA data_version").fetchone()
            if data_version != self._data_version:
                with transaction(self._driver, "BEGIN"):
                    self._catch_up()
                self._data_version = data_version
                self._quiet_looks = 0
        return self.revision

    def look(self) -> None:
        """Take note of other processes' commits; when there were none of anybody for a while, empty the log."""
        self.refresh()
        self._quiet_looks += 1
        if self._quiet_looks == QUIET_LOOKS and not self.rest():
            self._quiet_looks = 0

    def rest(self) -> bool:
        """Nothing was committed for a while: empty the log. Whether it is empty."""
        emptied = False
        with suppress(StoreFull, StoreBusy):
            self._forget()
            with explained(self.path):
                emptied = empty_log(self._driver)
                self._sync_mark()
        return emptied

    def past(self, after: int, until: int) -> list[Event]:
        """The file's events greater than `after`, up to `until`, from the history."""
        with explained(self.path), transaction(self._driver, "BEGIN"):
            self._catch_up()
            if after >> LEASED_BITS < self._compacted:
                raise Compacted(f"revisions up to {self._compacted << LEASED_BITS} are gone")
            try:
                return self._events_between(after >> LEASED_BITS, until >> LEASED_BITS)
            except _HistoryDamaged as damage:
                raise Compacted(f"revisions after {after} cannot be read: {damage}") from damage

    def commit(self, calls: Sequence[CommitRequest]) -> list[Outcome]:
        """Raises StoreFull, with no effect."""
        outcomes: list[Outcome] = []
        with explained(self.path), transaction(self._driver, "BEGIN IMMEDIATE"):
            count, total = self._catch_up()
            batch = GroupCommit(self._seen, self._leased_steps, self._read(keys_of(calls)))
            for call in calls:
                outcomes += [batch.execute(each) for each in call.transactions]
            if batch.past:
                self._write(batch, *batch.tally(count, total))
                mark = self._open_mark()
        if batch.past:
            mark.promise(batch.seen)
            self._forgotten.clear()
            self._quiet_looks = 0
        self._seen, self._leased_steps = batch.seen, batch.leased_steps
        for key in batch.touched:
            entry = batch.view.get(key)
            if entry is not None and entry.lease:
                self._leased[key] = entry
            else:
                self._leased.pop(key, None)
        self.events += batch.events
        return outcomes

    def require_disks(self) -> None:
        """From any thread, at once: there are enough for a commit. Raises StoreLacksDisks."""

    def leased(self) -> Leased:
        """What another file takes over that is made equal to this one."""
        return dict(self._leased), self._leased_steps

    def take_leased(self, leased: Leased) -> None:
        """Of a file that is equal."""
        self._leased, self._leased_steps = leased

    def dropped(self) -> dict[int, int]:
        """With the revision of each."""
        with explained(self.path), transaction(self._driver, "BEGIN"):
            found = dict(read_dropped(self._driver, self.path))
        return {number: at for number, at in found.items() if number not in self._forgotten}

    def forget(self, ids: Iterable[int]) -> None:
        """With the next commit, or when it is quiet: it is no matter when."""
        self._forgotten.update(ids)
        self._quiet_looks = 0

    def journal(self) -> tuple[str, int] | None:
        with explained(self.path), transaction(self._driver, "BEGIN"):
            return read_journal(self._driver, self.path)

    def set_journal(self, identity: str, index: int) -> None:
        with explained(self.path), transaction(self._driver, "BEGIN IMMEDIATE"):
            write_journal(self._driver, identity, index)
        with suppress(StoreFull, StoreBusy), explained(self.path):
            # It has no revision, so its loss would not be seen: it does not stay in the log.
            empty_log(self._driver)

    def close(self, *, forget: bool = True) -> None:
        """`forget`: what was to be forgotten is, before."""
        with suppress(StoreFull, StoreBusy):
            if forget:
                self._forget()
        close_database(self._connection, self.path)
        with explained(self.path):
            self._sync_mark()
        if self._mark is not None:
            self._mark.close()

    def _open_mark(self) -> Mark:
        """Before COMMIT, because there may be no space for it."""
        if self._mark is None:
            self._mark = Mark(mark_path(self.path), self.identity, self._seen, by_calls=self.one_of_several)
        return self._mark

    def _sync_mark(self) -> None:
        if self._mark is not None:
            self._mark.sync()

    def _write(self, batch: GroupCommit, count: int, total: int) -> None:
        execute, execute_many = self._driver.execute, self._driver.executemany
        if puts := [row for row in batch.rows.values() if row is not None]:
            execute_many(PUT_ENTRIES, puts)
        if gone := [{"gone": key} for key, row in batch.rows.items() if row is None]:
            execute_many(DELETE_ENTRIES, gone)
        execute_many(ADD_HISTORY, batch.past)
        self._write_dropped(batch)
        compacted = self._compacted
        cut = batch.seen - self._history_revisions_max
        if cut < compacted + min(HISTORY_CUT_EVERY, self._history_revisions_max):
            cut = compacted
        # What a rollback takes back stays counted: then the history is cut a little earlier.
        self._history_bytes += sum(len(row["key"]) + len(row["value"] or "") for row in batch.past)
        if self._history_bytes > HISTORY_BYTES_MAX:
            cut = max(cut, self._oversized())
        if cut > compacted:
            execute(CUT_HISTORY, {"cut": cut})
            compacted = cut
        values = {"revision": batch.seen, "compacted": compacted, "entries": count, "total": total}
        values["checksum"] = state_checksum(batch.seen, compacted, count, total, self.identity)
        execute(WRITE_STATE, {f"new_{name}": value for name, value in values.items()})

    def _write_dropped(self, batch: GroupCommit) -> None:
        if gone := self._forgotten | batch.revived:
            self._driver.executemany(DELETE_DROPPED, [{"gone": number} for number in gone])
        if not batch.dropped:
            return
        rows = [
            {"queue_id": number, "revision": at, "checksum": dropped_checksum(number, at)}
            for number, at in batch.dropped.items()
        ]
        self._driver.executemany(ADD_DROPPED, rows)
        self._unlooked += len(rows)
        if self._unlooked >= DROPPED_CUT_EVERY:
            self._unlooked = 0
            (count,) = self._driver.execute(COUNT_DROPPED).fetchone()
            if count > DROPPED_MAX:
                # Half of them, so that sorting all is not paid often.
                self._driver.execute(CUT_DROPPED, {"count": count - DROPPED_MAX // 2})

    def _forget(self) -> None:
        if self._forgotten:
            with explained(self.path), transaction(self._driver, "BEGIN IMMEDIATE"):
                self._driver.executemany(DELETE_DROPPED, [{"gone": number} for number in self._forgotten])
            self._forgotten.clear()

    def _oversized(self) -> int:
        """The last revision that must go for the history to have half of its bytes; 0: none."""
        kept, cut = 0, 0
        for revision, nbytes in self._driver.execute(MEASURE_HISTORY).fetchall():
            if kept + nbytes > HISTORY_BYTES_MAX // 2:
                cut = revision
                break
            kept += nbytes
        self._history_bytes = kept
        return cut

    def _catch_up(self) -> tuple[int, int]:
        """Take note of what other processes committed since the last look. How many entries there are, and the sum of
        their checksums."""
        revision, self._compacted, count, total = read_state(self._driver, self.path, self.identity)
        if revision == self._seen:
            return count, total
        if self.one_of_several:
            raise StoreDamaged(f"{self.path} was written by another process: it is not what the others are any more")
        try:
            foreign = None if self._compacted > self._seen else self._events_between(self._seen, revision)
        except _HistoryDamaged:
            foreign = None
        if foreign is None:
            # What was put meanwhile is not known one by one; it came later than any key with a lease.
            for key in [key for key, entry in self._read_rows(list(self._leased)).items() if not entry.lease]:
                del self._leased[key]
            self.events.clear()
            self.missed_until = revision << LEASED_BITS
        else:
            self._history_bytes += sum(bytes_of(event.operations) for event in foreign)
            for event in foreign:
                for operation in event.operations:
                    self._leased.pop(operation.key, None)
            self.events += foreign
        self._seen, self._leased_steps = revision, 0
        return count, total

    def _events_between(self, after: int, until: int) -> list[Event]:
        """Raises _HistoryDamaged unless each revision is there and whole."""
        events: list[Event] = []
        until = max(after, until)
        found = self._driver.execute(READ_HISTORY, {"after": after, "until": until})
        for revision, group in itertools.groupby(found, key=lambda row: row[0]):
            rows = list(group)
            after += 1
            if revision != after or not history_matches(rows):
                raise _HistoryDamaged(f"{self.path} is damaged in the history of revision {after}")
            operations = tuple(
                DeleteKey(key) if value is None else PutKey(key, value) for _, _, key, value, _ in rows
            )
            events.append(Event(revision << LEASED_BITS, operations))
        if after != until:
            raise _HistoryDamaged(f"{self.path} lacks the history of revision {after + 1}")
        return events

    def _read(self, keys: Iterable[str]) -> dict[str, MetadataEntry]:
        wanted = dict.fromkeys(keys)
        found = {key: self._leased[key] for key in wanted if key in self._leased}
        found.update(self._read_rows([key for key in wanted if key not in found]))
        return found

    def _read_rows(self, keys: list[str]) -> dict[str, MetadataEntry]:
        found: dict[str, MetadataEntry] = {}
        for first in range(0, len(keys), KEYS_A_SELECT):
            some = {f"key{at}": key for at, key in enumerate(keys[first : first + KEYS_A_SELECT])}
            for row in self._driver.execute(read_entries(len(some)), some):
                found[row[0]] = self._entry(*row)
        return found

    def _entry(self, key: str, value: str, revision: int, checksum: int) -> MetadataEntry:
        if not checksum_matches(entry_checksum, key, value, revision, checksum=checksum):
            raise StoreDamaged(f"{self.path} is damaged (the entry {key!r} does not fit its checksum)")
        return MetadataEntry(key, value, revision << LEASED_BITS)
