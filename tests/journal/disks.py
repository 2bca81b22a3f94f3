"""The disks that a contract test runs on, each with a way to open it again as a new process would."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from typing import Any, Protocol

from amqpd.journal.disk import SourcesDisk
from amqpd.journal.records import RecoveredQueue, Row, SeqRange, SourceEntry
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import Position, new_entry
from amqpd.replication.replica import Appended, Undone, Write
from tests.journal.memory_disk import MemoryDisk, Platter

RESERVE_BYTES = 1 << 16
"""A small reserve, so that tests write little."""


class DrivenDisk(SourcesDisk, Protocol):
    """What the tests ask of each disk."""

    @property
    def index(self) -> int: ...

    def head(self, source: int) -> SourceHead: ...


class Drive(Protocol):
    """Where a disk's data is while no process has it open."""

    def open(self) -> DrivenDisk: ...


class SqliteDrive:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, keep_free_bytes: int = 0) -> SqliteDisk:
        return SqliteDisk(self.directory, reserve_bytes=RESERVE_BYTES, keep_free_bytes=keep_free_bytes)


class MemoryDrive:
    def __init__(self) -> None:
        self.platter = Platter()

    def open(self) -> MemoryDisk:
        return MemoryDisk(self.platter)


def row(
    queue_id: int, first: int, last: int, *, nbytes: int = 20, persistent: bool = True, **more: int | bytes
) -> Row:
    """Its body says which messages it holds. `body_bytes`, `published_ms`, `deadlines` by name."""
    text = b"%d:%d..%d;" % (queue_id, first, last)
    return Row(queue_id, first, last, (text * (nbytes // len(text) + 1))[:nbytes], persistent, **more)  # type: ignore[arg-type]


def rows_on_disk(disk: DrivenDisk) -> list[tuple[int, int]]:
    """(queue_id, first_seq) of all that is stored, dead or not."""
    if isinstance(disk, SqliteDisk):
        return disk._writer.execute("SELECT queue_id, first_seq FROM batch ORDER BY 1, 2").fetchall()
    assert isinstance(disk, MemoryDisk)
    steps = [step.before for tail in disk.platter.tails.values() for step in tail]
    states = [disk.platter.queues, *steps]
    return sorted(
        {(queue_id, first) for state in states for queue_id, queue in state.items() for first in queue.rows}
    )


def appended(disk: DrivenDisk, entry: SourceEntry, before: Position | None = None) -> Appended:
    """The entry as it is written, behind the last one that is there."""
    position = (entry.epoch, entry.idx)
    before = disk.head(entry.source).position if before is None else before
    return Appended(new_entry(entry.source, position, before, disk.payload(entry)))


def write(disk: DrivenDisk, *writes: Write, committed: dict[int, Position] | None = None) -> None:
    """In a transaction of their own."""
    disk.commit(JournalTransaction(disk.index + 1, writes=list(writes), committed=committed))


def store(disk: DrivenDisk, source: int, epoch: int, idx: int, *rows: Row, **more: Any) -> None:
    """One entry of a source, in a transaction of its own."""
    write(disk, appended(disk, SourceEntry(source, epoch, idx, list(rows), **more)))


def tell(disk: DrivenDisk, source: int, epoch: int, idx: int) -> None:
    """The source is committed so far."""
    write(disk, committed={source: (epoch, idx)})


def undo(disk: DrivenDisk, source: int, epoch: int, idx: int) -> dict[int, RecoveredQueue]:
    """The source's queues after that."""
    write(disk, Undone(source, (epoch, idx)))
    return disk.recovered_of({source}).queues


def idle(disk: DrivenDisk) -> None:
    """All housekeeping is done."""
    while disk.vacuum_step():
        pass


def deadlines(*triples: tuple[int, int, int]) -> bytes:
    """`Row.deadlines` of (deadline_ms, first_seq, last_seq)."""
    return b"".join(pack("<qqq", *triple) for triple in triples)


def transaction(index: int, *items: Row | SeqRange, **more: object) -> JournalTransaction:
    """Rows and settled ranges in any order; `deletes`, `delivered`, `counts`, `dropped` by name."""
    return JournalTransaction(
        index,
        rows=[item for item in items if isinstance(item, Row)],
        settled=[item for item in items if isinstance(item, SeqRange)],
        **more,  # type: ignore[arg-type]
    )
