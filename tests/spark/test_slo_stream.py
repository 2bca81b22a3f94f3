"""The stream of `slo`: its tables are those of a batch, whatever came when; what it waits for, and how long."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from amqpd_spark import events, slo, slo_tables
from amqpd_spark.batches import Batches, NotOurs
from amqpd_spark.compact import compact
from amqpd_spark.inventory import Inventory
from amqpd_spark.objectives import Objective
from amqpd_spark.options import Options
from amqpd_spark.slo_stream import Stream
from amqpd_spark.slo_sums import measured as of_rows
from amqpd_spark.streaming import Settings, Stop, run
from amqpd_spark.stretches.scan import of_dataframe
from tests.spark.log import Log

QUEUE = {"queue": "q", "queue_id": 7}
PUBLISHER = {"connection": "c1", "channel": 1}
WANTED = [Objective("o", "deliver_to_ack", 0.9, 3600, "1h", threshold_ms=500.0)]
TABLES = ("latency", "latency_total", "histogram", "rates", "objectives", "burn", "breaches")


# The objectives' tables are made of the others, and cost more than those.
MEASURED = ("histogram", "rates")


@pytest.fixture
def stream(log: Log, tmp_path: Path) -> Stream:
    return Stream(Options("slo", (str(log.path),), str(tmp_path / "stream")), WANTED)


def settings(stream: Stream) -> Settings:
    return Settings(stream.options.table("_checkpoint"), once=True, files_max=1)


def take(spark: SparkSession, stream: Stream) -> Batches:
    """Without the tables, which cost more than the batches."""
    run(spark, stream.options, stream.step, settings(stream), Stop())
    return Batches(spark, stream.options)


def table(spark: SparkSession, options: Options, name: str) -> list[Any]:
    found = spark.read.parquet(options.table(name))
    return sorted((row.asDict() for row in found.collect()), key=repr)


def batch(spark: SparkSession, stream: Stream, tmp_path: Path) -> Options:
    options = Options("slo", stream.options.inputs, str(tmp_path / "batch"))
    found = of_rows(of_dataframe(events.read(spark, options.inputs[0])), Inventory([]))
    slo_tables.write(slo_tables.tables(found, WANTED), options)
    return options


def measured(spark: SparkSession, stream: Stream) -> dict[str, list[Any]]:
    """What a batch job's tables would be made of."""
    found = of_rows(of_dataframe(events.read(spark, stream.options.inputs[0])), Inventory([]))
    made = slo_tables.tables(found, [])
    return {name: sorted((row.asDict() for row in made[name].collect()), key=repr) for name in MEASURED}


def three_files(log: Log, write: Callable[[], object] | None = None) -> None:
    """Messages that begin, go on and end in different files; some do not end. `write`: called after each part."""
    write = write or log.write
    log.add("published", count=5, confirm_tag=1, publication=1, exchange="x", **PUBLISHER)
    log.add("routed", first=0, count=5, publication=1, exchange="x", **QUEUE)
    log.add("delivered", at=1, first=0, count=4, **QUEUE)
    write()
    log.add("confirmed", at=61, confirm_tag=1, publication=1, count=3, **PUBLISHER)
    log.add("refused", at=61, confirm_tag=4, publication=4, **PUBLISHER)
    log.add("acked", at=62, first=0, count=2, **QUEUE)
    log.add("requeued", at=62, first=2, count=2, **QUEUE)
    write()
    log.add("delivered", at=130, first=2, redelivered=True, **QUEUE)
    log.add("acked", at=131, first=2, **QUEUE)
    log.add("expired", at=131, first=3, **QUEUE)
    write()


@pytest.mark.slow
def test_it_adds_up_to_what_a_batch_does_though_it_was_killed(
    spark: SparkSession, log: Log, stream: Stream, monkeypatch: pytest.MonkeyPatch
):
    three_files(log)
    stream = replace(stream, objectives=[])
    write = Batches.write

    def killed(self: Batches, name: str, number: int, rows: Any) -> None:
        write(self, name, number, rows)
        if (name, number) == ("rates", 1):
            raise ValueError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Batches, "write", killed)
        with pytest.raises(StreamingQueryException, match="killed"):
            take(spark, stream)
    assert stream.run(spark, settings(stream), Stop())
    for name, expected in measured(spark, stream).items():
        assert table(spark, stream.options, name) == expected, name
    assert table(spark, stream.options, "late") == []
    # Messages that are over are not carried on, and what is carried is that of two batches.
    batches = Batches(spark, stream.options)
    waiting = batches.read("messages", 2).where("not over").orderBy("publisher").collect()
    assert [(row["publisher"], row["number"]) for row in waiting] == [(False, 4), (True, 5)]
    assert sorted(path.name for path in Path(batches.root, "messages").iterdir()) == ["batch=1", "batch=2"]


@pytest.mark.slow
def test_all_tables_are_those_of_a_batch(spark: SparkSession, log: Log, stream: Stream, tmp_path: Path):
    three_files(log)
    assert stream.run(spark, settings(stream), Stop())
    expected = batch(spark, stream, tmp_path)
    for name in TABLES:
        assert table(spark, stream.options, name) == table(spark, expected, name), name


@pytest.mark.slow
def test_a_file_that_comes_again_in_another_folder_is_not_taken_again(spark: SparkSession, log: Log, stream: Stream):
    log.add("published", count=5, confirm_tag=1, publication=1, exchange="x", **PUBLISHER)
    log.add("confirmed", at=61, confirm_tag=1, publication=1, count=3, **PUBLISHER)
    log.write()
    take(spark, stream)
    folder = Path(log.path, "date=2026-11-22")
    shutil.copytree(folder / "hour=05", folder / "hour=06")
    batches = take(spark, stream)
    assert batches.last() == 1
    assert [batches.up_to(name, 1).count() for name in ("rates", "histogram")] == [1, 1]


@pytest.mark.slow
def test_an_hour_that_was_taken_and_then_compacted_counts_once(
    spark: SparkSession, log: Log, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A broker's folder and an archive of it; the hour is compacted after each file, and the stream started again,
    before that or after it; it is killed, too."""
    archive = tmp_path / "archive"
    archive.mkdir()
    options = replace(stream.options, inputs=(str(log.path), str(archive)))
    stream = replace(stream, objectives=[], options=options)
    write = Batches.write

    def killed(self: Batches, name: str, number: int, rows: Any) -> None:
        write(self, name, number, rows)
        if (name, number) == ("late", 2):
            raise ValueError("killed")

    def part() -> None:
        log.write_as_broker()
        take(spark, stream)
        compact(events.read(spark, str(log.path)), str(archive), 100)
        if len(log.files) == 2:
            with monkeypatch.context() as patched:
                patched.setattr(Batches, "write", killed)
                with pytest.raises(StreamingQueryException, match="killed"):
                    take(spark, stream)

    log.path.mkdir()
    three_files(log, part)
    assert stream.run(spark, settings(stream), Stop())
    for name, expected in measured(spark, stream).items():
        assert table(spark, stream.options, name) == expected, name
    assert table(spark, stream.options, "late") == []


@pytest.mark.slow
def test_what_is_not_heard_of_is_given_up_and_said_when_it_comes_late(spark: SparkSession, log: Log, stream: Stream):
    log.add("routed", at=0, first=0, exchange="x", **QUEUE)
    log.write()
    # The message is given up with this file, and its delivery with the next one.
    log.add("started", at=4000)
    log.add("routed", at=4000, first=1, exchange="x", **QUEUE)
    log.write()
    log.add("delivered", at=60, first=0, **QUEUE)
    log.write()
    batches = take(spark, stream)
    late = batches.up_to("late", 2).collect()
    assert sorted((row["what"], row["queue"], row["count"]) for row in late) == [
        ("event", "q", 1),
        ("message", "q", 1),
    ]
    waiting = batches.read("messages", 2).where("not over").collect()
    assert [row["number"] for row in waiting] == [1]


def test_a_stream_of_an_earlier_version_is_not_gone_on_with(spark: SparkSession, stream: Stream):
    batches = Batches(spark, stream.options)
    old = spark.createDataFrame([(True, 1, 1, False)], "publisher boolean, key long, number long, over boolean")
    batches.write("messages", 0, old)
    batches.end(0, spark.range(1).selectExpr("0L as watermark"), ())
    with pytest.raises(NotOurs, match="of an earlier version: give another --output"):
        stream.fold(spark)


def test_the_command_takes_what_is_there_and_ends(spark: SparkSession, log: Log, tmp_path: Path):
    log.path.mkdir()
    folders = ["--input", str(log.path), "--output", str(tmp_path / "out"), "--stream", "--once", "--max-files", "1"]
    nothing = CliRunner().invoke(slo.command, folders)
    assert (nothing.exit_code, nothing.output) == (0, "no events yet\n")
    log.add("delivered", first=0, **QUEUE)
    log.add("acked", at=1, first=0, **QUEUE)
    log.write()
    done = CliRunner().invoke(slo.command, folders)
    assert done.exit_code == 0, done.output
    assert "deliver_to_ack" in done.output
