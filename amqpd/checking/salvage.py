"""Reads out of a damaged journal whatever can still be read, and decides what of it is to be believed.

What comes in: a connection that only reads. What goes out: `Salvage`: the records and rows for a new file; what is
lost, what may come back, what is different, as findings.
Rules: 1. A record whose checksum does not fit is left out. 2. Of what the index and the table say of a row, the one
that fits its checksum counts; where both do, the one that the body fits. 3. A row whose body is damaged or cannot be
read stays, so that its queue stops at it and nobody passes over it unnoticed. 4. Whenever something could not be
believed that says what was delivered or settled, every message comes flagged as redelivered.
Not here: writing it (`repair.py`).
"""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from amqpd.checking.reading import Row as Values
from amqpd.checking.reading import checksum_matches, each
from amqpd.checking.records import (
    DISCARD,
    INDEX,
    INDEX_BACKWARDS,
    KINDS,
    MARK,
    OPERATIONS,
    RETURNED,
    SETTLED,
    TABLE,
    TAIL,
    Kind,
    MessageRowHead,
)
from amqpd.checking.report import Finding
from amqpd.checking.rows import deadlines_fit, staged_rows
from amqpd.journal.records import Row
from amqpd.journal.sqlite import checksums
from amqpd.journal.sqlite.queries import DEADLINES, NAMES
from amqpd.journal.sqlite.schema import SEQ_MAX, SOURCE
from amqpd.journal.sqlite.statement_parameters import checksum
from amqpd.journal.sqlite.trust import Source

LOST, BACK, CHANGED = "lost", "may come back", "changed"
FILE = "journal.db"
DEADLINE_BYTES_MAX = 1 << 28
"""More than a row can have: one list entry for each message of it."""


@dataclass
class Salvage:
    """The rows and records of a damaged journal that are believed, and the losses."""

    rows: dict[int, MessageRowHead] = field(default_factory=dict)
    """by their number in the table"""
    deadlines: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    records: dict[str, list[Values]] = field(default_factory=dict)
    """by table, without those that are not believed; each with its checksum"""
    left_out: Counter[str] = field(default_factory=Counter)
    """records that are not believed, by table"""
    names: dict[str, str] = field(default_factory=dict)
    consequences: list[Finding] = field(default_factory=list)
    flag_all: bool = False
    """every message is to come flagged as redelivered"""

    def add_consequence(self, severity: str, text: str, *about: int | None) -> None:
        queue_id, first, last = (*about, None, None, None)[:3]
        self.consequences.append(Finding(FILE, "repair", severity, text, "", queue_id, "", "", first, last))

    @property
    def highest(self) -> int:
        """The highest transaction of the local source that a record is of."""
        return self.positions().get(SOURCE, (0, 0))[1]

    def positions(self) -> dict[int, tuple[int, int]]:
        """By source the last (epoch, idx) that a record is of."""
        found = [(head.source, head.epoch, head.idx) for head in self.rows.values()]
        for kind in (SETTLED, MARK, DISCARD, RETURNED, TAIL, OPERATIONS):
            at = kind.columns.index("source")
            place = at, kind.columns.index("epoch"), kind.columns.index("idx")
            found += [tuple(row[each] for each in place) for row in self.records[kind.table]]
        highest: dict[int, tuple[int, int]] = {}
        for source, epoch, idx in found:
            highest[source] = max(highest.get(source, (0, 0)), (epoch, idx))
        return highest


def salvage(connection: sqlite3.Connection, source: Source | None) -> Salvage:
    """`source`: as the journal has it; None: that is damaged, too."""
    found = Salvage()
    for kind in KINDS:
        found.records[kind.table] = _records(connection, kind, found)
    for name, value, crc in each(connection, NAMES, lambda _: None):
        if checksum_matches(checksums.of_name, name, value, crc=crc):
            found.names[name] = value
    _Rows(connection, found, source).run()
    if source is not None:
        _tallies(found, source)
    return found


def body_of(connection: sqlite3.Connection, batch_id: int) -> bytes:
    """Empty when it cannot be read."""
    with suppress(sqlite3.Error):
        row = connection.execute("SELECT data FROM batch NOT INDEXED WHERE batch_id = ?", (batch_id,)).fetchone()
        if row is not None and isinstance(row[0], bytes):
            return row[0]
    return b""


def body_fits(head: MessageRowHead, body: bytes) -> bool:
    try:
        return body_sum(head, body) == int(head.crc) & checksums.BODY_MASK
    except (struct.error, TypeError, ValueError, OverflowError):
        return False  # what a damaged head says may be anything


def body_sum(head: MessageRowHead, body: bytes) -> int:
    """The body's checksum, as it is for a row of which the head says so. Raises ValueError and the like."""
    if not 0 <= head.deadline_bytes <= DEADLINE_BYTES_MAX:
        raise ValueError(head.deadline_bytes)
    queue_id, first, last, persistent = head[:4]
    more = head.body_bytes, head.published_ms, bytes(head.deadline_bytes)
    return checksum(Row(queue_id, first, last, body, bool(persistent), *more))


def sealed(head: MessageRowHead, body_crc: int) -> MessageRowHead:
    """With the checksums that belong to what it says."""
    return head._replace(crc=checksums.of_head(*head[:-1]) << checksums.HEAD_SHIFT | body_crc)


def _records(connection: sqlite3.Connection, kind: Kind, found: Salvage) -> list[Values]:
    reasons: list[str] = []
    rows = dict.fromkeys(tuple(row) for row in each(connection, kind.sql, reasons.append))
    if reasons:
        order = ", ".join(f"{name} DESC" for name in kind.key.split(", "))
        backwards = kind.sql.rpartition(" ORDER BY ")[0] + f" ORDER BY {order}"
        rows |= dict.fromkeys(tuple(row) for row in each(connection, backwards, lambda _: None))
        found.flag_all = True
        found.add_consequence(BACK, f"a part of the table {kind.table} cannot be read: {kind.means}")
    kept = []
    for row in rows:
        if kind.checksum_matches(row):
            kept.append(row)
            continue
        found.left_out[kind.table] += 1
        found.flag_all |= kind in (SETTLED, MARK, DISCARD)
        severity = CHANGED if kind is MARK else BACK
        found.add_consequence(severity, f"{kind.text}, and is left out: {kind.means}", *kind.about(row))
    return kept


def _tallies(found: Salvage, source: Source) -> None:
    rows = len(found.rows) + found.left_out["batch"]
    settled = len(found.records["settled"]) + found.left_out["settled"]
    if missing := source.rows - rows:
        if missing > 0:
            found.add_consequence(LOST, f"{missing} rows of messages are not there any more, and nothing says which")
        else:
            found.add_consequence(
                BACK, f"{-missing} rows of messages more are there than were written: they were deleted once"
            )
        found.flag_all = True
    if settled != source.settled:
        found.add_consequence(
            BACK if settled < source.settled else LOST,
            f"{settled} records of settled messages are there where {source.settled} were written: "
            + ("settled messages may come back, flagged as redelivered" if settled < source.settled else
               "messages may count as settled that were not"),
        )  # fmt: skip
        found.flag_all = True


class _Rows:
    """The part of a salvage that reads rows of messages and their deadlines."""

    def __init__(self, connection: sqlite3.Connection, found: Salvage, source: Source | None) -> None:
        self._connection = connection
        self._found = found
        self._source = source

    def run(self) -> None:
        index = self._index()
        table = self._table(index)
        staged = staged_rows(self._connection)
        for batch_id in sorted(index.keys() | table.keys()):
            said = (table.get(batch_id), index.get(batch_id))
            if staged and any(head and batch_id >= staged.get(head.source, batch_id + 1) for head in said):
                # As a start does: it is not there yet for anybody, and a leader sends it again.
                self._found.left_out["batch"] += 1
                continue
            head = self._believed(batch_id, *said)
            if head is not None:
                self._found.rows[batch_id] = head
        self._overlaps()
        self._deadlines()

    def _index(self) -> dict[int, MessageRowHead]:
        reasons: list[str] = []
        rows = list(each(self._connection, INDEX, reasons.append))
        if reasons:
            rows += each(self._connection, INDEX_BACKWARDS, lambda _: None)
        heads: dict[int, MessageRowHead] = {}
        for batch_id, *rest in rows:
            head = MessageRowHead(*rest)
            if type(batch_id) is int and not (batch_id in heads and heads[batch_id].checksum_matches):
                heads[batch_id] = head
        return heads

    def _table(self, known: dict[int, MessageRowHead]) -> dict[int, MessageRowHead]:
        reasons: list[str] = []
        rows = {row[0]: MessageRowHead(*row[1:]) for row in each(self._connection, TABLE, reasons.append)}
        if not reasons:
            return rows
        before = max(rows, default=0)
        order = f"{TABLE} WHERE batch_id > {before} ORDER BY batch_id DESC"
        rows |= {row[0]: MessageRowHead(*row[1:]) for row in each(self._connection, order, lambda _: None)}
        behind = min((batch_id for batch_id in rows if batch_id > before), default=None)
        for batch_id in known:
            if batch_id not in rows:
                rows |= self._one(batch_id)
        if behind is not None:
            for batch_id, head in self._between(before + 1, behind - 1):
                rows.setdefault(batch_id, head)
        return rows

    def _one(self, batch_id: int) -> dict[int, MessageRowHead]:
        rows = each(self._connection, f"{TABLE} WHERE batch_id = {batch_id}", lambda _: None)
        return {row[0]: MessageRowHead(*row[1:]) for row in rows}

    def _between(self, low: int, high: int) -> Iterator[tuple[int, MessageRowHead]]:
        """Around what cannot be read, by halves."""
        ranges = [(low, high)]
        while ranges:
            low, high = ranges.pop()
            if low > high:
                continue
            reasons: list[str] = []
            where = f"{TABLE} WHERE batch_id BETWEEN {low} AND {high} ORDER BY batch_id"
            at = low
            for batch_id, *rest in each(self._connection, where, reasons.append):
                at = batch_id + 1
                yield batch_id, MessageRowHead(*rest)
            if reasons and at < high:
                middle = (at + high) // 2
                ranges += [(at, middle), (middle + 1, high)]

    def _believed(
        self, batch_id: int, table: MessageRowHead | None, index: MessageRowHead | None
    ) -> MessageRowHead | None:
        good = [head for head in (table, index) if head is not None and self._plausible(head)]
        if len(good) == 2 and good[0] != good[1]:
            body = body_of(self._connection, batch_id)
            good.sort(key=lambda head: not body_fits(head, body))
        if good:
            if table is None:
                text = "the row of {messages} of {queue} cannot be found: the queue stops at them"
                self._found.add_consequence(LOST, text, *good[0].about)
            return good[0]
        body = body_of(self._connection, batch_id)
        for head in (table, index):
            if head is not None and body_fits(head, body) and 0 <= head.first_seq <= head.last_seq:
                # What does not fit is only what the body's checksum does not cover.
                origin = head.source, head.epoch, head.idx
                if not all(type(each) is int for each in origin) or not self._known(head):
                    origin = SOURCE, 1, 0
                mended = head._replace(source=origin[0], epoch=origin[1], idx=origin[2], nbytes=len(body))
                return sealed(mended, head.crc & checksums.BODY_MASK)
        said = table or index
        assert said is not None
        text = (
            "what is said of {messages} of {queue} fits no checksum, in the index and in the table: they are left out"
        )
        self._found.add_consequence(LOST, text, *said.about)
        self._found.left_out["batch"] += 1
        return None

    def _plausible(self, head: MessageRowHead) -> bool:
        return head.checksum_matches and 0 <= head.first_seq <= head.last_seq and self._known(head)

    def _known(self, head: MessageRowHead) -> bool:
        """The transaction that it is of can have been."""
        known = self._source is None or self._source.knows(head.source, head.epoch, head.idx)
        return known and head.idx >= 0

    def _overlaps(self) -> None:
        rows = self._found.rows
        before: int | None = None
        for batch_id in sorted(rows, key=lambda each: (rows[each].queue_id, rows[each].last_seq, each)):
            head = rows[batch_id]
            if before is None or rows[before].queue_id != head.queue_id or rows[before].last_seq < head.first_seq:
                before = batch_id
                continue
            pair = sorted((before, batch_id), key=self._worth)
            worse, before = pair
            text = "two rows hold {messages} of {queue}: the one that is damaged or older is left out"
            self._found.add_consequence(CHANGED, text, *rows[worse].about)
            self._found.left_out["batch"] += 1
            del rows[worse]

    def _worth(self, batch_id: int) -> tuple[bool, int, int]:
        head = self._found.rows[batch_id]
        return body_fits(head, body_of(self._connection, batch_id)), head.epoch, head.idx

    def _deadlines(self) -> None:
        there = {row[0]: row[1:] for row in each(self._connection, DEADLINES, lambda _: None)}
        for batch_id, head in self._found.rows.items():
            if not head.deadline_bytes:
                continue
            crc, data = there.get(batch_id, (None, None))
            if deadlines_fit(head, crc, data):
                self._found.deadlines[batch_id] = crc, data
                continue
            body = body_of(self._connection, batch_id)
            without = head._replace(deadline_bytes=0)
            # A damaged body stays one.
            body_crc = body_sum(without, body) ^ (not body_fits(head, body))
            self._found.rows[batch_id] = sealed(without, body_crc)
            text = "the deadlines of {messages} of {queue} are lost: they do not expire one by one any more"
            self._found.add_consequence(CHANGED, text, *head.about)


def queues_of(found: Salvage) -> dict[int, int]:
    """Of each queue that has rows, or records of rows that are lost, the next free number."""
    ends: dict[int, int] = {}
    known = [(head.queue_id, head.last_seq) for head in found.rows.values()]
    known += [(queue_id, last) for queue_id, _, last, *_ in found.records["settled"]]
    known += [(queue_id, seq) for queue_id, seq, *_ in found.records["returned"]]
    for queue_id, last in known:
        ends[queue_id] = max(ends.get(queue_id, 0), last + 1)
    return ends


def discarded(found: Salvage) -> set[int]:
    """Queues that are being dropped."""
    return {row[1] for row in found.records["discard"] if row[3] == SEQ_MAX}
