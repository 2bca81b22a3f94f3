"""The backup of a running broker: one at a time, and what ends it."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from amqpd.backup import job as job_module
from amqpd.backup.job import Job
from amqpd.backup.manifest import MANIFEST
from amqpd.backup.running import Backups
from amqpd.errors import leaves
from amqpd.journal.errors import DiskFailure
from amqpd.management.errors import ManagementError
from amqpd.storage.files import wal_path

from .conftest import ROWS, Node

pytestmark = pytest.mark.trio
SLOW = {"rate_bytes_s": 1_000_000}
"""Eight seconds for the journal, unless something ends it."""

Rows = list[dict[str, Any]]


@asynccontextmanager
async def backups_of(node: Node) -> AsyncIterator[tuple[Backups, SimpleNamespace]]:
    """The component and the broker's node, as far as it looks at that."""
    state = SimpleNamespace(alarms=SimpleNamespace(kinds=set()), draining=False)
    backups = Backups(state, lambda: node.data_dir, 0, node.disk.checkpoints.sharing)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(backups.run)
        await trio.testing.wait_all_tasks_blocked()
        yield backups, state
        nursery.cancel_scope.cancel()


async def until_copying(stream: AsyncGenerator[Rows, None]) -> None:
    """It has begun, and goes on for as long as nobody ends it."""
    async for rows in stream:
        if rows[0]["phase"] == "copying journal.db" and rows[0]["done"]:
            return
    raise AssertionError("it ended")


async def rest_of(stream: AsyncGenerator[Rows, None]) -> Rows:
    return [row async for rows in stream for row in rows]


async def test_it_tells_how_far_it_is_and_then_the_manifest(node: Node, tmp_path: Path) -> None:
    async with backups_of(node) as (backups, _):
        rows = await rest_of(backups.backup({"target": str(tmp_path / "backup")}))
    assert rows[0].keys() == {"phase", "done", "total", "held_log"}
    assert rows[-1]["backup"]["journal"]["index"] == ROWS
    assert (tmp_path / "backup" / MANIFEST).exists()


async def test_a_log_that_it_copied_begins_with_the_journals_record(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what stands in the new log fits an older copy of the database, and nobody misses what was between."""
    monkeypatch.setattr(job_module, "LOG_BYTES_LEFT", 0)

    def behind() -> int:
        (written,) = node.disk._reader.execute("SELECT idx FROM source WHERE source = 0").fetchone()
        return node.index - int(written)

    node.commit()
    node.commit()
    assert behind() == 2
    async with backups_of(node) as (backups, _):
        stream = backups.backup({"target": str(tmp_path / "backup"), **SLOW})
        await until_copying(stream)
        for _ in range(3):
            node.commit()
            assert behind() == 0, "at any moment it may copy the log"
        await stream.aclose()
    before = salts(node)
    node.commit()
    assert behind() == 0
    assert salts(node) != before, "a log of its own"
    node.commit()
    assert behind() == 1


def salts(node: Node) -> bytes:
    """What the journal's log and no log before it has in its header."""
    return wal_path(node.disk.path).read_bytes()[16:24]


async def test_the_disk_alarm_ends_it_and_no_other_alarm_does(node: Node, tmp_path: Path) -> None:
    async with backups_of(node) as (backups, state):
        stream = backups.backup({"target": str(tmp_path / "backup"), **SLOW})
        await until_copying(stream)
        state.alarms.kinds.add("memory")
        await until_copying(stream)
        state.alarms.kinds.add("disk")
        with pytest.raises(ManagementError, match="the disk alarm came on: the backup was given up; make space"):
            await rest_of(stream)
        assert not (tmp_path / "backup").exists()
        with pytest.raises(ManagementError, match="the disk alarm is on: no backup is made until it is off"):
            await rest_of(backups.backup({"target": str(tmp_path / "backup")}))
        state.alarms.kinds.clear()
        assert "backup" in (await rest_of(backups.backup({"target": str(tmp_path / "backup")})))[-1]


async def test_a_drain_ends_it_and_none_begins(node: Node, tmp_path: Path) -> None:
    async with backups_of(node) as (backups, state):
        stream = backups.backup({"target": str(tmp_path / "backup"), **SLOW})
        await until_copying(stream)
        state.draining = True
        with pytest.raises(ManagementError, match="the broker was stopped: the backup was given up"):
            await rest_of(stream)
        with pytest.raises(ManagementError, match="the broker is stopping"):
            await rest_of(backups.backup({"target": str(tmp_path / "backup")}))
    assert not (tmp_path / "backup").exists()


async def test_the_end_of_the_broker_waits_for_its_thread_and_leaves_nothing(node: Node, tmp_path: Path) -> None:
    async with backups_of(node) as (backups, _):
        stream = backups.backup({"target": str(tmp_path / "backup"), **SLOW})
        await until_copying(stream)
        assert (tmp_path / "backup").exists()
    assert not (tmp_path / "backup").exists()
    await stream.aclose()


async def test_the_end_of_the_broker_does_not_wait_for_a_check_of_the_copy(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large journal it takes minutes, and SQLite cannot be asked to stop."""
    checking, checked = threading.Event(), threading.Event()

    def check(*_: object) -> None:
        checking.set()
        assert checked.wait(60)

    monkeypatch.setattr(job_module, "check_pages", check)
    async with backups_of(node) as (backups, _):
        stream = backups.backup({"target": str(tmp_path / "backup")})
        async for rows in stream:
            if rows[0]["phase"].startswith("checking"):
                break
        assert await trio.to_thread.run_sync(checking.wait, 60)
    assert not (tmp_path / "backup").exists()
    checked.set()
    await stream.aclose()


async def test_a_second_one_is_refused_until_the_first_has_ended(node: Node, tmp_path: Path) -> None:
    async with backups_of(node) as (backups, _):
        async with aclosing(backups.backup({"target": str(tmp_path / "first"), **SLOW})) as first:
            await until_copying(first)
            with pytest.raises(ManagementError, match=r"a backup to .*/first is under way: wait until it has ended"):
                await rest_of(backups.backup({"target": str(tmp_path / "second")}))
            task = backups._task
        # Its client has left: it ends by itself.
        assert task is not None
        await task.ended.wait()
        assert not (tmp_path / "first").exists()
        await rest_of(backups.backup({"target": str(tmp_path / "second")}))


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({}, "target must be the absolute path"),
        ({"target": "relative"}, "target must be the absolute path"),
        ({"target": "/x", "rate_bytes_s": 0}, "rate_bytes_s must be a number above 0"),
        ({"target": "/x", "rate_bytes_s": True}, "rate_bytes_s must be a number above 0"),
        ({"target": "/x", "log_bytes_max": "much"}, "log_bytes_max must be a number above 0"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(node: Node, wanted: dict[str, Any], sentence: str) -> None:
    async with backups_of(node) as (backups, _):
        with pytest.raises(ManagementError, match=sentence):
            await rest_of(backups.backup(wanted))
        # And it stands in nobody's way.
        assert backups._task is None


async def test_a_failure_of_the_journals_disk_ends_the_node(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the backup kept from the journal it writes there itself; the writer would have met it."""

    def failing(*_: object) -> None:
        raise DiskFailure("the disk of journal.db failed")

    monkeypatch.setattr(Job, "_shrink_log", failing)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with backups_of(node) as (backups, _):
            await rest_of(backups.backup({"target": str(tmp_path / "backup")}))
    assert "the disk of journal.db failed" in map(str, leaves(caught.value))
    assert not (tmp_path / "backup").exists()


async def test_a_bug_is_told_and_the_next_one_is_possible(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Job) -> None:
        raise KeyError("our bug")

    async with backups_of(node) as (backups, _):
        monkeypatch.setattr(Job, "copy", broken)
        with pytest.raises(ManagementError, match="the backup failed inside the broker: see its log"):
            await rest_of(backups.backup({"target": str(tmp_path / "backup")}))
        monkeypatch.undo()
        await rest_of(backups.backup({"target": str(tmp_path / "backup")}))
