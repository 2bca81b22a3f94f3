"""The blocking half of the embedded store: the file, and the leased keys beside it.

What comes in: reads, and the calls of a group commit. What goes out: their outcomes, and the events that
were seen or made on the way, in `events` (and `missed_until`, when other processes' events are lost), for
the caller to take after each call, also one that raised.
Rules: 1. One thread at a time. 2. What a commit changes beside the file (counters, leased keys, events)
changes after COMMIT has returned; so a full disk, which SQLite rolls back, leaves everything as it was.
Not here: threads and turns (`sqlite.py`), tables and errors (`database.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert

from amqpd.topology.database import driver_of, entries, explained, history, open_database, state, transaction
from amqpd.topology.store import (
    Committed,
    Compacted,
    Conflict,
    DeleteKey,
    Entry,
    Event,
    MetadataStoreError,
    Outcome,
    PutKey,
    Snapshot,
    Transaction,
    bytes_of,
    prefix_end,
)

# A process that missed more transactions than this reads everything anew.
HISTORY_REVISIONS_MAX = 10_000
# And more bytes are not kept either: large arguments would make the file many times as large as what exists. Half of
# them stay when it is cut, so that it is not cut in each commit.
HISTORY_BYTES_MAX = 16 * 1024 * 1024
# The history is cut once in so many revisions, so that it is not paid in each commit.
HISTORY_CUT_EVERY = 1_000
# Leased transactions between two of the file: 2**48 last nine years at a million a second.
LEASED_BITS = 48
# SQLite takes 32,766 parameters in a statement; a list of this length keeps the statement cache small.
KEYS_A_SELECT = 500

_dialect = sqlite.dialect(paramstyle="named")


def _text(statement: sa.ClauseElement) -> str:
    """SQL with named parameters, for the driver. Built once, and not run by SQLAlchemy either: both cost several
    times what SQLite takes, and a declare waits for six of them."""
    return str(statement.compile(dialect=_dialect))


_READ_STATE = _text(sa.select(state.c.revision, state.c.compacted))
_READ_HISTORY = _text(
    sa.select(history.c.revision, history.c.key, history.c.value)
    .where(history.c.revision > sa.bindparam("after"), history.c.revision <= sa.bindparam("until"))
    .order_by(history.c.revision, history.c.position)
)
_INSERT_ENTRY = insert(entries)
_PUT_ENTRIES = _text(
    _INSERT_ENTRY.on_conflict_do_update(
        index_elements=[entries.c.key],
        set_={"value": _INSERT_ENTRY.excluded.value, "revision": _INSERT_ENTRY.excluded.revision},
    )
)
_DELETE_ENTRIES = _text(sa.delete(entries).where(entries.c.key == sa.bindparam("gone")))
_CHARS = sa.func.length(history.c.key) + sa.func.coalesce(sa.func.length(history.c.value), sa.literal_column("0"))
_MEASURE_HISTORY = _text(
    sa.select(history.c.revision, sa.func.sum(_CHARS))
    .group_by(history.c.revision)
    .order_by(history.c.revision.desc())
)
_ADD_HISTORY = _text(sa.insert(history))
_CUT_HISTORY = _text(sa.delete(history).where(history.c.revision <= sa.bindparam("cut")))
_WRITE_STATE = _text(
    sa.update(state).values(revision=sa.bindparam("new_revision"), compacted=sa.bindparam("new_compacted"))
)


@functools.lru_cache(maxsize=32)
def _read_entries(count: int) -> str:
    """The parameters are key0, key1, ..."""
    keys: list[sa.BindParameter[str]] = [sa.bindparam(f"key{at}") for at in range(count)]
    return _text(sa.select(entries).where(entries.c.key.in_(keys)))


class Call:
    """Transactions of one caller, and a lease to end after them. When `done`, no `outcomes` means: it had
    no effect, for `failure`."""

    def __init__(self, transactions: list[Transaction], ended_lease: int = 0) -> None:
        self.transactions = transactions
        self.ended_lease = ended_lease
        self.done = False
        self.outcomes: list[Outcome] | None = None
        self.failure: MetadataStoreError | None = None


class SqliteFile:
    def __init__(self, path: Path, history_revisions_max: int) -> None:
        self.path = path
        self.events: list[Event] = []
        self.missed_until: int | None = None
        self._seen: int
        self._compacted: int
        self._leased: dict[str, Entry] = {}
        self._leased_steps = 0
        self._history_revisions_max = history_revisions_max
        self._data_version: int | None = None
        self._connection = open_database(path)
        self._driver = driver_of(self._connection)
        with explained(path):
            self._seen, self._compacted = self._driver.execute(_READ_STATE).fetchone()
            self._history_bytes = sum(nbytes for _, nbytes in self._driver.execute(_MEASURE_HISTORY))

    @property
    def revision(self) -> int:
        return (self._seen << LEASED_BITS) + self._leased_steps

    def get(self, key: str) -> Entry | None:
        with explained(self.path), transaction(self._driver, "BEGIN"):
            self._catch_up()
            return self._read([key]).get(key)

    def range(self, prefix: str) -> Snapshot:
        query = sa.select(entries).where(entries.c.key >= prefix)
        if (end := prefix_end(prefix)) is not None:
            query = query.where(entries.c.key < end)
        with explained(self.path), transaction(self._driver, "BEGIN"):
            self._catch_up()
            found = [_entry(*row) for row in self._connection.execute(query)]
        found += [entry for key, entry in self._leased.items() if key.startswith(prefix)]
        return Snapshot(self.revision, sorted(found, key=lambda entry: entry.key))

    def refresh(self) -> int:
        with explained(self.path):
            (data_version,) = self._driver.execute("PRAGMA data_version").fetchone()
            if data_version != self._data_version:
                with transaction(self._driver, "BEGIN"):
                    self._catch_up()
                self._data_version = data_version
        return self.revision

    def past(self, after: int, until: int) -> list[Event]:
        """The file's events greater than `after`, up to `until`, from the history."""
        with explained(self.path), transaction(self._driver, "BEGIN"):
            self._catch_up()
            if after >> LEASED_BITS < self._compacted:
                raise Compacted(f"revisions up to {self._compacted << LEASED_BITS} are gone")
            return self._events_between(after >> LEASED_BITS, until >> LEASED_BITS)

    def commit(self, calls: Sequence[Call]) -> list[Outcome]:
        """Raises StoreFull, with no effect."""
        outcomes: list[Outcome] = []
        with explained(self.path), transaction(self._driver, "BEGIN IMMEDIATE"):
            self._catch_up()
            batch = _Batch(self._seen, self._leased_steps, self._read(_keys_of(calls)))
            for call in calls:
                outcomes += [batch.execute(each) for each in call.transactions]
                if call.ended_lease:
                    batch.end_lease(call.ended_lease, self._leased)
            if batch.past:
                self._write(batch)
        self._seen, self._leased_steps = batch.seen, batch.leased_steps
        for key in batch.touched:
            entry = batch.view.get(key)
            if entry is not None and entry.lease:
                self._leased[key] = entry
            else:
                self._leased.pop(key, None)
        self.events += batch.events
        return outcomes

    def close(self) -> None:
        with explained(self.path):
            self._connection.close()
            self._connection.engine.dispose()

    def _write(self, batch: _Batch) -> None:
        execute, execute_many = self._driver.execute, self._driver.executemany
        if puts := [row for row in batch.rows.values() if row["value"] is not None]:
            execute_many(_PUT_ENTRIES, puts)
        if gone := [{"gone": key} for key, row in batch.rows.items() if row["value"] is None]:
            execute_many(_DELETE_ENTRIES, gone)
        execute_many(_ADD_HISTORY, batch.past)
        compacted = self._compacted
        cut = batch.seen - self._history_revisions_max
        if cut < compacted + min(HISTORY_CUT_EVERY, self._history_revisions_max):
            cut = compacted
        # What a rollback takes back stays counted: then the history is cut a little earlier.
        self._history_bytes += sum(len(row["key"]) + len(row["value"] or "") for row in batch.past)
        if self._history_bytes > HISTORY_BYTES_MAX:
            cut = max(cut, self._oversized())
        if cut > compacted:
            execute(_CUT_HISTORY, {"cut": cut})
            compacted = cut
        execute(_WRITE_STATE, {"new_revision": batch.seen, "new_compacted": compacted})

    def _oversized(self) -> int:
        """The last revision that must go for the history to have half of its bytes; 0: none."""
        kept, cut = 0, 0
        for revision, nbytes in self._driver.execute(_MEASURE_HISTORY).fetchall():
            if kept + nbytes > HISTORY_BYTES_MAX // 2:
                cut = revision
                break
            kept += nbytes
        self._history_bytes = kept
        return cut

    def _catch_up(self) -> None:
        """Take note of what other processes committed since the last look."""
        revision, self._compacted = self._driver.execute(_READ_STATE).fetchone()
        if revision == self._seen:
            return
        if self._compacted > self._seen:
            # What was put meanwhile is not known one by one; it came later than any key with a lease.
            for key in [key for key, entry in self._read_rows(list(self._leased)).items() if not entry.lease]:
                del self._leased[key]
            self.events.clear()
            self.missed_until = revision << LEASED_BITS
        else:
            foreign = self._events_between(self._seen, revision)
            self._history_bytes += sum(bytes_of(event.operations) for event in foreign)
            for event in foreign:
                for operation in event.operations:
                    self._leased.pop(operation.key, None)
            self.events += foreign
        self._seen, self._leased_steps = revision, 0

    def _events_between(self, after: int, until: int) -> list[Event]:
        found = self._driver.execute(_READ_HISTORY, {"after": after, "until": until})
        return [
            Event(
                revision << LEASED_BITS,
                tuple(DeleteKey(key) if value is None else PutKey(key, value) for _, key, value in rows),
            )
            for revision, rows in itertools.groupby(found, key=lambda row: row[0])
        ]

    def _read(self, keys: Iterable[str]) -> dict[str, Entry]:
        wanted = dict.fromkeys(keys)
        found = {key: self._leased[key] for key in wanted if key in self._leased}
        found.update(self._read_rows([key for key in wanted if key not in found]))
        return found

    def _read_rows(self, keys: list[str]) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for first in range(0, len(keys), KEYS_A_SELECT):
            some = {f"key{at}": key for at, key in enumerate(keys[first : first + KEYS_A_SELECT])}
            for row in self._driver.execute(_read_entries(len(some)), some):
                found[row[0]] = _entry(*row)
        return found


class _Batch:
    """A group commit that is being put together. `view` has the entries of all keys that it names, and
    changes as the transactions are executed; `rows` is the last state of each row to be written (no value:
    gone), `past` every operation on the file for the history, `touched` every key that changed."""

    def __init__(self, seen: int, leased_steps: int, view: dict[str, Entry]) -> None:
        self.seen = seen
        self.leased_steps = leased_steps
        self.view = view
        self.rows: dict[str, dict[str, object]] = {}
        self.past: list[dict[str, Any]] = []
        self.touched: set[str] = set()
        self.events: list[Event] = []

    @property
    def revision(self) -> int:
        return (self.seen << LEASED_BITS) + self.leased_steps

    def execute(self, each: Transaction) -> Outcome:
        if not all(compare.holds(self.view.get(compare.key)) for compare in each.compares):
            return Conflict(self.revision)
        effective = tuple(one for one in each.operations if isinstance(one, PutKey) or one.key in self.view)
        if not effective:
            return Committed(self.revision)
        rows: list[tuple[str, str | None]] = []
        for operation in effective:
            before = self.view.get(operation.key)
            if isinstance(operation, PutKey) and not operation.lease:
                rows.append((operation.key, operation.value))
            elif before is not None and not before.lease:
                rows.append((operation.key, None))
        if rows:
            self.seen, self.leased_steps = self.seen + 1, 0
            self._add_rows(rows)
        else:
            self.leased_steps += 1
        for operation in effective:
            self.touched.add(operation.key)
            if isinstance(operation, PutKey):
                self.view[operation.key] = Entry(operation.key, operation.value, self.revision, operation.lease)
            else:
                del self.view[operation.key]
        self.events.append(Event(self.revision, effective))
        return Committed(self.revision)

    def end_lease(self, lease: int, leased: dict[str, Entry]) -> None:
        for key, entry in leased.items():
            if entry.lease == lease and key not in self.touched:
                self.view[key] = entry
        held = sorted(key for key, entry in self.view.items() if entry.lease == lease)
        self.execute(Transaction((), tuple(map(DeleteKey, held))))

    def _add_rows(self, rows: list[tuple[str, str | None]]) -> None:
        for position, (key, value) in enumerate(rows):
            self.rows[key] = {"key": key, "value": value, "revision": self.seen}
            self.past.append({"revision": self.seen, "position": position, "key": key, "value": value})


def _keys_of(calls: Sequence[Call]) -> Iterable[str]:
    for call in calls:
        for each in call.transactions:
            yield from (compare.key for compare in each.compares)
            yield from (operation.key for operation in each.operations)


def _entry(key: str, value: str, revision: int) -> Entry:
    return Entry(key, value, revision << LEASED_BITS)
