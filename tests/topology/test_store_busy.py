"""Another process that holds `metadata.db` for longer than is waited makes declarations wait, and ends nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from amqpd.topology import plans
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import StoreBusy
from amqpd.topology.metadata.sync import TopologySync
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Change, Put, QueueRecord
from tests.topology.damage import file_of


async def opened(path: Path) -> SqliteStore:
    store = await SqliteStore.open(path, poll_s=0.01)
    file_of(store)._driver.execute("PRAGMA busy_timeout = 10")
    return store


def test_a_declaration_waits_while_another_process_holds_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.run(waiting, tmp_path, monkeypatch)


async def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqpd.topology.metadata.sync.FULL_RETRY_S", 0.01)
    path = tmp_path / "metadata.db"
    store = await opened(path)
    topology, busy = Topology(), trio.Event()
    applied: list[Sequence[Change]] = []
    sync = TopologySync(store, topology, applied.append)
    await sync.start()
    transact_all = store.transact_all

    async def watched(*arguments: object) -> object:
        try:
            return await transact_all(*arguments)  # type: ignore[arg-type]
        except StoreBusy:
            busy.set()
            raise

    monkeypatch.setattr(store, "transact_all", watched)
    other = sqlite3.connect(path, isolation_level=None)
    answers: list[bool] = []
    answered = trio.Event()

    def answer(made: bool) -> None:
        answers.append(made)
        answered.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync.run)
            other.execute("BEGIN IMMEDIATE")
            sync.submit_nowait([*plans.create_vhost("/"), Put(QueueRecord("/", "q", 1))], answer)
            await busy.wait()
            assert not answers
            other.execute("ROLLBACK")
            await answered.wait()
            nursery.cancel_scope.cancel()
    other.close()
    assert answers == [True]
    assert "q" in topology.vhosts["/"].queues
    await store.aclose()


def test_looking_for_others_changes_passes_over_a_store_that_is_held(tmp_path: Path) -> None:
    trio.run(looking, tmp_path)


async def looking(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = await opened(path)
    driver = file_of(store)._driver

    class Held:
        def execute(self, sql: str) -> object:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorname = "SQLITE_BUSY"
            raise error

    file_of(store)._driver = Held()  # type: ignore[assignment]
    await store._poll()
    with pytest.raises(StoreBusy):
        await store.refresh()
    file_of(store)._driver = driver
    assert await store.refresh() == 0
    await store.aclose()
