"""Jobs as streams: files are taken as they come, each event once, whatever is killed when.

What comes in: the audit log's folder; a step that a job does for each batch. What goes out: tables of batches below
the job's output, in `_stream`, from which the job makes its own.
Rules: 1. A batch is the same files under the same number until it is done: Spark writes them down before it starts.
2. A step writes only to folders of its number, over what a killed one left there, and reads only those of batches
before it. So a batch that is done again gives the same. 3. Its last write is `done`; a batch that has it is not done
again. 4. What a batch carries over for the next one stays until the next but one is done.
Not here: what the jobs do (`slo_stream.py`, `security_stream.py`).
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
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, StructField, StructType

from amqpd_spark import inventory
from amqpd_spark.options import Options, number
from amqpd_spark.schema import EVENTS

FILE = "file"
"""column of the stream's rows: the name of their file, without its folder"""
FILES_MAX = 100
EVERY_S = 30
_DONE = "done"
_QUERY = "sql.streaming.queryId"
"""local property of the thread that runs a batch; the same after a restart"""
_STOPPED = "the stream was asked to stop"


@dataclass(frozen=True)
class Settings:
    """`checkpoint`: where Spark writes down which files it took; `once`: end when there is nothing more."""

    checkpoint: str
    once: bool = False
    files_max: int = FILES_MAX
    every_s: int = EVERY_S


class NotOurs(Exception):
    """The checkpoint and the output are of different streams."""


class Batches:
    """Tables of a stream's batches: ROOT/<name>/batch=<number>."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self.spark = spark
        self.root = options.table("_stream")

    def path(self, name: str, number: int) -> str:
        return f"{self.root}/{name}/batch={number}"

    def write(self, name: str, number: int, rows: DataFrame) -> None:
        rows.write.mode("overwrite").parquet(self.path(name, number))

    def read(self, name: str, number: int) -> DataFrame:
        return self.spark.read.parquet(self.path(name, number))

    def up_to(self, name: str, number: int) -> DataFrame:
        """All batches' rows, without those of one that is under way."""
        return self.spark.read.parquet(f"{self.root}/{name}").where(F.col("batch") <= number).drop("batch")

    def last(self) -> int | None:
        """The last batch that is done."""
        files, path = self._place(f"{self.root}/{_DONE}")
        if not files.exists(path):
            return None
        numbers = [int(each.getPath().getName().removeprefix("batch=")) for each in files.listStatus(path)]
        return max((number for number in numbers if self.is_done(number)), default=None)

    def is_done(self, number: int) -> bool:
        files, path = self._place(f"{self.path(_DONE, number)}/_SUCCESS")
        return bool(files.exists(path))

    def forget(self, name: str, number: int) -> None:
        self._delete(self.path(name, number))

    def begin(self, number: int) -> bool:
        """Whether batch `number` has still to be done. Raises NotOurs."""
        # The checkpoint keeps this name: who deletes it begins again, and what is here is not of that stream.
        files, name = self._place(f"{self.root}/stream={self.spark.sparkContext.getLocalProperty(_QUERY)}")
        if not files.exists(name):
            if number > 0:
                raise NotOurs(f"the checkpoint is at batch {number}, and {self.root} is not: delete both")
            self._delete(self.root)
            files.mkdirs(name)
        if self.is_done(number):
            return False
        if number > 0 and not self.is_done(number - 1):
            raise NotOurs(f"the checkpoint is at batch {number}, and {self.root} has no batch before it: delete both")
        return True

    def end(self, number: int, facts: DataFrame, carried: tuple[str, ...]) -> None:
        """The batch is done. `facts`: some rows that the next one needs; `carried`: tables that only it needs."""
        self.write(_DONE, number, facts.coalesce(1))
        for name in (*carried, _DONE):
            self.forget(name, number - 2)

    def facts(self, number: int) -> DataFrame:
        return self.read(_DONE, number)

    def _delete(self, folder: str) -> None:
        files, path = self._place(folder)
        files.delete(path, True)

    def _place(self, path: str) -> tuple[Any, Any]:
        # Spark's own view of files: the output may be on anything that it can write to.
        spark: Any = self.spark
        place = spark._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(spark._jsc.hadoopConfiguration()), place


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


def source(spark: SparkSession, options: Options, files_max: int) -> DataFrame:
    """Events as files appear, with FILE. Raises Refused when a file that is there cannot be taken; one that comes
    later ends the stream."""
    folders = options.folders(spark)
    inventory.take(spark, folders, holes=False)
    with_folders = StructType([*EVENTS.fields, StructField("date", DateType()), StructField("hour", StringType())])
    reader = spark.readStream.schema(with_folders).option("maxFilesPerTrigger", files_max)
    each = (reader.option("basePath", folder).parquet(folder) for folder in folders)
    found = reduce(DataFrame.unionByName, (rows.withColumn(FILE, F.col("_metadata.file_name")) for rows in each))
    if options.since is not None:
        found = found.where(F.col("time") >= F.lit(options.since))
    if options.until is not None:
        found = found.where(F.col("time") < F.lit(options.until))
    return found.select(*EVENTS.fieldNames(), FILE)


def run(rows: DataFrame, step: Callable[[DataFrame, int], None], settings: Settings, stop: Stop) -> None:
    """Until `stop`, or with `once` until all files are taken."""

    def do(batch: DataFrame, number: int) -> None:
        if stop.asked:
            raise RuntimeError(_STOPPED)
        # Batches are small, and Spark's usual 200 tasks for each shuffle would be most of their time.
        own = batch.sparkSession
        own.conf.set("spark.sql.shuffle.partitions", str(2 * own.sparkContext.defaultParallelism))
        step(batch, number)

    writer = rows.writeStream.foreachBatch(do).option("checkpointLocation", settings.checkpoint)
    writer = writer.trigger(availableNow=True) if settings.once else writer.trigger(processingTime=_every(settings))
    query = writer.start()
    try:
        while not query.awaitTermination(1):
            if stop.asked and not query.status["isTriggerActive"]:
                break
    except StreamingQueryException as error:
        if _STOPPED not in str(error):
            raise
    finally:
        query.stop()


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
