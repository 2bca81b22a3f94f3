"""Runs of numbers: joined, and taken from each other.

What comes in: runs (key, low, high) in any order, overlapping or not. What goes out: runs in order that do not touch.
Rules: a key is a number, too; runs of two keys have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from amqpd_spark.stretches.chunk import Longs

Runs = tuple[Longs, Longs, Longs]
"""key, low, high (which is in the run)"""


def joined(key: Longs, low: Longs, high: Longs) -> Runs:
    """Those that touch or overlap as one."""
    if not len(key):
        return key, low, high
    order = np.lexsort((low, key))
    key, low, high = key[order], low[order], high[order]
    new_key = np.concatenate(([True], np.diff(key) != 0))
    # The greatest `high` so far of the same key: by a rank that goes up with each key.
    rank = np.cumsum(new_key) - 1
    ranks = np.unique(high)
    top = np.maximum.accumulate(rank * len(ranks) + np.searchsorted(ranks, high))
    reach = ranks[top - rank * len(ranks)]
    begins = new_key.copy()
    begins[1:] |= low[1:] > reach[:-1] + 1
    starts = np.flatnonzero(begins)
    return key[starts], low[starts], np.maximum.reduceat(high, starts)


def all_of(parts: Sequence[Runs]) -> Runs:
    """As they are, one part behind the other."""
    key, low, high = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return key, low, high


def without(wanted: Runs, covers: Runs) -> Runs:
    """What is in `wanted` and in none of `covers`."""
    key = np.concatenate((wanted[0], covers[0]))
    if not len(wanted[0]):
        return wanted
    wanted, covers = joined(*wanted), joined(*covers)
    key = np.concatenate((*(2 * (wanted[0],)), *(2 * (covers[0],))))
    at = np.concatenate((wanted[1], wanted[2] + 1, covers[1], covers[2] + 1))
    one, none = np.ones(len(wanted[0]), np.int64), np.zeros(len(covers[0]), np.int64)
    wants = np.concatenate((one, -one, none, none))
    one, none = np.ones(len(covers[0]), np.int64), np.zeros(len(wanted[0]), np.int64)
    hides = np.concatenate((none, none, one, -one))
    order = np.lexsort((at, key))
    key, at = key[order], at[order]
    open_now = (np.cumsum(wants[order]) > 0) & (np.cumsum(hides[order]) == 0)
    found = np.flatnonzero(open_now[:-1] & (at[1:] > at[:-1]))
    return joined(key[found], at[found], at[found + 1] - 1)
