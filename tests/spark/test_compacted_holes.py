"""Rows that were lost from a log before it was compacted, or afterwards, or beside files of others: they are named.

What is verified: by what `compact` writes and footers say; lost files and rows taken out of files, hours that were
compacted beside files of a broker, files that somebody added. Not verified: ranges (`test_inventory.py`), histories
around holes (`test_conservation_holes.py`).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from amqpd_spark.__main__ import main
from amqpd_spark.inventory import take
from tests.spark.log import Log
from tests.spark.test_conservation import rows_of

HOURS, STRETCHES = 4, 30
ROWS_PER_HOUR = STRETCHES * 5
"""published, routed, confirmed, delivered, acked"""
ROWS_PER_FILE = 50


def called(job: str, source: Path, target: Path, *options: str) -> Result:
    arguments = [job, "--input", str(source), "--output", str(target), *options]
    answer = CliRunner().invoke(main, arguments)
    assert answer.exit_code in (0, 1), (answer.output, answer.exception)
    return answer


def make(folder: Path) -> Log:
    """Twelve files of four hours, each row in order; nothing is missing."""
    log = Log(folder / "events")
    queue: dict[str, Any] = {"queue": "q", "queue_id": 1}
    for hour in range(HOURS):
        for stretch in range(STRETCHES):
            first, at = hour * STRETCHES + stretch, hour * 3600 + stretch * 60
            sent: dict[str, Any] = {
                "publication": first + 1,
                "confirm_tag": first + 1,
                "connection": "c",
                "channel": 1,
            }
            log.add("started" if first == 0 else "published", at, **({} if first == 0 else sent))
            log.add("routed", at, **(queue | sent), first=first, persistent=True)
            log.add("confirmed", at, **sent)
            log.add("delivered", at, **queue, first=first)
            log.add("acked", at, **queue, first=first)
    log.write_as_broker(rows_per_file=ROWS_PER_FILE)
    return log


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log, and in `small` and `large` what `compact` made of it: several files for an hour, and one."""
    folder = tmp_path_factory.mktemp("log")
    make(folder)
    called("compact", folder / "events", folder / "large")
    called("compact", folder / "events", folder / "small", "--rows-per-file", "60")
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path


def found(spark: SparkSession, source: Path) -> list[tuple[str, int, int]]:
    """What is wrong with the log itself: kind and rows."""
    inventory = take(spark, [str(source)])
    said = [("log_hole", hole.first, hole.last) for hole in inventory.lost]
    return sorted(said + [("rows_removed", each.first, each.last) for each in inventory.removed_rows])


def account(source: Path) -> tuple[int, list[tuple[str, int]]]:
    """As `conservation` says it: exit code; kind and first number of each finding."""
    answer = called("conservation", source, source.parent / "out")
    findings = rows_of(source.parent / "out" / "findings")
    return answer.exit_code, sorted((row["kind"], row["rows_from"] or row["first"]) for row in findings)


def hour(source: Path, which: int) -> Path:
    return source / "date=2026-11-22" / f"hour={5 + which:02}"


def numbers(file: Path) -> list[int]:
    return sorted(pq.ParquetFile(file).read(["number"])["number"].to_pylist())


def put(table: pa.Table, file: Path) -> None:
    """In place of a file, and without the checksum that Hadoop keeps beside it."""
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    at = table.schema.get_field_index("time")
    # Spark's own times are of another type, which nobody else writes.
    pq.write_table(table.set_column(at, "time", table["time"].cast(pa.timestamp("us", tz="UTC"))), file)


def change(file: Path, event: str, first: int) -> int:
    """Take one row out; its number."""
    table = pq.ParquetFile(file).read()
    rows = table.to_pylist()
    (at,) = [at for at, row in enumerate(rows) if (row["event"], row["first"]) == (event, first)]
    put(table.take([each for each in range(len(rows)) if each != at]), file)
    return int(rows[at]["number"])


@pytest.mark.parametrize("made", ["large", "small"])
def test_of_a_whole_log_nothing_is_said(spark: SparkSession, folder: Path, made: str):
    assert found(spark, folder / made) == []


def test_a_file_that_was_lost_before(spark: SparkSession, folder: Path):
    (lost,) = (folder / "events").rglob("n1-1-5.parquet")
    gone = numbers(lost)
    lost.unlink()
    answer = called("compact", folder / "events", folder / "again")
    assert "1 ranges of rows are in no file of the input" in answer.output
    assert found(spark, folder / "again") == [("log_hole", gone[0], gone[-1])]


@pytest.mark.parametrize("which", range(HOURS))
def test_a_file_of_an_hour_that_was_lost_afterwards(spark: SparkSession, folder: Path, which: int):
    (lost,) = hour(folder / "large", which).glob("*.parquet")
    gone = numbers(lost)
    lost.unlink()
    assert found(spark, folder / "large") == [("log_hole", gone[0], gone[-1])]


def test_an_hour_s_folder_that_was_lost(spark: SparkSession, folder: Path):
    shutil.rmtree(hour(folder / "large", HOURS - 1))
    last = HOURS * ROWS_PER_HOUR
    assert found(spark, folder / "large") == [("log_hole", last - ROWS_PER_HOUR + 1, last)]


def test_one_of_several_files_of_an_hour_is_all_its_rows(spark: SparkSession, folder: Path):
    lost = max(hour(folder / "small", 1).glob("*.parquet"))
    gone = set(numbers(lost))
    lost.unlink()
    said = found(spark, folder / "small")
    assert {kind for kind, _, _ in said} == {"log_hole"}
    assert {number for _, low, high in said for number in range(low, high + 1)} == gone


@pytest.mark.parametrize("made", ["large", "small"])
def test_a_row_that_was_taken_out_afterwards_excuses_nothing(spark: SparkSession, folder: Path, made: str):
    for file in hour(folder / made, 2).glob("*.parquet"):
        table = pq.ParquetFile(file).read()
        ends = {row["first"] for row in table.to_pylist() if row["event"] == "acked"}
        if 2 * STRETCHES + 3 in ends:
            change(file, "acked", 2 * STRETCHES + 3)
            changed = file
    rows = numbers(changed)
    assert found(spark, folder / made) == [("rows_removed", rows[0], rows[-1])]


@pytest.mark.slow
def test_a_row_that_was_taken_out_before_excuses_nothing(spark: SparkSession, folder: Path):
    (changed,) = (folder / "events").rglob("n1-1-8.parquet")
    first = pq.ParquetFile(changed).read().to_pylist()[11]["first"]
    rows = numbers(changed)
    change(changed, "routed", first)
    called("compact", folder / "events", folder / "again")
    assert found(spark, folder / "again") == [("rows_removed", rows[0], rows[-1])]
    assert account(folder / "again") == (1, [("hole", first), ("never_routed", first), ("rows_removed", rows[0])])


def test_hours_that_were_compacted_beside_files_of_the_broker(spark: SparkSession, folder: Path):
    for which in (0, 1):
        shutil.rmtree(hour(folder / "events", which))
        shutil.copytree(hour(folder / "large", which), hour(folder / "events", which))
    assert found(spark, folder / "events") == []
    lost = max(hour(folder / "events", 2).glob("*.parquet"))
    gone = numbers(lost)
    lost.unlink()
    assert found(spark, folder / "events") == [("log_hole", gone[0], gone[-1])]
    shutil.copytree(hour(folder / "large", 2), hour(folder / "events", 2), dirs_exist_ok=True)
    assert found(spark, folder / "events") == []


def test_a_file_that_somebody_added_hides_nothing(spark: SparkSession, folder: Path):
    (lost,) = (folder / "events").rglob("n1-1-5.parquet")
    gone = numbers(lost)
    (beside,) = (folder / "events").rglob("n1-1-6.parquet")
    lost.unlink()
    table = pq.ParquetFile(beside).read()
    pq.write_table(table.replace_schema_metadata({}), beside.with_name("copy.parquet"))
    pq.write_table(pa.table({"price": [1.5]}), beside.with_name("prices.parquet"))
    assert found(spark, folder / "events") == [("log_hole", gone[0], gone[-1])]


def test_a_period_that_is_compacted_reaches_no_further(spark: SparkSession, folder: Path):
    period = ["--since", "2026-11-22T06:00", "--until", "2026-11-22T08:00"]
    called("compact", folder / "events", folder / "part", *period)
    assert found(spark, folder / "part") == []
    shutil.rmtree(hour(folder / "part", 2))
    assert found(spark, folder / "part") == [("log_hole", 2 * ROWS_PER_HOUR + 1, 3 * ROWS_PER_HOUR)]


@pytest.mark.slow
def test_hour_by_hour_into_one_folder(spark: SparkSession, folder: Path):
    for which in range(HOURS):
        period = ["--since", f"2026-11-22T{5 + which:02}:00", "--until", f"2026-11-22T{6 + which:02}:00"]
        called("compact", folder / "events", folder / "part", *period)
    assert found(spark, folder / "part") == []
    shutil.rmtree(hour(folder / "part", HOURS - 1))
    last = HOURS * ROWS_PER_HOUR
    assert found(spark, folder / "part") == [("log_hole", last - ROWS_PER_HOUR + 1, last)]


def test_what_jobs_of_an_earlier_version_wrote_has_its_rows_counted(spark: SparkSession, folder: Path):
    """Without a mark, without `_log`."""
    for file in (folder / "large").rglob("*"):
        if file.name.startswith(("_", ".")):
            file.unlink()
    for file in (folder / "large").rglob("*.parquet"):
        put(pq.ParquetFile(file).read().replace_schema_metadata({}), file)
    assert found(spark, folder / "large") == []
    (lost,) = hour(folder / "large", 1).glob("*.parquet")
    gone = numbers(lost)
    lost.unlink()
    assert found(spark, folder / "large") == [("log_hole", gone[0], gone[-1])]


@pytest.mark.slow
def test_what_generate_made_has_numbers_that_jump(spark: SparkSession, tmp_path: Path):
    made = CliRunner().invoke(main, ["generate", "--output", str(tmp_path / "log"), "--events", "2000"])
    assert made.exit_code == 0, made.output
    answer = called("conservation", tmp_path / "log", tmp_path / "out")
    assert "no lost rows can be told" in answer.output
    assert answer.exit_code == 0
    for file in (tmp_path / "log").rglob("*.parquet"):
        put(pq.ParquetFile(file).read().replace_schema_metadata({}), file)
    answer = called("conservation", tmp_path / "log", tmp_path / "out")
    assert "no lost rows can be told" in answer.output
    assert answer.exit_code == 0
