"""The confirm counter against a plain model, over every cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame

from bench.confirms import Confirms
from bench.encode import encode_ack
from bench.errors import BenchError


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return encode_ack(1, tag, multiple=multiple)


@st.composite
def confirm_orders(draw):
    """A legal sequence of confirms that settles 1..n: singles in any order, multiples over what is open."""
    published = draw(st.integers(1, 40))
    open_tags = set(range(1, published + 1))
    sequence = []
    while open_tags:
        tag = draw(st.sampled_from(sorted(open_tags)))
        multiple = draw(st.booleans())
        sequence.append((tag, multiple))
        open_tags -= {other for other in open_tags if other <= tag} if multiple else {tag}
    return published, sequence


@given(order=confirm_orders(), cuts=st.lists(st.integers(0, 1000), max_size=20))
def test_settled_is_what_a_set_says(order, cuts):
    published, sequence = order
    data = b"".join(ack(tag, multiple=multiple) for tag, multiple in sequence)
    confirms, model, fed = Confirms(), set(), 0
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in pairwise(edges):
        confirms.feed(data[start:stop], published)
        while (fed + 1) * 21 <= stop:
            tag, multiple = sequence[fed]
            model |= set(range(1, tag + 1)) if multiple else {tag}
            fed += 1
        assert confirms.settled == len(model)
    assert confirms.floor == published
    assert confirms.frames == len(sequence)


@pytest.mark.parametrize(
    "data",
    [
        ack(1) + ack(1),
        ack(2) + ack(2),
        ack(3, multiple=True) + ack(2),
        ack(3, multiple=True) + ack(3, multiple=True),
        ack(6),
        ack(6, multiple=True),
        ack(0),
    ],
    ids=["single", "early", "below", "multiple", "unknown", "unknown-multiple", "zero"],
)
def test_repeated_and_unknown_tags_are_errors(data):
    with pytest.raises(BenchError, match="confirm of tag"):
        Confirms().feed(data, 5)


def test_nack_is_an_error():
    with pytest.raises(BenchError, match="refused message 4"):
        Confirms().feed(frame.marshal(commands.Basic.Nack(4, False, False), 1), 5)


def test_close_is_named():
    close = frame.marshal(commands.Channel.Close(404, "NOT_FOUND - no exchange 'x'", 60, 40), 1)
    with pytest.raises(BenchError, match="404 NOT_FOUND - no exchange"):
        Confirms().feed(ack(1) + close, 5)
