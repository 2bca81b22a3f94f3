"""The disks that a contract test runs on, each with a way to open it again as a new process would."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from typing import Protocol

from amqpd.journal.records import Disk, Range, Row, Transaction
from amqpd.journal.sqlite.disk import SqliteDisk
from tests.journal.memory_disk import MemoryDisk, Platter

RESERVE_BYTES = 1 << 16
"""A small reserve, so that tests write little."""


class Drive(Protocol):
    """Where a disk's data is while no process has it open."""

    def open(self) -> Disk: ...


class SqliteDrive:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self) -> SqliteDisk:
        return SqliteDisk(self.directory, reserve_bytes=RESERVE_BYTES)


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


def deadlines(*triples: tuple[int, int, int]) -> bytes:
    """`Row.deadlines` of (deadline_ms, first_seq, last_seq)."""
    return b"".join(pack("<qqq", *triple) for triple in triples)


def transaction(index: int, *items: Row | Range, **more: object) -> Transaction:
    """Rows and settled ranges in any order; `deletes`, `delivered`, `counts`, `dropped` by name."""
    return Transaction(
        index,
        rows=[item for item in items if isinstance(item, Row)],
        settled=[item for item in items if isinstance(item, Range)],
        **more,  # type: ignore[arg-type]
    )
