"""Usage of several nodes in one log.

What is verified: two brokers that have a user, an exchange and a queue of the same names are kept apart in each
table, and on the page; a queue of a source is one queue, whichever node wrote of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from amqpd_spark import report, usage
from tests.spark.log import Log
from tests.spark.test_report import listed
from tests.spark.test_usage import DAY, tables

QUEUE: dict[str, Any] = {"queue": "q", "queue_id": 1}
TABLES = ("usage_by_user", "usage_by_queue", "usage_by_exchange", "fanout", "queue_age", "idle_queues")


def two_brokers(log: Log) -> str:
    """`n2` has twice as many messages as `n1`, and keeps them twice as long; both have an idle queue."""
    for many, node in enumerate(("n1", "n2"), 1):
        sent: dict[str, Any] = {"node": node, "count": many, "body_bytes": 10, "user": "alice", "exchange": "x"}
        log.add("queue_declared", node=node, object="queue old", user=f"admin of {node}")
        log.add("published", publication=1, **sent)
        log.add("routed", publication=1, **QUEUE, **sent)
        log.add("acked", at=many, node=node, **QUEUE)
        log.add("queue_declared", at=9 * DAY, node=node, object="queue q", user="alice")
    return log.write()


def by_node(made: dict[str, Any], table: str) -> dict[str, dict[str, Any]]:
    """node -> its only row, whose first key it is."""
    found = made[table]
    assert next(name for name in found.columns if name != "date") == "node"
    rows = found.collect()
    assert len({row["node"] for row in rows}) == len(rows)
    return {row["node"]: row.asDict() for row in rows}


@pytest.fixture
def made(spark: SparkSession, log: Log) -> Iterator[dict[str, Any]]:
    yield tables(spark, two_brokers(log), 9 * DAY)
    spark.catalog.clearCache()


def test_two_brokers_with_the_same_names_are_kept_apart_in_each_table(made: dict[str, Any]):
    assert set(made) == set(TABLES)
    found = {name: by_node(made, name) for name in TABLES if name != "idle_queues"}
    for many, node in enumerate(("n1", "n2"), 1):
        user, queue, exchange, spread, age = (found[name][node] for name in TABLES[:-1])
        assert (user["user"], user["published"], user["published_bytes"]) == ("alice", many, 10 * many)
        assert (queue["queue"], queue["accepted"], queue["acked"]) == ("q", many, 1)
        assert (exchange["exchange"], exchange["published"], exchange["copies"]) == ("x", many, many)
        assert (spread["exchange"], spread["publications"], spread["copies_each"]) == ("x", many, 1.0)
        assert (age["queue"], age["standing"], age["ended"], age["max_ms"]) == ("q", many - 1, 1, 1000 * many)
    idle = {(row["node"], row["queue"]): row for row in made["idle_queues"].collect()}
    assert {key: (row["declared_by"], row["standing"]) for key, row in idle.items()} == {
        ("n1", "old"): ("admin of n1", None),
        ("n2", "old"): ("admin of n2", None),
        ("n1", "q"): ("alice", 0),
        ("n2", "q"): ("alice", 1),
    }


def test_the_command_and_the_page_name_the_node_of_each(spark: SparkSession, log: Log, tmp_path: Path):
    arguments = ["--input", two_brokers(log), "--output", str(tmp_path / "usage")]
    said = CliRunner().invoke(usage.command, arguments, catch_exceptions=False)
    assert said.exit_code == 0
    for line in ("2 messages         20 B  alice in / at n2", "1 messages         10 B  alice in / at n1"):
        assert line in said.output
    assert "2 in               0 delivered  q in / at n2" in said.output
    assert "1 standing  q in / at n2" in said.output
    text, _ = report.page(spark, str(tmp_path))
    for caption, names in {
        "Top talkers": ["alice at n2", "alice at n1"],
        "Busiest queues": ["q at n2", "q at n1"],
        "Oldest messages": ["q at n2"],
        "Idle queues": ["old at n1", "old at n2", "q at n1", "q at n2"],
        "Fan-out": ["x at n2", "x at n1"],
    }.items():
        assert [line[0] for line in listed(text, caption)[1]] == names


def moved(log: Log) -> None:
    """A queue of source 5 that was at `n1` in epoch 1 and is at `n2` in epoch 2, where three of four stand."""
    source: dict[str, Any] = {**QUEUE, "source": 5, "epoch": 1}
    log.add("routed", source_epoch=1, count=4, **source)
    # Its end was not committed: it stands at the next leader.
    log.add("acked", at=1, source_epoch=1, first=3, **source)
    log.add("standing", at=10, node="n2", source_epoch=2, count=3, first=1, **source)
    log.add("acked", at=20, node="n2", source_epoch=2, first=1, **source)


def test_a_queue_of_a_source_that_moved_is_one_queue(spark: SparkSession, log: Log):
    moved(log)
    made = tables(spark, log.write(), 100)
    row = by_node(made, "queue_age")["source 5"]
    assert (row["standing"], row["oldest_age_s"], row["oldest_is_at_least"]) == (2, 100, False)
    assert (row["ended"], row["max_ms"]) == (1, 20_000)
    assert by_node(made, "usage_by_queue")["source 5"]["accepted"] == 4
    # A publish is at the node that took it.
    assert list(by_node(made, "usage_by_exchange")) == ["n1"]


def declared_in_a_cluster(log: Log, at: float = 0) -> None:
    """Each node writes of it, and only the one that was asked for whom."""
    log.add("queue_declared", at=at, object="queue q", node="n1", user="alice")
    log.add("queue_declared", at=at, object="queue q", node="n2")
    log.add("queue_declared", at=at, object="queue q", node="n3")


def test_a_queue_of_a_cluster_that_is_used_at_one_node_is_idle_at_none(spark: SparkSession, log: Log):
    declared_in_a_cluster(log)
    log.add("counted", at=9 * DAY, node="n2", detail="accepted", **QUEUE)
    assert tables(spark, log.write(), 10 * DAY)["idle_queues"].collect() == []


def test_counts_of_a_queue_that_moved_are_those_of_one_queue(spark: SparkSession, log: Log):
    """They do not name its source, but its leaders said that they were leaders of one; and this log does not go back
    to when it was declared."""
    log.add("source_begins", node="n1", source=5, source_epoch=1)
    log.add("counted", node="n1", detail="accepted", **QUEUE)
    log.add("source_begins", at=DAY, node="n2", source=5, source_epoch=2)
    log.add("counted", at=9 * DAY, node="n2", detail="accepted", **QUEUE)
    # Not of the cluster.
    log.add("counted", node="lone", detail="accepted", **QUEUE)
    assert list(by_node(tables(spark, log.write(), 10 * DAY), "idle_queues")) == ["lone"]


def test_an_idle_queue_of_a_cluster_is_told_once_and_by_whom_it_was_declared(spark: SparkSession, log: Log):
    declared_in_a_cluster(log)
    moved(log)
    row = by_node(tables(spark, log.write(), 10 * DAY), "idle_queues")["source 5"]
    assert (row["declared_by"], row["standing"], row["idle_days"]) == ("alice", 2, 10.0)
