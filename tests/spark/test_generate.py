"""Made-up logs: nothing is wrong with them but what was planted; the same arguments make the same rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark import events
from amqpd_spark.conservation import account
from amqpd_spark.door import Refused
from amqpd_spark.generate import PLANTS, command, write
from amqpd_spark.stretches.scan import of_dataframe
from amqpd_spark.traffic.cycle import Plan, cycle
from amqpd_spark.traffic.rows import rows

PLAN = Plan(
    events=3_000, queues=4, hours=3, incarnations=3, stretch=3, seed=1, start=datetime(2026, 11, 22, tzinfo=UTC)
)


def checksum(rows: DataFrame) -> tuple[int, int]:
    row = rows.agg(F.count("*").alias("n"), F.sum(F.xxhash64(*rows.columns).bitwiseAND(F.lit(0xFFFFFFFF))).alias("s"))
    return tuple(row.collect()[0])


@pytest.fixture(scope="module")
def planted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    folder = str(tmp_path_factory.mktemp("planted") / "events")
    return folder, write(spark, PLAN, folder, frozenset(PLANTS))


@pytest.mark.slow
def test_an_hour_with_three_incarnations_is_made(spark: SparkSession, tmp_path: Path):
    """An incarnation of 20 minutes is few enough microseconds for an int, and three of them are not."""
    write(spark, replace(PLAN, events=500, hours=1), str(tmp_path / "events"))
    last = events.read(spark, str(tmp_path / "events")).agg(F.max("incarnation")).collect()[0][0]
    assert last == 3


def test_what_was_planted_is_found_and_named_and_nothing_else(spark: SparkSession, planted: tuple[str, list[str]]):
    folder, said = planted
    found = account(of_dataframe(events.read(spark, folder))).findings.collect()
    names = {
        row["kind"]: f"{row['vhost']} {row['queue']} (id {row['queue_id']}, epoch {row['epoch']}) {row['first']}"
        for row in found
    }
    planted_names = dict(sentence.split(": ", 1) for sentence in said)
    assert names == {
        "missing": planted_names["lost"],
        "ended_twice": planted_names["duplicate"],
        "never_routed": planted_names["ghost"],
    }
    assert len(found) == 3


def test_a_late_file_lies_in_a_later_folder_and_one_came_twice(spark: SparkSession, planted: tuple[str, list[str]]):
    read = spark.read.parquet(planted[0])
    assert read.where(F.col("hour").cast("int") == F.hour("time") + 2).count() > 0
    assert read.count() > read.select("node", "incarnation", "number").distinct().count()


@pytest.mark.slow
def test_the_same_seed_makes_the_same_rows(spark: SparkSession):
    made = [checksum(rows(spark, plan, cycle(plan), None, None)) for plan in (PLAN, PLAN, replace(PLAN, seed=2))]
    assert made[0] == made[1] != made[2]


def test_numbers_are_unique_and_events_about_as_many_as_asked_for(spark: SparkSession):
    made = rows(spark, PLAN, cycle(PLAN), None, None)
    row = made.agg(F.sum("count"), F.count("*"), F.countDistinct("incarnation", "number")).collect()[0]
    assert 0.5 < row[0] / PLAN.events < 2
    assert row[1] == row[2]


def test_the_first_queue_is_hot():
    plan = replace(PLAN, queues=20, events=100_000)
    places = cycle(plan).places
    assert 0.3 < sum(row["queue"].queue_id == 10 for row in places) / len(places) < 0.5


def test_a_log_is_not_written_into_another(spark: SparkSession, tmp_path: Path):
    with pytest.raises(Refused, match="is there already"):
        write(spark, PLAN, str(tmp_path))


def test_a_fault_that_there_is_not_is_one_sentence(tmp_path: Path):
    answer = CliRunner().invoke(command, ["--output", str(tmp_path / "log"), "--plant", "lost,theft"])
    assert answer.exit_code == 2
    assert "'theft' is none of lost, duplicate" in answer.output
