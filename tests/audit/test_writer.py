"""Spool files on a real disk: when one is finished, what is left for the next start, a disk without space.

The clock is trio's; a disk without space is one that says so at its first write.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from amqpd.audit.coverage.coverage import Coverage
from amqpd.audit.files import parquet, writer
from amqpd.audit.files.retention import Retention
from amqpd.audit.files.writer import LOOK_S, SUFFIX
from amqpd.setting_types import KIB
from amqpd.vocabulary.audit_levels import OFF
from tests.audit.disk import Disk
from tests.audit.reading import only, told
from tests.audit.written import Written, files_of

pytestmark = pytest.mark.trio

BEGUN = [("started", None, None), ("standing", "recovered", None)]
"""event, reason and object of an incarnation's first rows"""


async def run_for(written: Written, seconds: float) -> None:
    """And until what was finished meanwhile is Parquet."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(written.writer.run)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    while written.writer._finished:
        assert await written.writer._convert_next()


async def test_a_flush_turns_everything_until_now_into_files(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    written.act("b", record=False)
    assert await written.writer.flush() == 0
    assert written.objects() == ["a", "b"]
    assert written.spool() == ["n-1-2.spool"]
    assert await written.writer.flush() == 0
    assert (written.writer.files, written.spool()) == (1, ["n-1-2.spool"]), "nothing new, so no new file"


async def test_a_file_is_finished_when_it_is_old_enough(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    written = Written(tmp_path, file_seconds=30)
    written.act("a")
    await run_for(written, 29)
    assert written.objects() == []
    await run_for(written, 3)
    assert written.objects() == ["a"]


async def test_a_file_is_finished_when_it_is_large_enough(tmp_path: Path) -> None:
    written = Written(tmp_path, spool_bytes=64 * KIB)
    for number in range(70):
        written.act(f"{number:01000}")
    assert written.spool() == ["n-1-1.spool", "n-1-2.spool"]
    await written.writer.aclose()
    assert [int(each) for each in written.objects()] == list(range(70))
    assert written.spool() == []


async def test_what_was_done_between_two_ticks_does_not_hinder_a_new_file(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    written = Written(tmp_path, file_seconds=5)
    written.act("a")
    written.act("b", record=False)
    await run_for(written, 7)
    assert written.objects() == ["a", "b"]


async def test_what_comes_after_a_record_has_a_time_of_its_own(tmp_path: Path) -> None:
    """Not that of the tick before, however long ago it was."""
    written = Written(tmp_path)
    for _ in range(2):
        written.act("a", record=False)
        written.now_us += 250_000
        written.act("b")
    await written.writer.aclose()
    times = [row["time"] for row in only(written.rows(), "bound")]
    assert [(time - times[0]).total_seconds() for time in times] == [0, 0, 0.25, 0.25]


async def test_spool_files_of_earlier_incarnations_are_finished_first(tmp_path: Path) -> None:
    for incarnation in (2, 10):
        written = Written(tmp_path, incarnation)
        written.act(f"incarnation {incarnation}")
        os.close(written.writer.sink.descriptor)
    (tmp_path / "spool" / "notes.spool").write_text("not ours")
    (tmp_path / "events" / ".n-1-1.parquet.tmp").write_text("half of one")
    written = Written(tmp_path, 11)
    assert [path.name for path in written.writer._finished] == ["n-2-1.spool", "n-10-1.spool"]
    written.act("incarnation 11")
    await written.writer.aclose()
    assert told(only(written.rows(), "bound"), "incarnation", "object") == [
        (incarnation, f"incarnation {incarnation}") for incarnation in (2, 10, 11)
    ]
    assert written.spool() == ["notes.spool"]
    assert not (tmp_path / "events" / ".n-1-1.parquet.tmp").exists()


@pytest.mark.parametrize("space", [0, 10, 40])
async def test_a_full_disk_makes_a_gap_that_the_log_tells_of(tmp_path: Path, disk: Disk, space: int) -> None:
    written = Written(tmp_path)
    written.act("before")
    disk.space = space
    written.act("lost")
    written.act("lost too")
    assert written.writer.full
    assert written.writer.status()["gap_since"]
    written.writer._end_gap()
    assert written.writer.full, "there is no space yet"
    disk.space = 1 << 20
    written.writer._end_gap()
    assert not written.writer.full
    written.act("behind")
    await written.writer.aclose()
    found = told(written.rows(), "event", "reason", "object")
    gap, anchor = ("gap", "disk_full", None), ("standing", "gap", None)
    assert found == [*BEGUN, ("bound", None, "before"), gap, anchor, ("bound", None, "behind")]
    (row,) = only(written.rows(), "gap")
    detail = json.loads(row["detail"])
    assert set(detail) == {"from", "error", "rows_from", "rows_to", "incarnation"}
    assert (detail["rows_from"], detail["rows_to"], detail["incarnation"], row["number"]) == (
        4,
        row["number"] - 1,
        1,
        8,
    )
    assert written.alarms == [], "messages go on"


async def test_the_writer_looks_by_itself_whether_there_is_space_again(
    tmp_path: Path, disk: Disk, autojump_clock: trio.testing.MockClock
) -> None:
    written = Written(tmp_path, on_full="stop")
    disk.space = 0
    written.act("lost")
    assert written.alarms == [True]
    await run_for(written, 5 * LOOK_S)
    assert written.alarms == [True]
    disk.space = 1 << 20
    written.act("lost between two ticks", record=False)
    await run_for(written, 2 * LOOK_S)
    assert written.alarms == [True, False]
    await written.writer.aclose()
    assert told(written.rows(), "event") == [("started",), ("standing",), ("gap",), ("standing",)]


async def test_a_flush_in_a_gap_keeps_its_beginning(tmp_path: Path, disk: Disk) -> None:
    written = Written(tmp_path, on_full="stop")
    disk.space = 0
    written.act("lost")
    since = written.writer.status()["gap_since"]
    assert await written.writer.flush() == 0
    assert (written.writer.status()["gap_since"], written.alarms) == (since, [True])
    disk.space = 1 << 20
    assert await written.writer.flush() == 0
    (gap,) = only(written.rows(), "gap")
    assert json.loads(gap["detail"])["from"] == since


async def test_the_next_incarnation_knows_of_a_gap_that_the_last_one_ended_in(tmp_path: Path, disk: Disk) -> None:
    written = Written(tmp_path)
    assert written.writer.left_gap is None
    disk.space = 0
    written.act("lost")
    await written.writer.aclose()
    disk.space = 1 << 20
    assert Written(tmp_path, 2).writer.left_gap
    assert Written(tmp_path, 3).writer.left_gap is None, "it is told once"


async def test_a_gap_that_is_over_is_not_left(tmp_path: Path, disk: Disk) -> None:
    written = Written(tmp_path)
    disk.space = 0
    written.act("lost")
    disk.space = 1 << 20
    written.writer._end_gap()
    await written.writer.aclose()
    assert Written(tmp_path, 2).writer.left_gap is None


def full_at_the_start(folder: Path, disk: Disk, where: str, **settings: Any) -> Written:
    """`where`: what finds no space."""
    written = Written(folder, begin=False, **settings)
    if where == "incarnation":
        written.no_incarnation = OSError(errno.ENOSPC, "No space left on device")
    elif where == "file":
        disk.takes_files = False
    else:
        disk.space = 0 if where == "rows" else 10
    written.writer.begin()
    return written


def make_space(written: Written, disk: Disk) -> None:
    written.no_incarnation, disk.takes_files, disk.space = None, True, 1 << 20


@pytest.mark.parametrize("where", ["incarnation", "file", "rows", "half of the rows"])
async def test_a_disk_that_is_full_at_the_start_makes_a_gap_from_there_on(
    tmp_path: Path, disk: Disk, where: str, autojump_clock: trio.testing.MockClock
) -> None:
    written = full_at_the_start(tmp_path, disk, where, on_full="stop")
    assert (written.writer.full, written.alarms) == (True, [True])
    since = written.writer.status()["gap_since"]
    written.act("lost")
    await run_for(written, 3 * LOOK_S)
    assert (written.writer.full, written.alarms) == (True, [True])
    make_space(written, disk)
    written.act("lost between two ticks", record=False)
    await run_for(written, 2 * LOOK_S)
    assert (written.writer.full, written.alarms) == (False, [True, False])
    written.act("behind")
    await written.writer.aclose()
    found = told(written.rows(), "event", "reason", "object")
    began, gap, anchor = ("started", None, None), ("gap", "disk_full", None), ("standing", "gap", None)
    assert found == [began, gap, anchor, ("bound", None, "behind")]
    detail = json.loads(only(written.rows(), "gap")[0]["detail"])
    began_at = only(written.rows(), "started")[0]["number"]
    lost = {"rows_from": 1, "rows_to": began_at - 1, "incarnation": 1}
    assert detail == {"from": since, "error": "No space left on device", **lost}
    assert written.spool() == [], "nothing is left of the tries, nor of the gap"


@pytest.mark.parametrize("where", ["incarnation", "file", "rows"])
async def test_an_incarnation_s_number_is_on_disk_before_its_first_file(
    tmp_path: Path, disk: Disk, where: str
) -> None:
    written = full_at_the_start(tmp_path, disk, where)
    for _ in range(3):
        written.writer._end_gap()
    make_space(written, disk)
    written.writer._end_gap()
    assert not written.writer.full
    # Tried until it succeeds, and not again.
    assert len(written.incarnations) == (5 if where == "incarnation" else 1)
    assert all(SUFFIX not in "".join(files) for files in written.incarnations)
    await written.writer.aclose()


async def test_the_start_is_told_once(tmp_path: Path, disk: Disk) -> None:
    written = full_at_the_start(tmp_path, disk, "rows")
    make_space(written, disk)
    written.writer._end_gap()
    disk.space = 0
    written.act("lost")
    make_space(written, disk)
    written.writer._end_gap()
    await written.writer.aclose()
    assert told(written.rows(), "event") == [("started",), *2 * [("gap",), ("standing",)]]


@pytest.mark.parametrize("where", ["incarnation", "file", "rows"])
@pytest.mark.parametrize("error", [errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO])
async def test_only_want_of_space_at_the_start_is_a_gap(tmp_path: Path, disk: Disk, where: str, error: int) -> None:
    disk.error = error
    written = Written(tmp_path, begin=False)
    if where == "incarnation":
        written.no_incarnation = OSError(error, "no")
    disk.takes_files, disk.space = where != "file", 0 if where == "rows" else 1 << 20
    if error == errno.EDQUOT:
        written.writer.begin()
        assert written.writer.full
    else:
        with pytest.raises(OSError, match=f"Errno {error}"):
            written.writer.begin()


async def test_a_gap_that_goes_on_over_a_start_keeps_its_beginning(tmp_path: Path, disk: Disk) -> None:
    first = Written(tmp_path)
    disk.space = 0
    first.act("lost")
    gap = tmp_path / "spool" / "gap"
    os.utime(gap, (1_795_000_000, 1_795_000_000))
    # Two more incarnations begin and are killed in it.
    for _ in range(2):
        written = full_at_the_start(tmp_path, disk, "incarnation", incarnation=2)
        assert written.writer.left_gap == "2026-11-18T11:06:40.000+00:00"
        assert gap.exists()
    make_space(written, disk)
    written.writer._end_gap()
    assert not gap.exists(), "it is in the log"


async def test_a_gap_that_was_left_is_known_until_it_is_in_the_log(tmp_path: Path, disk: Disk) -> None:
    first = Written(tmp_path)
    disk.space = 0
    first.act("lost")
    second = Written(tmp_path, 2, begin=False)
    second.no_incarnation = PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(PermissionError):
        second.writer.begin()
    make_space(first, disk)
    assert Written(tmp_path, 2).writer.left_gap
    assert Written(tmp_path, 3).writer.left_gap is None


async def test_without_anything_to_record_no_files_are_written(tmp_path: Path) -> None:
    written = Written(tmp_path, begin=False)
    Coverage(written.recorder, OFF)
    written.writer.begin()
    assert written.writer.status()["spool_bytes"] == 0
    await written.writer.aclose()
    assert (written.rows(), written.spool(), len(written.incarnations)) == ([], [], 1)


@pytest.mark.parametrize("where", ["pq.ParquetWriter.write_table", "_rename_durably"])
async def test_a_file_that_cannot_be_written_waits_in_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    written = Written(tmp_path)
    written.act("a")
    with monkeypatch.context() as patch:
        patch.setattr(f"amqpd.audit.files.parquet.{where}", no_room)
        assert await written.writer.flush() == 1
    assert written.spool() == ["n-1-1.spool", "n-1-2.spool"]
    assert await written.writer.flush() == 0
    assert written.objects() == ["a"]


async def test_a_file_that_cannot_be_read_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would end the broker, and the next one too."""
    written = Written(tmp_path)
    written.act("a")
    with monkeypatch.context() as patch:
        patch.setattr("amqpd.audit.files.parquet.SCHEMA", None)
        assert await written.writer.flush() == 0
    written.act("b")
    await written.writer.aclose()
    assert written.objects() == ["b"]
    assert written.spool() == ["n-1-1.spool.damaged"]


def flip(path: Path, at: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])


async def test_damage_in_the_spool_is_set_aside_and_said_as_a_gap(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    written.writer._rotate()
    written.act("b")
    path = tmp_path / "spool" / "n-1-1.spool"
    flip(path, path.stat().st_size - 1)
    assert await written.writer.flush() == 0
    written.act("c")
    await written.writer.aclose()
    assert written.spool() == ["n-1-1.spool.damaged"]
    gap, anchor = ("gap", "damaged", None), ("standing", "gap", None)
    found = told(written.rows(), "event", "reason", "object")
    assert found == [*BEGUN, ("bound", None, "b"), gap, anchor, ("bound", None, "c")]
    detail = json.loads(only(written.rows(), "gap")[0]["detail"])
    assert detail["file"] == "n-1-1.spool.damaged"
    assert "is not what was written" in detail["error"]


async def test_a_spool_file_that_lost_its_end_is_said_as_a_gap(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    begun = written.writer.sink.size
    written.act("b")
    written.writer._rotate()
    os.truncate(tmp_path / "spool" / "n-1-1.spool", begun)
    written.act("c")
    written.writer._rotate()
    await written.writer.convert_finished()
    await written.writer.aclose()
    found = told(written.rows(), "event", "reason", "object")
    rest = [("bound", None, "c"), ("gap", "damaged", None), ("standing", "gap", None)]
    assert found == [*BEGUN, ("bound", None, "a"), *rest]
    assert "1 rows before it are missing" in only(written.rows(), "gap")[0]["detail"]


async def test_a_spool_file_that_is_gone_holds_nothing_up(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    written.writer._rotate()
    (tmp_path / "spool" / "n-1-1.spool").unlink()
    written.act("b")
    assert await written.writer.flush() == 0
    await written.writer.aclose()
    assert told(written.rows(), "event", "object")[:2] == [("bound", "b"), ("gap", None)]


async def test_damage_that_is_found_without_space_is_told_of_later(tmp_path: Path, disk: Disk) -> None:
    written = Written(tmp_path)
    written.act("a")
    written.writer._rotate()
    flip(tmp_path / "spool" / "n-1-1.spool", 0)
    disk.space = 0
    written.act("lost")
    await written.writer.convert_finished()
    disk.space = 1 << 20
    written.writer._end_gap()
    await written.writer.aclose()
    assert told(written.rows(), "event", "reason") == [
        *(("gap", "disk_full"), ("gap", "damaged"), ("standing", "gap")),
    ]


async def test_old_files_that_cannot_be_removed_do_not_hold_new_ones_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_: Retention) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Retention, "apply", refuses)
    written = Written(tmp_path)
    for word in "ab":
        written.act(word)
        assert await written.writer.flush() == 0
    assert written.objects() == ["a", "b"]


async def test_the_end_leaves_what_is_much_to_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "END_BYTES_MAX", 10_000)
    written = Written(tmp_path)
    written.act("a" * 20_000)
    written.writer.hurry(60)
    await written.writer.aclose()
    assert written.spool() == ["n-1-1.spool"]
    assert written.objects() == []
    following = Written(tmp_path, incarnation=2)
    following.act("b")
    following.writer.hurry(60)
    await following.writer.aclose()
    assert following.spool() == ["n-1-1.spool", "n-2-1.spool"], "both are left: together they are much"
    last = Written(tmp_path, incarnation=3)
    await last.writer.flush()
    assert [word[0] for word in last.objects()] == ["a", "b"]


async def test_the_end_makes_what_is_little_parquet(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    written.writer.hurry(60)
    await written.writer.aclose()
    assert (written.objects(), written.spool()) == (["a"], [])


async def test_a_conversion_that_is_under_way_is_given_up_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took half a minute, while containers kill after ten seconds."""
    monkeypatch.setattr(writer, "END_BYTES_MAX", 10_000)
    written = Written(tmp_path)
    for _ in range(50):
        written.act("a" * 1000)
    begun, go_on = threading.Event(), threading.Event()
    table_of: Any = vars(parquet)["table_of"]

    def slowly(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return table_of(*given)

    monkeypatch.setattr(parquet, "table_of", slowly)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(written.writer.flush)
        await trio.to_thread.run_sync(begun.wait)
        written.writer.hurry(60)
        go_on.set()
    assert files_of(tmp_path / "events", "*") == [], "neither a file, nor half of one"
    monkeypatch.setattr(parquet, "table_of", table_of)
    following = Written(tmp_path, incarnation=2)
    await following.writer.flush()
    assert len(following.objects()) == 50
