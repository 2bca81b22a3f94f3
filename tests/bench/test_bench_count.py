"""The counters: any way of cutting the stream gives the same count, and nothing wrong goes unseen."""

from __future__ import annotations

from itertools import pairwise

import pytest
from bench_streams import encode_delivery
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, frame

from bench.count import StrideCounter
from bench.errors import BenchError
from bench.ledger import Ledger

COUNTERS = [StrideCounter, Ledger]


def feed(counter, data: bytes, cuts: list[int]) -> int:
    """Feed `data` cut at `cuts`, through one buffer that is longer than the chunks and dirty behind them."""
    buffer = bytearray(b"\xce" * (len(data) + 64))
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in pairwise(edges):
        chunk = data[start:stop]
        buffer[: len(chunk)] = chunk
        counter.feed(buffer, len(chunk))
        buffer[: len(chunk)] = b"\xaa" * len(chunk)
    return counter.count


@pytest.mark.parametrize("make", COUNTERS)
@given(cuts=st.lists(st.integers(0, 1 << 20), max_size=30), size=st.sampled_from([8, 16, 100, 300]))
def test_any_cut_gives_the_same_count(make, cuts, size):
    data = b"".join(encode_delivery(number, body_bytes=size) for number in range(20))
    assert feed(make(), data, cuts) == 20


@pytest.mark.parametrize("make", COUNTERS)
@pytest.mark.parametrize("step", [1, 2, 7, 185, 186, 187])
def test_small_chunks_beyond_one_byte_of_numbers(make, step):
    data = b"".join(encode_delivery(number) for number in range(600))
    assert feed(make(), data, list(range(0, len(data), step))) == 600


@pytest.mark.parametrize("make", COUNTERS)
def test_one_large_chunk(make):
    data = b"".join(encode_delivery(number) for number in range(3000))
    assert feed(make(), data, [200_000]) == 3000


@pytest.mark.parametrize("make", COUNTERS)
def test_a_delivery_counts_only_when_its_last_byte_is_there(make):
    data = b"".join(encode_delivery(number) for number in range(3))
    counter = make()
    buffer = bytearray(data)
    assert counter.feed(buffer, len(data) - 1) == 2
    assert counter.feed(bytearray(data[-1:]), 1) == 3


@pytest.mark.parametrize("make", COUNTERS)
def test_body_in_several_frames(make):
    data = b"".join(encode_delivery(number, body_bytes=3000, body_frames=3) for number in range(50))
    assert feed(make(), data, [1, 1500, 3100, 9000]) == 50


@pytest.mark.parametrize("make", COUNTERS)
def test_redelivered_flag_and_routing_key_may_differ(make):
    data = b"".join(encode_delivery(n, key=f"k{n % 7}", redelivered=n % 2 == 1) for n in range(50))
    assert feed(make(), data, [77]) == 50


def lost(number: int) -> bytes:
    """Message 30 never came: the tags go on, the messages do not."""
    return encode_delivery(number, sequence=number + (number >= 30))


def twice(number: int) -> bytes:
    return encode_delivery(number, sequence=number - (number >= 30))


def swapped(number: int) -> bytes:
    return encode_delivery(number, sequence={30: 31, 31: 30}.get(number, number))


def tag_skipped(number: int) -> bytes:
    return encode_delivery(number + (number >= 30), sequence=number)


def foreign_frame(number: int) -> bytes:
    closing = frame.marshal(commands.Channel.Close(404, "NOT_FOUND - no queue", 60, 20), 1)
    return closing if number == 30 else encode_delivery(number)


@pytest.mark.parametrize("make", COUNTERS)
@pytest.mark.parametrize("wrong", [lost, twice, swapped, tag_skipped, foreign_frame])
@given(cuts=st.lists(st.integers(0, 1 << 20), max_size=8))
@settings(max_examples=20)
def test_wrong_streams_are_seen(make, wrong, cuts):
    data = b"".join(wrong(number) for number in range(60))
    with pytest.raises(BenchError):
        feed(make(), data, cuts)


@pytest.mark.parametrize("make", COUNTERS)
def test_the_error_names_the_frame(make):
    data = b"".join(foreign_frame(number) for number in range(60))
    with pytest.raises(BenchError, match="404 NOT_FOUND"):
        feed(make(), data, [])


@pytest.mark.parametrize("make", COUNTERS)
def test_close_instead_of_the_first_delivery(make):
    data = frame.marshal(commands.Channel.Close(403, "ACCESS_REFUSED", 60, 20), 1)
    with pytest.raises(BenchError, match="ACCESS_REFUSED"):
        feed(make(), data, [])


def test_another_publishers_message_is_seen():
    with pytest.raises(BenchError, match="stamp"):
        feed(StrideCounter(), encode_delivery(0) + encode_delivery(1, stream=3), [])


def test_changed_body_is_seen():
    changed = bytearray(encode_delivery(1))
    changed[-20] = 1
    with pytest.raises(BenchError, match="differs"):
        feed(StrideCounter(), encode_delivery(0) + bytes(changed), [])


def test_ledger_keeps_streams_apart():
    order = [0, 1, 1, 2, 0, 0, 2, 1]
    due = {0: 0, 1: 0, 2: 0}
    data = b""
    for number, stream in enumerate(order):
        data += encode_delivery(number, stream=stream, sequence=due[stream])
        due[stream] += 1
    ledger = Ledger()
    assert feed(ledger, data, [100, 300]) == 8
    assert dict(ledger.next_of) == {0: 3, 1: 3, 2: 2}


def test_ledger_sees_a_gap_in_one_stream():
    data = encode_delivery(0, stream=1, sequence=0) + encode_delivery(1, stream=2, sequence=1)
    with pytest.raises(BenchError, match="stream 2"):
        feed(Ledger(), data, [])
