"""Numbers in blocks against a sorted list; and how little an insertion touches."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from amqpd.queues import sorted_keys
from amqpd.queues.sorted_keys import BLOCK_KEYS_MAX, SortedKeys
from tests.harness.examples import EXAMPLES

numbers = st.integers(-30, 30)


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.booleans(), numbers), max_size=80), st.integers(2, 5))
def test_they_are_as_in_a_sorted_list(steps: list[tuple[bool, int]], block: int) -> None:
    with patch.object(sorted_keys, "BLOCK_KEYS_MAX", block):
        keys, plain = SortedKeys(), set[int]()
        for add, key in steps:
            if add and key not in plain:
                keys.add(key)
                plain.add(key)
            elif not add and key in plain:
                keys.remove(key)
                plain.remove(key)
            here = sorted(plain)
            assert list(keys) == here
            assert bool(keys) == bool(here)
            if here:
                assert keys.first == here[0]
            assert keys.at_or_below(key) == max((each for each in here if each <= key), default=None)
            assert keys.between(key - 3, key + 4) == [each for each in here if key - 3 <= each <= key + 4]


def test_blocks_stay_short_in_whatever_order_numbers_come() -> None:
    for order in (range(20_000), range(20_000, 0, -1), [n * 7919 % 20_011 for n in range(20_000)]):
        keys = SortedKeys()
        for key in order:
            keys.add(key)
        assert list(keys) == sorted(order)
        assert max(map(len, keys._blocks)) <= BLOCK_KEYS_MAX
        assert len(keys._blocks) < 3 * 20_000 / BLOCK_KEYS_MAX
