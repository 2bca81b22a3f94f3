"""Footers of a log that the broker's own writer wrote.

What is verified: each of twenty files, missed alone; retention; files of an earlier version, by the statistics of
their columns; a period; footers of any length. Not verified: what follows from ranges (`test_inventory.py`), what a
message's fate is then (`test_log_holes.py`).
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trio
from pyspark.sql import SparkSession

from amqpd.audit.files.edges import Edges
from amqpd.audit.files.retention import Retention
from amqpd_spark import footers
from amqpd_spark.inventory import Inventory, take
from tests.audit.written import Written, files_of

INCARNATIONS, FILES = 2, 10


async def _write(folder: Path) -> None:
    for incarnation in range(1, INCARNATIONS + 1):
        written = Written(folder, incarnation)
        written.now_us += incarnation * 600_000_000
        for number in range(FILES):
            for _ in range(number + 1):
                written.act("a")
            # The last file is what the orderly end writes.
            if number < FILES - 1:
                await written.writer.flush()
            written.now_us += 60_000_000
        await written.writer.aclose()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    trio.run(_write, folder)
    return folder


@pytest.fixture
def log(made: Path, tmp_path: Path) -> list[Path]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return sorted(files_of(tmp_path / "events"), key=lambda path: [int(each) for each in path.stem.split("-")[1:]])


def taken(spark: SparkSession, files: list[Path], since: datetime | None = None) -> Inventory:
    return take(spark, [str(files[0].parents[2])], since)


def lost(found: Inventory) -> list[tuple[int, int, int]]:
    return [(hole.incarnation, hole.first, hole.last) for hole in found.lost]


def ranges(file: Path) -> tuple[int, int, int]:
    rows = pq.read_table(file, columns=["incarnation", "number"], partitioning=None).to_pylist()
    return rows[0]["incarnation"], rows[0]["number"], rows[-1]["number"]


def as_of_an_earlier_version(file: Path) -> None:
    """Without the key of its rows."""
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.replace_schema_metadata({"amqpd.audit.format": "1"}), file)


@pytest.mark.slow
def test_of_twenty_files_each_is_missed(spark: SparkSession, log: list[Path]):
    assert len(log) == INCARNATIONS * FILES
    whole = taken(spark, log)
    assert (whole.holes, whole.removed_rows, whole.edges) == ([], [], ("n",))
    said = sorted((file.incarnation or 0, file.first or 0, file.last or 0) for file in whole.files)
    assert said == [ranges(file) for file in log]
    for file in log:
        data = file.read_bytes()
        gone = ranges(file)
        file.unlink()
        assert lost(taken(spark, log)) == [gone], file
        file.write_bytes(data)


def test_what_retention_took_is_not_missed(spark: SparkSession, log: list[Path]):
    events = log[0].parents[2]
    nbytes = sum(path.stat().st_size for path in log[7:])
    assert Retention(events, 0, nbytes, Edges(events)).apply() == 7
    assert lost(taken(spark, log[7:])) == []
    gone = ranges(log[7])
    log[7].unlink()
    assert lost(taken(spark, log[8:])) == [gone]


def test_files_of_an_earlier_version_have_ranges_too(spark: SparkSession, log: list[Path]):
    for file in log:
        as_of_an_earlier_version(file)
    (log[0].parents[2] / "_log-n.json").unlink()
    assert lost(taken(spark, log)) == []
    gone = ranges(log[4])
    log[4].unlink()
    found = taken(spark, log)
    assert (lost(found), found.unchecked, found.edges) == ([gone], 0, ())


def test_a_period_looks_at_its_own_files(spark: SparkSession, log: list[Path]):
    log[3].unlink()
    assert len(lost(taken(spark, log, datetime(2026, 11, 22, tzinfo=UTC)))) == 1
    later = taken(spark, log, datetime(2030, 1, 1, tzinfo=UTC))
    assert lost(later) == []
    assert len(later.files) == INCARNATIONS


def test_a_footer_longer_than_is_read_at_first(spark: SparkSession, log: list[Path], monkeypatch: pytest.MonkeyPatch):
    as_of_an_earlier_version(log[4])
    found = taken(spark, log)
    assert len(found.files) == INCARNATIONS * FILES
    monkeypatch.setattr(footers, "TAIL", 9)
    assert taken(spark, log).files == found.files
