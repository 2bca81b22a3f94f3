"""Stretches cut at each other's edges, and runs: without Spark, held against one number at a time.

What is verified: intervals and their values, whatever overlaps, in parts of any size; joined and subtracted runs.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd_spark.stretches.runs import Runs, joined, without
from amqpd_spark.stretches.sweep import BLOCK, cut, swept

KEYS = (5, -7, 1 << 60)
Stretch = tuple[int, int, int]


@st.composite
def stretches(draw: st.DrawFn) -> list[Stretch]:
    """Near the edges of blocks, where they are cut."""
    made = []
    for _ in range(draw(st.integers(1, 30))):
        block, near_end = draw(st.integers(0, 2)), draw(st.booleans())
        first = block * BLOCK + draw(st.integers(0, 20)) + (BLOCK - 24 if near_end else 0)
        last = min(first + draw(st.integers(0, 9)), (block + 1) * BLOCK - 1)
        made.append((draw(st.sampled_from(KEYS)), first, last))
    return made


def columns(of: list[Stretch]) -> Runs:
    key, first, last = np.array(of, np.int64).reshape(-1, 3).T
    return key, first, last


def numbers(of: Runs) -> list[tuple[int, int]]:
    return [
        (key, number)
        for key, low, high in zip(*(column.tolist() for column in of), strict=True)
        for number in range(low, high + 1)
    ]


@given(stretches(), st.integers(1, 60))
def test_each_number_is_in_one_interval_with_the_stretches_that_have_it(of: list[Stretch], pieces_max: int):
    wanted: dict[tuple[int, int], list[int]] = {}
    for index, (key, first, last) in enumerate(of):
        for number in range(first, last + 1):
            wanted.setdefault((key, number), []).append(index)
    values = np.arange(len(of), dtype=np.int64) * 5 % 7
    found: dict[tuple[int, int], list[int]] = {}
    for part in swept(*columns(of), pieces_max):
        sums = zip(part.max(values), part.min(values), part.any_bit(values), strict=True)
        for which, (most, least, bits) in enumerate(sums):
            mine = part.stretches(which)
            assert (most, least) == (values[mine].max(), values[mine].min())
            assert bits == np.bitwise_or.reduce(values[mine])
            run = tuple(column[which : which + 1] for column in (part.key, part.low, part.high))
            for name in numbers(run):  # type: ignore[arg-type]
                assert name not in found
                found[name] = sorted(mine.tolist())
    assert found == wanted


def test_nothing_is_no_interval():
    assert list(swept(*columns([]))) == []


def test_a_long_stretch_over_many_short_ones_comes_in_parts():
    """65,536 numbers of 3 stretches each, in parts of 1,000 pieces: memory is bounded by a part."""
    each = np.arange(BLOCK, dtype=np.int64)
    long, key = np.array([0], np.int64), np.zeros(BLOCK + 2, np.int64)
    first, last = np.concatenate((long, long, each)), np.concatenate((long + BLOCK - 1, long + BLOCK - 1, each))
    parts = list(swept(key, first, last, pieces_max=1000))
    assert sum(len(part.key) for part in parts) == BLOCK
    assert max(3 * len(part.key) for part in parts) <= 1000


@given(stretches())
def test_joined_runs_have_the_same_numbers_and_do_not_touch(of: list[Stretch]):
    found = joined(*columns(of))
    assert numbers(found) == sorted(set(numbers(columns(of))))
    same = found[0][1:] == found[0][:-1]
    assert (~same | (found[1][1:] > found[2][:-1] + 1)).all()


@given(stretches(), stretches())
def test_without_leaves_what_is_in_none_of_the_others(of: list[Stretch], covers: list[Stretch]):
    left = numbers(without(columns(of), columns(covers)))
    assert left == sorted(set(numbers(columns(of))) - set(numbers(columns(covers))))


@pytest.mark.parametrize("one", [[], [(5, 3, 9)]])
def test_without_nothing_is_what_it_was(one: list[Stretch]):
    assert numbers(without(columns(one), columns([]))) == numbers(columns(one))


def test_a_stretch_is_cut_at_each_edge_of_blocks_that_it_goes_over():
    first = np.array([5, BLOCK - 1, BLOCK, BLOCK - 2], np.int64)
    last = np.array([9, BLOCK, 2 * BLOCK - 1, 2 * BLOCK], np.int64)
    pieces = zip(*(column.tolist() for column in cut(first, last)), strict=True)
    assert list(pieces) == [
        (0, 5, 9),
        (1, BLOCK - 1, BLOCK - 1),
        (1, BLOCK, BLOCK),
        (2, BLOCK, 2 * BLOCK - 1),
        (3, BLOCK - 2, BLOCK - 1),
        (3, BLOCK, 2 * BLOCK - 1),
        (3, 2 * BLOCK, 2 * BLOCK),
    ]
