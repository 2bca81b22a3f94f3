"""What a function makes of the log's columns, in every task.

What comes in: files of the log, or a DataFrame of its rows; a function. What goes out: a DataFrame, or Arrow's table.
Rules: 1. Spark brings a file's bytes to the task, through its own connectors, and Arrow decodes the columns that are
wanted: for a log of 20 million events a fifth of the time that Spark's rows take (docs/decisions/audit-columns.md).
2. A file of more than WHOLE_MAX bytes is read by Spark itself, so that a task's memory is bounded. 3. A row counts if
its time is in the period, whatever file it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark import events
from amqpd_spark.door import Refused
from amqpd_spark.files import Failed, files_of, plain
from amqpd_spark.given import empty, of_rows
from amqpd_spark.inventory import Inventory
from amqpd_spark.schema import COLUMNS
from amqpd_spark.session import kept
from amqpd_spark.stretches.chunk import Chunk
from amqpd_spark.stretches.packed import SCHEMA, mapped, sent
from amqpd_spark.stretches.packed import Function as OfTask
from amqpd_spark.tabular import Table

TASK_ROWS = 500_000
"""of the log, that a task of a shuffle gets on average: some hundred MB"""

Function = Callable[[Iterator[Chunk]], Iterator[pa.RecordBatch]]
WHOLE_MAX = 64 << 20
"""bytes; some hundred million when decoded by and by, ROWS at a time"""
ROWS = 1 << 18
MADE_MAX = 250_000
"""rows that come of a small log: more only where something is wrong with each message"""
_TEXT = "string"


@dataclass(frozen=True)
class Rows:
    """The log's rows. `spark_rows`: makes a DataFrame of them. `files`: where they are all of these (path, bytes), of
    the time from `since` on and before `until`; None: they are known as a DataFrame only. `here`: they are so few
    that the driver looks at them itself; then there are files, of this machine."""

    spark: SparkSession
    spark_rows: Callable[[], DataFrame]
    files: Sequence[tuple[str, int]] | None = None
    since: datetime | None = None
    until: datetime | None = None
    here: bool = False

    @cached_property
    def events(self) -> DataFrame:
        return self.spark_rows()

    def brought(self, function: Function, columns: Sequence[str], schema: str) -> pa.Table:
        """All that `mapped` gives, in the driver."""
        if not self.here:
            return self.mapped(function, columns, schema).toArrow()
        return pa.Table.from_batches(function(self._chunks_here(columns)), empty(schema).schema)

    def reduced(
        self,
        first: Function,
        columns: Sequence[str],
        parts: int,
        second: OfTask,
        schema: str = SCHEMA,
        again: bool = False,
    ) -> Table:
        """What `first` yields of the log is packed; all of a part goes to one task, which may have several, and
        `second` makes rows of `schema` of what that task gets. In the driver, if it looks at the log itself.
        `again`: they are looked at more than once."""
        if self.here:
            made = _held(second(first(self._chunks_here(columns))), empty(schema).schema)
            if made is not None:
                return made
        rows = mapped(sent(self.mapped(first, columns, SCHEMA), parts), second, schema)
        return kept(rows) if again else rows

    def tasks(self, inventory: Inventory) -> int:
        """Of a shuffle of all rows."""
        if self.here:
            return 1
        return max(self.spark.sparkContext.defaultParallelism, -(-inventory.rows // TASK_ROWS))

    def mapped(self, function: Function, columns: Sequence[str], schema: str) -> DataFrame:
        """`schema` of what `function` yields. It is called once in each task, with chunks that have `columns`."""
        if self.files is None:
            return _of_rows(self.events, function, columns, schema)
        small = [path for path, size in self.files if size <= WHOLE_MAX]
        large = [path for path, size in self.files if size > WHOLE_MAX]
        made = _of_bytes(self.spark, small, self._within(function, columns), schema)
        if not large:
            return made
        rows = events.of_files(self.spark, large, self.since, self.until)
        return made.unionByName(_of_rows(rows, function, columns, schema))

    def _chunks_here(self, columns: Sequence[str]) -> Iterator[Chunk]:
        return _chunks(self._contents(), columns, *self._period)

    def _contents(self) -> Iterator[tuple[str, pa.Buffer]]:
        """Raises Refused."""
        for path, _ in self.files or ():
            try:
                yield path, pa.py_buffer(files_of(self.spark, path).read(path))
            except Failed as error:
                raise Refused(f"{plain(path)} cannot be read: {error}") from error

    @property
    def _period(self) -> tuple[int | None, int | None]:
        since, until = (None if at is None else round(at.timestamp() * 1e6) for at in (self.since, self.until))
        return since, until

    def _within(self, function: Function, columns: Sequence[str]) -> OfTask:
        since, until = self._period

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from function(_chunks(_files(batches), columns, since, until))

        return read


def of_dataframe(rows: DataFrame) -> Rows:
    return Rows(rows.sparkSession, lambda: rows)


def _held(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table | None:
    """None: they are more than the driver should hold."""
    rows, held = 0, []
    for batch in batches:
        rows += batch.num_rows
        if rows > MADE_MAX:
            return None
        held.append(batch)
    return pa.Table.from_batches(held, schema)


def _of_bytes(spark: SparkSession, paths: Sequence[str], read: OfTask, schema: str) -> DataFrame:
    if not paths:
        return of_rows(spark, [], schema)
    # Else listing many paths is a job of its own.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", str(len(paths) + 1))
    found = spark.read.format("binaryFile").load([events.literally(path) for path in paths])
    return mapped(found.select("path", "content"), read, schema)


def _of_rows(rows: DataFrame, function: Function, columns: Sequence[str], schema: str) -> DataFrame:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(_gathered(batches))

    return mapped(rows.select(*columns), read, schema)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
    """Spark's batches are small for numpy."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= ROWS:
            yield Chunk(pa.Table.from_batches(held))
            held = []
    if any(each.num_rows for each in held):
        yield Chunk(pa.Table.from_batches(held))


def _files(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.Buffer]]:
    for batch in batches:
        for path, content in zip(batch.column("path"), batch.column("content"), strict=True):
            yield path.as_py(), content.as_buffer()


def _chunks(
    files: Iterable[tuple[str, pa.Buffer]], columns: Sequence[str], since_us: int | None, until_us: int | None
) -> Iterator[Chunk]:
    bounded = since_us is not None or until_us is not None
    names = [*columns, *(["time"] if bounded and "time" not in columns else [])]
    for path, content in files:
        for batch in _decoded(path, content, names):
            table = _with_all(pa.Table.from_batches([batch]), names)
            if bounded:
                table = table.filter(_in_period(table.column("time"), since_us, until_us))
            if table.num_rows:
                yield Chunk(table)


def _decoded(path: str, content: pa.Buffer, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Raises Refused."""
    texts = [name for name in names if COLUMNS[name].simpleString() == _TEXT]
    try:
        with pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts) as file:
            there = [name for name in names if name in file.schema_arrow.names]
            for batch in file.iter_batches(ROWS, columns=there, use_threads=False):
                # Octets that are no text would be found when somebody looks at it, who does not know the file.
                batch.validate(full=True)
                yield batch
    except (OSError, pa.ArrowException) as error:
        raise Refused(f"{plain(path)} cannot be read: {error}") from error


def _with_all(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Files of earlier versions lack columns."""
    for name in names:
        if name not in table.column_names:
            kind = pa.string() if COLUMNS[name].simpleString() == _TEXT else pa.int64()
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    return table


def _in_period(time: pa.ChunkedArray, since_us: int | None, until_us: int | None) -> pa.ChunkedArray:
    us = time.cast(pa.timestamp("us", time.type.tz)).cast(pa.int64())
    kept = pc.is_valid(us)
    if since_us is not None:
        kept = pc.and_(kept, pc.greater_equal(us, since_us))
    if until_us is not None:
        kept = pc.and_(kept, pc.less(us, until_us))
    return kept
