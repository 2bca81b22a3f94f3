"""Names as numbers: (node, vhost, exchange, queue) is a flow, and goes through shuffles as one long.

What comes in: rows' names. What goes out: flows, and a small table of their names.
Rules: 1. Names are joined to sums, never carried along. 2. A name that does not apply is None, and that is not the
empty name (which is the default exchange).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark.given import of_rows
from amqpd_spark.stretches.chunk import Longs, combined

NAMES = ("node", "vhost", "exchange", "queue")
"""node: of a publish whose log it is in, of a queue its place (`books/places.py`)"""
Names = tuple[str | None, ...]


def number_of(*key: str | int | None) -> int:
    """63 bits: two of a million are mixed up in one log of twenty million."""
    return int.from_bytes(blake2b(json.dumps(key).encode(), digest_size=8).digest()) >> 1


class Flows:
    """Those that a task has met."""

    def __init__(self) -> None:
        self.names: dict[int, Names] = {}
        self._numbers: dict[Names, int] = {}

    def number(self, names: Names) -> int:
        known = self._numbers.get(names)
        if known is None:
            known = self._numbers[names] = number_of(*names)
            self.names[known] = names
        return known

    def numbers(self, codes: Sequence[Longs], texts: Sequence[Sequence[str | None]]) -> Longs:
        """Of each row: `codes` are places in `texts`, for each of NAMES."""
        if not len(codes[0]):
            return np.zeros(0, np.int64)
        of_row, heads = combined(codes)
        found = [
            self.number(tuple(text[code[head]] for code, text in zip(codes, texts, strict=True)))
            for head in heads.tolist()
        ]
        return np.array(found, np.int64)[of_row]

    def add(self, table: pa.Table) -> None:
        self.names.update(read(table))

    def table(self) -> pa.Table:
        columns = list(zip(*self.names.values(), strict=True)) or [()] * len(NAMES)
        made = {"flow": pa.array(list(self.names), pa.int64())}
        return pa.table(made | {name: pa.array(each, pa.string()) for name, each in zip(NAMES, columns, strict=True)})


def read(table: pa.Table) -> dict[int, Names]:
    rows = zip(*(table.column(name).to_pylist() for name in NAMES), strict=True)
    return dict(zip(table.column("flow").to_pylist(), rows, strict=True))


def wide(names: Names) -> Names:
    """What a flow is a part of: its node's virtual host."""
    return (*names[:2], None, None)


def table(spark: SparkSession, names: Mapping[int, Names]) -> DataFrame:
    """`flow` and NAMES."""
    columns = ", ".join(f"{name} string" for name in NAMES)
    return of_rows(spark, [(flow, *each) for flow, each in names.items()], f"flow bigint, {columns}")


class Named:
    """Flows' names, for columns of flows."""

    def __init__(self, names: Mapping[int, Names]) -> None:
        self._flows = np.array(sorted(names), np.int64)
        texts = zip(*(names[flow] for flow in self._flows.tolist()), strict=True)
        self._texts = [pa.array(each, pa.string()) for each in texts]

    def of(self, flow: Longs) -> dict[str, pa.Array]:
        """NAMES of each row. Its flow is known."""
        at = pa.array(np.searchsorted(self._flows, flow))
        return {name: text.take(at) for name, text in zip(NAMES, self._texts, strict=True)}
