"""Messages that all differ: the ring and the counter agree on every byte, over laps and any cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame, header
from pamqp.body import ContentBody

from bench.errors import BenchError
from bench.mixed import MixedCounter, MixedRing
from bench.recipes import KeysRecipe, mixed_message

MESSAGES = 50
RING = MixedRing("x", KeysRecipe(MESSAGES))


def publish(number: int) -> bytes:
    position = number % MESSAGES
    return bytes(RING.data[RING.offset(position) : RING.offset(position + 1)])


def delivery(number: int, message: int | None = None) -> bytes:
    """What a broker makes of publish `message` (else `number`): the method replaced, the content as it
    was."""
    taken, _, method = frame.unmarshal(publish(number if message is None else message))
    assert isinstance(method, commands.Basic.Publish)
    deliver = commands.Basic.Deliver("c0000", number + 1, False, method.exchange, method.routing_key)
    return frame.marshal(deliver, 1) + publish(number if message is None else message)[taken:]


STREAM = b"".join(delivery(number) for number in range(3 * MESSAGES))


def feed(data: bytes, cuts: list[int]) -> int:
    counter = MixedCounter("x", KeysRecipe(MESSAGES), "c0000")
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in pairwise(edges):
        counter.feed(bytearray(data[start:stop]) + b"\xce" * 9, stop - start)
    return counter.count


def test_ring_holds_what_the_recipe_says():
    for number in range(MESSAGES):
        data = publish(number)
        taken, _, method = frame.unmarshal(data)
        more, _, head = frame.unmarshal(data[taken:])
        _, _, body = frame.unmarshal(data[taken + more :])
        assert isinstance(method, commands.Basic.Publish)
        assert isinstance(head, header.ContentHeader)
        assert isinstance(body, ContentBody)
        assert (method.routing_key, head.body_size) == mixed_message(number)
        assert len(body.value) == head.body_size


def test_keys_and_neighbouring_sizes_differ():
    recipe = [mixed_message(number) for number in range(16_384)]
    assert len({key for key, _ in recipe}) == len(recipe)
    assert all(one[1] != other[1] for one, other in pairwise(recipe))


@given(cuts=st.lists(st.integers(0, 1 << 20), max_size=40))
def test_any_cut_gives_the_same_count(cuts):
    assert feed(STREAM, cuts) == 3 * MESSAGES


def test_whole_until_counts_whole_publishes():
    assert RING.whole_until(0) == 0
    assert RING.whole_until(RING.offset(7) - 1) == 6
    assert RING.whole_until(RING.offset(7)) == 7
    assert RING.whole_until(len(RING.data)) == MESSAGES


@pytest.mark.parametrize("first", [0, 3, 49, 50, 77])
@given(cuts=st.lists(st.integers(0, 1 << 20), max_size=5))
def test_a_lost_message_is_seen(first, cuts):
    data = b"".join(delivery(number, number + (number >= first)) for number in range(3 * MESSAGES))
    with pytest.raises(BenchError):
        feed(data, cuts)
