"""Commands that read and change the metadata of a node with several directories.

What is verified: over the control socket of a broker, entries of any length and what refuses; without a broker the
directory that has most, when most are there and no other process has it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from amqpd.datadir.disks.mirrored_file import open_definitions
from amqpd.datadir.disks.opening import open_disks
from amqpd.datadir.lock import open_data_directory
from amqpd.management.control.answers import Commands
from amqpd.management.control.metadata_commands import PIECE_CHARACTERS, RunningStore, handlers, streams
from amqpd.management.control.socket import ControlServer
from amqpd.management.errors import Unavailable
from amqpd.management.metadata import vhosts
from amqpd.management.metadata.stored import StoredMetadata
from amqpd.topology.metadata.sqlite.batch import CommitRequest
from amqpd.topology.metadata.sqlite.sqlite_file import SqliteFile
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    CompareFailed,
    DeleteKey,
    MetadataTransaction,
    PutKey,
    StoreFull,
)
from tests.topology.memory_store import MemorySpace, MemoryStore

LONG = "ü\"'\n" * PIECE_CHARACTERS


@pytest.mark.trio
async def test_entries_of_any_length_go_over_the_control_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(MemorySpace())
    lease = await store.grant_lease(60)
    async with trio.open_nursery() as nursery:
        await nursery.start(ControlServer(Commands(handlers(store), {}, streams(store))).run, tmp_path)

        async def in_thread(work: object, *given: object) -> object:
            return await trio.to_thread.run_sync(lambda: trio.run(work, *given))  # type: ignore[arg-type]

        asked = RunningStore(tmp_path)
        puts = [PutKey("a", "1"), PutKey("b", LONG), PutKey("c", "")]
        first = await in_thread(asked.transact, [Compare("a", 0)], puts)
        assert first == Committed(await store.refresh())
        assert isinstance(await in_thread(asked.transact, [Compare("a", 0)], [DeleteKey("b")]), CompareFailed)
        assert isinstance(await in_thread(asked.transact, [Compare("a", None)], [DeleteKey("c")]), Committed)
        assert await in_thread(asked.range, "") == await store.range("")
        await store.transact([], [PutKey("d", "of this incarnation", lease)])
        entry = (await in_thread(asked.range, "d")).entries[0]  # type: ignore[attr-defined]
        assert (entry.value, entry.mod_revision) == ("", await store.refresh())
        monkeypatch.setattr(store, "transact", full)
        with pytest.raises(Unavailable, match="no space"):
            await in_thread(asked.transact, [], [DeleteKey("a")])
        nursery.cancel_scope.cancel()


async def full(*_: object) -> None:
    await trio.lowlevel.checkpoint()
    raise StoreFull("no space")


def stopped_node(paths: list[Path]) -> None:
    """The last definition is on the second and the third directory only."""
    disks = open_disks(paths, accept_loss=False)
    disks.disk.recover()
    file = open_definitions(disks.group)
    file.commit([CommitRequest([MetadataTransaction((), (PutKey("one", "v"),))])])
    disks.group.leave(0, "it failed")
    file.commit([CommitRequest([MetadataTransaction((), (PutKey("two", "v"),))])])
    disks.disk.close()
    disks.close()


def test_without_a_broker_the_directory_with_most_is_changed(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    stopped_node(paths)
    metadata = StoredMetadata(paths[0])
    trio.run(vhosts.add, metadata, "new", "")
    assert [row["name"] for row in trio.run(vhosts.listed, metadata)] == ["/", "new"]
    found = []
    for each in paths:
        file = SqliteFile(each / "metadata.db")
        found.append([entry.key for entry in file.range("").entries if "new" in entry.key or entry.key == "two"])
        file.close()
    assert found[0] == []
    assert "two" in found[1]
    assert len(found[1]) > 1
    assert found[2] == ["two"]
    with open_data_directory(paths[1]), pytest.raises(Unavailable, match="is in use by another amqpd"):
        trio.run(vhosts.add, metadata, "refused", "")
    for each in paths[1:]:
        each.rename(each.with_name(f"{each.name}.away"))
    with pytest.raises(Unavailable, match="1 of the 3 data directories of this node have its definitions"):
        trio.run(vhosts.add, metadata, "refused", "")


def test_a_directory_alone_is_changed_beside_its_broker(tmp_path: Path) -> None:
    async def add() -> None:
        store = await SqliteStore.open(tmp_path / "metadata.db")
        await trio.to_thread.run_sync(lambda: trio.run(vhosts.add, StoredMetadata(tmp_path), "new", ""))
        assert any("new" in entry.key for entry in (await store.range("")).entries)
        await store.aclose()

    trio.run(add)
