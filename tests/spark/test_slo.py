"""Latencies and rates: what is measured from where to where, what a minute holds, what duplicates change."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark import events, histogram, slo, slo_tables
from amqpd_spark.inventory import Inventory
from amqpd_spark.slo_sums import Measured
from amqpd_spark.slo_sums import measured as of_rows
from amqpd_spark.stretches.scan import of_dataframe
from amqpd_spark.stretches.sweep import BLOCK
from tests.spark.log import Log

QUEUE = {"queue": "q", "queue_id": 7}
PUBLISHER = {"connection": "c1", "channel": 1}


def measured(spark: SparkSession, log: Log) -> Measured:
    return of_rows(of_dataframe(events.read(spark, log.write())), Inventory([]))


def durations(found: Measured) -> dict[tuple[Any, ...], Any]:
    """(measure, exchange, queue, minute of the hour) -> (count, sum in ms)"""
    rows = (
        slo_tables.histogram_of(found)
        .groupBy("measure", "exchange", "queue", F.minute("minute").alias("m"))
        .agg(F.sum("count").alias("count"), F.sum("sum_us").alias("sum_us"))
    )
    return {
        (r["measure"], r["exchange"], r["queue"], r["m"]): (r["count"], r["sum_us"] / 1000) for r in rows.collect()
    }


def figures(table: DataFrame) -> dict[tuple[Any, ...], dict[str, int]]:
    """(exchange, queue, minute of the hour) -> the figures that are not 0"""
    rows = table.withColumn("m", F.minute("minute")).collect()
    return {
        (r["exchange"], r["queue"], r["m"]): {
            k: v for k, v in r.asDict().items() if isinstance(v, int) and v and k != "m"
        }
        for r in rows
    }


def test_each_latency_is_counted_in_the_minute_that_it_began_in(spark: SparkSession, log: Log):
    log.add("published", at=59, confirm_tag=1, publication=1, exchange="x", **PUBLISHER)
    log.add("routed", at=59, publication=1, first=0, exchange="x", **QUEUE)
    log.add("confirmed", at=59.5, confirm_tag=1, publication=1, **PUBLISHER)
    log.add("delivered", at=61, first=0, **QUEUE)
    log.add("acked", at=121, first=0, **QUEUE)
    assert durations(measured(spark, log)) == {
        ("publish_to_confirm", "x", None, 0): (1, 500),
        ("publish_to_deliver", "x", "q", 0): (1, 2000),
        ("deliver_to_ack", "x", "q", 1): (1, 60_000),
    }


def test_a_redelivered_message_reaches_its_consumer_once_and_is_acknowledged_from_the_last_delivery(
    spark: SparkSession, log: Log
):
    log.add("routed", at=0, first=0, exchange="", **QUEUE)
    log.add("delivered", at=1, first=0, **QUEUE)
    log.add("requeued", at=2, first=0, **QUEUE)
    log.add("delivered", at=10, first=0, redelivered=True, **QUEUE)
    log.add("acked", at=10.25, first=0, **QUEUE)
    assert durations(measured(spark, log)) == {
        ("publish_to_deliver", "", "q", 0): (1, 1000),
        ("deliver_to_ack", "", "q", 0): (1, 250),
    }


def test_stretches_are_matched_message_by_message_over_the_blocks_of_tasks(spark: SparkSession, log: Log):
    count = 2 * BLOCK + 10
    log.add("routed", at=0, first=5, count=count, exchange="x", **QUEUE)
    log.add("delivered", at=1, first=5, count=BLOCK + 1, **QUEUE)
    log.add("delivered", at=3, first=BLOCK + 6, count=count - BLOCK - 1, **QUEUE)
    found = durations(measured(spark, log))
    assert found == {("publish_to_deliver", "x", "q", 0): (count, 1000 * (BLOCK + 1) + 3000 * (count - BLOCK - 1))}


def test_an_acknowledgement_that_nobody_sent_is_no_latency(spark: SparkSession, log: Log):
    log.add("delivered", at=1, first=0, **QUEUE)
    log.add("acked", at=2, first=0, auto=True, **QUEUE)
    log.add("published", at=2, publication=1, exchange="x", **PUBLISHER)
    log.add("confirmed", at=3, publication=1, **PUBLISHER)
    assert durations(measured(spark, log)) == {}


def test_a_tag_that_comes_again_on_another_channel_of_that_name_is_another_publication(spark: SparkSession, log: Log):
    for publication, at in ((1, 0), (2, 10)):
        log.add("published", at=at, confirm_tag=1, publication=publication, exchange="x", **PUBLISHER)
        log.add("confirmed", at=at + publication, confirm_tag=1, publication=publication, **PUBLISHER)
    assert durations(measured(spark, log)) == {("publish_to_confirm", "x", None, 0): (2, 3000)}


def test_where_the_publish_is_not_in_the_log_the_queue_is_still_known(spark: SparkSession, log: Log):
    log.add("delivered", at=1, first=0, **QUEUE)
    log.add("acked", at=2, first=0, **QUEUE)
    assert durations(measured(spark, log)) == {("deliver_to_ack", None, "q", 0): (1, 1000)}


def test_rates_count_each_figure_by_queue_and_by_exchange(spark: SparkSession, log: Log):
    log.add("published", at=0, count=5, confirm_tag=1, publication=1, exchange="x", **PUBLISHER)
    log.add("published", at=0, count=7, exchange="y", reason="dead_letter")
    log.add("returned", at=0, count=1, exchange="x")
    log.add("unroutable", at=0, count=2, exchange="x")
    log.add("refused", at=70, count=2, confirm_tag=2, publication=2, **PUBLISHER)
    log.add("routed", at=1, first=0, count=9, exchange="x", **QUEUE)
    log.add("delivered", at=1, first=0, count=4, **QUEUE)
    log.add("requeued", at=1, first=0, count=2, **QUEUE)
    log.add("delivered", at=61, first=0, count=2, redelivered=True, **QUEUE)
    log.add("acked", at=61, first=0, count=1, **QUEUE)
    for event, reason in (
        *(("rejected", "rejected"), ("expired", None), ("dropped", None)),
        *(("dead_lettered", cause) for cause in ("rejected", "delivery_limit", "expired", "maxlen")),
    ):
        log.add(event, at=61, first=0, reason=reason, **QUEUE)
    queue = {"acked": 1, "delivered": 2, "redelivered": 2, "rejected": 3, "expired": 2, "dropped": 2}
    assert figures(slo_tables.rates_of(measured(spark, log))) == {
        ("x", None, 0): {"published": 5, "returned": 1, "unroutable": 2, "refused": 2},
        (None, "q", 0): {"routed": 9, "delivered": 4, "requeued": 2},
        (None, "q", 1): queue,
    }


def test_files_that_came_twice_change_nothing(spark: SparkSession, log: Log):
    log.add("published", confirm_tag=1, publication=1, count=3, exchange="x", **PUBLISHER)
    log.add("routed", first=0, count=3, exchange="x", **QUEUE)
    log.add("confirmed", at=1, confirm_tag=1, publication=1, count=3, **PUBLISHER)
    log.add("delivered", at=1, first=0, count=3, **QUEUE)
    once = measured(spark, log)
    for file in Path(log.path).rglob("*.parquet"):
        shutil.copy(file, file.with_name("again.parquet"))
    twice = measured(spark, log)
    assert durations(twice) == durations(once)
    assert figures(slo_tables.rates_of(twice)) == figures(slo_tables.rates_of(once))


@pytest.mark.parametrize("us", [0, 1, 127, 128, 129, 255, 256, 2**29 - 1, 2**29, 2**40 - 1, 2**53])
def test_a_buckets_midpoint_is_within_a_hundredth_of_what_is_in_it(us: int):
    number = histogram.bucket_of(us)
    shift = max(number // 64 - 1, 0)
    low, high = (number - shift * 64) << shift, ((number - shift * 64 + 1) << shift) - 1
    assert low <= us <= high
    assert max(us - (low + high) / 2, (low + high) / 2 - us) <= 0.01 * us


def test_percentiles_are_within_one_and_a_half_percent_of_exact_ones(spark: SparkSession, log: Log):
    us = np.random.default_rng(7).lognormal(9, 1.5, 3000).astype(int)
    log.add("routed", first=0, count=len(us), exchange="x", **QUEUE)
    for number, each in enumerate(us):
        log.add("delivered", at=int(each) / 1e6, first=number, **QUEUE)
    rows = slo_tables.tables(measured(spark, log), [])["latency_total"].where("scope = 'vhost'").collect()
    found = rows[0].asDict()
    assert (len(rows), found["count"], found["vhost"], found["queue"]) == (1, 3000, "/", None)
    for name, share in histogram.PERCENTILES.items():
        exact = np.percentile(us, share * 100, method="inverted_cdf") / 1000
        assert found[name] == pytest.approx(exact, rel=0.015), name
    assert found["max_ms"] == us.max() / 1000
    assert found["mean_ms"] == pytest.approx(us.mean() / 1000)


def test_the_job_writes_its_tables_and_fails_only_where_that_is_asked_for(
    spark: SparkSession, log: Log, tmp_path: Path
):
    log.add("routed", first=0, count=4, exchange="x", **QUEUE)
    log.add("delivered", at=1, first=0, count=4, **QUEUE)
    file = tmp_path / "slo.toml"
    file.write_text(
        '[[objective]]\nname = "fast"\nmeasure = "publish_to_deliver"\nthreshold_ms = 10\n'
        'target = 0.99\nwindow = "1h"\n'
    )
    folders = ["--input", log.write(), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(slo.command, [*folders, "--objectives", str(file), "--fail"])
    assert done.exit_code == 1, done.output
    assert "MISSED  fast: 0.0000% of 4 good, target 99.0000% over 1h" in done.output
    assert "fast burn of fast from 2026-11-22 05:00 to 2026-11-22 05:01" in done.output
    assert spark.read.parquet(str(tmp_path / "out" / "rates")).count() == 1
