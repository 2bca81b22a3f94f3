"""What tasks look up of a queue, and which messages returned: without Spark, held against one moment at a time.

What is verified: moments before, behind and between others, of queues in any mixture and of slots that are not known;
of a message that stands again, the first end of which the log proves that it was on disk.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from amqpd_spark.books.lookup import ANCHORS, GAPS, Lookup
from amqpd_spark.books.moments import INCARNATION_SHIFT, NONE
from amqpd_spark.books.queues import Moments, Slot
from amqpd_spark.books.returned import Proof, Returned, returned

STRANGE = 99
"""a slot that is not known"""
moments = st.lists(st.integers(1, 30), max_size=6, unique=True).map(sorted)
holes = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=2)
rows = st.lists(
    st.tuples(st.sampled_from([0, 1, 10, 11, STRANGE]), st.integers(0, 31), st.integers(0, 31)), min_size=1
)


def slot(number: int, of: int) -> Slot:
    return Slot(number, of, "n", of, number % 10, "/", "q", 0, 5, 3, "n", 1, number % 2 == 0, True)


def known(of: list[tuple[list[int], list[int], list[tuple[int, int]]]]) -> Lookup:
    """Two queues, with two incarnations each."""
    each = [
        Moments(number, "n", number, anchors, gaps, [], [{"from": low, "to": high} for low, high in holes], [])
        for number, (anchors, gaps, holes) in enumerate(of)
    ]
    return Lookup([slot(11, 1), slot(0, 0), slot(10, 1), slot(1, 0)], each)


@given(st.lists(st.tuples(moments, moments, holes), min_size=2, max_size=2), rows)
def test_moments_are_found_as_one_by_one(
    of: list[tuple[list[int], list[int], list[tuple[int, int]]]], asked: list[tuple[int, int, int]]
):
    slots, begin, end = (np.array(column, np.int64) for column in zip(*asked, strict=True))
    found = known(of).of(slots)
    for place, name in enumerate((ANCHORS, GAPS)):
        lists: list[list[int]] = [[] if each == STRANGE else of[each // 10][place] for each in slots.tolist()]
        told = list(zip(lists, begin.tolist(), end.tolist(), strict=True))
        assert found.next(name, begin).tolist() == [
            min((m for m in ms if m > low), default=NONE) for ms, low, _ in told
        ]
        assert found.previous(name, begin).tolist() == [
            max((m for m in ms if m < low), default=NONE) for ms, low, _ in told
        ]
        assert found.below(name, begin).tolist() == [sum(m < low for m in ms) for ms, low, _ in told]
        assert found.between(name, begin, end).tolist() == [any(low < m < high for m in ms) for ms, low, high in told]
    met: list[set[tuple[int, int]]] = [set() for _ in asked]
    for low, high, which, anchors in found.holes():
        for row in which.tolist():
            met[row].add((low, high))
            assert anchors.tolist() == of[int(slots[row]) // 10][0]
    assert met == [set() if each == STRANGE else set(of[each // 10][2]) for each in slots.tolist()]


def test_figures_are_those_of_the_slot_and_nothing_of_one_that_is_not_known():
    found = known([([], [], []), ([], [], [])]).of(np.array([11, STRANGE, 0, -5]))
    assert found.epoch.tolist() == [1, 0, 0, 0]
    assert found.begun.tolist() == [False, False, True, False]
    assert found.recorded.tolist() == [True, False, True, False]
    assert found.last_incarnation.tolist() == [3, 0, 3, 0]


def naive(ends: list[int], stands: list[int], proofs: list[Proof]) -> Returned | None:
    for end in ends:
        again = [stood for stood in stands if stood > end]
        for proof in proofs:
            incarnation, of_end = proof.begin >> INCARNATION_SHIFT, end >> INCARNATION_SHIFT
            lasting = incarnation > of_end or (proof.stopped and incarnation == of_end)
            if again and proof.begin > end and proof.end < min(again) and lasting:
                return Returned(end, proof.begin, min(again))
    return None


@given(moments, moments, moments, st.lists(st.booleans(), min_size=6, max_size=6), st.integers(0, 2))
def test_the_first_end_that_a_proof_follows_is_named(
    ends: list[int], stands: list[int], anchors: list[int], stops: list[bool], per_incarnation: int
):
    def placed(numbers: list[int]) -> list[int]:
        return [(number >> per_incarnation << INCARNATION_SHIFT) + number for number in numbers]

    proofs = [Proof(at, at + 1, stop) for at, stop in zip(placed(anchors), stops, strict=False)]
    assert returned(placed(ends), placed(stands), proofs) == naive(placed(ends), placed(stands), proofs)
