"""Repairs a journal: rebuilds it from what can be believed, and says what is lost or may come back.

What comes in: a data directory whose lock is held, and what a check found there. What goes out: a journal that opens,
the old files in a folder `before-repair-...`, and what the repair means for the messages.
Rules: 1. The new file is whole, checked and on stable storage before an old one is moved; the old ones are moved, not
deleted. 2. Between two steps a broker would refuse to start: at no moment does a part look like the whole. 3. A
repair never accepts that confirmed transactions are missing: the mark goes on saying so. 4. Damaged bodies stay:
their queues stop at them. 5. The new file is made as any new journal is, and filled while nobody uses it; what a
start counts and compares is computed from what was written. The damaged file is only read.
Not here: what is believed (`salvage.py`), damaged metadata (`amqpd metadata`).
"""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amqpd.backup.progress import Progress
from amqpd.checking.check import Checked, check
from amqpd.checking.journal import CheckedJournal, check_journal
from amqpd.checking.reading import opened
from amqpd.checking.records import HEAD, KINDS, ORIGIN
from amqpd.checking.report import DAMAGE, NEWER, Finding, Report
from amqpd.checking.salvage import Salvage, body_of, discarded, queues_of, salvage
from amqpd.journal.errors import DiskFailure, DiskFull, NewerJournalFormat, NotAJournal
from amqpd.journal.numbers import NUMBERS_STEP
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import checksums, trust
from amqpd.journal.sqlite.database import JOURNAL, create_file
from amqpd.journal.sqlite.replicas import check_tails
from amqpd.journal.sqlite.schema import GENERATION, HEAD_COLUMNS, SOURCE
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.journal.sqlite.trust import Source
from amqpd.storage.files import free_folder, log_bytes, mark_path, sync_directory, sync_file, wal_path
from amqpd.storage.mark import Mark

BEFORE = "before-repair-"
STAGING = "repairing"
SPARE_BYTES = 1 << 20

REBUILDS = frozenset(
    {
        *("structure", "name", "source", "settled", "queue", "discard", "returned", "former", "tail", "seal"),
        *("operation_mark", "former_operation_mark"),
        *("tally", "index", "index against table", "deadline", "recovery", "header"),
    }
)
"""kinds of damage of the journal that a new file is without"""
HARMLESS = ("body", "mark", "copy", "history", "log", "audit")
"""kinds, by their beginning, with which a broker starts"""


class RepairError(Exception):
    """A journal cannot be repaired, and nothing was changed; the text is one sentence."""


@dataclass
class Repaired:
    """The results of a repair: the findings before it and after it, and the folder with the old files."""

    before: Report
    after: Report
    kept: Path | None = None
    """the folder with the files as they were; None: there was nothing to repair"""
    consequences: list[Finding] = field(default_factory=list)

    @property
    def in_the_way(self) -> list[Finding]:
        """What keeps the broker from starting."""
        found = [each for each in self.after.findings if each.severity == DAMAGE]
        return [each for each in found if not each.kind.startswith(HARMLESS)]

    def plain(self) -> dict[str, Any]:
        return {
            "before": self.before.plain(),
            "after": self.after.plain(),
            "kept": None if self.kept is None else str(self.kept),
            "consequences": [each.plain() for each in self.consequences],
            "can_start": not self.in_the_way,
        }


def repair(directory: Path, progress: Progress) -> Repaired:
    """Repairs the journal of a data directory. Raises RepairError."""
    checked = check(directory, progress)
    if newer := [each.line for each in checked.report.findings if each.severity == NEWER]:
        raise RepairError(f"{newer[0]}; nothing was changed")
    kinds = {each.kind for each in checked.report.findings if each.severity == DAMAGE and each.file == JOURNAL}
    marked = any(each.kind == "mark" and each.file.startswith("journal") for each in checked.report.findings)
    if not checked.journal.readable or not (kinds & REBUILDS or marked):
        return Repaired(checked.report, checked.report)
    work = _Repair(directory, checked, progress)
    try:
        work.rebuild() if kinds & REBUILDS else work.only_mark()
    except (OSError, sqlite3.Error, DiskFull, DiskFailure, JournalDamaged, NotAJournal, NewerJournalFormat) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RepairError(
            f"the repair of {directory / JOURNAL} did not end ({reason}): "
            + (f"the files as they were are in {work.kept}" if work.kept.exists() else "nothing was changed")
        ) from error
    finally:
        shutil.rmtree(directory / STAGING, ignore_errors=True)
    after = check(directory, progress)
    found = Report()
    found.names, found.findings = checked.report.names, work.consequences
    found.finish()
    return Repaired(checked.report, after.report, work.kept, work.consequences)


class _Repair:
    def __init__(self, directory: Path, checked: Checked, progress: Progress) -> None:
        self.directory = directory
        self.path = directory / JOURNAL
        self.checked = checked
        self.progress = progress
        self.consequences: list[Finding] = []
        self.kept = free_folder(directory, BEFORE)

    def rebuild(self) -> None:
        self._check_space()
        staging = self.directory / STAGING
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        state = self.checked.journal
        self.progress.begin("reading what can be read")
        with opened(self.path) as damaged:
            found = salvage(damaged, state.source)
            self._name(found)
            index = self._index(found, state)
            rebuild(damaged, found, index, state.source, staging / JOURNAL, self.progress)
        self._verify(staging)
        (staging / JOURNAL).chmod(0o600)
        self.consequences = found.consequences
        self.kept.mkdir(mode=0o700)
        self._mark(found.names["identity"], index)
        for path in (self.path, wal_path(self.path)):
            if path.exists():
                path.rename(self.kept / path.name)
                sync_directory(self.kept)
                sync_directory(self.directory)
        self.path.with_name(JOURNAL + "-shm").unlink(missing_ok=True)
        (staging / JOURNAL).rename(self.path)
        sync_directory(self.directory)

    def only_mark(self) -> None:
        state = self.checked.journal
        self.kept.mkdir(mode=0o700)
        self._mark(state.names["identity"], state.index)

    def _check_space(self) -> None:
        needed = self.path.stat().st_size + log_bytes(self.path) + SPARE_BYTES
        free = shutil.disk_usage(self.directory).free
        if free < needed:
            raise RepairError(
                f"the disk of {self.directory} has {free >> 20} MB of free space, and a repair needs "
                f"{(needed >> 20) + 1} MB, because the files are kept as they are: make space; nothing was changed"
            )

    def _name(self, found: Salvage) -> None:
        if "identity" in found.names:
            return
        promise, _ = trust.promise_of(self.path)
        known = promise.identity if promise is not None else self.checked.metadata.journal
        found.names["identity"] = known or secrets.token_hex(16)
        where = "taken from what is beside it" if known else "drawn"
        found.add_consequence("changed", f"the journal's identity was lost, and is {where}")

    def _index(self, found: Salvage, state: CheckedJournal) -> int:
        """The number of the last transaction: at least what anybody knows of."""
        if state.source is not None:
            return state.source.idx
        promise, _ = trust.promise_of(self.path)
        known = [found.highest, promise.number if promise is not None else 0]
        if self.checked.metadata.journal == found.names["identity"]:
            known.append(self.checked.metadata.journal_index)
        found.add_consequence(
            "changed", f"the number of the last transaction was lost, and is taken to be {max(known)}"
        )
        return max(known)

    def _verify(self, staging: Path) -> None:
        """Nothing but damaged bodies is left."""
        report = Report()
        check_journal(staging, report, self.progress, quick=False)
        left = [each for each in report.findings if each.severity == DAMAGE and each.kind != "body"]
        if left:
            report.finish()
            raise RepairError(
                f"{self.path} cannot be repaired ({left[0].line}): restore a backup (amqpd restore); "
                "nothing was changed"
            )

    def _mark(self, identity: str, index: int) -> None:
        """It promises what the new file has; or goes on to promise what is missing (rule 3)."""
        path = mark_path(self.path)
        promise, _ = trust.promise_of(self.path)
        if path.exists():
            shutil.copyfile(path, self.kept / path.name)
            sync_file(self.kept / path.name)
        sync_directory(self.kept)
        sync_directory(self.directory)
        losses = self.checked.journal.losses
        if losses and promise is not None:
            return
        mark = Mark(path, identity, index + bool(losses))
        try:
            mark.sync()
        finally:
            mark.close()


_COLUMNS = ("batch_id", *HEAD, "data")


def rebuild(
    damaged: sqlite3.Connection,
    found: Salvage,
    index: int,
    source: Source | None,
    path: Path,
    progress: Progress,
) -> None:
    """`source`: as the damaged journal has it; None: that is damaged, too. Raises OSError, sqlite3.Error, and what
    making a journal raises."""
    create_file(path)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # Thrown away unless it is whole.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        _rows(damaged, connection, found, progress)
        _records(connection, found)
        _marks(connection, found)
        _source(connection, found, index, source)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    for left in ("-wal", "-shm"):
        path.with_name(path.name + left).unlink(missing_ok=True)
    sync_file(path)


def _insert(connection: sqlite3.Connection, table: str, columns: Iterable[str], values: Iterable[object]) -> None:
    columns = tuple(columns)
    places = ", ".join("?" * len(columns))
    connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", tuple(values))


def _rows(damaged: sqlite3.Connection, connection: sqlite3.Connection, found: Salvage, progress: Progress) -> None:
    progress.begin("rebuilding journal.db", sum(head.nbytes for head in found.rows.values()))
    for batch_id, head in found.rows.items():
        body = body_of(damaged, batch_id)
        values = (batch_id, *head, body)
        _insert(connection, "batch", _COLUMNS, values)
        progress.add(len(body))
    for batch_id, (crc, data) in found.deadlines.items():
        of = found.rows[batch_id]
        columns = ("batch_id", *ORIGIN, "crc", "data")
        _insert(connection, "deadline", columns, (batch_id, of.source, of.epoch, of.idx, crc, data))


def _records(connection: sqlite3.Connection, found: Salvage) -> None:
    for kind in KINDS:
        for row in found.records[kind.table]:
            _insert(connection, kind.table, (*kind.columns, "crc"), row)
    # A new journal draws an identity.
    connection.execute("DELETE FROM names")
    for name, value in found.names.items():
        if name == GENERATION:
            continue  # of a repaired disk leaders are not to believe that it has all that it ever acknowledged
        _insert(connection, "names", ("name", "value", "crc"), (name, value, checksums.of_name(name, value)))


def _marks(connection: sqlite3.Connection, found: Salvage) -> None:
    """Every message comes flagged as redelivered, if it cannot be told any more which were delivered."""
    if not found.flag_all:
        return
    marks = {row[0]: row[1:] for row in found.records["queue"]}
    sources = {head.queue_id: head.source for head in found.rows.values()}
    columns = ("queue_id", "next_seq", "delivered", *ORIGIN)
    for queue_id, end in queues_of(found).items():
        if queue_id in discarded(found):
            continue
        before, _, *origin, _ = marks.get(queue_id, (0, 0, sources.get(queue_id, SOURCE), 0, 0, 0))
        next_seq = max(end, before)
        mark = (queue_id, next_seq, next_seq, *origin)
        connection.execute("DELETE FROM queue WHERE queue_id = ?", (queue_id,))
        _insert(connection, "queue", (*columns, "crc"), (*mark, checksums.of_mark(*mark)))


def _source(connection: sqlite3.Connection, found: Salvage, index: int, source: Source | None) -> None:
    rows, settled = len(found.rows), len(found.records["settled"])
    columns = (*HEAD_COLUMNS, "rows", "rows_check", "settled", "settled_check")
    heads = source.heads() if source is not None else _heads(found)
    local = heads[SOURCE]
    heads[SOURCE] = local.at((local.epoch, index))
    try:
        check_tails(connection, heads)
    except JournalDamaged:
        connection.execute("DELETE FROM tail")
        connection.execute("DELETE FROM former")
        connection.execute("DELETE FROM former_operation_mark")
        for head in heads.values():
            head.committed = head.position if head.replicated else head.committed
    for head in heads.values():
        counts = (rows, -rows, settled, -settled) if head.source == SOURCE else (0, 0, 0, 0)
        _insert(connection, "source", columns, (*head.record(found.names.get("identity", "")), *counts))


def _heads(found: Salvage) -> dict[int, SourceHead]:
    """As far as their records show. Of sources that are not the local one nothing is known to be committed; numbers
    of messages that left no record may have been given."""
    reserved = max(queues_of(found).values(), default=0) + NUMBERS_STEP
    return {
        number: SourceHead(number, *position, reserved if number != SOURCE else 0, number != SOURCE)
        for number, position in ({SOURCE: (1, 0)} | found.positions()).items()
    }
