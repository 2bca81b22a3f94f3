"""Takes in the state of a source beside what stands of it, and puts it in its place when it is whole.

What comes in: parts of a state (`state.py`) and entries that follow it, in transactions that are open. What goes
out: rows in `batch` that nobody sees, records in `staged`; at the end, the source as its leader has it.
Rules: 1. What stands stays as it is until all has come, and nobody can tell that anything is staged. 2. A body is
written once: rows that are staged are those from one number on, and stand when that is forgotten. 3. Completing is
one transaction. What stood above `after` goes, committed or not: the state has it. What stood below and is not live
goes as a discard. 4. A process that begins forgets what an earlier one had staged.
Not here: what a leader sends (`replica_reading.py`), when it is complete (`amqpd.replication.replica`).
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from operator import itemgetter

from amqpd.journal.operation_marks import FORWARDERS_MAX
from amqpd.journal.sqlite import appending, checksums, entry_checks, entry_statements, queries
from amqpd.journal.sqlite.draft import Draft
from amqpd.journal.sqlite.mark_rows import MarkRow, Place, put_rows
from amqpd.journal.sqlite.payload import BadPayload
from amqpd.journal.sqlite.queue_marks import NONE, Mark
from amqpd.journal.sqlite.replicas import TailRecord
from amqpd.journal.sqlite.schema import STAGED_BEGUN, STAGED_ENTRY, STAGED_PART
from amqpd.journal.sqlite.sources import SourceHead, StagedState
from amqpd.journal.sqlite.state import SourceState, decode
from amqpd.journal.sqlite.undoing import undo
from amqpd.peers.entry import START, LogEntry, Position


def begin(connection: sqlite3.Connection, source: int, draft: Draft) -> None:
    """What was staged before goes. Raises sqlite3.Error."""
    drop(connection, source, draft)
    _put(connection, TailRecord(source, START, START, 0, draft.next_row, 0, b""), 0, STAGED_BEGUN)
    draft.stage(source, StagedState(draft.next_row))


def drop(connection: sqlite3.Connection, source: int, draft: Draft) -> None:
    """Raises sqlite3.Error."""
    staged = draft.staged(source)
    if staged is not None:
        drop_rows(connection, source, staged.first_row)
        draft.stage(source, None)


def drop_rows(connection: sqlite3.Connection, source: int, first_row: int) -> None:
    """All that is staged of it, from this row on. Raises sqlite3.Error."""
    _drop_rows(connection, source, first_row)
    connection.execute(entry_statements.DROP_STAGED, {"source": source})


def take_part(connection: sqlite3.Connection, source: int, part: bytes, draft: Draft) -> None:
    """Raises ValueError when nothing is being staged, BadPayload, sqlite3.Error."""
    staged, state = _of(draft, source), decode(part)
    if state.source != source:
        raise BadPayload(f"a part of the state of source {state.source} is said to be of source {source}")
    entry_checks.require_own(connection, source, state.queues)
    rows, deadlines = [], []
    for row, data, timed in state.rows:
        *facts, epoch, idx, crc, crc_of_timed = row
        if not state.after < (epoch, idx) <= state.base:
            raise BadPayload(f"a row of {(epoch, idx)} in a state from {state.after} to {state.base}")
        rows.append((draft.next_row, *facts, source, epoch, idx, crc, data))
        if timed:
            deadlines.append((draft.next_row, source, epoch, idx, crc_of_timed, timed))
            draft.timed.add(row.queue_id)
        draft.next_row += 1
    if rows:
        connection.executemany(entry_statements.PUT_ROW, rows)
        connection.executemany(entry_statements.PUT_DEADLINE, deadlines)
        _count(connection, rows=len(rows))
    record = TailRecord(source, state.base, state.after, 0, 0, 0, state.encode(with_rows=False))
    _put(connection, record, staged.count, STAGED_PART)
    draft.stage(source, replace(staged, count=staged.count + 1))


def end(draft: Draft, source: int, base: Position) -> None:
    """All parts have come. Raises ValueError when nothing is being staged."""
    draft.stage(source, replace(_of(draft, source), last=base, base=base))


def append(connection: sqlite3.Connection, entry: LogEntry, staged: StagedState, draft: Draft) -> None:
    """An entry that follows what is staged. Raises ValueError, BadPayload, sqlite3.Error."""
    payload = appending.payload_of(entry)
    if entry.before != staged.last or entry.position <= entry.before:
        raise ValueError(
            f"entry {entry.position} of source {entry.source} follows {entry.before}, and {staged.last} is staged"
        )
    entry_checks.check(connection, payload, draft.ends, staged=True)
    record = appending.record_of(entry, payload, draft)
    appending.put_rows(connection, record, payload, draft)
    _put(connection, record, staged.count, STAGED_ENTRY)
    draft.stage(entry.source, replace(staged, count=staged.count + 1, last=entry.position))


def undo_staged(
    connection: sqlite3.Connection, source: int, position: Position, staged: StagedState, draft: Draft
) -> None:
    """Entries above this position go. Raises ValueError for what is of the state, sqlite3.Error."""
    if staged.last is None or not staged.base <= position <= staged.last:
        raise ValueError(f"source {source} is staged from {staged.base} to {staged.last}: no undo to {position}")
    entries = [record for kind, record in _records(connection, source) if kind == STAGED_ENTRY]
    if undone := [record for record in entries if record.position > position]:
        _drop_rows(connection, source, undone[0].first_row)
        given = {"source": source, "epoch": position[0], "idx": position[1]}
        connection.execute(entry_statements.UNDO_STAGED, given)
    draft.stage(source, replace(staged, last=position))


def complete(connection: sqlite3.Connection, source: int, draft: Draft) -> None:
    """It takes the place of what stood. Raises ValueError when the state has not come, JournalDamaged, BadPayload,
    sqlite3.Error."""
    staged = _of(draft, source)
    if staged.last is None:
        raise ValueError(f"the state of source {source} has not come")
    records = _records(connection, source)
    states = [decode(record.control) for kind, record in records if kind == STAGED_PART]
    after = states[0].after if states else START
    if any((state.after, state.base) != (after, staged.base) for state in states):
        raise BadPayload(f"parts of more than one state of source {source}")
    undo(connection, draft, source, after, staged.first_row)
    draft.held = [each for each in draft.held if each.source != source]
    _discard_dead(connection, source, staged, states, after, draft)
    _take_over(connection, source, states, draft)
    head = draft.head(source)
    reserved = max([head.reserved, *(state.reserved for state in states)])
    draft.heads[source] = SourceHead(source, *staged.base, reserved, replicated=True, committed=staged.base)
    connection.execute(entry_statements.DROP_STAGED, {"source": source})
    draft.stage(source, None)
    for kind, record in records:
        if kind == STAGED_ENTRY:
            appending.put_later(connection, record, draft)


def _of(draft: Draft, source: int) -> StagedState:
    staged = draft.staged(source)
    if staged is None:
        raise ValueError(f"nothing is being staged of source {source}")
    return staged


def _put(connection: sqlite3.Connection, record: TailRecord, number: int, kind: int) -> None:
    source, position, before, checksum, first_row, rows, control = record
    said = (source, number, kind, *position, *before, checksum, first_row, rows, control)
    connection.execute(entry_statements.PUT_STAGED, (*said, checksums.of_staged(*said)))


def _records(connection: sqlite3.Connection, source: int) -> list[tuple[int, TailRecord]]:
    """With their kinds. They are of this process: what a disk makes of them a start would tell."""
    found = []
    for _, _, kind, *numbers, control, _ in connection.execute(queries.STAGED_OF, {"source": source}):
        epoch, idx, before_epoch, before_idx, checksum, first_row, rows = numbers
        before = (before_epoch, before_idx)
        found.append((kind, TailRecord(source, (epoch, idx), before, checksum, first_row, rows, control)))
    return found


def _drop_rows(connection: sqlite3.Connection, source: int, first_row: int) -> None:
    given = {"source": source, "first_row": first_row}
    connection.execute(entry_statements.DROP_DEADLINES, given)
    _count(connection, rows=-connection.execute(entry_statements.DROP_ROWS, given).rowcount)


def _count(connection: sqlite3.Connection, rows: int = 0, settled: int = 0) -> None:
    """These came."""
    connection.execute(entry_statements.UNCOUNT, {"rows": -rows, "settled": -settled})


def _discard_dead(
    connection: sqlite3.Connection,
    source: int,
    staged: StagedState,
    states: list[SourceState],
    after: Position,
    draft: Draft,
) -> None:
    """Runs of rows that stand and are not live; marks of queues that are gone. Raises BadPayload for rows that are
    not disjoint."""
    live: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for state in states:
        for queue_id, *ends in state.live:
            live[queue_id].append(tuple(ends))
    dead: list[tuple[int, int, int]] = []
    before = None
    place = (-1, -1)
    for queue_id, last, first, *_, batch_id in connection.execute(queries.ROWS_OF, {"sources": f"[{source}]"}):
        if (queue_id, first) <= place:
            raise BadPayload(f"two rows of queue {queue_id} in the state hold message {first}")
        place = (queue_id, last)
        if batch_id >= staged.first_row:
            continue
        ranges = live.get(queue_id, [])
        at = bisect_right(ranges, first, key=itemgetter(0))
        if at and ranges[at - 1][1] >= last:
            before = None
        elif before == queue_id:
            dead[-1] = (queue_id, dead[-1][1], last)
        else:
            dead.append((queue_id, first, last))
            before = queue_id
    draft.discard([(*run, source, *after) for run in dead])
    known = {queue_id for state in states for queue_id, _ in state.known}
    rows = connection.execute(queries.MARKS_ABOVE, {"source": source, "epoch": -1, "idx": 0}).fetchall()
    gone = [queue_id for queue_id, _ in rows if queue_id not in known]
    connection.executemany(entry_statements.DROP_MARK, [(queue_id,) for queue_id in gone])
    draft.marks |= dict.fromkeys(gone)


def _take_over(connection: sqlite3.Connection, source: int, states: list[SourceState], draft: Draft) -> None:
    """The records of the state. Raises BadPayload."""
    rows: dict[Place, MarkRow | None] = {(source, forwarder): None for forwarder in draft.operations(source)}
    for state in states:
        rows |= {(source, forwarder): row for forwarder, row in state.operations.items()}
    if sum(row is not None for row in rows.values()) > FORWARDERS_MAX:
        raise BadPayload(f"a state of source {source} has operations of {len(rows)} forwarders")
    put_rows(connection, rows)
    draft.operation_rows |= rows
    for state in states:
        put = [(*each[:3], source, *each[3:]) for each in state.settled]
        _count(connection, settled=connection.executemany(entry_statements.PUT_SETTLED, put).rowcount if put else 0)
        put = [(*each[:3], source, *each[3:]) for each in state.returned]
        connection.executemany(entry_statements.PUT_RETURNED, put)
        draft.counted.update(each[0] for each in state.returned)
        marks: dict[int, Mark] = {}
        for queue_id, next_seq in state.known:
            before = draft.mark(queue_id) or (*NONE[:2], source, 0, 0)
            if next_seq > before[0]:
                marks[queue_id] = (next_seq, *before[1:])
        for queue_id, delivered, epoch, idx in state.marks:
            end = (marks.get(queue_id) or draft.mark(queue_id) or NONE)[0]
            marks[queue_id] = (end, delivered, source, epoch, idx)
        appending.put_marks(connection, marks)
        draft.marks |= marks
