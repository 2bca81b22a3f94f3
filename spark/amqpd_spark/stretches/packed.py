"""Columns of numbers as bytes: how they go from task to task.

What comes in: numpy columns in a task; rows (`what`, `part`, `bytes`) in Spark. What goes out: the same columns in
the task that gets `part`.
Rules: 1. For Spark some 100,000 rows are one, so a shuffle costs it little more than copying the bytes. 2. `what`
says what the columns are: several tables go through one shuffle.
Not here: what the columns mean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import cloudpickle
from pyspark.sql import DataFrame

import amqpd_spark
from amqpd_spark.stretches.chunk import Longs

SCHEMA = "what string, part int, bytes binary"
Columns = dict[str, Longs]
Function = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_ARROW = pa.schema([("what", pa.string()), ("part", pa.int32()), ("bytes", pa.binary())])


def packed(what: str, table: pa.Table, part: int = 0) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(table)
    columns = [pa.array([what]), pa.array([part], pa.int32()), pa.array([sink.getvalue().to_pybytes()], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def of_columns(columns: Mapping[str, NDArray[Any]]) -> pa.Table:
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def spread(what: str, part: Longs, parts: int, columns: Mapping[str, NDArray[Any]]) -> Iterator[pa.RecordBatch]:
    """Each part's rows; parts that have none are left out."""
    order = np.argsort(part.astype(np.uint16 if parts <= 1 << 16 else np.int64), kind="stable")
    edges = np.searchsorted(part[order], np.arange(parts + 1))
    table = of_columns({name: column[order] for name, column in columns.items()})
    for number in np.flatnonzero(np.diff(edges)).tolist():
        yield packed(what, table.slice(edges[number], edges[number + 1] - edges[number]), number)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int, pa.Table]]:
    for batch in batches:
        for what, part, content in zip(*(batch.column(name) for name in _ARROW.names), strict=True):
            yield what.as_py(), part.as_py(), pa.ipc.open_stream(content.as_buffer()).read_all()


def together(tables: Iterable[pa.Table]) -> Columns:
    """All rows of tables of one kind. {}: there are no tables."""
    held = list(tables)
    if not held:
        return {}
    table = pa.concat_tables(held)
    return {name: np.asarray(table.column(name).to_numpy(), np.int64) for name in table.column_names}


def mapped(rows: DataFrame, function: Function, schema: str = SCHEMA) -> DataFrame:
    """`function` in each task, on its batches."""
    # With the code in it: so only numpy, pyarrow and pandas need to be where the tasks run.
    cloudpickle.register_pickle_by_value(amqpd_spark)  # type: ignore[no-untyped-call]
    return rows.mapInArrow(short_of_zips(function), schema)


def short_of_zips(function: Function) -> Function:
    """The same function, that leaves no archives to be read again. Before each task Spark has Python look again at
    where it imports from, and then the whole list of `pyspark.zip` is read, once for each package in it: 0.1 to
    0.3 s of each task's processor time."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        finally:
            for path, finder in list(sys.path_importer_cache.items()):
                if isinstance(finder, zipimporter):
                    # Made again when something is imported, from the list that was read the first time.
                    del sys.path_importer_cache[path]

    return run


def sent(rows: DataFrame, parts: int) -> DataFrame:
    """Each to the task of its `part`."""
    # Of Spark 4.1; before it, parts that have the same hash share a task.
    by_id = getattr(rows, "repartitionById", None)
    made: DataFrame = rows.repartition(parts, "part") if by_id is None else by_id(parts, "part")
    return made


def hashed(*columns: Longs) -> NDArray[np.uint64]:
    """Of each row, spread evenly over 64 bits (Steele, Lea and Flood, 2014: splitmix)."""
    made = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        made = made * np.uint64(0x9E3779B97F4A7C15) + column.astype(np.uint64)
        made = (made ^ (made >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        made = (made ^ (made >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        made ^= made >> np.uint64(31)
    return made
