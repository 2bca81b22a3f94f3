"""Carries out what is written of sources that are replicated: entries, undone tails, votes, and what is committed.

What comes in: the writes of a transaction (`amqpd.replication.replica.Write`), a connection with a transaction open.
What goes out: the tables, changed; the `Draft` of what is known in memory.
Rules: 1. In order: each write sees what those before it did. 2. An entry is one statement, whatever it has; what is
rare is taken apart: counts, delivered marks, drops. 3. Of a record that an entry replaces or removes the former
version is kept until the entry is committed. 4. What may leave the disk is committed, and is told by the entry that
retired it: nothing else deletes.
Not here: the local source (`work.py`), the commit itself and what follows a failure (`disk.py`).
"""

from __future__ import annotations

import sqlite3
from struct import error as struct_error
from typing import NamedTuple

from amqpd.journal.errors import UnusableWrites
from amqpd.journal.records import SeqRange
from amqpd.journal.sqlite import appending, checksums, entry_checks, entry_statements, queries, staging, statements
from amqpd.journal.sqlite.appending import put_marks
from amqpd.journal.sqlite.discards import Discards, Piece
from amqpd.journal.sqlite.draft import Draft
from amqpd.journal.sqlite.mark_rows import MarkRows
from amqpd.journal.sqlite.queue_marks import NONE, Mark, QueueMarks
from amqpd.journal.sqlite.recovery import JournalContents
from amqpd.journal.sqlite.sources import SourceHead, SourceProgress
from amqpd.journal.sqlite.statement_parameters import INLINE_RANGES_MAX, split
from amqpd.journal.sqlite.undoing import undo
from amqpd.journal.sqlite.work import Work, plain_work
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import LogEntry
from amqpd.replication.replica import (
    Appended,
    StateBegin,
    StateDiscard,
    StateEnd,
    StateInstall,
    StatePart,
    Undone,
    VoteCast,
    Write,
    source_of,
)


class InMemoryState(NamedTuple):
    """The state of a journal that is kept in memory: sources, discards, marks of queues, operations of edges."""

    sources: SourceProgress
    discards: Discards
    marks: QueueMarks
    operations: MarkRows
    identity: str


def write_sources(
    connection: sqlite3.Connection, transaction: JournalTransaction, known: InMemoryState, *, release_rows: bool
) -> tuple[Draft, Work, Piece]:
    """Begins a transaction, and writes what is of replicated sources; what is to be written of the local one, and to
    be deleted, with its end. Raises UnusableWrites for what does not follow what is there, or is no payload,
    JournalDamaged, sqlite3.Error."""
    if transaction.entries:
        raise ValueError("entries of sources become writes before they are committed")
    connection.execute("BEGIN IMMEDIATE")
    (last_row,) = connection.execute(entry_statements.LAST_ROW).fetchone()
    staged_rows = [staged.first_row for staged in known.sources.staged.values()]
    next_row = max(last_row + 1, *staged_rows, 1)
    draft = Draft(known.sources, known.discards, known.marks, known.operations, next_row)
    for source, first_row in known.sources.stale.items():
        staging.drop_rows(connection, source, first_row)
    _carry_out(connection, transaction, draft)
    for source, position in transaction.committed.items():
        draft.commit(source, position)
    work, now = plain_work(transaction, known.sources.local, known.discards, known.marks, known.operations)
    piece = Piece()
    if release_rows:
        _release(connection, draft, work, piece)
    _put_heads(connection, draft, known.identity)
    work.begun += draft.begun
    piece.deletes = now
    return draft, work, piece


def work_of_dead(
    connection: sqlite3.Connection, found: JournalContents, local: SourceHead, discards: Discards, marks: QueueMarks
) -> tuple[Work, Piece]:
    """What recovery found dead becomes discards, in a transaction that is begun. Raises sqlite3.Error."""
    work, piece = Work(local), Piece()
    work.begun = discards.numbered([(*item, source, *upto) for source, upto, item in found.dead])
    for source, _, (queue_id, _, last) in found.dead:
        marks.kept(work.marks, source, [(queue_id, last)])
    for _, upto, (queue_id, first, last) in found.orphans:
        piece.settled_discards.append((queue_id, first, first, last, *upto))
    connection.execute("BEGIN IMMEDIATE")
    put_marks(connection, work.marks)
    return work, piece


def _carry_out(connection: sqlite3.Connection, transaction: JournalTransaction, draft: Draft) -> None:
    """Raises UnusableWrites, sqlite3.Error for what the disk has failed with."""
    own = transaction.own
    for write in transaction.writes:
        try:
            _carry_out_one(connection, write, draft, trusted=own is None or source_of(write) in own)
        except (ValueError, OverflowError, struct_error) as error:  # struct's is for numbers that no column takes
            raise UnusableWrites(source_of(write), str(error)) from error
        except sqlite3.Error as error:
            if not _is_of_content(error):
                raise
            raise UnusableWrites(source_of(write), f"SQLite: {error}") from error


def _is_of_content(error: sqlite3.Error) -> bool:
    """It is what was to be written that is wrong, and not the disk: JSON that is none, numbers that are taken."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.InterfaceError):
        return True
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR


def _carry_out_one(connection: sqlite3.Connection, write: Write, draft: Draft, *, trusted: bool) -> None:
    """`trusted`: this node has made it."""
    match write:
        case Appended(entry):
            _append(connection, entry, draft, trusted=trusted)
        case Undone(source, position):
            staged = draft.staged(source)
            if staged is not None:
                staging.undo_staged(connection, source, position, staged, draft)
            else:
                undo(connection, draft, source, position)
        case VoteCast(source, vote):
            connection.execute(entry_statements.PUT_VOTE, (source, *vote, checksums.of_vote(source, *vote)))
            draft.add_source(source)
        case StateBegin(source):
            staging.begin(connection, source, draft)
        case StatePart(source, part):
            staging.take_part(connection, source, part, draft)
        case StateEnd(source, base):
            staging.end(draft, source, base)
        case StateInstall(source):
            staging.complete(connection, source, draft)
        case StateDiscard(source):
            staging.drop(connection, source, draft)


def _append(connection: sqlite3.Connection, entry: LogEntry, draft: Draft, *, trusted: bool) -> None:
    """Behind what stands, or what is staged."""
    source, position = entry.source, entry.position
    if (staged := draft.staged(source)) is not None:
        staging.append(connection, entry, staged, draft)
        return
    payload, last = appending.payload_of(entry), draft.head(source).position
    if source <= 0 or entry.before != last or position <= last:
        raise ValueError(f"entry {position} of source {source} follows {entry.before}, and {last} is there")
    if trusted:
        draft.ends.forget(source)
    elif absent := entry_checks.check(connection, payload, draft.ends):
        payload = entry_checks.without(payload, absent)
    appending.put(connection, appending.record_of(entry, payload, draft), payload, draft, trusted=trusted)


def _put_heads(connection: sqlite3.Connection, draft: Draft, identity: str) -> None:
    """The records of the sources that changed; what was kept for an undo of what is committed by now goes."""
    heads = list(draft.heads.values())
    if heads:
        connection.executemany(statements.PUT_HEAD, [head.parameters(identity) for head in heads])
    if forgettable := draft.forgettable():
        upto = [{"source": head.source, "epoch": head.committed[0], "idx": head.committed[1]} for head in forgettable]
        connection.executemany(entry_statements.FORGET_TAIL, upto)
        connection.executemany(entry_statements.FORGET_FORMER, upto)
        upto = [each for each in upto if draft.has_operations(int(each["source"]))]
        if upto:
            connection.executemany(entry_statements.FORGET_OPERATION_MARKS, upto)


def _release(connection: sqlite3.Connection, draft: Draft, work: Work, piece: Piece) -> None:
    """What is retired and committed leaves the disk with the transaction: added to what that deletes. Of a queue
    whose drop is committed no mark is left."""
    marks: dict[int, Mark] = {}
    for held in draft.release(INLINE_RANGES_MAX):
        now, later = split(held.ranges, len(piece.row_discards) + work.rows)
        piece.add(now, *held.position)
        draft.discard([(item.queue_id, item.first_seq, item.last_seq, held.source, *held.position) for item in later])
        for item in held.ranges:
            before = marks.get(item.queue_id) or draft.mark(item.queue_id)
            if before is None:
                if draft.drops(item.queue_id) or not _has_rows(connection, item):
                    continue  # it has left with its queue
                before = (*NONE[:2], held.source, 0, 0)
            # The transaction that it is of stays: an undo takes that back, and not what was deleted since.
            marks[item.queue_id] = (max(before[0], item.last_seq + 1), *before[1:])
    put_marks(connection, marks)
    draft.marks |= marks
    if dropped := draft.dropped():
        connection.executemany(entry_statements.DROP_MARK, [(queue_id,) for queue_id in dropped])
        draft.marks |= dict.fromkeys(dropped)


def _has_rows(connection: sqlite3.Connection, item: SeqRange) -> bool:
    given = {"queue_id": item.queue_id, "first_seq": item.first_seq, "last_seq": item.last_seq}
    return connection.execute(queries.ANY_ROW, given).fetchone() is not None
