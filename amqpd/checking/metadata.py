"""Checks a metadata store: the file, its log and its mark, every entry, the tombstones, the copies beside it.

What comes in: the path of `metadata.db`. What goes out: findings; the queues' names; what the store says of itself.
Rules: 1. Nothing is changed. 2. After one damage the check goes on with what can still be read. 3. What opening the
store would refuse is found: if nothing else was, it is verified as opening it does.
Not here: the comparison with the journal (`check.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from amqpd.checking.reading import checksum_matches, each, has_columns, opened, structure
from amqpd.checking.report import JournalQueueNames, Report
from amqpd.storage.files import mark_path, wal_path, wrong_format
from amqpd.topology.metadata.codec import PREFIX, decode_record
from amqpd.topology.metadata.sqlite import copies, promises
from amqpd.topology.metadata.sqlite.database import SEALED_FORMATS, newer_formats
from amqpd.topology.metadata.sqlite.tables import (
    IDENTITY,
    READ_DROPPED,
    READ_ENTRIES,
    READ_NAMES,
    dropped_checksum,
    entry_checksum,
    history_matches,
    name_checksum,
)
from amqpd.topology.metadata.sqlite.verification import DatabaseContents, check_header, read_state, verify
from amqpd.topology.metadata.store import StoreDamaged
from amqpd.vocabulary.records import QueueRecord, VhostRecord

METADATA = "metadata.db"
_HISTORY = "SELECT revision, position, key, value, checksum FROM history ORDER BY revision, position"


@dataclass
class CheckedMetadata:
    """The facts of a metadata store that the checks of the journal, and of both as a pair, go by."""

    there: bool = False
    newer: bool = False
    """a newer amqpd wrote it: nothing is known of it"""
    contents: DatabaseContents | None = None
    """None: it is damaged, or of an older format"""
    names: JournalQueueNames = field(default_factory=JournalQueueNames)
    journal: str = ""
    """the identity of the journal that it belongs to"""
    journal_index: int = 0


def check_metadata(directory: Path, report: Report) -> CheckedMetadata:
    return _Check(directory / METADATA, report).run()


class _Check:
    def __init__(self, path: Path, report: Report) -> None:
        self.path = path
        self.report = report
        self.found = CheckedMetadata()
        self._sealed = True
        self._identity = ""
        self._ways: dict[bool, str] = {}

    def run(self) -> CheckedMetadata:
        traces = self._traces()
        if traces is not None:
            if self.path.exists() and self.path.stat().st_size:
                self.found.there = True
                self._file(traces)
            else:
                for sentence in promises.missing(self.path, traces):
                    self._damage("missing", sentence)
        if not self.found.newer:
            self._copies()
        self.report.names = self.found.names
        return self.found

    def _damage(self, kind: str, text: str, *, accept: bool = False) -> None:
        text = text.removeprefix(f"{self.path} is damaged ").replace(f"{self.path.parent}/", "")
        self.report.damage(METADATA, kind, text, self._way_out(accept_loss=accept))

    def _way_out(self, *, accept_loss: bool) -> str:
        """Reading the copies for it takes a while, so it is done once."""
        if accept_loss not in self._ways:
            self._ways[accept_loss] = copies.way_out(self.path, accept_loss=accept_loss)
        return self._ways[accept_loss]

    def _traces(self) -> promises.Traces | None:
        try:
            traces = promises.traces_of(self.path)
        except OSError as error:
            self._damage("log", f"the files beside it cannot be read ({error.strerror or error})")
            return None
        if traces.unknown:
            self.report.damage(
                mark_path(self.path).name, "mark",
                "it is damaged, so what was committed is not known; no message is lost by that",
                "the next start makes it again",
            )  # fmt: skip
        return traces

    def _file(self, traces: promises.Traces) -> None:
        try:
            with opened(self.path) as connection:
                connection.execute("BEGIN")
                found = [name for (name,) in connection.execute("SELECT version_num FROM alembic_version")]
                if newer := newer_formats(found):
                    self.found.newer = True
                    self.report.newer(METADATA, newer)
                    return
                self._sealed = bool(SEALED_FORMATS & set(found))
                if not self._sealed and has_columns(connection, "names.checksum", "dropped.checksum", "state.total"):
                    self._sealed = True
                    said = ", ".join(map(repr, found))
                    self._damage("header", f"it says that it is of format {said}, and its tables are of a newer one")
                self._pages(connection)
                if self._sealed:
                    self._records(connection)
                else:
                    old = ", ".join(map(str, found))
                    text = f"it is of the older format {old}, whose records have no checksums"
                    self.report.note(METADATA, "format", text, "the next start brings it to the new one")
                    self._entries(connection)
        except (sqlite3.Error, OSError, TypeError, ValueError) as error:
            self._damage("header", f"it cannot be read ({error})")
        self._promise(traces)

    def _promise(self, traces: promises.Traces) -> None:
        contents = self.found.contents
        lost = []
        if contents is not None:
            lost = promises.losses(self.path, contents.identity, contents.revision, traces)
        elif not self._sealed:
            lost = promises.losses(self.path, "", -1, traces)
        for sentence in lost:
            self._damage("end of the log", sentence, accept=True)
        if traces.end.damage and not lost:
            name = wal_path(self.path).name
            self.report.damage(name, "log", traces.end.damage, self._way_out(accept_loss=True))

    def _pages(self, connection: sqlite3.Connection) -> None:
        for line in structure(connection):
            self._damage("structure", f"SQLite's own check says: {line}")
        if wrong := wrong_format(self.path):
            self._damage("header", wrong)
        log = wal_path(self.path)
        try:
            check_header(connection, self.path, whole=not (log.exists() and log.stat().st_size))
        except StoreDamaged as error:
            self._damage("header", str(error))

    def _records(self, connection: sqlite3.Connection) -> None:
        before = len(self.report.findings)
        count, total = self._entries(connection)
        self._dropped(connection)
        self._names(connection)
        try:
            entries, added = count, total
            if self._identity:  # else that is told already, and the state's checksum is made with it
                _, _, entries, added = read_state(connection, self.path, self._identity)
            if (count, total) != (entries, added) and len(self.report.findings) == before:
                self._damage("tally", f"of {entries} entries it has {count}, or older ones")
        except (StoreDamaged, sqlite3.Error, TypeError) as error:
            self._damage("state", str(error))
        self._history(connection)
        try:
            self.found.contents = verify(connection, self.path)
        except (StoreDamaged, sqlite3.Error, TypeError, ValueError) as error:
            if len(self.report.findings) == before:
                self._damage("entry", str(error))

    def _entries(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """How many, and the sum of their checksums; the names of queues are noted."""
        count = total = 0
        names = self.found.names
        names.known = True
        sql = READ_ENTRIES if self._sealed else "SELECT key, value, revision FROM entries"
        for key, value, revision, *checksum in each(connection, sql, self._cut("the entries")):
            count += 1
            if self._sealed:
                if not checksum_matches(entry_checksum, key, value, revision, crc=checksum[0]):
                    names.known = False
                    self._damage("entry", f"the entry {key!r} does not fit its checksum: the broker does not start")
                    continue
                total += checksum[0]
            if key.startswith(PREFIX):
                self._record(key, value)
        return count, total

    def _record(self, key: str, value: str) -> None:
        try:
            record = decode_record(key, value)
        except StoreDamaged as error:
            self.found.names.known = False
            self._damage("entry", f"{error}: the broker does not start")
            return
        if isinstance(record, QueueRecord):
            self.found.names.queues[record.id] = record.vhost, record.name
        elif isinstance(record, VhostRecord):
            self.found.names.vhosts.append(record.name)

    def _dropped(self, connection: sqlite3.Connection) -> None:
        dropped: set[int] = set()
        for number, revision, checksum in each(connection, READ_DROPPED, self._cut("the list of deleted queues")):
            if checksum_matches(dropped_checksum, number, revision, crc=checksum):
                dropped.add(number)
            else:
                self._damage("tombstone", "a deleted queue's number does not fit its checksum")
        self.found.names.dropped = frozenset(dropped)

    def _names(self, connection: sqlite3.Connection) -> None:
        for name, value, checksum in each(connection, READ_NAMES, self._cut("what it says of itself")):
            if not checksum_matches(name_checksum, name, value, crc=checksum):
                self._damage("name", f"the name {name!r} does not fit its checksum")
            elif name == IDENTITY:
                self._identity = value
            elif name == "journal":
                identity, _, index = value.partition(" ")
                self.found.journal, self.found.journal_index = identity, int(index)

    def _history(self, connection: sqlite3.Connection) -> None:
        """A part that is damaged counts as gone: followers read everything instead."""
        text = "a part of the list of past changes is damaged: no message and no definition is lost by it"
        bad = False
        rows: list[tuple[object, ...]] = []
        for row in each(connection, _HISTORY, self._cut("the list of past changes")):
            if rows and rows[0][0] != row[0]:
                bad |= not history_matches(rows)
                rows = []
            rows.append(row)
        if bad or (rows and not history_matches(rows)):
            self.report.damage(METADATA, "history", text, "nothing has to be done")

    def _cut(self, what: str) -> Callable[[str], None]:
        def ended(reason: str) -> None:
            self.found.names.known = False
            self._damage("structure", f"{what} can be read in part only ({reason})")

        return ended

    def _copies(self) -> None:
        good = {copy.number for copy in copies.good_copies(self.path)}
        for number in promises.COPIES:
            copy = promises.copy_path(self.path, number)
            if copy.exists() and number not in good:
                self.report.damage(copy.name, "copy", "this copy of the metadata is damaged; nothing else is lost by "
                                   "that", "the next start makes a copy again")  # fmt: skip
