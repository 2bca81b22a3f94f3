"""The Spark session that jobs run in.

What comes in: a name, where to run, how much memory. What goes out: a `SparkSession`.
Rules: 1. What a cluster or `spark-submit` has set stays; `master` and `memory` are set only where they are given. 2.
All times are UTC.
Not here: whether there is a Java (`java.py`), arguments (`options.py`).
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

# On every master: what the jobs' results depend on, and what only costs time.
COMMON = {
    "spark.sql.session.timeZone": "UTC",
    # Where each column came from in our source, looked up through py4j: a third of the time of a small job.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # A stretch of the log becomes up to 65,536 rows, so a task's share of a file is small.
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}
# Only where we start the whole of Spark in this process ourselves.
LOCAL = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def start(name: str, master: str | None = None, memory: str | None = None) -> SparkSession:
    """`memory` of the driver, which with a local master is all there is ("3g"). Without a `master` the one that
    spark-submit or spark-defaults.conf gives, else this machine's cores."""
    builder = SparkSession.builder.appName(f"amqpd-spark {name}")
    submitted = "SPARK_ENV_LOADED" in os.environ
    if master is None and not submitted:
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
    settings = dict(COMMON)
    if master is not None and master.startswith("local"):
        settings |= LOCAL
    if memory is not None:
        settings["spark.driver.memory"] = memory
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
