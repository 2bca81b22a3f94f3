"""Each file of the log says which rows it has, and which the broker did not record before it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from amqpd.audit.files import parquet
from amqpd.audit.files.damage import Reached
from amqpd.audit.files.footer import KEY, rows_in
from amqpd.audit.spool import SpoolBuffer
from tests.audit.disk import Disk
from tests.audit.reading import only, rows_at
from tests.audit.written import Written, files_of

NOON_US = 1_795_348_800_000_000


def said_by(path: Path) -> dict[str, Any]:
    """Held against the rows that are there."""
    said: dict[str, Any] = json.loads(pq.read_metadata(path).metadata[KEY.encode()])
    numbers = [row["number"] for row in rows_at(path)]
    assert numbers == list(range(said["first"], said["last"] + 1))
    assert said["rows"] == len(numbers)
    return said


def all_said(folder: Path) -> list[dict[str, Any]]:
    """Of all files, in the order of their rows."""
    said = [said_by(path) for path in (folder / "events").rglob("*.parquet")]
    return sorted(said, key=lambda each: (each["incarnation"], each["first"]))


@pytest.mark.trio
async def test_a_file_says_its_rows_and_times(tmp_path: Path) -> None:
    written = Written(tmp_path)
    began_us = written.now_us
    written.act("a")
    written.now_us += 1_000_000
    written.act("b")
    await written.writer.flush()
    written.act("c")
    await written.writer.aclose()
    first, second = files_of(tmp_path)
    assert pq.read_metadata(first).metadata[KEY.encode()].decode() == (
        f'{{"node":"n","incarnation":1,"file":1,"first":1,"last":4,"rows":4,"from_us":{began_us},"to_us":{written.now_us}}}'
    )
    found = said_by(second)
    assert (found["file"], found["first"], found["last"], "declared" in found) == (2, 5, 5, False)
    told = rows_in(second)
    assert told is not None
    assert (told.node, told.incarnation, told.file, told.first, told.last, told.declared) == ("n", 1, 2, 5, 5, [])


@pytest.mark.trio
async def test_a_file_of_several_parts_says_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "PART_RECORDS_MAX", 4)
    written = Written(tmp_path)
    for number in range(20):
        written.now_us += 1 if number < 10 else -1
        written.act("a")
    await written.writer.aclose()
    (said,) = all_said(tmp_path)
    assert (said["first"], said["last"], said["to_us"] - said["from_us"]) == (1, 22, 10)


@pytest.mark.trio
async def test_a_block_that_was_cut_off_is_not_among_them(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    written.act("b")
    os.close(written.writer.sink.descriptor)
    path = tmp_path / "spool" / "n-1-1.spool"
    os.truncate(path, path.stat().st_size - 1)
    await Written(tmp_path, 2).writer.aclose()
    old, new = all_said(tmp_path)
    assert (old["incarnation"], old["last"], new["incarnation"], new["first"]) == (1, 3, 2, 1)


@pytest.mark.trio
@pytest.mark.parametrize("drops", [1, 3])
async def test_what_a_full_disk_took_is_declared(tmp_path: Path, disk: Disk, drops: int) -> None:
    written = Written(tmp_path)
    written.act("a")
    disk.space = 10
    for _ in range(drops):
        written.act("lost")
    disk.space = 1 << 20
    written.writer._end_gap()
    await written.writer.aclose()
    before, behind = all_said(tmp_path)
    assert (before["first"], before["last"]) == (1, 3)
    assert behind["declared"] == [[4, 3 + drops]]
    (gap,) = only(written.rows(), "gap")
    detail = json.loads(gap["detail"])
    assert (detail["rows_from"], detail["rows_to"], detail["incarnation"]) == (4, 3 + drops, 1)


@pytest.mark.trio
async def test_a_second_gap_has_rows_of_its_own(tmp_path: Path, disk: Disk) -> None:
    """Also behind a try to go on that failed."""
    written = Written(tmp_path)
    for _ in range(2):
        disk.space = 0
        written.act("lost")
        written.writer._end_gap()
        disk.space = 1 << 20
        written.writer._end_gap()
        written.act("kept")
    await written.writer.aclose()
    files = all_said(tmp_path)
    ranges = [[each["first"], each["last"]] for each in files]
    assert [each.get("declared") for each in files] == [
        None,
        [[ranges[0][1] + 1, ranges[1][0] - 1]],
        [[ranges[1][1] + 1, ranges[2][0] - 1]],
    ]
    for gap, each in zip(only(written.rows(), "gap"), files[1:], strict=True):
        detail = json.loads(gap["detail"])
        assert [[detail["rows_from"], detail["rows_to"]]] == each["declared"]


@pytest.mark.trio
async def test_a_gap_without_rows_declares_none(tmp_path: Path, disk: Disk) -> None:
    """No new file can be made, and nothing was to be written meanwhile."""
    written = Written(tmp_path)
    written.act("a")
    disk.takes_files = False
    written.writer._rotate()
    disk.takes_files = True
    written.writer._end_gap()
    await written.writer.aclose()
    assert ["declared" in each for each in all_said(tmp_path)] == [False, False]
    assert "rows_from" not in only(written.rows(), "gap")[0]["detail"]


@pytest.mark.trio
async def test_what_an_incarnation_dropped_is_declared_by_the_next_one_too(tmp_path: Path, disk: Disk) -> None:
    """That finds the file in the spool, and knows nothing of the one before."""
    written = Written(tmp_path)
    written.act("a")
    await written.writer.flush()
    disk.space = 0
    written.act("lost")
    disk.space = 1 << 20
    written.writer._end_gap()
    os.close(written.writer.sink.descriptor)
    await Written(tmp_path, 2).writer.aclose()
    assert [each.get("declared") for each in all_said(tmp_path)] == [None, [[4, 4]], None]


@pytest.mark.trio
async def test_damage_in_the_spool_is_declared(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    written.act("b")
    written.act("c")
    written.writer._rotate()
    path = tmp_path / "spool" / "n-1-1.spool"
    data = path.read_bytes()
    at = data.index(b'"b"')
    path.write_bytes(data[:at] + b'"?"' + data[at + 3 :])
    written.act("d")
    await written.writer.flush()
    await written.writer.aclose()
    damaged, behind, _ = all_said(tmp_path)
    assert (damaged["last"], behind["first"], behind["declared"]) == (3, 6, [[4, 5]])
    detail = json.loads(only(written.rows(), "gap")[0]["detail"])
    assert (detail["incarnation"], detail["rows_from"]) == (1, 4)


@pytest.mark.trio
async def test_rows_of_a_spool_file_that_is_gone_are_declared(tmp_path: Path) -> None:
    """The first one of its incarnation, too."""
    written = Written(tmp_path)
    written.act("a")
    written.writer._rotate()
    (tmp_path / "spool" / "n-1-1.spool").unlink()
    written.act("b")
    written.writer._rotate()
    written.act("c")
    written.writer._rotate()
    (tmp_path / "spool" / "n-1-3.spool").unlink()
    written.act("d")
    await written.writer.flush()
    await written.writer.aclose()
    declared = [each.get("declared") for each in all_said(tmp_path)]
    assert declared[:2] == [[[1, 3]], [[5, 5]]]
    gaps = [json.loads(row["detail"]) for row in only(written.rows(), "gap")]
    assert [(each["rows_from"], each["incarnation"]) for each in gaps] == [(1, 1), (5, 1)]


@pytest.mark.trio
async def test_rows_that_a_spool_file_lost_at_its_end_are_declared(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.act("a")
    begun = written.writer.sink.size
    written.act("b")
    written.writer._rotate()
    os.truncate(tmp_path / "spool" / "n-1-1.spool", begun)
    written.act("c")
    await written.writer.flush()
    await written.writer.aclose()
    assert [each.get("declared") for each in all_said(tmp_path)] == [None, [[4, 4]], None]
    detail = json.loads(only(written.rows(), "gap")[0]["detail"])
    assert (detail["rows_from"], detail["rows_to"], detail["incarnation"]) == (4, 4, 1)


def test_what_was_missing_before_a_full_disk_is_told_apart(tmp_path: Path) -> None:
    buffer, reached = SpoolBuffer(), Reached({("n", 1): 2})
    for _ in range(10):
        buffer.act({"event": "bound", "time": NOON_US})
    buffer.drop()
    detail = json.dumps({"rows_from": 7, "rows_to": 10, "incarnation": 1})
    buffer.act({"event": "gap", "time": NOON_US, "reason": "disk_full", "detail": detail})
    spool = tmp_path / "n-1-5.spool"
    spool.write_bytes(buffer.take())
    path = parquet.convert(spool, tmp_path, reached)
    assert path is not None
    assert said_by(path)["declared"] == [[3, 6], [7, 10]]
    assert reached.missing == (3, 6)


def test_a_file_of_an_earlier_version_says_it_by_its_numbers(tmp_path: Path) -> None:
    buffer = SpoolBuffer()
    for _ in range(3):
        buffer.act({"event": "bound", "time": NOON_US})
    spool = tmp_path / "a-node-4-2.spool"
    spool.write_bytes(buffer.take())
    path = parquet.convert(spool, tmp_path)
    assert path is not None
    pq.write_table(pq.ParquetFile(path).read().replace_schema_metadata({"amqpd.audit.format": "1"}), path)
    rows = rows_in(path)
    assert rows is not None
    assert (rows.node, rows.incarnation, rows.file, rows.first, rows.last, rows.rows) == ("a-node", 4, 2, 1, 3, 3)
    path.write_bytes(b"PAR1")
    assert rows_in(path) is None
