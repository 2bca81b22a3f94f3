"""Deliveries as ranges, beside a dictionary of number -> message."""

from __future__ import annotations

import random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from amqpd.remote import held as held_module
from amqpd.remote.held import Held, Range

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 40), st.integers(1, 5)),
        st.tuples(st.just("take"), st.integers(1, 40), st.integers(1, 10)),
        st.tuples(st.just("messages"), st.integers(101, 140), st.integers(1, 10)),
    ),
    max_size=40,
)


def numbers(ranges: list[Range]) -> dict[int, int]:
    return {each.number + i: each.seq + i for each in ranges for i in range(each.size)}


@given(STEPS, st.sampled_from([1, 2, 512]))
def test_ranges_are_what_a_dictionary_has(steps: list[tuple[str, int, int]], block_ranges: int) -> None:
    with patch.object(held_module, "BLOCK_RANGES_MAX", block_ranges):
        _as_a_dictionary(steps)


def _as_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    held, model = Held(), dict[int, int]()
    for what, first, count in steps:
        last = first + count - 1
        if what == "add":
            for number in range(first, last + 1):
                if number not in model:
                    model[number] = 100 + number if number % 7 else 200 + number
                    held.add(number, model[number], 1)
        elif what == "take":
            gone = {number: seq for number, seq in model.items() if first <= number <= last}
            assert numbers(held.take(first, last)) == gone
            model = {number: seq for number, seq in model.items() if number not in gone}
        else:
            gone = {number: seq for number, seq in model.items() if first <= seq <= last}
            assert numbers(held.take_messages([(first, last)])) == gone
            model = {number: seq for number, seq in model.items() if number not in gone}
        assert numbers(list(held)) == model
        assert len(held) == len(list(held))
        assert all(held._blocks) or held._blocks == [[]]
        assert [each.number for each in held] == sorted(each.number for each in held)
        assert (held.count, held.sum) == (len(model), sum(model))
        below = [number for number in model if number <= first]
        assert held.below(first) == (len(below), sum(below))


def test_what_goes_on_is_one_range() -> None:
    held = Held()
    held.add(1, 10, 2)
    held.add(3, 12, 1)
    held.add(4, 20, 1)
    assert list(held) == [Range(1, 10, 3), Range(4, 20, 1)]


def test_very_many_ranges_are_taken_one_by_one_in_any_order() -> None:
    """Clients choose how many there are, and a peer which: taking one moves a part of one block."""
    held, count = Held(), 30_000
    for number in range(1, count + 1):
        held.add(number, 2 * number, 1)
    order = list(range(1, count + 1))
    random.Random(1).shuffle(order)
    for number in order:
        assert held.take(number, number) == [Range(number, 2 * number, 1)]
    for number in order:
        held.add(number, 2 * number, 1)
    spans = [(2 * number, 2 * number) for number in range(1, count + 1)]
    assert len(held.take_messages(spans)) == count
    assert not held
