"""A table that the driver holds, as Arrow, or that Spark has.

What comes in: one of both, and a function of batches. What goes out: the same kind of table; a folder of files.
Rules: 1. What is made of a small log needs no Spark: the functions are those that Spark's tasks call. 2. Files are
written as Spark would, for whoever reads them: a folder for each value of a column, and the columns' metadata where
Spark looks for it. 3. A folder is filled elsewhere and moved, so no reader finds half of it.
Not here: which table is where (`stretches/scan.py`).
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.door import Refused
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
_WRITING = "_writing"
"""a folder that no reader of Parquet looks into"""


def frame(spark: SparkSession, table: Table) -> DataFrame:
    """As Spark's."""
    return table if isinstance(table, DataFrame) else spark.createDataFrame(table)


def over(table: Table, function: Function, schema: str) -> Table:
    """`function` of all rows, or of those of each task."""
    if isinstance(table, DataFrame):
        return mapped(table, function, schema)
    return pa.Table.from_batches(function(table.to_batches()), empty(schema).schema)


def added(tables: Iterable[pa.Table], keys: Sequence[str], how: Mapping[str, str]) -> pa.Table | None:
    """Rows with the same keys as one. `how`: column -> sum, min or max. None: there is no table."""
    held = None
    for table in tables:
        more = table.select([*keys, *how])
        both = more if held is None else pa.concat_tables([held, more])
        made = both.group_by(list(keys), use_threads=False).aggregate(list(how.items()))
        held = made.select([*keys, *(f"{name}_{what}" for name, what in how.items())])
        held = held.rename_columns([*keys, *how])
    return held


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
    machine. Raises Refused."""
    if isinstance(table, DataFrame):
        writer = table.write.mode("overwrite")
        if whole:
            writer = writer.option("partitionOverwriteMode", "static")
        writer.partitionBy(by).parquet(folder)
        return
    try:
        _write(table, Path(folder.removeprefix("file:")), by, whole)
    except OSError as error:
        raise Refused(f"{folder} cannot be written: {error.strerror or error}") from error


def _write(table: pa.Table, folder: Path, by: str, whole: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    writing = folder / _WRITING
    # Of one that was killed.
    _remove(writing)
    writing.mkdir()
    if table.num_rows:
        partitioning = ds.partitioning(pa.schema([table.schema.field(by)]), flavor="hive")
        kind = ds.ParquetFileFormat()
        # Times as Spark writes them: one table may have files of both.
        options = kind.make_write_options(compression="zstd", use_deprecated_int96_timestamps=True)
        more: dict[str, Any] = {"file_options": options, "use_threads": False}
        more |= {"max_partitions": table.num_rows, "basename_template": "part-{i}.zstd.parquet"}
        ds.write_dataset(
            table, writing, format=kind, partitioning=partitioning, existing_data_behavior="error", **more
        )
    made = sorted(writing.iterdir())
    for old in list(folder.iterdir()) if whole else [folder / each.name for each in made]:
        if old != writing:
            _remove(old)
    for each in made:
        each.rename(folder / each.name)
    writing.rmdir()
    if whole:
        # Spark's word that all is there; its checksum went with what was there.
        (folder / "_SUCCESS").touch()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
