"""The length of a row of the books where nobody gave one, and the table `flow` by the same windows."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from amqpd_spark import events, windows
from amqpd_spark.conservation import command
from amqpd_spark.inventory import take
from amqpd_spark.options import Options
from amqpd_spark.stretches.scan import of_dataframe
from tests.spark.log import START, Log

HOUR, DAY = 3600, 86400


def flow_in(output: Path) -> dict[tuple[Any, ...], tuple[int, int]]:
    """(node, queue, window) -> entered, ended"""
    rows = ds.dataset(output / "flow", format="parquet", partitioning="hive").to_table().to_pylist()
    return {
        (row["node"], row["queue"], row["window"].replace(tzinfo=UTC)): (row["entered"], row["ended"]) for row in rows
    }


def message(log: Log, number: int, at: float, acked_at: float, **columns: Any) -> None:
    where = {"queue": "q", "queue_id": 1, "first": number, **columns}
    log.add("routed", at=at, publication=number + 1, **where)
    log.add("acked", at=acked_at, **where)


def fitting(spark: SparkSession, folder: str, *asked: str) -> str:
    """What the job takes for `--window auto`, without its account."""
    with command.make_context("conservation", ["--input", folder, "--output", "unused", *asked]) as context:
        shared = {name: context.params[name] for name in ("output", "since", "until")}
        options = Options("conservation", context.params["input"], **shared)
        log = options.log(spark)
        asked_for = context.params["window"]
        return windows.fitting(asked_for, log.inventory, log.rows, options.since, options.until)


@pytest.mark.parametrize(
    ("length", "as_broker", "window"),
    [
        (0.9 * HOUR, True, "1 minute"),
        (5.9 * HOUR, True, "1 minute"),
        (6.1 * HOUR, True, "1 hour"),
        (13.9 * DAY, True, "1 hour"),
        (14.1 * DAY, True, "1 day"),
        # The names of folders, which are hours, are all that is known without a look at the rows.
        (0.9 * HOUR, False, "1 minute"),
        (8 * HOUR, False, "1 hour"),
        (15 * DAY, False, "1 day"),
    ],
)
def test_windows_fit_the_length_of_the_log(
    spark: SparkSession, log: Log, length: float, as_broker: bool, window: str
):
    message(log, 0, 0, 1)
    message(log, 1, length - 1, length)
    assert fitting(spark, log.write_as_broker() if as_broker else log.write()) == window


def test_a_log_without_folders_of_hours_is_asked_itself(spark: SparkSession, log: Log, tmp_path: Path):
    message(log, 0, 0, 1)
    message(log, 1, 0, 9 * HOUR)
    log.write()
    flat = tmp_path / "flat"
    flat.mkdir()
    for at, file in enumerate(log.files):
        file.rename(flat / f"part-{at}.parquet")
    assert windows.fitting("auto", take(spark, [str(flat)]), of_dataframe(events.read(spark, str(flat)))) == "1 hour"


def test_a_period_that_was_asked_for_is_what_windows_fit(spark: SparkSession, log: Log):
    for at in range(20):
        message(log, at, at * DAY, at * DAY + 1)
    folder = log.write_as_broker()
    since = ["--since", f"{START + timedelta(days=3):%Y-%m-%dT%H:%M}"]
    until = ["--until", f"{START + timedelta(days=3, hours=2):%Y-%m-%dT%H:%M}"]
    assert fitting(spark, folder, *since, *until) == "1 minute"
    assert fitting(spark, folder, "--window", "15 minutes") == "15 minutes"


def test_what_entered_and_what_ended_is_told_by_the_time_of_each(spark: SparkSession, log: Log, tmp_path: Path):
    for number, (at, acked_at) in enumerate([(0, 30), (10, 70), (70, 80)]):
        message(log, number, at, acked_at)
    log.add("routed", at=75, queue="q", queue_id=1, first=3, count=5, publication=9)
    # An end of what had entered before the log began.
    log.add("expired", at=190, queue="old", queue_id=2, first=7, count=2, epoch=0)
    message(log, 0, 0, 30, node="n2")
    of_source: dict[str, Any] = {"queue": "shared", "queue_id": 3, "source": 5, "epoch": 1}
    log.add("routed", at=0, publication=7, source_epoch=1, **of_source)
    log.add("acked", at=20, node="n2", source_epoch=2, **of_source)
    folder = log.write_as_broker()
    # A copy of all files changes nothing.
    for file in list(log.files):
        file.with_name(f"copy-{file.name}").write_bytes(file.read_bytes())
    answer = CliRunner().invoke(command, ["--input", folder, "--output", str(tmp_path / "out")])
    assert "(windows of 1 minute)" in answer.output
    minutes = [START + timedelta(minutes=at) for at in range(4)]
    assert flow_in(tmp_path / "out") == {
        ("n1", "q", minutes[0]): (2, 1),
        ("n1", "q", minutes[1]): (6, 2),
        ("n1", "old", minutes[3]): (0, 2),
        ("n2", "q", minutes[0]): (1, 1),
        # Two nodes keep it: it entered at one, and ended at the other.
        ("source 5", "shared", minutes[0]): (1, 1),
    }
    assert windows.length_s(spark.read.parquet(str(tmp_path / "out" / "books"))) == 60
