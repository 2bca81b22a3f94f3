"""Puts one entry of a source into the tables.

What comes in: an entry, in a transaction that is open. What goes out: its rows, what it settled, its record in
`tail`, and what it writes over; the `Draft` of what is known in memory.
Rules: 1. One statement, whatever it has; what is rare is taken apart: counts, delivered marks, drops, operations. 2.
Of a record that it replaces or removes the former version is kept until it is committed. 3. Of what is staged the
rows are put at once, and the rest later.
Not here: whether it follows what is there (`entries.py`, `staging.py`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from amqpd.journal.sqlite import checksums, entry_statements, queries
from amqpd.journal.sqlite import mark_rows as operation_rows
from amqpd.journal.sqlite.draft import Draft
from amqpd.journal.sqlite.payload import BadPayload, Payload, decode, numbers, pairs, triples
from amqpd.journal.sqlite.queue_marks import NONE, Mark
from amqpd.journal.sqlite.replicas import TailRecord
from amqpd.journal.sqlite.schema import FORMER_MARK, FORMER_RETURNED, SEQ_MAX
from amqpd.journal.sqlite.sources import HeldRanges
from amqpd.journal.sqlite.statement_parameters import listed, offsets
from amqpd.peers.entry import NUMBER_MAX, LogEntry


def payload_of(entry: LogEntry) -> Payload:
    """Raises BadPayload."""
    payload = decode(entry.payload)
    if (payload.source, payload.epoch, payload.idx) != (entry.source, *entry.position):
        raise BadPayload(f"entry {entry.position} of source {entry.source} has a payload of another one")
    for packed, width in ((payload.retired, 3), (payload.delivered, 2), (payload.counts, 3), (payload.dropped, 1)):
        _require_numbers(packed, width)
    if not 0 <= payload.reserved <= NUMBER_MAX:
        raise BadPayload(f"entry {entry.position} of source {entry.source} reserves numbers up to {payload.reserved}")
    return payload


def _require_numbers(packed: bytes, width: int) -> None:
    """Of what is used later, or goes into several tables. Raises BadPayload."""
    if len(packed) % (8 * width):
        raise BadPayload(f"{len(packed)} bytes are no list of {width} numbers each")
    if packed:
        values = numbers(packed)
        if min(values) < 0 or max(values) >= SEQ_MAX:  # what follows the last one is a number, too
            raise BadPayload(f"{min(values)} or {max(values)} is no number of a queue or a message")


def record_of(entry: LogEntry, payload: Payload, draft: Draft) -> TailRecord:
    """With rows that will have the next numbers."""
    return TailRecord(
        entry.source, entry.position, entry.before, entry.checksum, draft.next_row, payload.rows, payload.control
    )


def put(
    connection: sqlite3.Connection, record: TailRecord, payload: Payload, draft: Draft, *, trusted: bool = False
) -> None:
    """All of it. `trusted`: this node has made it. Raises BadMarks, sqlite3.Error."""
    put_rows(connection, record, payload, draft, only_rows=False)
    _put_rest(connection, record, payload, draft, trusted=trusted)


def put_later(connection: sqlite3.Connection, record: TailRecord, draft: Draft) -> None:
    """Of what was staged: all that is not rows. Raises BadMarks, sqlite3.Error."""
    payload = decode(record.control, only_control=True)
    given = entry_statements.PARAMETERS | {"inserted": 0}
    connection.execute(entry_statements.APPEND, given | _said(record, payload))
    _put_rest(connection, record, payload, draft, trusted=False)


def put_rows(
    connection: sqlite3.Connection, record: TailRecord, payload: Payload, draft: Draft, *, only_rows: bool = True
) -> None:
    """Without `only_rows` what it settled, too, and the record."""
    given = entry_statements.PARAMETERS | dict(zip(("source", "epoch", "idx"), _of(record), strict=True))
    last = len(payload.chunks) - 1
    for at, chunk in enumerate(payload.chunks):
        given |= {"first_row": draft.next_row, "inserted": chunk.rows, "rows": offsets(chunk.rows)}
        given |= {"numbers": chunk.numbers, "deadlines": chunk.deadlines, "data": chunk.data}
        if chunk.deadlines:
            draft.timed.update(queue_id for queue_id, *_ in json.loads(chunk.deadlines))
        if at == last and not only_rows:
            given |= _said(record, payload)
        connection.execute(entry_statements.APPEND, given)
        draft.next_row += chunk.rows


def put_marks(connection: sqlite3.Connection, marks: dict[int, Mark]) -> None:
    """Raises sqlite3.Error."""
    said = [(queue_id, *mark) for queue_id, mark in marks.items()]
    if said:
        connection.executemany(entry_statements.PUT_MARK, [(*each, checksums.of_mark(*each)) for each in said])


def _of(record: TailRecord) -> tuple[int, int, int]:
    return record.source, *record.position


def _said(record: TailRecord, payload: Payload) -> dict[str, object]:
    """What it settled, and the record."""
    source, position, before, checksum, first_row, rows, control = record
    crc = checksums.of_tail(source, *position, *before, checksum, first_row, rows, control)
    names = ("source", "epoch", "idx", "before_epoch", "before_idx")
    said = dict[str, object](zip(names, (source, *position, *before), strict=True))
    more = {"checksum": checksum, "entry_first_row": first_row, "entry_rows": rows, "control": control}
    return said | more | {"settled": payload.settled, "tail_crc": crc}


def _put_rest(
    connection: sqlite3.Connection, record: TailRecord, payload: Payload, draft: Draft, *, trusted: bool
) -> None:
    source, position = record.source, record.position
    head = draft.head(source)
    draft.heads[source] = head.at(position, max(payload.reserved, head.reserved))
    if payload.retired:
        draft.held.append(HeldRanges(source, position, payload.retired))
    if payload.counts or payload.delivered or payload.dropped:
        _put_rare(connection, _of(record), payload, draft)
    if payload.marks:
        _put_operations(connection, record, payload, draft, trusted=trusted)


def _put_operations(
    connection: sqlite3.Connection, record: TailRecord, payload: Payload, draft: Draft, *, trusted: bool
) -> None:
    """How far operations are whose effects the entry has. Raises BadMarks."""
    source, position = record.source, record.position
    before = draft.operations(source)
    rows = operation_rows.changed(before, source, payload.marks, position, trusted=trusted)
    operation_rows.keep_former(connection, source, position, before, [forwarder for _, forwarder in rows])
    operation_rows.put_rows(connection, rows)
    draft.operation_rows |= rows


def _put_rare(connection: sqlite3.Connection, of: tuple[int, int, int], payload: Payload, draft: Draft) -> None:
    """What it writes over. Of each record the version before is kept."""
    counts = {(queue_id, seq): count for queue_id, seq, count in triples(payload.counts)}
    dropped = numbers(payload.dropped)
    marks: dict[int, Mark] = {}
    for queue_id, below in pairs(payload.delivered):
        before = marks.get(queue_id) or draft.mark(queue_id) or NONE
        marks[queue_id] = (before[0], below, *of)
    _keep_former(connection, of, list(counts), {*marks, *dropped}, draft)
    returned = [(*key, count, *of) for key, count in counts.items()]
    put = [(*each, checksums.of_returned(*each)) for each in returned]
    connection.executemany(entry_statements.PUT_RETURNED, put)
    draft.counted.update(queue_id for queue_id, _ in counts)
    for queue_id in dropped:
        marks.pop(queue_id, None)
    put_marks(connection, marks)
    connection.executemany(entry_statements.DROP_MARK, [(queue_id,) for queue_id in dropped])
    draft.marks |= marks
    draft.marks |= dict.fromkeys(dropped)
    draft.discard([(queue_id, 0, SEQ_MAX, *of) for queue_id in dropped])


def _keep_former(
    connection: sqlite3.Connection,
    of: tuple[int, int, int],
    counts: Sequence[tuple[int, int]],
    queues: set[int],
    draft: Draft,
) -> None:
    former: list[tuple[int, ...]] = []
    for queue_id in sorted(queues):
        mark = draft.mark(queue_id)
        if mark is not None:
            former.append((*of, FORMER_MARK, queue_id, *mark[:2], *mark[3:]))
    if counts:
        now = connection.execute(queries.RETURNED_NOW, {"keys": listed(counts)}).fetchall()
        former += [(*of, FORMER_RETURNED, *record) for record in now]
    put = [(*each, checksums.of_former(*each)) for each in former]
    connection.executemany(entry_statements.PUT_FORMER, put)
