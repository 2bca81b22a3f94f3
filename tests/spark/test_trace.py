"""A message's history: what it is found by, across hops both ways, the timeline, the bounds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from amqpd_spark import events, hops, trace
from tests.spark.log import START, Log


def trace_with_a_dead_letter(log: Log) -> str:
    """Publications 10 to 12 go to orders; the second is rejected there, and comes to failed as publication 20."""
    who: dict[str, Any] = {"user": "alice", "connection": "10.0.0.1:5000", "channel": 1, "exchange": "shop"}
    stretch: dict[str, Any] = {"count": 3, "publication": 10, "confirm_tag": 5, "body_bytes": 100, **who}
    orders: dict[str, Any] = {"queue": "orders", "queue_id": 7}
    log.add("published", at=1, **stretch)
    log.add("routed", at=1, first=0, **orders, **stretch)
    log.add("confirmed", at=1.5, count=3, publication=10, confirm_tag=5, connection="10.0.0.1:5000", channel=1)
    log.add("delivered", at=2, first=0, count=3, consumer="worker", **orders)
    log.add("dead_lettered", at=3, first=1, publication=20, reason="rejected", **orders)
    log.add("acked", at=3, first=0, **orders)
    log.add("published", at=3, publication=20, exchange="dead", reason="dead_letter")
    log.add("routed", at=3, first=4, publication=20, queue="failed", queue_id=8, exchange="dead")
    log.add("published", at=4, publication=30, message_id="other", **who)
    return log.write()


def found(spark: SparkSession, folder: str, by: str, value: str, **bounds: int) -> list[tuple[Any, ...]]:
    rows = trace.table(trace.run(events.read(spark, folder), by, value, **bounds))
    return [(row["message"], row["event"], row["queue"] or row["exchange"], row["seq"]) for row in rows]


WHOLE = [
    (1, "published", "shop", None),
    (1, "routed", "orders", 1),
    (1, "confirmed", None, None),
    (1, "delivered", "orders", 1),
    (1, "dead_lettered", "orders", 1),
    (1, "published", "dead", None),
    (1, "routed", "failed", 4),
]


@pytest.mark.parametrize(
    ("by", "value"),
    [
        ("publication", "1:11"),
        ("confirm", "10.0.0.1:5000/1/6"),
        ("queue_message", "7:1:1"),
        ("queue_message", "8:1:4"),
        ("publication", "1:20"),
    ],
)
def test_an_incarnation_is_whole_from_wherever_it_is_looked_for(spark: SparkSession, log: Log, by: str, value: str):
    assert found(spark, trace_with_a_dead_letter(log), by, value) == WHOLE


def test_an_identifier_that_was_used_twice_finds_two_messages(spark: SparkSession, log: Log):
    for at in (1, 2):
        log.add("published", at=at, publication=at, message_id="m", correlation_id="c")
    folder = log.write()
    two = [(1, "published", None, None), (2, "published", None, None)]
    assert found(spark, folder, "message_id", "m") == two
    assert found(spark, folder, "correlation_id", "c") == two


def test_a_message_is_followed_into_the_next_incarnation_of_the_broker(spark: SparkSession, log: Log):
    log.add("routed", at=1, queue="q", queue_id=7, first=3, publication=9, exchange="")
    log.add("standing", at=60, incarnation=2, queue="q", queue_id=7, epoch=1, first=0, count=10, reason="recovered")
    log.add("acked", at=61, incarnation=2, queue="q", queue_id=7, epoch=1, first=3)
    # Another message of the queue with the same number, and a publication of that number: neither is meant.
    log.add("acked", at=62, incarnation=2, queue="q", queue_id=7, epoch=2, first=3)
    log.add("published", at=62, incarnation=2, publication=9)
    assert found(spark, log.write(), "publication", "1:9") == [
        (1, "routed", "q", 3),
        (1, "standing", "q", 3),
        (1, "acked", "q", 3),
    ]


def test_a_message_that_is_delivered_at_another_node_is_one(spark: SparkSession, log: Log):
    """Of a quorum queue: its leader moved, and its numbers are those of the source."""
    queue: dict[str, Any] = {"queue": "orders", "queue_id": 7, "epoch": 1, "first": 3, "source": 5}
    log.add("published", at=1, publication=10)
    log.add("routed", at=1, publication=10, source_epoch=1, **queue)
    log.add("delivered", at=2, node="n2", source_epoch=2, **queue)
    log.add("acked", at=3, node="n3", source_epoch=3, **queue)
    # A queue of n2's own with the same numbers.
    log.add("delivered", at=2, node="n2", **{**queue, "source": 0, "queue": "other"})
    folder = log.write()
    whole = [(1, "published", None, None), *((1, name, "orders", 3) for name in ("routed", "delivered", "acked"))]
    assert found(spark, folder, "publication", "1:10") == whole
    rows = trace.table(trace.run(events.read(spark, folder), "publication", "1:10"))
    assert {row["place"] for row in rows if row["queue"]} == {"source 5"}
    both = found(spark, folder, "queue_message", "7:1:3")
    assert sorted(both) == sorted([*whole, (2, "delivered", "other", 3)])


def test_the_same_file_twice_changes_nothing(spark: SparkSession, log: Log):
    folder = trace_with_a_dead_letter(log)
    for file in list(log.path.rglob("*.parquet")):
        shutil.copy(file, file.with_name("again.parquet"))
    assert found(spark, folder, "publication", "1:11") == WHOLE


def test_more_messages_than_fit_in_a_filter_are_found_all_the_same(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hops, "LISTED_MAX", 0)
    assert found(spark, trace_with_a_dead_letter(log), "publication", "1:11") == WHOLE


def test_a_confirm_belongs_to_its_publication_though_a_later_connection_has_the_same_name(
    spark: SparkSession, log: Log
):
    where: dict[str, Any] = {"connection": "c", "channel": 1, "confirm_tag": 1}
    for publication, answer in ((1, "refused"), (2, "confirmed")):
        log.add("published", at=publication, publication=publication, message_id=f"m{publication}", **where)
        log.add(answer, at=publication, publication=publication, **where)
    folder = log.write()
    assert [event for _, event, *_ in found(spark, folder, "message_id", "m1")] == ["published", "refused"]
    assert [event for _, event, *_ in found(spark, folder, "message_id", "m2")] == ["published", "confirmed"]
    both = [(1, "published"), (1, "refused"), (2, "published"), (2, "confirmed")]
    assert [(number, event) for number, event, *_ in found(spark, folder, "confirm", "c/1/1")] == both


@pytest.mark.slow
def test_a_bound_that_was_met_is_said(spark: SparkSession, log: Log):
    for hop in range(4):
        log.add("routed", at=hop, publication=hop + 1, queue="q", queue_id=7, first=hop)
        log.add("dead_lettered", at=hop, publication=hop + 2, queue="q", queue_id=7, first=hop)
    rows = events.read(spark, log.write())
    assert trace.run(rows, "publication", "1:1").cut == ""
    assert trace.run(rows, "publication", "1:1", hops=2).cut == "after 2 hops"
    assert trace.run(rows, "publication", "1:1", messages=3).cut == "at 3 messages"


def test_the_timeline_says_when_what_where_who_and_why(spark: SparkSession, log: Log):
    rows = events.read(spark, trace_with_a_dead_letter(log))
    lines = trace.told(trace.table(trace.run(rows, "publication", "1:11")))
    assert lines[:2] == [
        "Message 1 of 1: 100 bytes, 2026-11-22, virtual host /",
        "Now: dead-lettered in orders (rejected); no end in failed",
    ]
    (line,) = (" ".join(line.split()) for line in lines if " dead_lettered " in line)
    assert line == "05:00:03.000000 +2,000.000 ms dead_lettered orders 7:1:1 rejected, publication 1:20"


def test_the_command_writes_the_table_where_it_is_asked_to(spark: SparkSession, log: Log, tmp_path: Path):
    folder, tables = trace_with_a_dead_letter(log), tmp_path / "tables"
    said = CliRunner().invoke(
        trace.command, ["--input", folder, "--output", str(tables), "--publication", "1:11"], catch_exceptions=False
    )
    assert said.exit_code == 0
    assert f"The table is {tables}/trace" in said.output
    written = spark.read.parquet(str(tables / "trace"))
    assert written.columns == trace.SCHEMA.names
    assert sorted(row["relative_ms"] for row in written.collect()) == [0, 0, 500, 1000, 2000, 2000, 2000]


def test_nothing_found_is_exit_code_2_and_says_what_was_searched(spark: SparkSession, log: Log):
    log.add("published", publication=1)
    arguments = ["--input", log.write(), "--since", f"{START:%Y-%m-%d}", "--message-id", "none"]
    said = CliRunner().invoke(trace.command, arguments)
    assert said.exit_code == 2
    assert (
        said.output == "amqpd-spark: Nothing in the log has message id none (searched: from 2026-11-22 00:00 UTC).\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give exactly one of --message-id"),
        (["--message-id", "a", "--publication", "1:2"], "give exactly one of"),
        (["--publication", "x"], "'x' is not in the form"),
    ],
)
def test_wrong_arguments_are_exit_code_2(spark: SparkSession, log: Log, arguments: list[str], sentence: str):
    log.add("started")
    said = CliRunner().invoke(trace.command, ["--input", log.write(), *arguments])
    assert said.exit_code == 2
    assert sentence in said.output
