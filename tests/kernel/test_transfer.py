"""Runs between nodes: what arrives is what was sent, and bytes that are no run are refused, whatever they are."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.kernel import (
    INCOMPLETE,
    LARGE_BYTES_MIN,
    Mixed,
    Run,
    content_pieces,
    delivery_pieces,
    encode_content,
    encode_deliveries,
    scan_batch,
)
from amqpd.kernel.transfer import HEADER_BYTES_MAX, frames_of, read_run
from tests.harness.harness import publish_bytes

WHOLE = 1 << 30


def scanned(*frames: bytes) -> Run:
    data = b"".join(frames)
    run = scan_batch(data, 0, len(data), WHOLE)
    assert run is not None
    assert run.nbytes == len(data)
    return run


def contents(run: Run) -> list[tuple[bytes, bytes]]:
    """Names and the content of each message, as a client gets it."""
    return [(run.names_of(i), encode_content(run, i, 7, 131_072)) for i in range(run.count)]


def assert_same(run: Run, low: int, high: int) -> None:
    """Messages low..high-1 of the run arrive."""
    arrived = read_run(bytes(frames_of(run, low, high)), high - low)
    assert arrived.count == high - low
    assert contents(arrived) == contents(run)[low:high]
    assert arrived.bytes_in(0, high - low) == run.bytes_in(low, high)
    assert arrived.body_size_max == max(len(run.body(i)) for i in range(low, high))
    args = (9, b"\x03tag", 5, True, 4096)
    assert encode_deliveries(arrived, 0, high - low, *args) == encode_deliveries(run, low, high, *args)
    assert b"".join(delivery_pieces(arrived, 0, high - low, *args)) == encode_deliveries(run, low, high, *args)


def differing(count: int, seed: int = 0) -> list[bytes]:
    return [
        publish_bytes(b"x" * (i % 5), f"key.{(i + seed) % 3}", "amq.topic", message_id=str(i)) for i in range(count)
    ]


RUNS: dict[str, Callable[[], Run]] = {
    "one": lambda: scanned(publish_bytes(b"body", "q")),
    "empty bodies": lambda: scanned(*[publish_bytes(b"", "q")] * 5),
    "many": lambda: scanned(
        *[publish_bytes(bytes([i % 256]) * 100, "q", "amq.direct", delivery_mode=2) for i in range(1000)]
    ),
    "large": lambda: scanned(publish_bytes(Random(1).randbytes(1 << 20), "q", mandatory=True)),
    "several large": lambda: scanned(*[publish_bytes(bytes([i]) * 20_000, "q") for i in range(4)]),
    "octet by octet": lambda: scanned(_octet_by_octet(b"z" * 300)),
    "batch": lambda: scanned(*differing(40)),
    "headers": lambda: scanned(
        publish_bytes(b"1", "q", headers={"a": {"b": [1, None, "c"]}}, expiration="5", priority=9)
    ),
    "longest names": lambda: scanned(publish_bytes(b"1", "k" * 255, "e" * 127)),
}


def _octet_by_octet(body: bytes) -> bytes:
    whole = publish_bytes(body, "q")
    frames = b"".join(struct.pack(">BHI", 3, 1, 1) + bytes([octet]) + b"\xce" for octet in body)
    return whole[: -len(body) - 8] + frames


@pytest.mark.parametrize("name", RUNS)
def test_what_arrives_is_what_was_sent(name: str) -> None:
    run = RUNS[name]()
    for low, high in {(0, run.count), (0, 1), (run.count - 1, run.count), (run.count // 3, run.count // 3 + 1)}:
        assert_same(run, low, high)
    with pytest.raises(IndexError):
        frames_of(run, 0, run.count + 1)


def test_a_part_of_a_batch_arrives() -> None:
    batch = RUNS["batch"]()
    assert batch.mixed
    for low, high in ((0, 2), (3, 17), (39, 40)):
        assert_same(batch, low, high)


@pytest.mark.parametrize("alike", [2, 15, 16, 100])
def test_a_batch_that_begins_with_what_is_alike_is_one_again(alike: int) -> None:
    """As those that `Mixed.divided` makes."""
    frames = [publish_bytes(b"y", "key.0", "amq.topic", message_id="a")] * alike + differing(5)
    sent = scanned(*[publish_bytes(b"y", "another", "amq.topic", message_id="a")], *frames)
    assert isinstance(sent, Mixed)
    _, part = _divided(sent)
    assert part.count == alike + 5
    assert_same(part, 0, part.count)
    assert_same(part, 1, alike)


def _divided(batch: Mixed) -> list[Run]:
    """The messages with the first key, and the others."""
    keys = len(batch.keys)
    ends = struct.pack(f"={keys}I", *range(1, keys + 1))
    return batch.divided(ends, struct.pack(f"={keys}I", 0, *[1] * (keys - 1)), 2)


def test_large_frames_are_not_copied() -> None:
    run = scanned(publish_bytes(bytes(LARGE_BYTES_MIN), "q"))
    assert frames_of(run, 0, 1) is run.data
    run = RUNS["several large"]()
    sent = frames_of(run, 1, 3)
    assert isinstance(sent, memoryview)
    assert sent.obj is run.data
    assert bytes(sent) == run.part(1, 3).raw()


def refused(data: bytes, count: int) -> None:
    with pytest.raises(ValueError, match=r"publish|batch|header"):
        read_run(data, count)


def test_what_is_no_run_is_refused() -> None:
    whole = b"".join(differing(3))
    refused(b"", 0)
    refused(b"", 1)
    refused(whole, 2)
    refused(whole, 4)
    refused(whole + b"\x01", 3)
    refused(whole[:-1], 3)
    refused(whole + whole[:20], 4)
    one = publish_bytes(b"body", "q")
    refused(one[:7] + b"\x00\x3c\x00\x3c" + one[11:], 1)  # another method
    refused(one + publish_bytes(b"body", "q", channel=2), 2)  # of two channels
    refused(one + publish_bytes(b"body", "q", user_id="guest"), 2)  # nobody puts it into a batch
    refused(one + publish_bytes(bytes(20_000), "q"), 2)
    refused(_octet_by_octet(b"zz") * 2, 2)
    refused(b"".join([publish_bytes(b"", "q", delivery_mode=2 - i % 2) for i in range(4)]), 4)
    refused(b"".join(differing(5000)), 5000)
    assert INCOMPLETE.count == 0


def test_a_content_header_is_bounded() -> None:
    size = HEADER_BYTES_MAX + 1
    raw = b"\x20\x00" + struct.pack(">I", size) + bytes(size)
    one = publish_bytes(b"", "q")
    header_at = len(one) - 22
    header = struct.pack(">BHIHHQ", 2, 1, 12 + len(raw), 60, 0, 0) + raw + b"\xce"
    refused(one[:header_at] + header, 1)


@given(st.sampled_from([name for name in RUNS if "large" not in name]), st.data())
def test_changed_bytes_are_a_run_or_refused(name: str, data: st.DataObject) -> None:
    """And what is a run can be used as one."""
    run = RUNS[name]()
    octets = bytearray(run.raw()[:4000])
    for _ in range(data.draw(st.integers(1, 6))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    for count in (run.count, data.draw(st.integers(0, 100))):
        with suppress(ValueError):
            arrived = read_run(bytes(octets), count)
            assert contents(arrived)
            assert encode_deliveries(arrived, 0, arrived.count, 1, b"\x00", 1, False, 4096)
            assert sum(arrived.measures) >= 0
            assert content_pieces(arrived, 0, 1, 4096)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_are_a_run_or_refused(data: bytes, count: int) -> None:
    with suppress(ValueError):
        read_run(data, count)


def test_what_is_only_announced_takes_no_memory() -> None:
    one = bytearray(publish_bytes(b"body", "q"))
    at = len(one) - 12 - 14 + 4
    lies = [bytes(one[:at] + b"\x7f" * 8 + one[at + 8 :]), bytes(one[:3] + b"\xff" * 4 + one[7:])]
    read_run(bytes(one), 1)
    tracemalloc.start()
    try:
        for lie in lies:
            refused(lie, 1 << 30)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 16
