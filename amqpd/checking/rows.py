"""Checks the rows of messages in a journal: index entries, index against table, deadlines, bodies.

What comes in: a connection that only reads. What goes out: findings; `RowFacts`, what the index has.
Rules: 1. The index is read in its order, without a body; the table in its own, without a body; the two are compared
by sums, and row by row only when these differ. 2. Bodies are read as the broker reads them
(`journal/sqlite/reading.py`).
Not here: the small tables (`journal.py`).
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from amqpd.backup.progress import Progress
from amqpd.checking.reading import each
from amqpd.checking.records import INDEX, TABLE, MessageRowHead
from amqpd.checking.report import REPAIR_OR_RESTORE, RESTORE, Report
from amqpd.journal.errors import DiskFailure
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite.checksums import NOT_AS_WRITTEN
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.queries import DEADLINES
from amqpd.journal.sqlite.reading import RowReader
from amqpd.journal.sqlite.replicas import staged_from
from amqpd.journal.sqlite.schema import SEQ_MAX
from amqpd.journal.sqlite.statement_parameters import checksum_of_deadlines
from amqpd.journal.sqlite.trust import Source

READ_BYTES = 8 << 20
_BODY = (
    "the bodies of {messages} of {queue} are damaged: the queue stops at them; the messages before them and all "
    "other queues are served"
)
_BODY_REMEDY = f"{RESTORE}, or set them aside with 'amqpd message quarantine' when the broker runs"


@dataclass
class RowFacts:
    """The facts that the rows of messages give together, for comparison with the journal's other tables."""

    count: int = 0
    """entries of the index"""
    nbytes: int = 0
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    """queue -> first and last message that the index names"""
    highest: int = 0
    """transaction of a row"""
    told: set[tuple[object, ...]] = field(default_factory=set)
    """(queue, first, last) of rows of which a finding says already that they are damaged"""


def check_rows(connection: sqlite3.Connection, report: Report, progress: Progress, source: Source | None) -> RowFacts:
    progress.begin("checking journal.db: index")
    seen = RowFacts()
    timed: dict[int, MessageRowHead] = {}
    bad: set[object] = set()
    total = 0
    before: MessageRowHead | None = None
    staged = staged_rows(connection)
    for batch_id, *rest in each(connection, INDEX, report.cut(JOURNAL, "the index of the messages")):
        head = MessageRowHead(*rest)
        seen.count += 1
        total += hash((batch_id, *rest))
        if not head.checksum_matches:
            text = "the index entry of {messages} of {queue} does not fit its checksum: the broker does not start"
            report.damage(JOURNAL, "index", text, REPAIR_OR_RESTORE, *head.about)
            seen.told.add(head[:3])
            bad.add(batch_id)
            continue
        if head.deadline_bytes:
            timed[batch_id] = head
        if staged and batch_id >= staged.get(head.source, batch_id + 1):
            continue  # that is not there yet for anybody: it may stand beside what it is to replace
        _check_entry(head, before, report, source)
        before = head
        if head.source in staged:
            continue  # what is staged makes its bodies impossible to ask for; its leader has them
        seen.nbytes += max(head.nbytes, 0)
        seen.highest = max(seen.highest, head.idx)
        low, high = seen.ranges.get(head.queue_id, (head.first_seq, head.last_seq))
        seen.ranges[head.queue_id] = min(low, head.first_seq), max(high, head.last_seq)
    _compare(connection, report, progress, seen.count, total)
    _deadlines(connection, report, seen, timed, bad)
    return seen


def check_bodies(
    connection: sqlite3.Connection, path: Path, report: Report, progress: Progress, seen: RowFacts
) -> None:
    progress.begin("checking journal.db: bodies", seen.nbytes)
    reader = RowReader(connection, path)
    for queue_id, (first, last) in seen.ranges.items():
        at = max(first, 0)
        while at <= last:
            try:
                rows = reader.read(queue_id, at, SEQ_MAX, READ_BYTES)
            except (JournalDamaged, DiskFailure) as error:
                text = f"messages of {{queue}} from {at} on cannot be looked for ({error})".replace(
                    str(path), JOURNAL
                )
                report.damage(JOURNAL, "structure", text, REPAIR_OR_RESTORE, queue_id)
                break
            for row in rows:
                progress.add(len(row.data))
                if row.damage and (queue_id, row.first_seq, row.last_seq) not in seen.told:
                    report.damage(JOURNAL, "body", _BODY, _BODY_REMEDY, queue_id, row.first_seq, row.last_seq)
            if not rows:
                break
            at = max(at, rows[-1].last_seq) + 1


def staged_rows(connection: sqlite3.Connection) -> dict[int, int]:
    """source -> the number of the first row that is staged of it. Empty if a record of that does not fit: the rows
    are then looked at as all others."""
    with suppress(JournalDamaged, sqlite3.Error, *NOT_AS_WRITTEN):
        return staged_from(connection)
    return {}


def _known(head: MessageRowHead, source: Source | None) -> bool:
    return source is None or source.knows(head.source, head.epoch, head.idx)


def _check_entry(head: MessageRowHead, before: MessageRowHead | None, report: Report, source: Source | None) -> None:
    if head.first_seq > head.last_seq or head.first_seq < 0 or not _known(head, source):
        text = f"the index entry of {{messages}} of {{queue}} contradicts itself (transaction {head.idx})"
        report.damage(JOURNAL, "index", text, REPAIR_OR_RESTORE, *head.about)
    if before is None:
        return
    if (head.queue_id, head.last_seq) < (before.queue_id, before.last_seq):
        text = "the index is out of order at {messages} of {queue}"
        report.damage(JOURNAL, "index", text, REPAIR_OR_RESTORE, *head.about)
    elif head.queue_id == before.queue_id and head.first_seq <= before.last_seq:
        text = "two rows hold {messages} of {queue}: one of them should be gone"
        report.damage(JOURNAL, "index", text, REPAIR_OR_RESTORE, head.queue_id, head.first_seq, before.last_seq)


def _compare(connection: sqlite3.Connection, report: Report, progress: Progress, count: int, total: int) -> None:
    """The index against the table."""
    progress.begin("checking journal.db: table")
    found = added = 0
    for row in each(connection, TABLE, report.cut(JOURNAL, "the table of the messages")):
        found += 1
        added += hash(tuple(row))
    if (found, added) == (count, total):
        return
    index = {row[0]: tuple(row[1:]) for row in each(connection, INDEX, lambda _: None)}
    for batch_id, *rest in each(connection, TABLE, lambda _: None):
        said = index.pop(batch_id, None)
        if said == tuple(rest):
            continue
        head = (
            MessageRowHead(*rest) if said is None or MessageRowHead(*rest).checksum_matches else MessageRowHead(*said)
        )
        text = (
            "{messages} of {queue} are in the table and not in the index: nobody gets them"
            if said is None
            else "the index and the table say different things of {messages} of {queue}"
        )
        report.damage(JOURNAL, "index against table", text, REPAIR_OR_RESTORE, *head.about)
    for said in index.values():
        text = "{messages} of {queue} are in the index, and their row cannot be found: the queue stops at them"
        report.damage(JOURNAL, "index against table", text, REPAIR_OR_RESTORE, *MessageRowHead(*said).about)


def _deadlines(
    connection: sqlite3.Connection, report: Report, seen: RowFacts, timed: dict[int, MessageRowHead], bad: set[object]
) -> None:
    """`bad`: rows whose entries do not fit their checksum, so that it is not known whether they have deadlines."""
    left = 0
    means = "the broker does not start; without them the messages do not expire one by one"
    for batch_id, crc, data in each(connection, DEADLINES, report.cut(JOURNAL, "the table deadline")):
        head = timed.pop(batch_id, None)
        if head is None:
            left += batch_id not in bad
        elif not deadlines_fit(head, crc, data):
            text = f"the deadlines of {{messages}} of {{queue}} do not fit their checksum: {means}"
            seen.told.add(head[:3])
            report.damage(JOURNAL, "deadline", text, REPAIR_OR_RESTORE, *head.about)
    for head in timed.values():
        seen.told.add(head[:3])
        text = f"the deadlines of {{messages}} of {{queue}} are missing: {means}"
        report.damage(JOURNAL, "deadline", text, REPAIR_OR_RESTORE, *head.about)
    if left:
        text = f"{left} lists of deadlines belong to no row: the broker does not start, no message is lost by it"
        report.damage(JOURNAL, "deadline", text, REPAIR_OR_RESTORE)


def deadlines_fit(head: MessageRowHead, crc: object, data: object) -> bool:
    return (
        isinstance(data, bytes)
        and len(data) == head.deadline_bytes
        and checksum_of_deadlines(head.queue_id, head.first_seq, head.last_seq, data) == crc
    )
