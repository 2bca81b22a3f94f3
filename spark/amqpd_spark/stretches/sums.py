"""Sums of rows that have the same key, by sorting.

What comes in: columns of keys and of values. What goes out: each combination of keys once, with its values' sums.
Rules: whole numbers only, so that a sum is exact and in any order the same.
Not here: small tables of codes (`chunk.combined`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from amqpd_spark.stretches.chunk import Longs
from amqpd_spark.stretches.packed import Columns

_CODE_MAX = 1 << 62


@dataclass(frozen=True)
class Groups:
    """Rows in the order of their keys: those of a group are next to each other."""

    order: Longs
    starts: Longs

    def heads(self, column: Longs) -> Longs:
        return column[self.order[self.starts]]

    def sum(self, column: Longs) -> Longs:
        return np.add.reduceat(column[self.order], self.starts)

    def max(self, column: Longs) -> Longs:
        return np.maximum.reduceat(column[self.order], self.starts)


def grouped(keys: Sequence[Longs]) -> Groups:
    """By the first key, then the second. There is at least one row."""
    code = _code(keys)
    order = np.lexsort(tuple(reversed(keys))) if code is None else np.argsort(code)
    changes = np.zeros(max(len(order) - 1, 0), np.bool_)
    for key in keys if code is None else [code]:
        changes |= np.diff(key[order]) != 0
    return Groups(order, np.flatnonzero(np.concatenate(([True], changes))))


def summed(columns: Columns, keys: Sequence[str], sums: Sequence[str], maxima: Sequence[str] = ()) -> Columns:
    groups = grouped([columns[name] for name in keys])
    return {
        **{name: groups.heads(columns[name]) for name in keys},
        **{name: groups.sum(columns[name]) for name in sums},
        **{name: groups.max(columns[name]) for name in maxima},
    }


def joined(parts: Sequence[Mapping[str, Longs]]) -> Columns:
    """Rows of several tables with the same columns."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _code(keys: Sequence[Longs]) -> Longs | None:
    """One number for each combination, in their order. None: there are too many for 62 bits."""
    code, size = np.zeros(len(keys[0]), np.int64), 1
    for key in keys:
        low, high = int(key.min()), int(key.max())
        if size * (high - low + 1) > _CODE_MAX:
            values = np.sort(key)
            values = values[np.concatenate(([True], np.diff(values) != 0))]
            key, low, high = np.searchsorted(values, key), 0, len(values) - 1
        size *= high - low + 1
        if size > _CODE_MAX:
            return None
        code = code * (high - low + 1) + (key - low)
    return code
