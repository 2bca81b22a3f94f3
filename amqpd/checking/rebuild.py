"""Makes a new journal of what was salvaged from a damaged one.

What comes in: a `Salvage`, the damaged journal to read bodies from, a path. What goes out: a whole journal there, on
stable storage.
Rules: 1. The new file is made as any new journal is, and filled while nobody uses it. 2. What a start counts and
compares is computed from what was written. 3. The damaged file is only read.
Not here: what is believed (`salvage.py`), putting the file in its place (`repair.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from amqpd.backup.progress import Progress
from amqpd.checking.records import HEAD, KINDS, ORIGIN
from amqpd.checking.salvage import Salvage, body_of, discarded, queues_of
from amqpd.journal.numbers import NUMBERS_STEP
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import checksums
from amqpd.journal.sqlite.database import create_file
from amqpd.journal.sqlite.replicas import check_tails
from amqpd.journal.sqlite.schema import GENERATION, HEAD_COLUMNS, SOURCE
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.journal.sqlite.trust import Source
from amqpd.storage.files import sync_file

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
