"""Jobs as streams: files are taken as they come, each event once, whatever is killed when.

What comes in: the audit log's folders; a step that a job does for each batch. What goes out: tables of batches below
the job's output, in `_stream`, from which the job makes its own; a refusal that names a file.
Rules: 1. A batch is the same files under the same number until it is done: Spark writes them down before it starts.
2. A step writes only to folders of its number, over what a killed one left there, and reads only those of batches
before it. So a batch that is done again gives the same. 3. Its last write is `done`; a batch that has it is not done
again. 4. A file that cannot be taken ends the stream before anything of its batch is written but what rule 2 allows.
Not here: the tables of batches (`batches.py`); the files of one (`arrivals.py`), and what of them was taken before
(`seen.py`); what the jobs do (`slo_stream.py`, `security_stream.py`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark import events, seen
from amqpd_spark.arrivals import arrived, remarks
from amqpd_spark.batches import Batches
from amqpd_spark.door import Refused
from amqpd_spark.events import literally
from amqpd_spark.footers import Footers
from amqpd_spark.options import Options, number
from amqpd_spark.schema import EVENTS

FILES_MAX = 100
EVERY_S = 30


@dataclass(frozen=True)
class Settings:
    """`checkpoint`: where Spark writes down which files it took; `once`: end when there is nothing more."""

    checkpoint: str
    once: bool = False
    files_max: int = FILES_MAX
    every_s: int = EVERY_S


class _Stopped(Exception):
    """It was asked to stop before a batch began."""


class Stop:
    """Set by SIGTERM and SIGINT: the batch under way is finished, and no other one begins."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """From the main thread only."""

        def ask(*_: object) -> None:
            self.asked = True

        before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True)
class Step:
    """A batch, as a job takes it: its events, each once and none that an earlier batch had; where its tables go. The
    last call of a step is `batches.end`."""

    rows: DataFrame
    number: int
    batches: Batches


def run(spark: SparkSession, options: Options, do: Callable[[Step], None], settings: Settings, stop: Stop) -> None:
    """Until `stop`, or with `once` until all files are taken. Raises Refused when a file cannot be."""
    failed: list[Exception] = []

    def step(batch: DataFrame, number: int) -> None:
        # What Spark makes of an exception in here are pages of words, so it is kept as it is.
        try:
            _one(spark, batch.sparkSession, options, do, number, stop)
        except Exception as error:
            failed.append(error)
            raise

    writer = _files(spark, options, settings).writeStream.foreachBatch(step)
    writer = writer.option("checkpointLocation", settings.checkpoint)
    writer = writer.trigger(availableNow=True) if settings.once else writer.trigger(processingTime=_every(settings))
    query = writer.start()
    try:
        while not query.awaitTermination(1):
            if stop.asked and not query.status["isTriggerActive"]:
                break
    except StreamingQueryException:
        if failed and isinstance(failed[-1], Refused):
            raise failed[-1] from None
        if not (failed and isinstance(failed[-1], _Stopped)):
            raise
    finally:
        query.stop()


def _files(spark: SparkSession, options: Options, settings: Settings) -> DataFrame:
    """A stream of the folders' files. Raises Refused when there is no such folder."""
    folders = options.folders(spark)
    for folder in folders:
        next(Footers(spark).listed(folder), None)
    # Its rows are never read: a batch is its files. Folders of dates are none of its business, and a batch that is
    # done again has the files that it had, whether they are still there or not.
    reader = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", settings.files_max)
    reader = reader.options(recursiveFileLookup=True, ignoreMissingFiles=True)
    return reduce(DataFrame.unionByName, (reader.parquet(literally(folder)) for folder in folders))


def _one(
    spark: SparkSession, own: SparkSession, options: Options, do: Callable[[Step], None], number: int, stop: Stop
) -> None:
    """A batch, in Spark's thread; `own` is the session of the query."""
    if stop.asked:
        raise _Stopped
    batches = Batches(own, options)
    if not batches.begin(number):
        return
    # Batches are small, and Spark's usual 200 tasks for each shuffle would be most of their time.
    own.conf.set("spark.sql.shuffle.partitions", str(2 * own.sparkContext.defaultParallelism))
    found = arrived(spark)
    for sentence in remarks(found):
        click.echo(f"amqpd-spark: {sentence}", err=True)
    rows = events.of_files(own, [file.path for file in found.files], options.since, options.until)
    with seen.new(batches, number, found.files, rows) as new:
        do(Step(new, number, batches))


def until_stopped(
    stream: Callable[[SparkSession, Settings, Stop], bool], spark: SparkSession, settings: Settings
) -> bool:
    """Run a job's stream until a signal, or its end; what it returns."""
    stop = Stop()
    with stop.on_signals():
        return stream(spark, settings, stop)


def _every(settings: Settings) -> str:
    return f"{settings.every_s} seconds"


def stream_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a job that can be a stream; `settings` makes Settings of them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def settings(options: Options, given: dict[str, Any]) -> Settings | None:
    """None: not a stream. Raises click.UsageError."""
    if not given["stream"]:
        for name in ("once", "checkpoint"):
            if given[name]:
                raise click.UsageError(f"--{name} is of streams: give --stream too, or leave it out")
        return None
    checkpoint = given["checkpoint"] or options.table("_checkpoint")
    return Settings(checkpoint, given["once"], given["max_files"], given["every"])


_OPTIONS = (
    click.option("--stream", is_flag=True, help="Take files as they come, until SIGTERM or Ctrl-C."),
    click.option("--once", is_flag=True, help="With --stream: take what is new since the last time, and end."),
    click.option("--checkpoint", metavar="DIR", help="With --stream: what was taken. [OUTPUT/_checkpoint]"),
    number("--max-files", 1, FILES_MAX, "N", "With --stream: files of a batch, at most."),
    number("--every", 0, EVERY_S, "SECONDS", "With --stream: between the beginnings of batches, at least."),
)
