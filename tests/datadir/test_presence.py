"""A data directory that vanishes, or whose files are replaced, under a broker that runs."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

from amqpd.datadir.presence import FILES, LOOK_S, Presence, unless_lost
from amqpd.errors import NodeFailure, find_failure


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    make(data)
    return data


def make(data: Path) -> None:
    data.mkdir()
    for name in FILES:
        (data / name).write_text("x")


@pytest.mark.trio
async def test_what_is_as_it_was_is_not_lost(data: Path) -> None:
    looking = Presence(data)
    (data / "journal.db").write_text("longer than before")
    (data / "events").mkdir()
    assert looking.lost() is None


@pytest.mark.trio
async def test_a_log_that_comes_later_is_noted_when_it_is_seen(data: Path) -> None:
    wal = data / "journal.db-wal"
    wal.unlink()
    looking = Presence(data)
    assert looking.lost() is None
    wal.touch()
    assert looking.lost() is None
    wal.unlink()
    sentence = looking.lost()
    assert sentence
    assert sentence.startswith(f"{wal} was removed while the node ran; put the right file back, or restore a backup")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.trio
async def test_a_file_that_is_replaced_is_named(data: Path, name: str) -> None:
    looking = Presence(data)
    (data / "copy").write_text("x")
    (data / "copy").rename(data / name)
    sentence = looking.lost()
    assert sentence
    assert sentence.startswith(f"{data / name} was replaced while the node ran")


@pytest.mark.parametrize("again", [False, True])
def test_a_directory_that_is_gone_is_named(data: Path, again: bool) -> None:
    looking = Presence(data)
    data.rename(data.with_name("elsewhere"))
    if again:
        make(data)
    what = "not the directory that was opened" if again else "gone"
    sentence = looking.lost()
    assert sentence
    assert sentence.startswith(f"the data directory {data} is {what}")
    assert "\n" not in sentence


@pytest.mark.trio
async def test_a_file_system_that_fails_is_not_called_gone(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> None:
        raise OSError(5, "Input/output error")

    looking = Presence(data)
    monkeypatch.setattr(os, "stat", fails)
    assert looking.lost() is None


async def run_and_remove(data: Path, looking: Presence, stop: trio.Event, after_s: float) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looking.run, stop)
        await trio.sleep(after_s)
        shutil.rmtree(data)
        if not after_s:
            stop.set()


@pytest.mark.trio
@pytest.mark.parametrize("stopping", [False, True])
async def test_it_is_noticed_within_its_time(
    data: Path, stopping: bool, autojump_clock: trio.testing.MockClock
) -> None:
    looking, stop = Presence(data), trio.Event()
    if stopping:
        stop.set()
    begun = trio.current_time()
    with pytest.raises(ExceptionGroup) as caught:
        await run_and_remove(data, looking, stop, 10 * LOOK_S)
    failure = find_failure(caught.value)
    assert isinstance(failure, NodeFailure)
    assert "is gone" in failure.sentence
    assert trio.current_time() - begun <= 11 * LOOK_S


@pytest.mark.trio
async def test_a_look_comes_with_the_stop(data: Path, autojump_clock: trio.testing.MockClock) -> None:
    begun = trio.current_time()
    looking, stop = Presence(data), trio.Event()
    with pytest.raises(ExceptionGroup):
        await run_and_remove(data, looking, stop, 0)
    assert trio.current_time() == begun


async def end_with(data: Path, closed: list[str], error: Exception | None, lost: bool) -> None:
    async with AsyncExitStack() as stack:
        stack.callback(closed.append, "disk")
        with unless_lost(Presence(data), stack):
            if lost:
                shutil.rmtree(data)
            if error is not None:
                raise error


@pytest.mark.trio
@pytest.mark.parametrize("error", [None, ExceptionGroup("", [OSError(5, "Input/output error")])])
async def test_nothing_is_closed_when_the_directory_is_lost(data: Path, error: Exception | None) -> None:
    """Whatever failed because of it."""
    closed: list[str] = []
    with pytest.raises(NodeFailure, match="is gone"):
        await end_with(data, closed, error, lost=True)
    assert closed == []


@pytest.mark.trio
async def test_everything_is_closed_when_it_is_there(data: Path) -> None:
    closed: list[str] = []
    with pytest.raises(ValueError, match="another"):
        await end_with(data, closed, ValueError("another"), lost=False)
    assert closed == ["disk"]


def test_what_is_left_open_is_not_closed_by_the_end_of_the_process(tmp_path: Path) -> None:
    """SQLite would copy its log into the database, and remove the log by its name."""
    path = tmp_path / "some.db"
    script = f"""
import sqlite3
from contextlib import AsyncExitStack
from amqpd.datadir.presence import _leave_open
class Disk:
    def __init__(self):
        self.connection = sqlite3.connect({str(path)!r})
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("CREATE TABLE t (x)")
disk = Disk()
if LEAVE: _leave_open(AsyncExitStack(), (disk,))
"""
    for leave in (False, True):
        path.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-c", script.replace("LEAVE", str(leave))], check=True)
        assert (tmp_path / "some.db-wal").exists() == leave
    assert sqlite3.connect(path).execute("SELECT count(*) FROM t").fetchone() == (0,)
