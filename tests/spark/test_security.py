"""Findings from acts: bursts and what came of them, refusals, new addresses, privileges; the same as a stream."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark import events, security
from amqpd_spark.findings import Limits, acts, tables
from amqpd_spark.options import Options
from amqpd_spark.security_stream import Stream
from amqpd_spark.streaming import Settings, Stop, run
from tests.spark.log import Log

DAY = 86400.0
SHORT = Limits(burst=3)
HERE, THERE = "192.0.2.1", "198.51.100.7"


def made(spark: SparkSession, log: Log, limits: Limits = SHORT) -> dict[str, list[dict[str, Any]]]:
    found = tables(acts(events.read(spark, log.write(), unique=True)), limits)
    return {name: sorted((row.asDict() for row in table.collect()), key=repr) for name, table in found.items()}


def findings(spark: SparkSession, log: Log, limits: Limits = SHORT) -> list[tuple[str, str, str]]:
    rows = made(spark, log, limits)["findings"]
    return sorted((row["kind"], row["severity"], row["sentence"]) for row in rows)


def failed(log: Log, at: float, user: str = "alice", address: str = THERE, node: str = "n1") -> None:
    log.add("login_failed", at=at, user=user, address=address, reason="wrong password", node=node)


def opened(log: Log, at: float, user: str = "alice", address: str = HERE, node: str = "n1") -> None:
    log.add("connection_opened", at=at, user=user, address=address, node=node)


def test_failed_log_ins_are_counted_by_user_and_address(spark: SparkSession, log: Log):
    for at in (1, 5000):
        failed(log, at)
    failed(log, 2, user="bob")
    log.add("routed", queue="q", queue_id=1)
    rows = made(spark, log)
    assert [(r["user"], r["count"], r["reasons"]) for r in rows["failed_logins"]] == [
        ("alice", 2, ["wrong password"]),
        ("bob", 1, ["wrong password"]),
    ]
    assert rows["findings"] == []


def test_a_burst_needs_its_failures_within_the_time(spark: SparkSession, log: Log):
    for at in (0, 50, 100, 150):
        failed(log, at)
    # Two runs of failures from one address, of which one is dense enough, and lasts longer than the time.
    for at in (1000, 1001, 1002, 1050, 1100):
        failed(log, at, user=f"u{at}")
    assert findings(spark, log) == [
        ("burst_by_address", "medium", f"5 failed log-ins from {THERE}"),
    ]


def test_a_log_in_that_ends_a_burst_is_high(spark: SparkSession, log: Log):
    for at in (0, 1, 2):
        failed(log, at)
    opened(log, 62, address=THERE)
    opened(log, 3, user="bob", address=HERE)
    assert findings(spark, log) == [
        ("burst_by_address", "high", f"3 failed log-ins from {THERE}, then a log-in of alice"),
        ("burst_by_user", "high", f"3 failed log-ins of alice, then a log-in from {THERE}"),
    ]


def test_a_log_in_long_after_a_burst_or_before_it_is_none_of_its(spark: SparkSession, log: Log):
    opened(log, 0, address=THERE)
    for at in (10, 11, 12):
        failed(log, at)
    opened(log, 73, address=THERE)
    assert [severity for _, severity, _ in findings(spark, log)] == ["medium", "medium"]


def test_refused_permissions_are_told_once_by_user_and_object(spark: SparkSession, log: Log):
    for at in (0, 9):
        log.add("permission_refused", at=at, user="alice", object="queue pay", detail="read")
    row = made(spark, log)["findings"][0]
    assert (row["severity"], row["count"], row["sentence"]) == (
        *("low", 2),
        "alice was refused queue pay in /, 2 times",
    )


def test_an_address_is_new_after_the_days_of_learning(spark: SparkSession, log: Log):
    opened(log, 0)
    opened(log, 6 * DAY, address="192.0.2.2")
    opened(log, 8 * DAY, address=THERE)
    opened(log, 8 * DAY, user="bob")
    rows = made(spark, log)
    assert [row["new"] for row in rows["addresses"] if row["user"] == "alice"] == [False, False, True]
    assert [(row["severity"], row["sentence"]) for row in rows["findings"]] == [
        ("low", f"bob is new, and came from {HERE}"),
        ("medium", f"alice came from a new address, {THERE}"),
    ]


def test_privileges_changed_from_a_new_address_are_high(spark: SparkSession, log: Log):
    opened(log, 0)
    log.add("policy_put", at=1, user="alice", address=HERE, object="policy limits")
    opened(log, 8 * DAY, address=THERE)
    log.add(
        *("user_put", 8 * DAY + 1),
        user="alice",
        address=THERE,
        object="user mallory",
        detail='{"tags":["administrator"]}',
    )
    assert findings(spark, log)[1:] == [
        (
            *("privilege_changed", "high"),
            f'alice: user_put of user mallory with tags ["administrator"], from the new address {THERE}',
        ),
        ("privilege_changed", "low", "alice: policy_put of policy limits"),
    ]


def test_users_of_two_brokers_are_not_added_up(spark: SparkSession, log: Log):
    for at in (0, 1):
        failed(log, at)
        failed(log, at + 0.5, node="n2", address="203.0.113.5")
    opened(log, 0)
    opened(log, 8 * DAY, node="n2")
    log.add("permission_refused", at=9, user="alice", object="queue pay")
    log.add("permission_refused", at=9, user="alice", object="queue pay", node="n2")
    rows = made(spark, log)
    assert sorted((row["node"], row["count"]) for row in rows["failed_logins"]) == [("n1", 2), ("n2", 2)]
    assert sorted((row["node"], row["new"], row["others"]) for row in rows["addresses"]) == [
        ("n1", False, False),
        # Of that broker it is the first one.
        ("n2", True, False),
    ]
    assert sorted((row["kind"], row["node"], row["count"]) for row in rows["findings"]) == [
        ("new_address", "n2", 1),
        ("permission_refused", "n1", 1),
        ("permission_refused", "n2", 1),
    ]


def test_failures_from_one_address_are_counted_at_all_nodes(spark: SparkSession, log: Log):
    for at, node in enumerate(("n1", "n2", "n3")):
        failed(log, at, node=node, user=f"u{at}")
    [row] = made(spark, log)["findings"]
    assert (row["kind"], row["count"], row["node"]) == ("burst_by_address", 3, None)


def test_a_change_that_was_asked_for_at_another_node_is_told_once(spark: SparkSession, log: Log):
    what: dict[str, Any] = {"object": "policy limits", "detail": "{}"}
    log.add("policy_put", at=1, user="alice", address=HERE, **what)
    log.add("policy_put", at=2, node="n2", **what)
    # Long after, and of another object: nobody asked for these.
    log.add("policy_put", at=100, node="n2", **what)
    log.add("policy_deleted", at=2, node="n2", object="policy other")
    log.add("policy_deleted", at=3, user="rmq-cli", object="policy third")
    assert [sentence for _, _, sentence in findings(spark, log)] == [
        "alice: policy_put of policy limits",
        "rmq-cli: policy_deleted of policy third",
        "the broker: policy_deleted of policy other",
        "the broker: policy_put of policy limits",
    ]


@pytest.mark.parametrize("flags", [(), ("--stream", "--once")])
def test_the_job_says_what_is_high_and_fails_only_where_that_is_asked_for(
    spark: SparkSession, log: Log, tmp_path: Path, flags: tuple[str, ...]
):
    for at in (0, 1, 2):
        failed(log, at)
    opened(log, 3, address=THERE)
    arguments = ["--input", log.write(), "--output", str(tmp_path / "out"), "--burst", "3", "--fail", *flags]
    done = CliRunner().invoke(security.command, arguments)
    assert done.exit_code == 1, done.output
    assert "findings: 2 high, 0 medium, 0 low" in done.output
    assert f"3 failed log-ins from {THERE}, then a log-in of alice" in done.output


@pytest.mark.slow
def test_a_stream_that_was_killed_finds_what_a_batch_does(
    spark: SparkSession, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for at in (0, 1):
        failed(log, at)
    folder = Path(log.write())

    def write(made: dict[str, DataFrame], options: Options) -> None:
        security.write({"findings": made["findings"]}, options)

    stream = Stream(Options("security", (str(folder),), str(tmp_path / "out")), SHORT, write)
    taken = Settings(stream.options.table("_checkpoint"), once=True, files_max=1)
    run(spark, stream.options, stream.step, taken, Stop())
    failed(log, 2)
    log.write()
    # A file comes again under another name, while a batch is killed after its tables.
    file = next(folder.rglob("*.parquet"))
    shutil.copy(file, file.with_name("n1-1-again.parquet"))

    def killed(*_: object) -> None:
        raise ValueError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Stream, "_say", killed)
        with pytest.raises(StreamingQueryException, match="killed"):
            run(spark, stream.options, stream.step, taken, Stop())
    assert stream.run(spark, taken, Stop())
    found = spark.read.parquet(stream.options.table("findings")).select("kind", "count").collect()
    assert sorted(found) == [("burst_by_address", 3), ("burst_by_user", 3)]
