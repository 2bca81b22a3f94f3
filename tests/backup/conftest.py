"""A data directory with a journal that is written meanwhile, and backups of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from amqpd.backup.job import Job
from amqpd.backup.manifest import Manifest
from amqpd.backup.progress import Progress
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import PutKey

from ..journal.disks import RESERVE_BYTES, row, transaction

ROW_BYTES = 400_000
ROWS = 20


class Node:
    """What a broker has open in its data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.disk = SqliteDisk(data_dir, reserve_bytes=RESERVE_BYTES)
        self.index = self.disk.recover().index

    def commit(self) -> None:
        """One row more, of one message; its number is the transaction's."""
        self.index += 1
        self.disk.commit(transaction(self.index, row(1, self.index, self.index, nbytes=ROW_BYTES)))

    def put(self, key: str) -> None:
        """An entry of the metadata."""

        async def put() -> None:
            store = await SqliteStore.open(self.data_dir / "metadata.db")
            await store.transact([], [PutKey(key, "value")])
            await store.aclose()

        trio.run(put)

    def numbers(self) -> list[int]:
        return [each.first_seq for each in self.disk.read(1, 0, 1 << 40, 1 << 40)]


class Stepping(Progress):
    """Calls back between the steps of the copy of the journal, and of what comes after it."""

    def __init__(self, on_step: Callable[[Progress], None]) -> None:
        super().__init__()
        self.on_step = on_step
        self.steps = 0

    def pace(self, nbytes: int) -> None:
        if self.phase == "copying journal.db":
            self.steps += 1
            self.on_step(self)


@pytest.fixture
def open_node(tmp_path: Path) -> Iterator[Callable[[Path], Node]]:
    opened: list[Node] = []

    def open_node(data_dir: Path) -> Node:
        opened.append(Node(data_dir))
        return opened[-1]

    yield open_node
    for node in opened:
        node.disk.close()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Manifest]:
    """A stopped node's data directory with some megabytes in its journal, and its backup: tests get copies."""
    data_dir = tmp_path_factory.mktemp("template") / "data"
    made = Node(data_dir)
    made.put("first")
    for _ in range(ROWS):
        made.commit()
    made.disk.close()
    target = data_dir.with_name("backup")
    return data_dir, target, Job(data_dir, target, Progress(), running=False).run()


@pytest.fixture
def stopped(template: tuple[Path, Path, Manifest], tmp_path: Path) -> Path:
    """The data directory of a node that has stopped."""
    return shutil.copytree(template[0], tmp_path / "data")


@pytest.fixture
def node(stopped: Path, open_node: Callable[[Path], Node]) -> Node:
    """It runs again."""
    return open_node(stopped)


@pytest.fixture
def made(template: tuple[Path, Path, Manifest], tmp_path: Path) -> tuple[Path, Manifest]:
    """A backup of it."""
    return shutil.copytree(template[1], tmp_path / "backup"), template[2]
