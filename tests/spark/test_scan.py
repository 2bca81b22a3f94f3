"""The log's columns in tasks: the same, whoever reads the file.

What is verified: files as bytes, files that Spark reads and files that the driver reads give the same chunks; a
period; columns that old files lack; texts, flags and nulls as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark import events
from amqpd_spark.door import Refused
from amqpd_spark.stretches import scan
from amqpd_spark.stretches.chunk import Chunk
from amqpd_spark.stretches.packed import spread, unpacked
from amqpd_spark.stretches.scan import Rows, of_dataframe
from amqpd_spark.tabular import frame
from tests.spark.log import START, Log

COLUMNS = ("event", "time", "number", "connection", "persistent", "source")
SCHEMA = "event string, us bigint, number bigint, connection string, persistent bigint, source bigint"


def told(chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        texts = [chunk.texts(name) for name in ("event", "connection")]
        event, connection = ([text.names[code] for code in text.codes.tolist()] for text in texts)
        columns = [
            pa.array(event, pa.string()),
            *(pa.array(chunk.longs(name)) for name in ("time", "number")),
            pa.array(connection, pa.string()),
            pa.array(chunk.flags("persistent")),
            pa.array(chunk.longs("source")),
        ]
        yield pa.RecordBatch.from_arrays(columns, [part.split()[0] for part in SCHEMA.split(", ")])


def numbers(rows: Rows) -> list[int]:
    return sorted(row["number"] for row in rows.mapped(told, COLUMNS, SCHEMA).collect())


def of_files(spark: SparkSession, log: Log, **period: object) -> Rows:
    files = [(str(file), file.stat().st_size) for file in log.files]
    read = events.of_files(spark, [path for path, _ in files], **period)  # type: ignore[arg-type]
    return Rows(spark, lambda: read, files, **period)  # type: ignore[arg-type]


@pytest.fixture
def three_hours(log: Log) -> Log:
    for hour in range(3):
        log.add("routed", at=3600 * hour, connection="c", persistent=True, source=3, source_epoch=1)
        log.add("acked", at=3600 * hour + 1, persistent=None)
        log.add("published", at=3600 * hour + 2)
    log.write()
    return log


def test_the_driver_makes_the_same_of_a_small_log(spark: SparkSession, three_hours: Log):
    begin, end = START + timedelta(hours=1), START + timedelta(hours=2, seconds=1)
    for period in ({}, {"since": begin, "until": end}):
        in_tasks = of_files(spark, three_hours, **period)
        here = replace(in_tasks, here=True)
        assert here.brought(told, COLUMNS, SCHEMA).to_pylist() == in_tasks.brought(told, COLUMNS, SCHEMA).to_pylist()
        found = [
            frame(spark, rows.reduced(parted, COLUMNS, 2, counted, "part int, messages bigint"))
            for rows in (here, in_tasks)
        ]
        assert found[0].schema == found[1].schema
        assert sums(found[0]) == sums(found[1])
        assert sum(sums(found[0]).values()) == (4 if period else 9)


def test_what_is_too_much_for_the_driver_is_made_in_tasks(
    spark: SparkSession, three_hours: Log, monkeypatch: pytest.MonkeyPatch
):
    rows = replace(of_files(spark, three_hours), here=True)
    made = frame(spark, rows.reduced(parted, COLUMNS, 2, counted, "part int, messages bigint", again=True))
    assert not made.storageLevel.useMemory
    monkeypatch.setattr(scan, "MADE_MAX", 1)
    in_tasks = frame(spark, rows.reduced(parted, COLUMNS, 2, counted, "part int, messages bigint", again=True))
    assert in_tasks.storageLevel.useMemory
    assert sums(in_tasks) == sums(made)


def parted(chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        number = chunk.longs("number")
        yield from spread("numbers", number % 2, 2, {"number": number})


def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _, part, table in unpacked(batches):
        columns = [pa.array([part], pa.int32()), pa.array([table.num_rows], pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, ["part", "messages"])


def sums(rows: DataFrame) -> dict[int, int]:
    """By part."""
    of: dict[int, int] = {}
    for part, messages in map(tuple, rows.collect()):
        of[part] = of.get(part, 0) + messages
    return of


def test_a_file_that_is_gone_is_named(spark: SparkSession, three_hours: Log):
    files = [(f"file:{file}", file.stat().st_size) for file in three_hours.files]
    rows = replace(of_files(spark, three_hours), files=files, here=True)
    three_hours.files[1].unlink()
    with pytest.raises(Refused, match=f"{three_hours.files[1].name} cannot be read: No such file"):
        rows.brought(told, COLUMNS, SCHEMA)


def rows_of(rows: Rows) -> list[tuple[object, ...]]:
    return sorted(map(tuple, rows.mapped(told, COLUMNS, SCHEMA).collect()))


def test_spark_reads_what_is_too_large_and_makes_the_same_of_it(
    spark: SparkSession, three_hours: Log, monkeypatch: pytest.MonkeyPatch
):
    found = rows_of(of_files(spark, three_hours))
    monkeypatch.setattr(scan, "WHOLE_MAX", 0)
    assert rows_of(of_files(spark, three_hours)) == found
    assert rows_of(of_dataframe(events.read(spark, str(three_hours.path)))) == found
    us = round(START.timestamp() * 1e6)
    assert ("acked", us + 1_000_000, 2, None, -1, 0) in found
    assert ("routed", us, 1, "c", 1, 3) in found
    assert len(found) == 9


@pytest.mark.parametrize("most", [scan.WHOLE_MAX, 0])
def test_a_period_is_from_its_begin_to_before_its_end(
    spark: SparkSession, three_hours: Log, most: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scan, "WHOLE_MAX", most)
    begin, end = START + timedelta(hours=1), START + timedelta(hours=2, seconds=1)
    assert numbers(of_files(spark, three_hours, since=begin, until=end)) == [4, 5, 6, 7]
    assert numbers(of_files(spark, three_hours, since=begin)) == [4, 5, 6, 7, 8, 9]
    assert numbers(of_files(spark, three_hours, until=begin)) == [1, 2, 3]


def test_what_a_file_of_an_earlier_version_lacks_is_nothing(spark: SparkSession, three_hours: Log):
    for file in three_hours.files:
        pq.write_table(pq.read_table(file, partitioning=None).drop_columns(["source", "source_epoch"]), Path(file))
    found = of_files(spark, three_hours).mapped(told, COLUMNS, SCHEMA).collect()
    assert {row["source"] for row in found} == {0}
    assert len(found) == 9


def test_a_text_that_is_none_is_said_with_its_file(spark: SparkSession, three_hours: Log):
    spoiled = three_hours.files[1]
    table = pq.read_table(spoiled, partitioning=None)
    # Codes of a dictionary are looked at when somebody asks for the text, and then nobody knows the file.
    no_text = pa.array([b"\xff\xfe"] * table.num_rows, pa.binary()).view(pa.string())
    place = table.schema.get_field_index("connection")
    pq.write_table(table.set_column(place, "connection", no_text), spoiled)
    with pytest.raises(PySparkException, match=f"{spoiled.name} cannot be read: .*UTF8"):
        rows_of(of_files(spark, three_hours))
