"""Usage: what is added up from what, nothing twice; idle queues, fan-out, ages."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark import ages, events, usage
from amqpd_spark.stretches.scan import of_dataframe
from tests.spark.log import START, Log

HOUR, DAY = 3600.0, 86400.0


def some_traffic(log: Log) -> str:
    """Three messages of alice to two queues, and a dead letter of the broker's."""
    sent: dict[str, Any] = {"count": 3, "body_bytes": 100, "user": "alice", "exchange": "shop"}
    log.add("published", publication=1, **sent)
    log.add("routed", publication=1, queue="a", queue_id=1, **sent)
    log.add("routed", publication=1, queue="b", queue_id=2, **sent)
    # `user` is the consumer's here, who published nothing.
    log.add("delivered", at=1, queue="a", queue_id=1, count=3, redelivered=True, body_bytes=100, user="bob")
    log.add("acked", at=2, queue="a", queue_id=1, count=2)
    log.add("dead_lettered", at=3, queue="a", queue_id=1, first=2, publication=9)
    log.add("published", at=3, publication=9, exchange="dead", reason="dead_letter", body_bytes=100)
    log.add("unroutable", at=3, publication=9, exchange="dead")
    return log.write()


def hours(spark: SparkSession, folder: str) -> DataFrame:
    rows = events.read(spark, folder)
    counted = usage.census(rows)
    return usage.facts(rows, counted.unique < counted.events)


def only(table: DataFrame) -> dict[str, Any]:
    (row,) = table.collect()
    return dict(row.asDict())


def test_messages_and_bytes_are_those_of_the_publisher_and_neither_the_consumers_nor_the_brokers_own(
    spark: SparkSession, log: Log
):
    row = only(usage.by_user(hours(spark, some_traffic(log))))
    assert (str(row["date"]), row["vhost"], row["user"], row["source"]) == ("2026-11-22", "/", "alice", "events")
    assert (row["published"], row["published_bytes"], row["unroutable"]) == (3, 300, 0)


def test_a_queues_figures_are_sums_of_its_stretches(spark: SparkSession, log: Log):
    a, b = usage.by_queue(hours(spark, some_traffic(log))).orderBy("queue").collect()
    assert (a["accepted"], a["accepted_bytes"], a["delivered"], a["redelivered"]) == (3, 300, 3, 3)
    assert (a["acked"], a["dead_lettered"]) == (2, 1)
    assert (b["accepted"], b["delivered"]) == (3, 0)


def test_fan_out_is_copies_for_each_publication(spark: SparkSession, log: Log):
    exchanges = usage.by_exchange(hours(spark, some_traffic(log)))
    rows = {row["exchange"]: row for row in usage.fanout(exchanges).collect()}
    assert (rows["shop"]["publications"], rows["shop"]["copies"], rows["shop"]["copies_each"]) == (3, 6, 2.0)
    assert rows["dead"]["copies_each"] == 0


def test_a_delayed_message_is_one_publication(spark: SparkSession, log: Log):
    log.add("published", publication=1, exchange="x", user="u")
    log.add("routed", publication=1, exchange="x", queue="delayed messages", queue_id=3, reason="delayed")
    log.add("released", at=5, publication=2, queue="delayed messages", queue_id=3)
    log.add("published", at=5, publication=2, exchange="x", reason="delayed")
    log.add("routed", at=5, publication=2, exchange="x", queue="q", queue_id=1)
    assert only(usage.fanout(usage.by_exchange(hours(spark, log.write()))))["copies_each"] == 1


def test_counts_are_taken_where_there_are_no_events_and_only_there(spark: SparkSession, log: Log):
    log.add("counted", queue="q", detail="accepted", count=50)
    log.add("counted", at=60, queue="q", detail="accepted", count=5)
    log.add("counted", at=60, queue="q", detail="acked", count=4)
    log.add("routed", at=HOUR, queue="q", queue_id=1, count=7, body_bytes=10)
    log.add("counted", at=HOUR, queue="q", detail="accepted", count=99)
    log.add("counted", user="alice", detail="published", count=11)
    log.add("counted", user="alice", detail="published_bytes", count=1100)
    sums = hours(spark, log.write())
    counts, from_events = usage.by_queue(sums).orderBy("source").collect()
    assert (counts["source"], counts["accepted"], counts["acked"], counts["accepted_bytes"]) == (
        "counts",
        55,
        4,
        None,
    )
    assert (from_events["source"], from_events["accepted"], from_events["accepted_bytes"]) == ("events", 7, 70)
    row = only(usage.by_user(sums))
    assert (row["source"], row["published"], row["published_bytes"], row["returned"]) == ("counts", 11, 1100, None)


def test_the_same_file_twice_changes_nothing(spark: SparkSession, log: Log):
    folder = some_traffic(log)
    for file in list(log.path.rglob("*.parquet")):
        shutil.copy(file, file.with_name("again.parquet"))
    counted = usage.census(events.read(spark, folder))
    assert (counted.events, counted.unique) == (16, 8)
    assert only(usage.by_user(hours(spark, folder)))["published"] == 3


def age_of(spark: SparkSession, folder: str, end: float) -> dict[str, dict[str, Any]]:
    rows = events.read(spark, folder)
    incarnations = usage.census(rows).last_incarnations
    found = ages.queue_ages(of_dataframe(rows), incarnations, START + timedelta(seconds=end), parts=2)
    return {row["queue"]: row.asDict() for row in found.collect()}


def test_the_age_of_a_queue_is_that_of_its_oldest_message_without_an_end(spark: SparkSession, log: Log):
    log.add("routed", at=0, queue="q", queue_id=1, first=0, count=2)
    log.add("routed", at=10, queue="q", queue_id=1, first=2, count=2)
    log.add("acked", at=20, queue="q", queue_id=1, first=0, count=2)
    row = age_of(spark, log.write(), end=100)["q"]
    assert (row["standing"], row["oldest_age_s"], row["oldest_is_at_least"]) == (2, 90, False)


def test_what_did_not_outlive_a_restart_does_not_stand_there(spark: SparkSession, log: Log):
    log.add("routed", at=0, queue="q", queue_id=1, first=0, count=3)
    log.add("standing", at=60, incarnation=2, queue="q", queue_id=1, epoch=1, first=2, count=1, reason="recovered")
    # One that entered before the log begins.
    log.add("standing", at=60, incarnation=2, queue="old", queue_id=2, epoch=1, first=5, count=1, reason="recovered")
    found = age_of(spark, log.write(), end=100)
    assert (found["q"]["standing"], found["q"]["oldest_age_s"]) == (1, 100)
    assert (found["old"]["oldest_age_s"], found["old"]["oldest_is_at_least"]) == (40, True)


def test_the_time_in_the_queue_has_percentiles_that_are_at_most_two_per_cent_above(spark: SparkSession, log: Log):
    log.add("routed", at=0, queue="q", queue_id=1, count=100)
    log.add("acked", at=0.010, queue="q", queue_id=1, first=0, count=60)
    log.add("expired", at=0.100, queue="q", queue_id=1, first=60, count=39)
    log.add("acked", at=5, queue="q", queue_id=1, first=99)
    row = age_of(spark, log.write(), end=10)["q"]
    assert (row["ended"], row["standing"], row["max_ms"], row["oldest_since"]) == (100, 0, 5000, None)
    assert 10 <= row["p50_ms"] <= 10.21
    assert 100 <= row["p99_ms"] <= 102.1


def tables(spark: SparkSession, folder: str, end: float | None = None) -> dict[str, DataFrame]:
    rows = events.read(spark, folder)
    until = None if end is None else START + timedelta(seconds=end)
    return usage.tables(of_dataframe(rows), usage.census(rows), 2, until)


def test_idle_is_a_queue_that_is_there_and_unused(spark: SparkSession, log: Log):
    for name in ("forgotten", "gone", "fresh", "used"):
        at = 5 * DAY if name == "fresh" else 0
        log.add("queue_declared", at=at, object=f"queue {name}", user="alice")
    log.add("queue_deleted", at=DAY, object="queue gone", user="alice")
    log.add("routed", at=DAY, queue="forgotten", queue_id=1)
    log.add("counted", at=9 * DAY, queue="used", detail="delivered", count=1)
    row = only(tables(spark, log.write(), 10 * DAY)["idle_queues"])
    assert (row["queue"], row["declared_by"], row["standing"], row["idle_days"]) == ("forgotten", "alice", 1, 9.0)


def test_a_short_log_calls_no_queue_idle(spark: SparkSession, log: Log):
    log.add("standing", queue="q", queue_id=1, count=0, reason="recovered")
    log.add("started", at=DAY)
    assert tables(spark, log.write())["idle_queues"].count() == 0


def test_the_command_writes_its_tables_and_says_who_talks_most(spark: SparkSession, log: Log, tmp_path: Path):
    arguments = ["--input", some_traffic(log), "--output", str(tmp_path / "usage")]
    said = CliRunner().invoke(usage.command, arguments, catch_exceptions=False)
    assert said.exit_code == 0
    assert "3 messages        300 B  alice in /" in said.output
    assert sorted(path.name for path in (tmp_path / "usage").iterdir()) == sorted(
        [*usage.BY_DATE, "idle_queues", "queue_age"]
    )


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (1500, "1.5 kB"), (2.5e12, "2.5 TB")])
def test_sizes_are_for_people(count: float, text: str):
    assert usage._size(count) == text
