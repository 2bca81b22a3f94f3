"""A small metadata store on the disk, what is in it, and what an attempt to open a damaged one changes."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from amqpd.topology.metadata.sqlite.sqlite_file import SqliteFile
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import MetadataEntry, StoreDamaged
from amqpd.topology.metadata.sync import transaction_of
from amqpd.vocabulary.records import Delete, Put, QueueRecord, VhostRecord

QUEUES = 12
FIRST_ID = 1_000_000_000_000_001
NAME = "metadata.db"
Files = dict[str, bytes]


def file_of(store: SqliteStore) -> SqliteFile:
    """The one that it works with."""
    assert isinstance(store._file, SqliteFile)
    return store._file


@dataclass(frozen=True)
class Found:
    entries: list[MetadataEntry]
    dropped: frozenset[int]
    journal: tuple[str, int] | None
    identity: str


@dataclass(frozen=True)
class Made:
    found: Found
    files: Files
    """as they are when it was closed"""
    live: Files
    """as they were before: everything is in the log"""


@cache
def made() -> Made:
    """Twelve queues and a virtual host by one transaction, three queues deleted by three."""

    async def make() -> tuple[Found, Files]:
        store = await SqliteStore.open(path)
        await store.set_journal("ab" * 16, 77)
        queues = [Put(QueueRecord("/", f"q{number}", FIRST_ID + number)) for number in range(QUEUES)]
        await store.transact([], transaction_of([Put(VhostRecord("/")), *queues]).operations)
        for number in range(3):
            await store.transact([], transaction_of([Delete(("queue", "/", f"q{number}"))]).operations)
        found, live = await contents(store), files_of(path)
        await store.aclose()
        return found, live

    with TemporaryDirectory() as directory:
        path = Path(directory) / NAME
        # In a thread: tests call this from within a run, too.
        with ThreadPoolExecutor(1) as threads:
            found, live = threads.submit(trio.run, make).result()
        return Made(found, files_of(path), live)


async def contents(store: SqliteStore) -> Found:
    entries = (await store.range("")).entries
    return Found(entries, await store.dropped_queues(), await store.journal(), await store.identity())


def files_of(path: Path) -> Files:
    """Everything beside the database. Not SQLite's index of the log, which is made of it, nor an empty log."""
    found = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    return {name: data for name, data in found.items() if data or not name.endswith("-wal")}


def put(directory: Path, files: Files) -> Path:
    """The files in the (empty) directory; the database's path."""
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory / NAME


async def opened(path: Path, *, accept_loss: bool = False) -> Found:
    store = await SqliteStore.open(path, accept_loss=accept_loss)
    try:
        return await contents(store)
    finally:
        await store.aclose()


async def refusal(path: Path) -> str:
    """The sentence; fails unless it is one, and every file is as it was."""
    before = files_of(path)
    try:
        await opened(path)
    except StoreDamaged as error:
        assert files_of(path) == before
        sentence = str(error)
        assert "\n" not in sentence
        assert NAME in sentence
        return sentence
    raise AssertionError("it was opened")


def run(data: bytes, statement: str, directory: Path) -> bytes:
    """The database after a statement of SQL: damage that SQLite does not see."""
    path = directory / "changed.db"
    path.write_bytes(data)
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    changed = path.read_bytes()
    path.unlink()
    return changed
