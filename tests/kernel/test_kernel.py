"""Each kernel against pamqp: whatever a buffer holds and wherever it is cut, the same messages come out.

Not here: the kernels against each other (`test_kernels_agree.py`).
"""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from tests.harness.harness import publish_bytes
from tests.harness.kernels import each_kernel

# A kernel is a module, and of modules no type says which functions they have.
Kernel = Any
pytestmark = each_kernel

names = st.text("abc.", max_size=4)
messages = st.lists(
    st.tuples(st.binary(max_size=40), names, names, st.sampled_from([None, 1, 2]), st.integers(1, 3)), max_size=12
)


def runs_of(kernel: Kernel, data: bytes) -> list[Any]:
    """Of a buffer that is wholly publishes."""
    runs, pos = [], 0
    while pos < len(data):
        run = kernel.scan_publishes(data, pos, len(data), 1 << 20)
        assert run is not None
        assert run.count
        runs.append(run)
        pos += run.nbytes
    return runs


def encoded(message: tuple[bytes, str, str, int | None, int]) -> bytes:
    data, exchange, key, mode, repeat = message
    return publish_bytes(data, key, exchange, delivery_mode=mode) * repeat


@given(messages)
def test_a_buffer_of_publishes_is_runs_of_all_of_them(
    kernel: Kernel, sent: list[tuple[bytes, str, str, int | None, int]]
) -> None:
    data = b"".join(map(encoded, sent))
    found = []
    for run in runs_of(kernel, data):
        for i in range(run.count):
            found.append((run.body(i), run.key))
    expected = [m for m in sent for _ in range(m[4])]
    assert [b for b, _ in found] == [m[0] for m in expected]
    for (_, key), message in zip(found, expected, strict=True):
        exchange, routing_key = message[1].encode(), message[2].encode()
        assert key == bytes([len(exchange)]) + exchange + bytes([len(routing_key)]) + routing_key + b"\0"


@given(st.binary(max_size=60), st.integers(0, 300))
def test_a_cut_publish_is_incomplete_everywhere(kernel: Kernel, data: bytes, cut: int) -> None:
    whole = publish_bytes(data)
    cut = min(cut, len(whole) - 1)
    run = kernel.scan_publishes(whole[:cut], 0, cut, 131_072)
    assert run is kernel.INCOMPLETE or (cut >= len(whole) and run is not None)


def test_a_run_ends_where_properties_or_sizes_differ(kernel: Kernel) -> None:
    one, other = publish_bytes(b"aaa"), publish_bytes(b"aaaa")
    run = kernel.scan_publishes(one * 5 + other, 0, 5 * len(one) + len(other), 131_072)
    assert run is not None
    assert run.count == 5


def test_a_broken_frame_end_ends_the_run_and_is_never_in_one(kernel: Kernel) -> None:
    one = publish_bytes(b"abc")
    data = bytearray(one * 3)
    data[2 * len(one) - 1] = 0
    run = kernel.scan_publishes(bytes(data), 0, len(data), 131_072)
    assert run is not None
    assert run.count == 1


def test_other_frames_between_are_no_run(kernel: Kernel) -> None:
    first = frame.marshal(commands.Basic.Publish(), 1)
    other = frame.marshal(commands.Channel.Open(), 2)
    data = first + other + frame.marshal(header.ContentHeader(body_size=0), 1)
    assert kernel.scan_publishes(data, 0, len(data), 131_072) is None


@given(messages, st.integers(1, 65_535), st.sampled_from([4096, 131_072]), st.booleans())
def test_deliveries_are_what_pamqp_reads(
    kernel: Kernel,
    sent: list[tuple[bytes, str, str, int | None, int]],
    channel: int,
    frame_max: int,
    redelivered: bool,
) -> None:
    tag = 7
    for message in sent:
        (run,) = runs_of(kernel, encoded(message))
        data = kernel.encode_deliveries(run, 0, run.count, channel, b"\x03tag", tag, redelivered, frame_max)
        for _ in range(run.count):
            consumed, on, method = frame.unmarshal(data)
            data = data[consumed:]
            assert isinstance(method, commands.Basic.Deliver)
            assert (on, method.delivery_tag, method.redelivered) == (channel, tag, redelivered)
            assert (method.exchange, method.routing_key, method.consumer_tag) == (message[1], message[2], "tag")
            consumed, on, head = frame.unmarshal(data)
            data = data[consumed:]
            assert isinstance(head, header.ContentHeader)
            assert (on, head.body_size, head.properties.delivery_mode) == (channel, len(message[0]), message[3])
            if message[0]:
                consumed, on, content = frame.unmarshal(data)
                data = data[consumed:]
                assert isinstance(content, body.ContentBody)
                assert (on, content.value) == (channel, message[0])
            tag += 1
        assert data == b""


def test_a_body_is_cut_anew_for_a_consumer_with_smaller_frames(kernel: Kernel) -> None:
    (run,) = runs_of(kernel, publish_bytes(bytes(10_000)))
    data = kernel.encode_deliveries(run, 0, 1, 1, b"\x01t", 1, False, 4096)
    sizes = []
    while data:
        consumed, _, value = frame.unmarshal(data)
        data = data[consumed:]
        if isinstance(value, body.ContentBody):
            sizes.append(len(value.value))
            assert consumed <= 4096
    assert sum(sizes) == 10_000


@given(st.integers(1, 2**62), st.integers(1, 20), st.integers(0, 20))
def test_acks_that_follow_each_other_are_one_range(kernel: Kernel, first: int, count: int, gap: int) -> None:
    tags = [*range(first, first + count), first + count + gap + 1]
    data = b"".join(frame.marshal(commands.Basic.Ack(tag & (2**64 - 1)), 3) for tag in tags)
    low, high, multiple, pos = kernel.scan_acks(data, 0, len(data))
    assert (low, high, multiple, pos) == (first, first + count - 1, False, 21 * count)


def test_a_small_run_in_a_large_buffer_does_not_pin_it(kernel: Kernel) -> None:
    one = publish_bytes(b"keep")
    data = one + frame.marshal(commands.Channel.Open(), 2) + bytes(100_000)
    run = kernel.scan_publishes(data, 0, len(data), 131_072)
    assert run is not None
    assert len(run.data) == len(one)


@given(
    first=st.one_of(st.integers(1, 70_000), st.integers(2**64 - 600, 2**64 - 1)),
    count=st.integers(1, 700),
    broken=st.none() | st.integers(0, 700),
    octet=st.integers(0, 20),
    rest=st.integers(0, 30),
)
def test_a_range_of_acks_ends_where_a_frame_differs(
    kernel: Kernel, first: int, count: int, broken: int | None, octet: int, rest: int
) -> None:
    """Up to the first frame that is another one, wherever in it the difference stands."""
    frames = [struct.pack(">BHIIQBB", 1, 3, 13, 0x003C0050, (first + i) % 2**64, 0, 0xCE) for i in range(count)]
    alike = count
    if broken is not None and 0 < broken < count:
        changed = bytearray(frames[broken])
        changed[octet] ^= 0x55
        frames[broken], alike = bytes(changed), broken
    data = b"".join(frames) + frames[0][:rest]
    low, high, multiple, pos = kernel.scan_acks(data, 0, len(data))
    assert (low, high, multiple, pos) == (first, first + alike - 1, False, alike * 21)


@given(
    tag=st.one_of(st.integers(1, 70_000), st.integers(2**32 - 700, 2**32), st.integers(2**63 - 700, 2**63)),
    count=st.integers(2, 700),
    low=st.integers(0, 5),
    size=st.integers(0, 3),
)
@settings(deadline=None)  # as many as 700, one by one
def test_deliveries_of_many_are_those_of_one_after_the_other(
    kernel: Kernel, tag: int, count: int, low: int, size: int
) -> None:
    data = b"".join(publish_bytes(bytes((i % 251, i // 251, 7))[:size]) for i in range(count + low))
    (run,) = runs_of(kernel, data)
    one_by_one = [
        kernel.encode_deliveries(run, low + i, low + i + 1, 5, b"\x01t", tag + i, False, 131_072)
        for i in range(count)
    ]
    assert kernel.encode_deliveries(run, low, low + count, 5, b"\x01t", tag, False, 131_072) == b"".join(one_by_one)


@given(count=st.integers(2, 40), other=st.integers(1, 39), at=st.integers(0, 200), rest=st.integers(0, 60))
def test_a_run_ends_before_the_first_message_that_differs(
    kernel: Kernel, count: int, other: int, at: int, rest: int
) -> None:
    """Wherever in it the difference stands, but in its body."""
    one = publish_bytes(b"body")
    at, other = at % len(one), min(other, count - 1)
    data = bytearray(one * count + one[:rest])
    data[other * len(one) + at] ^= 0x55
    run = kernel.scan_publishes(bytes(data), 0, len(data), 131_072)
    assert run is not None
    in_body = len(one) - 5 <= at < len(one) - 1
    assert run.count == (count + rest // len(one) if in_body else other)
