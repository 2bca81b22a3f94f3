"""Rows of a message that is delivered again and again, folded: without Spark.

What is verified: what facts are made of stays the same, row by row of what decides and in sum of what does not; what
a task holds follows the stretches and not the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd_spark.books import repeated
from amqpd_spark.books.gather import KIND, is_end
from amqpd_spark.books.moments import LAST_KIND
from amqpd_spark.books.repeated import folded, held
from amqpd_spark.stretches.packed import Columns, of_columns

NAMES = ("slot", "first", "last", "at", "us", "epoch", "publication", "flags")
KINDS = [KIND[name] for name in ("routed", "standing", "delivered", "requeued", "acked")]
Key = tuple[int, int, int]


@st.composite
def pieces(draw: st.DrawFn) -> Columns:
    rows = []
    stretches = [(draw(st.integers(0, 2)), draw(st.integers(0, 5))) for _ in range(draw(st.integers(1, 3)))]
    for number in range(draw(st.integers(1, 40))):
        slot, first = draw(st.sampled_from(stretches))
        kind = draw(st.sampled_from(KINDS))
        flags = draw(st.integers(0, 3))
        us = draw(st.integers(-5, 50))
        rows.append((slot, first, first + 1, number * (LAST_KIND + 1) + kind, us, slot, 0, flags))
    return dict(zip(NAMES, np.array(rows, np.int64).T, strict=True))


def decides(of: Columns) -> np.ndarray:
    kind = of["at"] & LAST_KIND
    return is_end(kind) | (kind == KIND["routed"]) | (kind == KIND["standing"])


def rows(of: Columns) -> list[tuple[int, ...]]:
    return sorted(zip(*(of[name].tolist() for name in NAMES), strict=True))


def sums(of: Columns) -> dict[Key, tuple[int, int, int, int]]:
    """First and last moment, first time, flags."""
    found: dict[Key, list[tuple[int, int, int]]] = defaultdict(list)
    for slot, first, last, at, us, _, _, flags in rows(of):
        found[slot, first, last].append((at, us, flags))
    return {
        key: (
            min(at for at, _, _ in each),
            max(at for at, _, _ in each),
            min(us for _, us, _ in each),
            int(np.bitwise_or.reduce([flags for _, _, flags in each])),
        )
        for key, each in found.items()
    }


@given(pieces())
def test_what_decides_stays_and_the_rest_comes_to_the_same(given_pieces: Columns):
    made = folded(given_pieces)
    assert rows({name: made[name][decides(made)] for name in NAMES}) == rows(
        {name: given_pieces[name][decides(given_pieces)] for name in NAMES}
    )
    assert sums(made) == sums(given_pieces)
    others = {name: made[name][~decides(made)] for name in NAMES}
    assert len(others["at"]) <= 4 * len(sums(others))


def test_a_message_requeued_for_ever_is_two_rows():
    count = 100_000
    at = np.arange(count) * (LAST_KIND + 1) + np.where(np.arange(count) % 2, KIND["requeued"], KIND["delivered"])
    same = {name: np.full(count, 7) for name in NAMES}
    made = folded(same | {"at": at, "us": 10**6 + np.arange(count)})
    assert made["at"].tolist() == [at[0], at[-1]]
    assert made["us"].tolist() == [10**6] * 2


def test_a_task_holds_stretches_and_not_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(repeated, "HELD_ROWS", 1000)
    most = 0

    def watched(of: Columns) -> Columns:
        nonlocal most
        most = max(most, len(of["at"]))
        return folded(of)

    monkeypatch.setattr(repeated, "folded", watched)

    def tables() -> Iterator[pa.Table]:
        for number in range(200):
            at = (np.arange(100) + 100 * number) * (LAST_KIND + 1) + KIND["delivered"]
            same = {name: np.arange(100) % 5 for name in NAMES}
            yield of_columns(same | {"at": at})

    made = held(tables())
    assert most <= 1100
    assert sums(made) == {
        (which,) * 3: (
            which * (LAST_KIND + 1) + KIND["delivered"],
            (19_995 + which) * (LAST_KIND + 1) + KIND["delivered"],
            which,
            which,
        )
        for which in range(5)
    }


def test_where_nothing_is_repeated_nothing_is_done():
    count = 50
    numbers = np.arange(count)
    made = dict.fromkeys(NAMES, numbers) | {"at": numbers * (LAST_KIND + 1) + KIND["delivered"]}
    assert folded(made) is made


def test_no_rows_at_all():
    assert held(iter([])) == {}
