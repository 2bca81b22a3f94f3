"""Some rows of the log, a column at a time.

What comes in: an Arrow table. What goes out: numpy arrays; texts as codes into a short list of names.
Rules: what is null is a number that the caller names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]
DENSE_MAX = 1 << 22
"""of values that lie so near to each other, a table is faster than sorting them"""


@dataclass(frozen=True)
class Texts:
    """`names[codes[i]]` is row i's; the last name is None, and the code of null is that of it."""

    codes: Longs
    names: list[str | None]

    def as_numbers(self, number: Mapping[str, int], other: int) -> Longs:
        """`number` of each row's text, `other` where it has none."""
        table = np.array([other if name is None else number.get(name, other) for name in self.names], np.int64)
        return table[self.codes]

    def are(self, meant: Callable[[str | None], bool]) -> Flags:
        return np.array([meant(name) for name in self.names], np.bool_)[self.codes]


class Chunk:
    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def longs(self, name: str, null: int = 0) -> Longs:
        """Numbers; times are microseconds."""
        if name not in self.table.column_names:
            return np.full(len(self), null, np.int64)
        column = self.table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz))
        return np.asarray(pc.fill_null(column.cast(pa.int64()), null).to_numpy(), np.int64)

    def are_null(self, name: str) -> Flags:
        return np.asarray(self.table.column(name).is_null().to_numpy(), np.bool_)

    def flags(self, name: str) -> Longs:
        """1, 0, and -1 for null."""
        column = self.table.column(name).cast(pa.int8()).cast(pa.int64())
        return np.asarray(pc.fill_null(column, -1).to_numpy(), np.int64)

    def texts(self, name: str) -> Texts:
        column = self.table.column(name)
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        one = column.unify_dictionaries().combine_chunks()
        if isinstance(one, pa.ChunkedArray):
            one = one.chunk(0) if one.num_chunks else pa.array([], pa.string()).dictionary_encode()
        names = [*one.dictionary.to_pylist(), None]
        codes = pc.fill_null(one.indices.cast(pa.int64()), len(names) - 1)
        return Texts(np.asarray(codes.to_numpy(), np.int64), names)


def combined(columns: Sequence[Longs]) -> tuple[Longs, Longs]:
    """A code for each combination of values that there is, of each row; and of each code, a row that has it."""
    codes, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        inverse, values = _compact(column)
        codes, size = _compact(codes * np.int64(values) + inverse, size * values)
    row = np.zeros(size, np.int64)
    # Of several values for one place the last one stays: so each code gets its first row.
    row[codes[::-1]] = np.arange(len(codes))[::-1]
    return codes, row


def _compact(column: Longs, size: int | None = None) -> tuple[Longs, int]:
    """The same values as 0, 1, 2 ..., and how many there are. `size`: above all values, if that is known."""
    if not len(column):
        return column, 0
    low = 0 if size is not None else int(column.min())
    span = size if size is not None else int(column.max()) - low + 1
    if span > DENSE_MAX:
        values, inverse = np.unique(column, return_inverse=True)
        return np.asarray(inverse, np.int64), len(values)
    if span == 1:
        return column - low, 1
    there = np.zeros(span, np.bool_)
    there[column - low] = True
    rank = np.cumsum(there) - 1
    return rank[column - low], int(rank[-1]) + 1
