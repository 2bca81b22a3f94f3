"""A group commit of the embedded store while it is being put together.

What comes in: the entries that the transactions name, then the transactions one by one. What goes out: their
outcomes and events, and what is to be written to the file in the end.
Rules: 1. Nothing here touches the file, so what is rolled back was never anywhere else. 2. A key with a lease has no
row in the file; one without has.
Not here: the file (`sqlite/sqlite_file.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from amqpd.topology.metadata.sqlite.tables import entry_checksum, history_checksum
from amqpd.topology.metadata.store import (
    Committed,
    CompareFailed,
    Event,
    MetadataEntry,
    MetadataStoreError,
    MetadataTransaction,
    Outcome,
    PutKey,
)
from amqpd.topology.metadata.tombstones import numbers

# Leased transactions between two of the file: 2**48 last nine years at a million a second.
LEASED_BITS = 48


class CommitRequest:
    """The transactions of one caller. When `done`, no `outcomes` means: they had no effect, for `failure`."""

    def __init__(self, transactions: list[MetadataTransaction]) -> None:
        self.transactions = transactions
        self.done = False
        self.outcomes: list[Outcome] | None = None
        self.failure: MetadataStoreError | None = None


class GroupCommit:
    """A group commit of the embedded store while it is put together. `view` has the entries of all keys that the
    commit names, and changes as the transactions are executed; `rows` is the last state of each row to be written
    (None: gone), `past` the operations on the file of each transaction for the history, `touched` every key that
    changed, `dropped` the journal's numbers that ended with the revision in which they did, `revived` those that
    are in use (again)."""

    def __init__(self, seen: int, leased_steps: int, view: dict[str, MetadataEntry]) -> None:
        self.seen = seen
        self.leased_steps = leased_steps
        self.view = view
        self.rows: dict[str, dict[str, Any] | None] = {}
        self.past: list[dict[str, Any]] = []
        self.touched: set[str] = set()
        self.events: list[Event] = []
        self.dropped: dict[int, int] = {}
        self.revived: set[int] = set()
        self._before = {key: entry for key, entry in view.items() if not entry.lease}

    @property
    def revision(self) -> int:
        return (self.seen << LEASED_BITS) + self.leased_steps

    def execute(self, each: MetadataTransaction) -> Outcome:
        if not all(compare.holds(self.view.get(compare.key)) for compare in each.compares):
            return CompareFailed(self.revision)
        effective = tuple(one for one in each.operations if isinstance(one, PutKey) or one.key in self.view)
        if not effective:
            return Committed(self.revision)
        rows: list[tuple[str, str | None]] = []
        ended: list[tuple[str, str]] = []
        for operation in effective:
            before = self.view.get(operation.key)
            if before is not None and not before.lease:
                ended.append((before.key, before.value))
            if isinstance(operation, PutKey) and not operation.lease:
                rows.append((operation.key, operation.value))
            elif before is not None and not before.lease:
                rows.append((operation.key, None))
        if rows:
            self.seen, self.leased_steps = self.seen + 1, 0
            self._add_rows(rows, ended)
        else:
            self.leased_steps += 1
        for operation in effective:
            self.touched.add(operation.key)
            if isinstance(operation, PutKey):
                self.view[operation.key] = MetadataEntry(
                    operation.key, operation.value, self.revision, operation.lease
                )
            else:
                del self.view[operation.key]
        self.events.append(Event(self.revision, effective))
        return Committed(self.revision)

    def tally(self, count: int, total: int) -> tuple[int, int]:
        """How many entries there are after the commit, and the sum of their checksums, from those before it."""
        for key, row in self.rows.items():
            before = self._before.get(key)
            if before is not None:
                count -= 1
                total -= entry_checksum(key, before.value, before.mod_revision >> LEASED_BITS)
            if row is not None:
                count += 1
                total += row["checksum"]
        return count, total

    def _add_rows(self, rows: list[tuple[str, str | None]], ended: list[tuple[str, str]]) -> None:
        at = self.seen
        for position, (key, value) in enumerate(rows):
            self.rows[key] = None
            if value is not None:
                checksum = entry_checksum(key, value, at)
                self.rows[key] = {"key": key, "value": value, "revision": at, "checksum": checksum}
            checksum = history_checksum(at, position, len(rows), key, value)
            row = {"revision": at, "position": position, "key": key, "value": value, "checksum": checksum}
            self.past.append(row)
        used = numbers((key, value) for key, value in rows if value is not None)
        for number in used:
            self.dropped.pop(number, None)
        self.revived |= used
        self.dropped.update(dict.fromkeys(numbers(ended) - used, at))


def keys_of(calls: Sequence[CommitRequest]) -> Iterable[str]:
    for call in calls:
        for each in call.transactions:
            yield from (compare.key for compare in each.compares)
            yield from (operation.key for operation in each.operations)
