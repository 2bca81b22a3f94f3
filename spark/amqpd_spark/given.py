"""Rows that the driver has, as a DataFrame.

What comes in: rows, their columns in Spark's words. What goes out: a DataFrame whose rows are part of the plan.
Rules: nothing is started for it: `createDataFrame` of a list has every row pickled by a Python of its own, which
takes seconds to begin; and where there is no row, Spark leaves out what would be joined with it.
Not here: tables that are Arrow's already; those that are joined with what came of them (`burn.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}


def of_rows(spark: SparkSession, rows: Iterable[Sequence[object]], columns: str) -> DataFrame:
    """`columns`: "name type, name type"; the types are those of a log's and of our own small tables. Raises KeyError
    for others."""
    schema = empty(columns).schema
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    return spark.createDataFrame(pa.table(arrays, schema=schema))


def empty(columns: str) -> pa.Table:
    """No rows, of these columns."""
    named = [column.split() for column in columns.split(", ")]
    return pa.schema([(name, _TYPES[kind]) for name, kind in named]).empty_table()
