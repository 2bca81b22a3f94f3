"""Files as the broker writes them: Spark reads all of them, and nothing beside them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from amqpd.audit.files.edges import Edges
from amqpd.audit.files.parquet import convert
from amqpd_spark import events, usage
from tests.audit.reading import rows_below
from tests.audit.traffic import LANES, spool_of

COLUMNS = ("event", "number", "first", "count", "publication", "confirm_tag", "body_bytes", "queue", "user")


def test_spark_reads_what_the_broker_writes(spark: SparkSession, tmp_path: Path):
    """Also numbers that are differences, with the reader that takes many rows at once; `_log` is none of them."""
    folder = tmp_path / "events"
    folder.mkdir()
    spool = tmp_path / "n-3-1.spool"
    spool.write_bytes(spool_of(300, 10, "order-{}".format))
    assert convert(spool, folder, edges=Edges(folder))
    assert (folder / "_log-n.json").exists()
    rows = events.read(spark, str(folder))
    found = rows.orderBy("number").select(*COLUMNS, "time").collect()
    written = rows_below(folder)
    assert [tuple(row)[:-1] for row in found] == [tuple(row[name] for name in COLUMNS) for row in written]
    assert [row["time"].timestamp() for row in found] == [row["time"].timestamp() for row in written]
    by_queue = usage.by_queue(usage.facts(rows, False)).collect()
    assert len(by_queue) == LANES
    assert all(row["delivered_bytes"] == row["accepted_bytes"] > 0 for row in by_queue)
