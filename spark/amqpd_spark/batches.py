"""The tables of a stream's batches, and which batches are done.

What comes in: the output of a job, the number of a batch, its rows. What goes out: OUTPUT/_stream/NAME/batch=NUMBER.
Rules: 1. A batch that is begun again writes over what a killed one left. 2. `done` is its last table. 3. What only
the next batch needs stays until the next but one is done.
Not here: how batches come (`streaming.py`); which rows were taken before (`seen.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.door import Refused
from amqpd_spark.files import Failed, files_of, plain
from amqpd_spark.options import Options

QUERY = "sql.streaming.queryId"
"""local property of the thread that runs a batch; the same after a restart"""
SEEN = "seen"
"""of every stream, and only the next batch needs it: which rows were taken"""
_DONE = "done"


class NotOurs(Refused):
    """The checkpoint and the output are of different streams."""


class Batches:
    """Tables of a stream's batches: ROOT/<name>/batch=<number>."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self.spark = spark
        self.root = options.table("_stream")
        self._files = files_of(spark, self.root)

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
        folder = f"{self.root}/{_DONE}"
        with self._said():
            found = self._files.entries(folder) if self._is(folder) else []
        numbers = [int(path.rpartition("/batch=")[2]) for path, _ in found if "/batch=" in path]
        return max((number for number in numbers if self.is_done(number)), default=None)

    def is_done(self, number: int) -> bool:
        return self.is_there(_DONE, number)

    def is_there(self, name: str, number: int) -> bool:
        return self._is(f"{self.path(name, number)}/_SUCCESS")

    def forget(self, name: str, number: int) -> None:
        self._delete(self.path(name, number))

    def begin(self, number: int) -> bool:
        """Whether batch `number` has still to be done. Raises NotOurs."""
        # The checkpoint keeps this name: who deletes it begins again, and what is here is not of that stream.
        name = f"{self.root}/stream={self.spark.sparkContext.getLocalProperty(QUERY)}"
        if not self._is(name):
            if number > 0:
                raise NotOurs(f"the checkpoint is at batch {number}, and {self.root} is not: delete both")
            self._delete(self.root)
            with self._said():
                self._files.make_folder(name)
        if self.is_done(number):
            return False
        if number > 0 and not self.is_done(number - 1):
            raise NotOurs(f"the checkpoint is at batch {number}, and {self.root} has no batch before it: delete both")
        return True

    def end(self, number: int, facts: DataFrame, carried: tuple[str, ...]) -> None:
        """The batch is done. `facts`: some rows that the next one needs; `carried`: tables that only it needs."""
        self.write(_DONE, number, facts.coalesce(1))
        for name in (*carried, SEEN, _DONE):
            self.forget(name, number - 2)

    def facts(self, number: int) -> DataFrame:
        return self.read(_DONE, number)

    def _delete(self, folder: str) -> None:
        with self._said():
            if self._is(folder):
                self._files.remove(folder)

    def _is(self, path: str) -> bool:
        with self._said():
            return self._files.kind(path) is not None

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Raises Refused for Failed."""
        try:
            yield
        except Failed as error:
            raise Refused(f"{plain(self.root)}: {error}") from error
