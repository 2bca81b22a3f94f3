"""A table that the driver holds, as Arrow, or that Spark has.

What comes in: one of both, and a function of batches. What goes out: the same kind of table; a folder of files.
Rules: 1. What is made of a small log needs no Spark: the functions are those that Spark's tasks call. 2. Files are
written as Spark would, for whoever reads them: a folder for each value of a column, and the columns' metadata where
Spark looks for it. 3. What was there is moved away, and then what is new to its place, a folder at a time: who reads
in between may miss one, and never finds half of it. Who is killed in between leaves the old one beside it.
Not here: which table is where (`stretches/scan.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.door import Refused
from amqpd_spark.files import plain
from amqpd_spark.footers import SPARK_KEY
from amqpd_spark.given import empty
from amqpd_spark.stretches.packed import Function, mapped

Table: TypeAlias = pa.Table | DataFrame
_NAMES: dict[pa.DataType, str] = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
}
"""Spark's, in the metadata of a file"""
_ADDED = 1 << 16
"""rows, that are added up together at least"""
_WRITING = "_writing-"
"""begins a folder's name; no reader of Parquet looks into it"""
_DONE = "_SUCCESS"
"""Spark's word that all is there"""
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_FILE = "part-0.zstd.parquet"


def frame(spark: SparkSession, table: Table) -> DataFrame:
    """As Spark's."""
    return table if isinstance(table, DataFrame) else spark.createDataFrame(table)


def united(tables: Sequence[Table], spark: SparkSession) -> DataFrame:
    """All rows, as Spark's."""
    return reduce(DataFrame.unionByName, (frame(spark, table) for table in tables))


def brought(tables: Sequence[Table]) -> pa.Table:
    """All rows, in the driver. The first table is there already, and the others have its columns."""
    kind = tables[0].schema
    return pa.concat_tables(each.toArrow().cast(kind) if isinstance(each, DataFrame) else each for each in tables)


def over(table: Table, function: Function, schema: str) -> Table:
    """`function` of all rows, or of those of each task."""
    if isinstance(table, DataFrame):
        return mapped(table, function, schema)
    return pa.Table.from_batches(function(table.to_batches()), empty(schema).schema)


def added(tables: Iterable[pa.Table], keys: Sequence[str], how: Mapping[str, str]) -> pa.Table | None:
    """Rows with the same keys as one. `how`: column -> sum, min or max. None: there is no table."""
    held: list[pa.Table] = []
    known = more = 0
    for table in tables:
        held.append(table.select([*keys, *how]))
        more += table.num_rows
        # Not with each of many small tables: all that is held would be looked at again.
        if more > max(known, _ADDED):
            held = [_grouped(held, keys, how)]
            known, more = held[0].num_rows, 0
    return _grouped(held, keys, how) if held else None


def _grouped(tables: Sequence[pa.Table], keys: Sequence[str], how: Mapping[str, str]) -> pa.Table:
    made = pa.concat_tables(tables).group_by(list(keys), use_threads=False).aggregate(list(how.items()))
    return made.select([*keys, *(f"{name}_{what}" for name, what in how.items())]).rename_columns([*keys, *how])


def with_date(table: Table) -> Table:
    """The day of `window`, UTC."""
    if isinstance(table, DataFrame):
        return table.withColumn("date", F.to_date("window"))
    return table.append_column("date", table.column("window").cast(pa.date32()))


def with_metadata(table: Table, column: str, metadata: Mapping[str, str]) -> Table:
    """Of a column, for who reads it with Spark."""
    if isinstance(table, DataFrame):
        return table.withColumn(column, F.col(column).alias(column, metadata=dict(metadata)))
    fields = [
        {
            "name": field.name,
            "type": _NAMES[field.type],
            "nullable": True,
            "metadata": dict(metadata) if field.name == column else {},
        }
        for field in table.schema
    ]
    return table.replace_schema_metadata({SPARK_KEY: json.dumps({"type": "struct", "fields": fields})})


def sums_of(table: Table, columns: Iterable[str]) -> dict[str, int]:
    """0 where there is no row."""
    if isinstance(table, DataFrame):
        row = table.agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in columns)).collect()[0]
        return row.asDict()
    return {name: pc.sum(table.column(name)).as_py() or 0 for name in columns}


def counted_by(table: Table, column: str) -> dict[str, int]:
    """How many rows have each value."""
    if isinstance(table, DataFrame):
        return {row[0]: row[1] for row in table.groupBy(column).agg(F.count("*")).collect()}
    return dict(Counter(table.column(column).to_pylist()))


def first_of(table: Table, column: str, value: str, order: Sequence[str], most: int) -> list[dict[str, Any]]:
    """Rows whose `column` is `value`, in order; null is before all else."""
    if isinstance(table, DataFrame):
        return [row.asDict() for row in table.where(F.col(column) == value).orderBy(*order).limit(most).collect()]
    found = table.filter(pc.equal(table.column(column), value)).to_pylist()
    return sorted(found, key=lambda row: [(row[name] is not None, row[name]) for name in order])[:most]


def write(table: Table, folder: str, by: str, whole: bool = False) -> None:
    """Over what is there: of the days that the table has, or with `whole` all. `folder`: of an Arrow table, of this
    machine. `by`: a column of days or plain words. Raises Refused."""
    if isinstance(table, DataFrame):
        writer = table.write.mode("overwrite")
        if whole:
            writer = writer.option("partitionOverwriteMode", "static")
        writer.partitionBy(by).parquet(folder)
        return
    try:
        _write(table, Path(plain(folder)), by, whole)
    except OSError as error:
        raise Refused(f"{folder} cannot be written: {error.strerror or error}") from error


def _write(table: pa.Table, folder: Path, by: str, whole: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=_WRITING) as made:
        new, old = Path(made, "new"), Path(made, "old")
        new.mkdir()
        old.mkdir()
        values = table.column(by)
        # One after the other: there may be more of them than files that a process may have open.
        for value in sorted(set(values.to_pylist()), key=str):
            are = pc.is_null(values) if value is None else pc.equal(values, value)
            _write_part(table.filter(are).drop_columns([by]), new / f"{by}={_NO_VALUE if value is None else value}")
        if whole:
            # First of all: whoever finds it may read.
            (folder / _DONE).unlink(missing_ok=True)
            for each in sorted(folder.iterdir()):
                if not each.name.startswith(_WRITING):
                    each.rename(old / each.name)
        for each in sorted(new.iterdir()):
            _moved(each, folder / each.name, old / each.name)
        if whole:
            (folder / _DONE).touch()


def _write_part(rows: pa.Table, folder: Path) -> None:
    folder.mkdir()
    # Times as Spark writes them: one table may have files of both.
    pq.write_table(rows, folder / _FILE, compression="zstd", use_deprecated_int96_timestamps=True)


def _moved(new: Path, to: Path, old: Path) -> None:
    if to.is_symlink() or to.exists():
        to.rename(old)
    try:
        new.rename(to)
    except OSError:
        # As if another run has just put its own there.
        with suppress(OSError):
            old.rename(to)
        raise
