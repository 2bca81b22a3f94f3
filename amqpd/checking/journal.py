"""Checks a journal: the file, its log and its mark, every record, the index against the table, every body.

What comes in: the path of a journal that nobody uses. What goes out: findings; what it says of itself, for the
comparison with the metadata.
Rules: 1. Nothing is changed. 2. After one damage the check goes on with what can still be read. 3. What a start would
refuse is found: if nothing else was, a recovery is tried as a start does it.
Not here: rows and bodies (`rows.py`), the repair (`repair.py`), the metadata (`metadata.py`).
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from amqpd.backup.progress import Progress
from amqpd.checking.reading import checksum_matches, each, has_columns, opened, structure
from amqpd.checking.records import KINDS, Kind
from amqpd.checking.report import REPAIR, REPAIR_OR_RESTORE, RESTORE, Report
from amqpd.checking.rows import RowFacts, check_bodies, check_rows
from amqpd.journal.errors import DiskFailure, NewerJournalFormat, NotAJournal
from amqpd.journal.records import JournalDamaged, Recovered
from amqpd.journal.sqlite import checksums, queries, small_tables, trust
from amqpd.journal.sqlite.database import JOURNAL, check_untouched, newer_format
from amqpd.journal.sqlite.recovery import find
from amqpd.journal.sqlite.schema import REVISIONS, SAME_TABLES
from amqpd.storage.files import mark_path, wal_path, wrong_format

NEW_COLUMNS = ("source.reserved", "queue.idx", "former.crc", "tail.crc", "seal.crc", "operation_mark.crc")
"""that only the newest formats have"""
ACCEPT = "start once with --accept-loss to go on with what is there (amqpd serve --accept-loss)"


@dataclass
class CheckedJournal:
    """The facts that a journal gives of itself, as far as they can be read."""

    names: dict[str, str] = field(default_factory=dict)
    source: trust.Source | None = None
    recovered: Recovered | None = None
    """None: a start would be refused"""
    rows: RowFacts = field(default_factory=RowFacts)
    losses: list[str] = field(default_factory=list)
    """what was confirmed and is not there"""
    readable: bool = False
    """its tables can be asked at all, and are of this format"""
    newer: bool = False
    """a newer amqpd wrote it: nothing is known of it"""

    @property
    def index(self) -> int:
        return self.source.idx if self.source is not None else 0


def check_journal(directory: Path, report: Report, progress: Progress, *, quick: bool) -> CheckedJournal:
    """`quick`: bodies, and the pages that they are on, are left out."""
    return _Check(directory, report, progress, quick).run()


class _Check:
    def __init__(self, directory: Path, report: Report, progress: Progress, quick: bool) -> None:
        self.path = directory / JOURNAL
        self.report = report
        self.progress = progress
        self.quick = quick
        self.state = CheckedJournal()

    def run(self) -> CheckedJournal:
        if not self.path.exists():
            self._missing()
            return self.state
        self.progress.begin(f"checking {JOURNAL}")
        try:
            with suppress(JournalDamaged):  # its format, which is looked at below
                check_untouched(self.path)
            with opened(self.path) as connection:
                found = self._format(connection)
                if newer := newer_format(found):
                    self._newer(newer)
                elif found == REVISIONS[-1]:
                    self.state.readable = True
                    self._contents(connection)
                else:
                    text = f"it is of the older format {found}, whose records are not looked at"
                    self.report.note(JOURNAL, "format", text, "the next start brings it to the new one")
                    self._structure(connection, "")
        except NewerJournalFormat as error:
            self._newer(error.formats)
        except (sqlite3.Error, NotAJournal, TypeError, ValueError, OSError) as error:
            text = str(error).replace(str(self.path), "it")
            self.report.damage(JOURNAL, "header", f"it cannot be read: {text}", RESTORE)
        if not self.state.newer:
            self._files()
        return self.state

    def _newer(self, formats: str) -> None:
        self.state.newer = True
        self.report.newer(JOURNAL, formats)

    def _format(self, connection: sqlite3.Connection) -> str:
        """What it says, unless its tables show that this is damaged. Raises sqlite3.Error, TypeError."""
        reason = ""
        try:
            (found,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except (sqlite3.Error, TypeError) as error:
            found, reason = None, f"its format cannot be read ({error})"
        if isinstance(found, str) and newer_format(found):
            return found
        if found not in SAME_TABLES and (found is None or has_columns(connection, *NEW_COLUMNS)):
            reason = reason or f"it says that it is of format {found!r}, and its tables are of {REVISIONS[-1]}"
            if not has_columns(connection, *NEW_COLUMNS):
                raise sqlite3.DatabaseError(reason)
            self.report.damage(JOURNAL, "header", reason, REPAIR_OR_RESTORE)
            return REVISIONS[-1]
        return str(found)

    def _missing(self) -> None:
        left = [path.name for path in (wal_path(self.path), mark_path(self.path)) if path.exists()]
        if left:
            self.report.damage(
                JOURNAL, "missing", f"it is missing, and {' and '.join(left)} beside it say that there were messages",
                f"{RESTORE}, or {ACCEPT}",
            )  # fmt: skip

    def _files(self) -> None:
        """The log and the mark against what the journal has."""
        try:
            end = trust.log_end(self.path)
            promise, unknown = trust.promise_of(self.path)
        except DiskFailure as error:
            self.report.damage(JOURNAL, "log", str(error), RESTORE)
            return
        if unknown:
            self.report.damage(
                mark_path(self.path).name, "mark",
                "it is damaged, so what was promised to be durable is not known; no message is lost by that",
                "the next start makes it again",
            )  # fmt: skip
        identity = self.state.names.get("identity")
        if self.state.readable and identity is not None and self._source_known:
            self.state.losses = trust.losses(self.path, identity, self.state.index, end, promise)
            for sentence in self.state.losses:
                self.report.damage(JOURNAL, "end of the log", _short(sentence, self.path), f"{RESTORE}, or {ACCEPT}")
        if end.damage and not self.state.losses:
            self.report.damage(wal_path(self.path).name, "log", end.damage, f"{RESTORE}, or {ACCEPT}")

    @property
    def _source_known(self) -> bool:
        return self.state.source is not None or not self.state.rows.count

    def _contents(self, connection: sqlite3.Connection) -> None:
        before = len(self.report.findings)
        if wrong := wrong_format(self.path):
            self.report.damage(JOURNAL, "header", wrong, REPAIR_OR_RESTORE)
        try:
            trust.check_shape(self.path, connection, trust.log_end(self.path))
        except JournalDamaged as error:
            self.report.damage(JOURNAL, "header", _short(str(error), self.path), REPAIR_OR_RESTORE)
        for table in small_tables.TABLES if self.quick else ("",):
            self._structure(connection, table)
        self._names(connection)
        self._source(connection)
        counts = {kind.table: self._records(connection, kind) for kind in KINDS}
        self.state.rows = check_rows(connection, self.report, self.progress, self.state.source)
        self._tallies(counts["settled"], self.state.rows.count)
        if not self.quick:
            check_bodies(connection, self.path, self.report, self.progress, self.state.rows)
        self._recovery(connection, quiet=len(self.report.findings) > before)

    def _structure(self, connection: sqlite3.Connection, table: str) -> None:
        for line in structure(connection, table):
            self.report.damage(JOURNAL, "structure", f"SQLite's own check says: {line}", REPAIR_OR_RESTORE)

    def _names(self, connection: sqlite3.Connection) -> None:
        damaged = set()
        for name, value, crc in each(connection, queries.NAMES, self.report.cut(JOURNAL, "what it says of itself")):
            if checksum_matches(checksums.of_name, name, value, crc=crc):
                self.state.names[name] = value
            else:
                damaged.add(name)
                self.report.damage(JOURNAL, "name", f"its record of its own {name} does not fit its checksum", REPAIR)
        if "identity" not in damaged | self.state.names.keys():
            self.report.damage(JOURNAL, "name", "it has no identity", REPAIR_OR_RESTORE)

    def _source(self, connection: sqlite3.Connection) -> None:
        identity = self.state.names.get("identity")
        if identity is None:  # that is told already, and the record's checksum is made with it
            promise = trust.promise_of(self.path)[0]
            if promise is None:
                return
            identity = promise.identity
        try:
            record = trust.read_record(self.path, connection, identity)
            if record is not None:
                self.state.source = record  # if what came after it cannot be read
                self.state.source, gap = trust.with_rows_above(connection, record)
                if gap:
                    self.report.damage(JOURNAL, "source", gap, REPAIR_OR_RESTORE)
        except JournalDamaged as error:
            missing = "missing" in str(error)
            text = "the record of its last transaction " + ("is missing" if missing else "does not fit its checksum")
            self.report.damage(JOURNAL, "source", text, REPAIR_OR_RESTORE)
        except (sqlite3.Error, TypeError, ValueError) as error:
            said = f"the record of its last transaction cannot be read ({error})"
            self.report.damage(JOURNAL, "source", said, REPAIR_OR_RESTORE)

    def _records(self, connection: sqlite3.Connection, kind: Kind) -> int:
        count = 0
        for row in each(connection, kind.sql, self.report.cut(JOURNAL, f"the table {kind.table}")):
            count += 1
            if not kind.checksum_matches(row):
                queue_id, first, last = kind.about(row)
                text = f"{kind.text}: the broker does not start; without it {kind.means}"
                self.report.damage(JOURNAL, kind.table, text, REPAIR_OR_RESTORE, queue_id, first, last)
        return count

    def _tallies(self, settled: int, rows: int) -> None:
        source = self.state.source
        if source is None:
            return
        if rows != source.rows:
            text = f"the index has {rows} rows of messages where {source.rows} were written: " + (
                "messages are missing" if rows < source.rows else "messages that were deleted are back"
            )
            self.report.damage(JOURNAL, "tally", text, REPAIR_OR_RESTORE)
        if settled != source.settled:
            text = f"{settled} records of settled messages are there where {source.settled} were written"
            means = "settled messages may come back" if settled < source.settled else "messages may be missing"
            self.report.damage(JOURNAL, "tally", f"{text}: {means}", REPAIR_OR_RESTORE)

    def _recovery(self, connection: sqlite3.Connection, *, quiet: bool) -> None:
        """Whether a start would take it. `quiet`: damage is known already."""
        self.progress.begin(f"checking {JOURNAL}: recovery")
        source = self.state.source or trust.Source(1, 0, 0, 0)
        try:
            self.state.recovered = find(connection, source).recovered
        except (JournalDamaged, sqlite3.Error, ValueError, *checksums.NOT_AS_WRITTEN) as error:
            if not quiet:
                self.report.damage(JOURNAL, "recovery", _short(str(error), self.path), REPAIR_OR_RESTORE)


def _short(sentence: str, path: Path) -> str:
    """Without what the line says anyway: which file, and the way out."""
    sentence = sentence.replace(f"; {trust.REMEDY_OF_RECORDS}", "").removeprefix(f"{path} is damaged: ")
    return sentence.replace(str(path.parent) + "/", "")
