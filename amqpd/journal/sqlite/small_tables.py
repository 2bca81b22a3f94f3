"""The journal's small tables, as recovery reads them: each record is held against its checksum.

What comes in: a connection; rows of a table. What goes out: the record, or `JournalDamaged`.
Rules: a page that names fewer records than it has shows in no record, so SQLite's own check looks at these tables.
Not here: rows of messages and what is settled of them (`recovery.py`), tails and votes (`replicas.py`).
"""

from __future__ import annotations

import sqlite3

from amqpd.journal.errors import DiskFailure
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import checksums, queries
from amqpd.journal.sqlite.discards import Discard
from amqpd.journal.sqlite.mark_rows import former_of
from amqpd.journal.sqlite.queue_marks import Mark
from amqpd.storage.probe import could_not_read

TABLES = (
    "settled",
    "queue",
    "discard",
    "returned",
    "deadline",
    "source",
    "former",
    "tail",
    "seal",
    "staged",
    "operation_mark",
    "former_operation_mark",
    "names",
)


def check_former(connection: sqlite3.Connection) -> set[int]:
    """The sources of which there are former versions of what is said of the operations of edges. Raises
    JournalDamaged."""
    for *said, crc in connection.execute(queries.FORMER):
        if checksums.of_former(*said) != crc:
            raise JournalDamaged(f"the former version of a record of queue {said[4]} does not fit its checksum")
    sources = set()
    for record in connection.execute(queries.FORMER_OPERATION_MARKS):
        former_of(record)
        sources.add(record[0])
    return sources


def check_structure(connection: sqlite3.Connection) -> None:
    """Of the small tables: a page that names fewer records than it has shows in no record. (The index of the rows is
    too large for that; `Source.rows` says how many it must have.) Raises JournalDamaged, DiskFailure."""
    for table in TABLES:
        (said,) = connection.execute(f"PRAGMA quick_check('{table}')").fetchone()
        if could_not_read(said):
            raise DiskFailure(f"the disk of the journal failed: {said.splitlines()[-1]}")
        if said != "ok":
            raise JournalDamaged(f"the table {table} is damaged ({' '.join(said.split())})")


def discard_of(row: tuple[int, ...]) -> Discard:
    """Raises JournalDamaged."""
    *fields, crc = row
    if checksums.of_discard(*fields) != crc:
        raise JournalDamaged(f"the record of a deletion of messages of queue {fields[1]} does not fit its checksum")
    return Discard(*fields)


def mark_of(row: tuple[int, ...]) -> tuple[int, Mark]:
    """(queue_id, its mark). Raises JournalDamaged."""
    queue_id, next_seq, delivered, source, epoch, idx, crc = row
    if checksums.of_mark(queue_id, next_seq, delivered, source, epoch, idx) != crc:
        raise JournalDamaged(f"the record of what was delivered of queue {queue_id} does not fit its checksum")
    return queue_id, (next_seq, delivered, source, epoch, idx)
