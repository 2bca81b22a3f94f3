"""Reading the log: what is meant by a time, files that came twice, stretches."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
from pyspark.sql import SparkSession

from amqpd_spark import events
from amqpd_spark.schema import COLUMNS
from tests.spark.log import START, TYPES, Log


def test_the_columns_are_those_of_the_tests_own_log():
    spark_names = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()}
    spark_names["timestamp"] = pa.timestamp("us", tz="UTC")
    assert {name: spark_names[kind.simpleString()] for name, kind in COLUMNS.items()} == TYPES


def test_a_time_decides_and_not_the_folder(spark: SparkSession, log: Log):
    for hour in (-1, 0, 0.5, 1):
        log.add("started", at=hour * 3600)
    # An event of the next hour in the folder of the hour before.
    folder = log.write()
    found = events.read(spark, folder, START, START + timedelta(hours=1))
    assert sorted(row.time.timestamp() - START.timestamp() for row in found.collect()) == [0, 1800]


def test_a_file_that_came_twice_counts_once_where_that_is_asked_for(spark: SparkSession, log: Log):
    log.add("started")
    log.add("started", number=1)
    folder = log.write()
    assert events.read(spark, folder).count() == 2
    assert events.read(spark, folder, unique=True).count() == 1


def test_a_stretch_is_a_row_for_each_message(spark: SparkSession, log: Log):
    log.add("routed", queue_id=7, first=0, count=3, publication=5)
    rows = events.each_message(events.read(spark, log.write())).collect()
    assert sorted((row["first"], row["publication"], row["confirm_tag"], row["count"]) for row in rows) == [
        (0, 5, 0, 1),
        (1, 6, 0, 1),
        (2, 7, 0, 1),
    ]
