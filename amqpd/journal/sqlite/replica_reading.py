"""Reads what a journal in use has of replicated sources: for votes, for others who lack entries, for a leader.

What comes in: a journal that is recovered. What goes out: the state of each replica; entries as they were made;
queues as a leader builds them.
Rules: 1. A connection of its own, which only reads: asked from any thread, one caller after the other, while others
commit and read. 2. What was written before the call is in the answer. 3. An entry is put together from its record and
its rows, and held against its checksum.
Not here: who asks (`amqpd.replication`, and what runs it), the queues of the local source (`recovery.py`, once).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TypeVar

from amqpd.journal.disk import ReplicaState
from amqpd.journal.records import JournalDamaged, Recovered
from amqpd.journal.sqlite import checksums, queries, trust
from amqpd.journal.sqlite.database import connect_to_read, meaning
from amqpd.journal.sqlite.recovery import find
from amqpd.journal.sqlite.replicas import TailRecord, read_votes, tail_record
from amqpd.journal.sqlite.schema import SOURCE
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.journal.sqlite.state import SourceState
from amqpd.journal.sqlite.state_reading import parts
from amqpd.peers.entry import NO_VOTE, LogEntry, Position
from amqpd.replication.log import EntryHead

T = TypeVar("T")


class ReplicaReader:
    """Reads what one journal has of replicated sources. Its methods raise JournalDamaged and DiskFailure."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def replicas(self) -> list[ReplicaState]:
        """Of each source, the local one aside, in the order of their numbers."""
        return self._asked(self._replicas)

    def log_entries(self, source: int, after: Position, bytes_max: int) -> list[LogEntry]:
        """Entries above this position that are not known to be committed, in order, until they have this many bytes;
        at least one, if there is any."""
        return self._asked(lambda connection: self._entries(connection, source, after, bytes_max))

    def recovered_of(self, sources: Collection[int]) -> Recovered:
        """The queues of these sources, as a leader builds them."""

        def read(connection: sqlite3.Connection) -> Recovered:
            record = trust.read_source(self._path, connection)
            return find(connection, record or trust.Source(1, 0, 0, 0), sources).of(sources)

        return self._asked(read)

    def state_parts(self, source: int, after: Position, base: Position) -> Iterator[bytes]:
        """The state of the source at `base`, beyond `after`, in parts for `StatePart`: each is read when it is asked
        for."""

        def ask(question: Callable[[sqlite3.Connection], SourceState]) -> SourceState:
            return self._asked(question)

        head = self._asked(self._heads).get(source)
        if head is None or not after <= base <= head.position:
            raise ValueError(f"no state of source {source} from {after} to {base}")
        return parts(ask, source, after, base, head.reserved)

    def close(self) -> None:
        """Nobody asks any more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _asked(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Of one state of the journal."""
        with self._turn:
            try:
                connection = self._connection = self._connection or connect_to_read(self._path)
                connection.execute("BEGIN")
                try:
                    return question(connection)
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise meaning(error, self._path) from error
            except checksums.NOT_AS_WRITTEN as error:
                raise JournalDamaged(f"{self._path} is damaged: {trust.not_as_written(error)}") from error

    def _heads(self, connection: sqlite3.Connection) -> dict[int, SourceHead]:
        record = trust.read_record(self._path, connection)
        return record.heads() if record is not None else {}

    def _replicas(self, connection: sqlite3.Connection) -> list[ReplicaState]:
        heads, tails = self._heads(connection), dict[int, list[EntryHead]]()
        for record in map(tail_record, connection.execute(queries.TAIL)):
            tails.setdefault(record.source, []).append(EntryHead(record.position, record.before, record.checksum))
        voted = read_votes(connection)
        return [
            ReplicaState(source, voted.get(source, NO_VOTE), head.committed, tails.get(source, []), head.reserved)
            for source, head in sorted(heads.items())
            if source != SOURCE
        ]

    def _entries(
        self, connection: sqlite3.Connection, source: int, after: Position, bytes_max: int
    ) -> list[LogEntry]:
        found: list[LogEntry] = []
        given = {"source": source, "epoch": after[0], "idx": after[1]}
        with closing(connection.execute(queries.ENTRIES_AFTER, given)) as rows:
            for record in map(tail_record, rows):
                if bytes_max <= 0 and found:
                    break
                found.append(self._entry(connection, record))
                bytes_max -= len(found[-1].payload)
        return found

    def _entry(self, connection: sqlite3.Connection, record: TailRecord) -> LogEntry:
        source, (epoch, idx), first = record.source, record.position, record.first_row
        given = {"source": source, "epoch": epoch, "idx": idx}
        given |= {"first_row": first, "last_row": first + record.rows - 1}
        pieces = connection.execute(queries.DATA_OF, given).fetchall()
        payload = b"".join([record.control, *(piece or b"" for piece in chain.from_iterable(pieces))])
        entry = LogEntry(source, record.position, record.before, payload, record.checksum)
        if not entry.sound:
            raise JournalDamaged(
                f"{self._path} is damaged: entry {record.position} of source {source} is not as it was made"
            )
        return entry
