"""How far the log reaches, in `_log-<node>.json`: after files, ends, retention, kills, damage."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import trio.testing

from amqpd.audit.files import parquet
from amqpd.audit.files.edges import Edges
from amqpd.audit.files.retention import Retention
from amqpd.backup.progress import Progress
from amqpd.checking.check import check_audit
from amqpd.checking.report import Report
from tests.audit.disk import Disk
from tests.audit.written import Written, files_of

pytestmark = pytest.mark.trio


def known(folder: Path, node: str = "n") -> dict[str, Any]:
    """Its checksum fits."""
    found: dict[str, Any] = json.loads((folder / "events" / f"_log-{node}.json").read_text())
    assert found.pop("crc") == crc32(json.dumps(found).encode())
    assert (found.pop("format"), found.pop("node")) == (1, node)
    return found


def reach(last: int, ended: bool = False) -> dict[str, Any]:
    return {"last": last, "ended": ended}


async def written_incarnations(folder: Path, incarnations: int, files: int = 2) -> None:
    """Each of `files` files with three and then one row, and an end in order."""
    for incarnation in range(1, incarnations + 1):
        written = Written(folder, incarnation)
        for _ in range(files):
            written.act("a")
            await written.writer.flush()
        await written.writer.aclose()


def remove_up_to(folder: Path, kept: int, space: Edges | None = None) -> int:
    """By size, so that this many files stay."""
    events = folder / "events"
    files = sorted(events.rglob("*.parquet"), key=lambda path: [int(each) for each in path.stem.split("-")[1:]])
    nbytes = sum(path.stat().st_size for path in files[len(files) - kept :])
    return Retention(events, 0, max(1, nbytes), space or Edges(events)).apply()


async def test_it_says_the_last_row_of_each_incarnation_and_whether_it_ended(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    assert not files_of(tmp_path, "_log*"), "there is no file yet"
    await written.writer.flush()
    assert known(tmp_path) == {"incarnations": {"1": reach(3)}, "removed": None, "from": "broker"}
    written.act("b")
    await written.writer.aclose()
    assert known(tmp_path)["incarnations"] == {"1": reach(4, True)}
    written = Written(tmp_path, 2)
    await written.writer.flush()
    assert known(tmp_path)["incarnations"] == {"1": reach(4, True), "2": reach(2)}


async def test_an_incarnation_that_was_killed_did_not_end(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    os.close(written.writer.sink.descriptor)
    await Written(tmp_path, 2).writer.aclose()
    assert known(tmp_path)["incarnations"] == {"1": reach(3), "2": reach(2, True)}


async def test_an_incarnation_whose_rows_wait_in_the_spool_did_not_end(tmp_path: Path, disk: Disk) -> None:
    written = Written(tmp_path)
    await written.writer.flush()
    disk.space = 0
    written.act("lost")
    await written.writer.aclose()
    assert known(tmp_path)["incarnations"] == {"1": reach(2)}


async def test_a_kill_behind_a_file_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is there, the spool file too, and nothing says how far it reaches."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    written = Written(tmp_path)
    written.act("a")
    with monkeypatch.context() as patch:
        patch.setattr(Edges, "grown", killed)
        with pytest.raises(KeyboardInterrupt):
            await written.writer.flush()
    assert [path.name for path in files_of(tmp_path)] == ["n-1-1.parquet"]
    assert (tmp_path / "spool" / "n-1-1.spool").exists()
    await Written(tmp_path, 2).writer.aclose()
    assert known(tmp_path)["incarnations"] == {"1": reach(3), "2": reach(2, True)}
    assert len(files_of(tmp_path)) == 2


@pytest.mark.parametrize(
    ("kept", "removed", "incarnations"),
    [
        (4, None, "12"),
        (3, (1, 3), "12"),
        (2, (1, 4), "2"),
        (1, (2, 3), "2"),
        (0, (2, 4), ""),
    ],
)
async def test_it_says_how_far_retention_went(
    tmp_path: Path, kept: int, removed: tuple[int, int] | None, incarnations: str
) -> None:
    """What is wholly below is said no more."""
    await written_incarnations(tmp_path, 2)
    assert remove_up_to(tmp_path, kept) == 4 - kept
    found = known(tmp_path)
    assert found["removed"] == (removed and {"incarnation": removed[0], "last": removed[1]})
    assert "".join(found["incarnations"]) == incarnations


async def test_old_files_go_as_they_were_written(tmp_path: Path) -> None:
    """The eleventh behind the second, though its name is before it."""
    await written_incarnations(tmp_path, 1, files=12)
    for kept in range(11, 0, -1):
        assert remove_up_to(tmp_path, kept) == 1
        assert known(tmp_path)["removed"]["last"] == 14 - kept
        left = {int(path.stem.split("-")[2]) for path in files_of(tmp_path)}
        assert left == set(range(13 - kept, 13))


async def test_it_is_said_before_a_file_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    await written_incarnations(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Retention, "_remove", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_up_to(tmp_path, 1)
    assert known(tmp_path)["removed"] == {"incarnation": 1, "last": 3}
    assert len(files_of(tmp_path)) == 2, "and are older than the edge"


async def test_without_space_old_files_go_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are what takes the space."""
    await written_incarnations(tmp_path, 1)
    fsync = os.fsync
    full = [OSError(28, "No space left on device")]

    def on_full_disk(descriptor: int) -> None:
        if full:
            raise full.pop()
        fsync(descriptor)

    monkeypatch.setattr("amqpd.audit.files.edges.os.fsync", on_full_disk)
    assert remove_up_to(tmp_path, 1) == 1
    assert known(tmp_path)["removed"] == {"incarnation": 1, "last": 3}


@pytest.mark.parametrize("damage", ["missing", "garbage", "checksum", "newer", "folder"])
async def test_it_is_made_from_the_files_again(
    tmp_path: Path, damage: str, autojump_clock: trio.testing.MockClock
) -> None:
    """At the next start; what is not there then is held against nobody."""
    await written_incarnations(tmp_path, 3)
    path = tmp_path / "events" / "_log-n.json"
    said = json.loads(path.read_text())
    remove_up_to(tmp_path, 5)
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        said |= {"crc": 1} if damage == "checksum" else {"format": 2}
        path.write_text("{" if damage == "garbage" else json.dumps(said))
    files_of(tmp_path, "n-3-2.parquet")[0].unlink()
    written = Written(tmp_path, 4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(written.writer.run)
        await trio.sleep(0.5)
        while not path.is_file():
            await trio.testing.wait_all_tasks_blocked()
            await trio.to_thread.run_sync(lambda: None)
        nursery.cancel_scope.cancel()
    again = known(tmp_path)
    again["incarnations"].pop("4", None)  # this one's own, if a file of it was written by then
    assert again == {
        "incarnations": {"1": reach(4), "2": reach(4), "3": reach(3)},
        "removed": {"incarnation": 1, "last": 3},
        "from": "files",
    }
    await written.writer.aclose()
    found = known(tmp_path)
    assert (found["incarnations"]["4"], found["from"]) == (reach(2, True), "files")
    assert len(files_of(tmp_path, "_log-n.json.damaged")) == (damage != "missing")


async def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    await written_incarnations(tmp_path, 1)
    (tmp_path / "events" / "_log-n.json").unlink()
    files_of(tmp_path, "n-1-2.parquet")[0].write_bytes(b"damaged")
    Edges(tmp_path / "events").begin("n")
    assert known(tmp_path)["incarnations"] == {"1": reach(3)}


async def test_nodes_of_other_names_have_their_own(tmp_path: Path) -> None:
    """The node was called something else in earlier incarnations."""
    await written_incarnations(tmp_path, 1)
    events = tmp_path / "events"
    for path in events.rglob("*.parquet"):
        path.rename(path.with_name(path.name.replace("n-", "former-")))
    (events / "_log-n.json").unlink()
    written = Written(tmp_path, 2)
    await written.writer.aclose()
    assert known(tmp_path)["incarnations"] == {"2": reach(2, True)}
    assert known(tmp_path)["from"] == "broker"
    old = datetime.now(UTC) + timedelta(days=1000)
    Retention(events, 1, 0, Edges(events)).apply(old)
    assert known(tmp_path, "former")["removed"] is not None


async def test_what_it_cannot_write_holds_no_file_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    written = Written(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("amqpd.audit.files.edges.os.fsync", full)
        patch.setattr(parquet, "_rename_durably", lambda temporary, path: temporary.rename(path))
        assert await written.writer.flush() == 0
    assert not files_of(tmp_path, "_log-n.json")
    written.act("a")
    await written.writer.flush()
    assert known(tmp_path)["incarnations"] == {"1": reach(3)}


async def test_a_check_says_when_it_is_damaged(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    audit.mkdir()
    await written_incarnations(audit, 1)
    for finds in (False, True):
        report = Report()
        check_audit(tmp_path, report, Progress(), quick=True)
        assert [each.file for each in report.findings if each.kind == "audit edges"] == [
            "audit/events/_log-n.json"
        ] * finds
        path = audit / "events" / "_log-n.json"
        path.write_text(path.read_text().replace('"last": 4', '"last": 5'))
    assert len(files_of(tmp_path, "_log-n.json")) == 1, "it changes nothing"
