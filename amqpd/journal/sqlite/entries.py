"""Carries out what is written of sources that are replicated: entries, undone tails, seals, and what is committed.

What comes in: the writes of a transaction (`amqpd.replication.replica.Write`), a connection with a transaction open.
What goes out: the tables, changed; the `Draft` of what is known in memory.
Rules: 1. In order: each write sees what those before it did. 2. An entry is one statement, whatever it has; what is
rare is taken apart: counts, delivered marks, drops. 3. Of a record that an entry replaces or removes the former
version is kept until the entry is committed. 4. What may leave the disk is committed, and is told by the entry that
retired it: nothing else deletes.
Not here: the local source (`work.py`), the commit itself and what follows a failure (`disk.py`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from amqpd.journal.sqlite import checksums, entry_statements, queries, statements
from amqpd.journal.sqlite.discards import Discards, Piece
from amqpd.journal.sqlite.draft import Draft
from amqpd.journal.sqlite.intake import INLINE_RANGES_MAX, listed, offsets, split
from amqpd.journal.sqlite.payload import BadPayload, Payload, decode, numbers, pairs, triples
from amqpd.journal.sqlite.queue_marks import NONE, Mark, QueueMarks
from amqpd.journal.sqlite.recovery import Found
from amqpd.journal.sqlite.schema import FORMER_MARK, FORMER_RETURNED, SEQ_MAX
from amqpd.journal.sqlite.sources import Head, Held, Sources
from amqpd.journal.sqlite.undoing import undo
from amqpd.journal.sqlite.work import Work, plain_work
from amqpd.journal.transaction import Transaction
from amqpd.replication.entry import LogEntry
from amqpd.replication.replica import Appended, Sealed, Undone, Write


class Known(NamedTuple):
    """What is known in memory of the journal."""

    sources: Sources
    discards: Discards
    marks: QueueMarks
    identity: str


def write_sources(
    connection: sqlite3.Connection, transaction: Transaction, known: Known, *, release_rows: bool
) -> tuple[Draft, Work, Piece]:
    """Begins a transaction, and writes what is of replicated sources; what is to be written of the local one, and to
    be deleted, with its end. Raises ValueError for what does not follow what is there, BadPayload, JournalDamaged,
    sqlite3.Error."""
    if transaction.entries:
        raise ValueError("entries of sources become writes before they are committed")
    connection.execute("BEGIN IMMEDIATE")
    (last_row,) = connection.execute(entry_statements.LAST_ROW).fetchone()
    draft = Draft(known.sources, known.discards, known.marks, last_row + 1)
    _carry_out(connection, transaction.writes, draft)
    for source, position in transaction.committed.items():
        draft.commit(source, position)
    work, now = plain_work(transaction, known.sources.local, known.discards, known.marks)
    piece = Piece()
    if release_rows:
        _release(connection, draft, work, piece)
    _put_heads(connection, draft, known.identity)
    work.begun += draft.begun
    piece.deletes = now
    return draft, work, piece


def work_of_dead(
    connection: sqlite3.Connection, found: Found, local: Head, discards: Discards, marks: QueueMarks
) -> tuple[Work, Piece]:
    """What recovery found dead becomes discards, in a transaction that is begun. Raises sqlite3.Error."""
    work, piece = Work(local), Piece()
    work.begun = discards.numbered([(*item, source, *upto) for source, upto, item in found.dead])
    for source, _, (queue_id, _, last) in found.dead:
        marks.kept(work.marks, source, [(queue_id, last)])
    for _, upto, (queue_id, first, last) in found.orphans:
        piece.settled_discards.append((queue_id, first, first, last, *upto))
    connection.execute("BEGIN IMMEDIATE")
    _put_marks(connection, work.marks)
    return work, piece


def _carry_out(connection: sqlite3.Connection, writes: Iterable[Write], draft: Draft) -> None:
    for write in writes:
        if isinstance(write, Appended):
            _append(connection, write.entry, draft)
        elif isinstance(write, Undone):
            undo(connection, draft, write.source, write.position)
        elif isinstance(write, Sealed):
            source, seal = write.source, write.seal
            connection.execute(entry_statements.PUT_SEAL, (source, *seal, checksums.of_seal(source, *seal)))
            draft.known(source)
        else:
            raise NotImplementedError(f"a write of {type(write).__name__}")


def _put_heads(connection: sqlite3.Connection, draft: Draft, identity: str) -> None:
    """The records of the sources that changed; what was kept for an undo of what is committed by now goes."""
    heads = list(draft.heads.values())
    if heads:
        connection.executemany(statements.PUT_HEAD, [head.parameters(identity) for head in heads])
    if forgettable := draft.forgettable():
        upto = [{"source": head.source, "epoch": head.committed[0], "idx": head.committed[1]} for head in forgettable]
        connection.executemany(entry_statements.FORGET_TAIL, upto)
        connection.executemany(entry_statements.FORGET_FORMER, upto)


def _release(connection: sqlite3.Connection, draft: Draft, work: Work, piece: Piece) -> None:
    """What is retired and committed leaves the disk with the transaction: added to what that deletes."""
    marks: dict[int, Mark] = {}
    for held in draft.release(INLINE_RANGES_MAX):
        now, later = split(held.ranges, len(piece.row_discards) + work.rows)
        piece.add(now, *held.position)
        draft.discard([(item.queue_id, item.first_seq, item.last_seq, held.source, *held.position) for item in later])
        for item in held.ranges:
            before = marks.get(item.queue_id) or draft.mark(item.queue_id) or (*NONE[:2], held.source, 0, 0)
            # The transaction that it is of stays: an undo takes that back, and not what was deleted since.
            marks[item.queue_id] = (max(before[0], item.last_seq + 1), *before[1:])
    _put_marks(connection, marks)
    draft.marks |= marks


def _put_marks(connection: sqlite3.Connection, marks: dict[int, Mark]) -> None:
    said = [(queue_id, *mark) for queue_id, mark in marks.items()]
    if said:
        connection.executemany(entry_statements.PUT_MARK, [(*each, checksums.of_mark(*each)) for each in said])


def _append(connection: sqlite3.Connection, entry: LogEntry, draft: Draft) -> None:
    source, position = entry.source, entry.position
    payload = decode(entry.payload)
    if (payload.source, payload.epoch, payload.idx) != (source, *position):
        raise BadPayload(f"entry {position} of source {source} has a payload of another one")
    head = draft.head(source)
    if source <= 0 or entry.before != head.position or position <= head.position:
        raise ValueError(f"entry {position} of source {source} follows {entry.before}, and {head.position} is there")
    _put(connection, entry, payload, draft)
    draft.heads[source] = head.at(position, max(payload.reserved, head.reserved))
    if payload.retired:
        draft.held.append(Held(source, position, payload.retired))
    if payload.counts or payload.delivered or payload.dropped:
        _put_rare(connection, (source, *position), payload, draft)


def _put(connection: sqlite3.Connection, entry: LogEntry, payload: Payload, draft: Draft) -> None:
    """Its rows, what it settled, and the record of it."""
    source, epoch, idx = entry.source, *entry.position
    first_row, rows = draft.next_row, payload.rows
    given = entry_statements.PARAMETERS | {"source": source, "epoch": epoch, "idx": idx}
    last = len(payload.chunks) - 1
    for at, chunk in enumerate(payload.chunks):
        given |= {"first_row": draft.next_row, "inserted": chunk.rows, "rows": offsets(chunk.rows)}
        given |= {"numbers": chunk.numbers, "deadlines": chunk.deadlines, "data": chunk.data}
        if chunk.deadlines:
            draft.timed.update(queue_id for queue_id, *_ in json.loads(chunk.deadlines))
        if at == last:
            said = (source, epoch, idx, *entry.before, entry.checksum, first_row, rows, payload.control)
            given |= {"before_epoch": entry.before[0], "before_idx": entry.before[1], "checksum": entry.checksum}
            given |= {"entry_first_row": first_row, "entry_rows": rows, "control": payload.control}
            given |= {"settled": payload.settled, "tail_crc": checksums.of_tail(*said)}
        connection.execute(entry_statements.APPEND, given)
        draft.next_row += chunk.rows


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
    _put_marks(connection, marks)
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
