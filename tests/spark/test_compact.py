"""Compaction: the same events, each once, in the same files however often it is run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from amqpd_spark import events
from amqpd_spark.compact import command, compact, whole_hours
from amqpd_spark.options import Options
from tests.spark.log import START, Log

Found = dict[str, list[list[tuple[int, int]]]]


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "compacted")


def run(spark: SparkSession, source: str, target: str, rows_per_file: int = 100) -> None:
    compact(events.read(spark, source), target, rows_per_file)


def files(target: str) -> Found:
    """Folder -> its files' rows, as (incarnation, number)."""
    found: Found = {}
    for path in sorted(Path(target).rglob("*.parquet")):
        table = pq.ParquetFile(path).read(columns=["incarnation", "number"]).to_pydict()
        name = path.parent.relative_to(target).as_posix()
        found.setdefault(name, []).append(list(zip(table["incarnation"], table["number"], strict=True)))
    return {name: sorted(parts) for name, parts in found.items()}


def test_a_file_for_each_hour_sorted_by_queue_and_time(spark: SparkSession, log: Log, target: str):
    for at, queue in ((2, "b"), (1, "b"), (3, "a"), (3600, "a")):
        log.add("acked", at=at, queue=queue, queue_id=1)
    log.write()
    log.add("acked", at=4, queue="a", queue_id=1)
    run(spark, log.write(), target)
    assert files(target) == {
        "date=2026-11-22/hour=05": [[(1, 3), (1, 5), (1, 2), (1, 1)]],
        "date=2026-11-22/hour=06": [[(1, 4)]],
    }


def test_again_changes_nothing(spark: SparkSession, log: Log, target: str, tmp_path: Path):
    for at in range(40):
        log.add("acked", at=at, queue="q", queue_id=1, first=at)
    source = log.write()
    run(spark, source, target, rows_per_file=10)
    once = files(target)
    assert sum(map(len, next(iter(once.values())))) == 40
    run(spark, source, target, rows_per_file=10)
    assert files(target) == once
    run(spark, target, str(tmp_path / "again"), rows_per_file=10)
    assert files(str(tmp_path / "again")) == once


def test_what_came_twice_is_there_once(spark: SparkSession, log: Log, target: str):
    log.add("acked", queue="q", queue_id=1)
    log.write()
    log.add("acked", queue="q", queue_id=1, number=1)
    run(spark, log.write(), target)
    assert files(target) == {"date=2026-11-22/hour=05": [[(1, 1)]]}


def test_a_late_file_is_in_its_hour_the_next_time_and_other_hours_stay(spark: SparkSession, log: Log, target: str):
    log.add("acked", queue="q", queue_id=1)
    log.add("acked", at=3600, queue="q", queue_id=1)
    run(spark, log.write(), target)
    log.add("acked", at=1, queue="q", queue_id=1)
    compact(events.read(spark, log.write(), START, START + timedelta(hours=1)), target)
    assert files(target) == {"date=2026-11-22/hour=05": [[(1, 1), (1, 3)]], "date=2026-11-22/hour=06": [[(1, 2)]]}


def test_of_an_hour_all_or_nothing_is_meant():
    options = Options(
        "compact", ("a",), "b", since=START + timedelta(minutes=10), until=START + timedelta(minutes=70)
    )
    assert whole_hours(options).since == START
    assert whole_hours(options).until == START + timedelta(hours=2)
    assert whole_hours(Options("compact", ("a",), "b", until=START)).until == START


@pytest.mark.parametrize(("source", "target"), [("a", "a/"), ("a", "a/b"), ("a/b", "a"), ("s3a://x/a", "s3a://x/a/")])
def test_what_is_read_is_never_written(source: str, target: str):
    answer = CliRunner().invoke(command, ["--input", source, "--output", target])
    assert answer.exit_code == 2
    assert "--output is --input, or one is in the other" in answer.output
