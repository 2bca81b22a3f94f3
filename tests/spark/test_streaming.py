"""Streams: each batch once, whatever is killed when; files that come later and cannot be taken; ends that are asked
for."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from amqpd_spark import door
from amqpd_spark.batches import Batches, NotOurs
from amqpd_spark.door import Refused
from amqpd_spark.options import Options
from amqpd_spark.streaming import Settings, Step, Stop, run, settings
from tests.harness.slow import slow
from tests.spark.log import Log
from tests.spark.test_exit_codes import (
    WRONG,
    called,
    count_as_text,
    damaged_rows,
    emptied,
    garbage,
    of_format_2,
    process,
    refused,
    small,
)


class Copy:
    """A step that writes down the rows of each batch, and may fail at a place."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.fails_at: str | None = None
        self.done: list[int] = []

    def __call__(self, step: Step) -> None:
        self.done.append(step.number)
        # All columns: what nobody reads of a file is not looked at.
        step.batches.write("rows", step.number, step.rows)
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


@pytest.mark.slow
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


LATER = [each if each in (garbage, emptied, count_as_text) else slow(each) for each in WRONG]


@pytest.mark.parametrize("spoil", LATER, ids=lambda each: each.__name__)
def test_a_later_file_that_cannot_be_taken_ends_the_stream(
    spark: SparkSession, spoil: Callable[[Path], None], log: Log, options: Options
):
    step = Copy(options)
    log.path.mkdir()
    (log.path / "first.txt").write_text("of another")
    take(spark, step)
    spoil(later := small(log))
    # Rows whose footer is whole are refused by who reads them.
    with pytest.raises((Refused, StreamingQueryException)) as refusal:
        take(spark, step)
    said = door.sentence(refusal.value)
    assert WRONG[spoil] in said
    assert str(later) in said
    assert step.done == ([0, 1] if spoil is damaged_rows else [0])


def test_later_files_of_others_are_passed_over_and_counted(
    spark: SparkSession, log: Log, options: Options, capsys: pytest.CaptureFixture[str]
):
    step = Copy(options)
    small(log)
    take(spark, step)
    (log.path / "README.txt").write_text("what these are")
    pq.write_table(pa.table({"count": ["of another type"]}), log.files[0].parent / "counts.parquet")
    (log.files[0].parent / "_rows.json").write_text("of compact")
    take(spark, step)
    small(log)
    take(spark, step)
    assert rows(spark, step) == [1, 2, 3, 4, 5, 6]
    said = capsys.readouterr().err.splitlines()
    foreign = log.path / "README.txt", log.files[0].parent / "counts.parquet"
    assert said == [f"amqpd-spark: 1 file that is not amqpd's was passed over: {file}" for file in foreign]


def test_the_stream_goes_on_when_the_file_is_removed(
    spark: SparkSession, log: Log, options: Options, capsys: pytest.CaptureFixture[str]
):
    step = Copy(options)
    wrong = small(log)
    wrong.write_bytes(b"")
    with pytest.raises(Refused, match="is no whole Parquet file"):
        take(spark, step)
    wrong.unlink()
    small(log)
    take(spark, step)
    assert rows(spark, step) == [4, 5, 6]
    assert f"amqpd-spark: 1 file was removed before it was taken: {wrong}\n" in capsys.readouterr().err


@pytest.mark.parametrize("job", ["security", slow("slo")])
def test_a_later_file_of_a_newer_format_is_exit_code_2(spark: SparkSession, job: str, log: Log, tmp_path: Path):
    arguments: list[str | Path] = [job, "--stream", "--once", "--input", log.path, "--output", tmp_path / "out"]
    small(log)
    assert called(*arguments).exit_code == 0
    small(log)
    of_format_2(log.files[-1])
    refused(called(*arguments), str(log.files[-1]), "has format 2; this amqpd-spark reads 1: install a newer one")


@pytest.mark.slow
def test_spark_does_not_say_it_too(log: Log, tmp_path: Path):
    small(log).write_bytes(b"no Parquet")
    done = process("security", "--stream", "--once", "--input", log.path, "--output", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    said = [line for line in done.stderr.splitlines() if not line.startswith(("WARNING: ", "WARN ", "Picked up "))]
    assert said == [f"amqpd-spark: {log.files[0]} is no whole Parquet file: {said[0].partition('file: ')[2]}"]


def test_options_of_streams_need_a_stream(options: Options):
    given = {"stream": False, "once": True, "checkpoint": None, "max_files": 1, "every": 1}
    with pytest.raises(click.UsageError, match="--once is of streams"):
        settings(options, given)
    assert settings(options, {**given, "once": False}) is None
    assert settings(options, {**given, "stream": True}) == Settings(options.table("_checkpoint"), True, 1, 1)
