"""What a journal says of the sources that it keeps a replica of: the tail of entries, and votes.

What comes in: a connection. What goes out: their records, if they fit.
Rules: 1. A record that does not fit its checksum, and an entry that is missing between two others, are
`JournalDamaged`. 2. A source's tail is all that it has above what is committed.
Not here: entries with their data (`replica_reading.py`), what writes them (`entries.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import checksums, queries
from amqpd.journal.sqlite.schema import SOURCE
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.peers.entry import Position, Vote


class TailRecord(NamedTuple):
    """One record of the table `tail`: an entry of a source that is not known to be committed."""

    source: int
    position: Position
    before: Position
    checksum: int
    first_row: int
    rows: int
    control: bytes


def tail_record(row: tuple[Any, ...]) -> TailRecord:
    """Raises JournalDamaged."""
    source, epoch, idx, before_epoch, before_idx, checksum, first_row, rows, control, crc = row
    if checksums.of_tail(*row[:-1]) != crc:
        raise JournalDamaged(f"the record of entry {(epoch, idx)} of source {source} does not fit its checksum")
    return TailRecord(source, (epoch, idx), (before_epoch, before_idx), checksum, first_row, rows, control)


def check_tails(connection: sqlite3.Connection, heads: Mapping[int, SourceHead]) -> None:
    """Each source's tail is what it ends with, without a gap. Raises JournalDamaged."""
    seen = set()
    for source, rows in groupby(connection.execute(queries.TAIL), itemgetter(0)):
        head, last = heads.get(source), None
        for record in map(tail_record, rows):
            known = head.committed if head is not None and last is None else last
            if record.before != last and (last is not None or known is None or record.before > known):
                raise JournalDamaged(f"entry {record.before} of source {source} is missing, behind {known}")
            last = record.position
        if head is None or last != head.position or last <= head.committed:
            there = None if head is None else head.position
            raise JournalDamaged(f"entries of source {source} end with {last}, and its record with {there}")
        seen.add(source)
    for source, head in heads.items():
        if source != SOURCE and source not in seen and head.position != head.committed:
            raise JournalDamaged(f"entries of source {source} from {head.committed} to {head.position} are missing")
    read_votes(connection)


def staged_from(connection: sqlite3.Connection) -> dict[int, int]:
    """source -> the first row in `batch` of what is staged of it: such rows are not there for anybody. Raises
    JournalDamaged."""
    found = {}
    for *said, crc in connection.execute(queries.STAGED):
        if checksums.of_staged(*said) != crc:
            raise JournalDamaged(f"the record of what is staged of source {said[0]} does not fit its checksum")
        found[said[0]] = said[8]
    return found


def read_votes(connection: sqlite3.Connection) -> dict[int, Vote]:
    """Raises JournalDamaged."""
    found = {}
    for source, epoch, forwarder, incarnation, crc in connection.execute(queries.VOTES):
        if checksums.of_vote(source, epoch, forwarder, incarnation) != crc:
            raise JournalDamaged(f"the vote of source {source} does not fit its checksum")
        found[source] = Vote(epoch, forwarder, incarnation)
    return found
