"""Streams: each batch once, whatever is killed when; ends that are asked for."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import click
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from amqpd_spark.batches import Batches, NotOurs
from amqpd_spark.options import Options
from amqpd_spark.streaming import Settings, Step, Stop, run, settings
from tests.spark.log import Log


class Copy:
    """A step that writes down the rows of each batch, and may fail at a place."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.fails_at: str | None = None
        self.done: list[int] = []

    def __call__(self, step: Step) -> None:
        self.done.append(step.number)
        step.batches.write("rows", step.number, step.rows.select("number"))
        self._fail("before the end")
        step.batches.end(step.number, step.batches.spark.range(1), ())
        self._fail("after the end")

    def _fail(self, place: str) -> None:
        if self.fails_at == place:
            raise ValueError(place)


@pytest.fixture
def options(log: Log, tmp_path: Path) -> Options:
    return Options("test", (str(log.path),), str(tmp_path / "out"))


def take(spark: SparkSession, step: Copy, stop: Stop | None = None) -> None:
    taken = Settings(step.options.table("_checkpoint"), once=True, files_max=1)
    run(spark, step.options, step, taken, stop or Stop())


def rows(spark: SparkSession, step: Copy) -> list[int]:
    batches = Batches(spark, step.options)
    last = batches.last()
    return [] if last is None else sorted(row["number"] for row in batches.up_to("rows", last).collect())


def two_files(log: Log) -> None:
    for _ in range(2):
        log.add("started")
        log.write()


@pytest.mark.parametrize("place", ["before the end", "after the end"])
def test_a_batch_that_was_killed_is_done_once(spark: SparkSession, log: Log, options: Options, place: str):
    two_files(log)
    step = Copy(options)
    step.fails_at = place
    with pytest.raises(StreamingQueryException, match=place):
        take(spark, step)
    step.fails_at = None
    take(spark, step)
    assert rows(spark, step) == [1, 2]
    assert step.done == ([0, 0, 1] if place == "before the end" else [0, 1])


def test_only_what_is_new_is_taken(spark: SparkSession, log: Log, options: Options):
    step = Copy(options)
    log.add("started")
    log.write()
    take(spark, step)
    log.add("started")
    log.write()
    Path(log.path, "date=2026-11-22", "hour=05", ".n1-1-9.parquet").write_bytes(b"half a file")
    take(spark, step)
    assert (step.done, rows(spark, step)) == ([0, 1], [1, 2])


def test_a_checkpoint_that_is_not_of_the_output_is_refused(spark: SparkSession, log: Log, options: Options):
    step = Copy(options)
    two_files(log)
    take(spark, step)
    shutil.rmtree(options.table("_stream"))
    log.add("started")
    log.write()
    with pytest.raises(NotOurs, match="delete both"):
        take(spark, step)


def test_who_deletes_the_checkpoint_begins_again(spark: SparkSession, log: Log, options: Options):
    two_files(log)
    take(spark, Copy(options))
    shutil.rmtree(options.table("_checkpoint"))
    step = Copy(options)
    take(spark, step)
    assert (step.done, rows(spark, step)) == ([0, 1], [1, 2])


def test_a_signal_ends_the_stream_after_the_batch_under_way(spark: SparkSession, log: Log, options: Options):
    two_files(log)
    stop = Stop()

    class Signalled(Copy):
        def __call__(self, step: Step) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            while not stop.asked:  # the main thread takes it at its next bytecode
                pass
            super().__call__(step)

    step = Signalled(options)
    with stop.on_signals():
        take(spark, step, stop)
    assert step.done == [0]
    assert rows(spark, step) == [1]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_options_of_streams_need_a_stream(options: Options):
    given = {"stream": False, "once": True, "checkpoint": None, "max_files": 1, "every": 1}
    with pytest.raises(click.UsageError, match="--once is of streams"):
        settings(options, given)
    assert settings(options, {**given, "once": False}) is None
    assert settings(options, {**given, "stream": True}) == Settings(options.table("_checkpoint"), True, 1, 1)
