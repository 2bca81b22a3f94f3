"""Stretches of one kind of numbers, cut at each other's edges.

What comes in: for each stretch its key, its first number and its last. What goes out: intervals within which every
number is in the same stretches, and what those stretches' values come to in each.
Rules: 1. What a message has is what its interval has: so a long stretch costs as much as a short one. 2. Memory is
bounded: where stretches overlap so much that they are more than PIECES_MAX pieces, intervals come in several parts.
Source: the sweep line over sorted end points (Shamos and Hoey, 1976), in one dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from amqpd_spark.stretches.chunk import Longs

BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS
"""numbers of a key that go to one task together; a stretch is no longer than this (`STRETCH_MAX`), so it is cut in at
most two"""
PIECES_MAX = 2_000_000
_WIDTH = BLOCK * 2


@dataclass(frozen=True)
class Part:
    """Intervals `low` to `high` (numbers) of `key`. The methods take a value for each stretch, and give what those of
    each interval come to."""

    key: Longs
    low: Longs
    high: Longs
    _rows: Longs
    _starts: Longs

    def max(self, values: Longs) -> Longs:
        return np.maximum.reduceat(values[self._rows], self._starts)

    def min(self, values: Longs) -> Longs:
        return np.minimum.reduceat(values[self._rows], self._starts)

    def any_bit(self, values: Longs) -> Longs:
        return np.bitwise_or.reduceat(values[self._rows], self._starts)

    def stretches(self, which: int) -> Longs:
        """The stretches of one interval."""
        end = self._starts[which + 1] if which + 1 < len(self._starts) else len(self._rows)
        return self._rows[self._starts[which] : end]


def swept(key: Longs, first: Longs, last: Longs, pieces_max: int = PIECES_MAX) -> Iterator[Part]:
    """`last` is in the stretch, and in the same BLOCK as `first`."""
    if not len(key):
        return
    block = first >> BLOCK_BITS
    order = np.lexsort((block, key))
    changes = (np.diff(key[order]) != 0) | (np.diff(block[order]) != 0)
    group = np.empty(len(key), np.int64)
    group[order] = np.concatenate(([0], np.cumsum(changes)))
    heads = order[np.concatenate(([True], changes))]
    start = group * _WIDTH + (first & (BLOCK - 1))
    stop = start + (last - first) + 1
    edges = _sorted(np.concatenate((start, stop)))
    low, high = np.searchsorted(edges, start), np.searchsorted(edges, stop)
    for begin, end in _parts(low, high, len(edges), pieces_max):
        rows, at = _pieces(low, high, begin, end)
        starts = np.flatnonzero(np.concatenate(([True], np.diff(at) != 0)))
        interval = at[starts]
        of = heads[edges[interval] // _WIDTH]
        base = block[of] << BLOCK_BITS
        yield Part(
            key[of],
            base + edges[interval] % _WIDTH,
            base + (edges[interval + 1] - 1) % _WIDTH,
            rows,
            starts,
        )


def cut(first: Longs, last: Longs) -> tuple[Longs, Longs, Longs]:
    """At the blocks' edges: which stretch a piece is of, its first number, and its last."""
    block = first >> BLOCK_BITS
    many = (last >> BLOCK_BITS) - block + 1
    of = np.repeat(np.arange(len(first)), many)
    block = block[of] + np.arange(len(of)) - np.repeat(np.cumsum(many) - many, many)
    low = np.maximum(first[of], block << BLOCK_BITS)
    return of, low, np.minimum(last[of], (block + 1 << BLOCK_BITS) - 1)


def _sorted(values: Longs) -> Longs:
    """Each once. By sorting, which for millions of numbers is several times faster than `np.unique`'s hashes."""
    values.sort()
    return values[np.concatenate(([True], np.diff(values) != 0))]


def _parts(low: Longs, high: Longs, edges: int, pieces_max: int) -> Iterator[tuple[int, int]]:
    """Ranges of intervals that have at most `pieces_max` pieces, or are one interval."""
    if int((high - low).sum()) <= pieces_max:
        yield 0, edges
        return
    depth = np.cumsum(np.bincount(low, minlength=edges) - np.bincount(high, minlength=edges))
    so_far = np.concatenate(([0], np.cumsum(depth)))
    begin = 0
    while begin < edges - 1:
        end = int(np.searchsorted(so_far, so_far[begin] + pieces_max, "right")) - 1
        end = min(max(end, begin + 1), edges - 1)
        if so_far[end] > so_far[begin]:
            yield begin, end
        begin = end


def _pieces(low: Longs, high: Longs, begin: int, end: int) -> tuple[Longs, Longs]:
    """Rows, and the interval of each of their pieces, in the order of intervals."""
    rows = np.flatnonzero((low < end) & (high > begin))
    first = np.maximum(low[rows], begin)
    many = np.minimum(high[rows], end) - first
    if int(many.max()) > 1:
        offset = np.cumsum(many) - many
        rows, first = np.repeat(rows, many), np.repeat(first - offset, many)
        first = first + np.arange(len(first))
    order = np.argsort(first, kind="stable")
    return rows[order], first[order]
