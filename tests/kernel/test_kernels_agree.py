"""The kernels against each other: for any bytes, cut anywhere, the compiled one does what the reference does.

What is verified: runs field by field, encoded bytes, ranges of acks, and the exceptions that the reference promises.
Not here: that it is right (`test_kernel.py`); reads outside the data, which only a sanitizer sees
(`scripts/sanitize.sh` runs these tests under one).
"""

from __future__ import annotations

import gc
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.kernel import reference
from tests.harness.harness import publish_bytes
from tests.harness.kernels import SHAPE, compiled, needs_compiled
from tests.harness.mutations import mutated

pytestmark = needs_compiled

STREAMS = int(os.environ.get("AMQPD_TEST_KERNEL_STREAMS", "2000"))
FIRST = int(os.environ.get("AMQPD_TEST_KERNEL_FIRST", "0"))
PAYLOADS_MAX = (0, 8, 9, 14, 40, 4096, 131_072, 2**32 - 1, 2**40)
FRAMES_MAX = (9, 10, 17, 100, 4096, 131_072, 2**32 + 7, 2**32 + 8, 2**40)
TAGS = (0, 1, 200, 2**32 - 3, 2**56 - 2, 2**63 - 1, 2**64 - 300, 2**64 - 1)

Kernel: Any = compiled


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What comes out: a value, or the kind of exception. struct has its own for numbers that do not fit."""
    try:
        return function(*arguments)
    except (struct.error, OverflowError):
        return OverflowError
    except (IndexError, ValueError) as error:
        return type(error)


def shape(run: Any) -> tuple[Any, ...]:
    names = (*SHAPE, "key", "names", "properties", "nbytes", "measures")
    return (run.raw(), *(getattr(run, name) for name in names))


def assert_same_run(run: Any, other: Any, random: Random) -> None:
    assert shape(run) == shape(other)
    by_hand = Kernel.Run(*(getattr(run, name) for name in SHAPE))
    assert shape(by_hand) == shape(run)
    for low, high in (
        (0, run.count),
        tuple(sorted(random.choices(range(run.count + 1), k=2))),
        (random.randint(-1, 2), random.randint(-1, run.count + 1)),
    ):
        consumer = bytes((random.randrange(256),)) * random.choice((1, 2, 9, 255))
        arguments = (
            *(low, high, random.choice((0, 1, 2, 300, 65_535, 65_536, -1)), consumer),
            *(random.choice(TAGS), random.random() < 0.5, random.choice(FRAMES_MAX)),
        )
        encoded = outcome(reference.encode_deliveries, run, *arguments)
        assert encoded == outcome(Kernel.encode_deliveries, other, *arguments), arguments
        assert encoded == outcome(Kernel.encode_deliveries, by_hand, *arguments), arguments
        part, same = outcome(run.part, low, high), outcome(other.part, low, high)
        assert (part is same is IndexError) or shape(part) == shape(same)
    for i in {-1, 0, run.count - 1, run.count, random.randint(0, run.count)}:
        assert outcome(run.body, i) == outcome(other.body, i), i
        for arguments in ((i, 7, frame_max) for frame_max in (*random.sample(FRAMES_MAX, 2), 8, 0, -5)):
            assert outcome(reference.encode_content, run, *arguments) == outcome(
                Kernel.encode_content, other, *arguments
            ), arguments


def assert_same_scan(data: bytes, pos: int, end: int, payload_max: int, random: Random) -> Any:
    run = reference.scan_publishes(data, pos, end, payload_max)
    other = Kernel.scan_publishes(data, pos, end, payload_max)
    if run is None or run is reference.INCOMPLETE:
        assert other is (None if run is None else Kernel.INCOMPLETE)
    else:
        assert other is not None
        assert_same_run(run, other, random)
    if end - pos >= 21:
        assert reference.scan_acks(data, pos, end) == Kernel.scan_acks(data, pos, end)
    return run


def content(random: Random, channel: int) -> list[bytes]:
    """A publish, as frames: its body in one frame, or in more than it needs."""
    size = random.choice((0, 0, 1, 5, 30, 300))
    key, exchange = random.choice(("", "q", "a.b", "k" * 255)), random.choice(("", "", "amq.topic"))
    properties: dict[str, Any] = random.choice(({}, {"delivery_mode": 2}, {"headers": {"a": 1}, "priority": 3}))
    whole = publish_bytes(random.randbytes(size), key, exchange, channel, random.random() < 0.2, **properties)
    frames = []
    while whole:
        stop = 8 + int.from_bytes(whole[3:7], "big")
        frames.append(whole[:stop])
        whole = whole[stop:]
    if size > 1 and random.random() < 0.3:
        body = frames.pop()[7:-1]
        while body:
            step = random.randint(1, size)
            piece, body = body[:step], body[step:]
            frames.append(struct.pack(">BHI", 3, channel, len(piece)) + piece + b"\xce")
    return frames


def acks(random: Random, channel: int) -> Iterator[bytes]:
    tag = random.choice(TAGS)
    for _ in range(random.choice((1, 3, 12, 300))):
        yield struct.pack(">BHIIQBB", 1, channel, 13, 0x003C0050, tag % 2**64, random.random() < 0.03, 0xCE)
        tag += 1 if random.random() < 0.97 else random.randint(-2, 3)


def stream(random: Random) -> list[bytes]:
    frames: list[bytes] = []
    for _ in range(random.randint(1, 6)):
        channel = random.choice((1, 1, 1, 2, 65_535))
        if random.random() < 0.3:
            frames += acks(random, channel)
        else:
            frames += content(random, channel) * random.choice((1, 1, 1, 1, 2, 2, 9, 40, 300))
    return frames


def cuts(random: Random, data: bytes, frames: list[bytes]) -> Iterator[tuple[int, int]]:
    """Ranges of the data: the whole, from a frame's beginning to anywhere, from anywhere to anywhere."""
    yield 0, len(data)
    starts = [0]
    for one in frames[:50]:
        starts.append(starts[-1] + len(one))
    for _ in range(3):
        pos = min(random.choice(starts), len(data))
        yield pos, random.randint(pos, len(data))
        yield pos, len(data)
    pos = random.randint(0, len(data))
    yield pos, random.randint(pos, len(data))


def compare_stream(seed: int) -> list[str]:
    random = Random(seed)
    frames = stream(random)
    data, kind = b"".join(frames), "valid"
    if random.random() < 0.7:
        (data, _), kind = mutated(random, frames, stream(random)), "mutated"
    elif random.random() < 0.2:
        data, kind = random.randbytes(random.randint(0, 100)), "random"
    found = [kind]
    for pos, end in cuts(random, data, frames):
        payload_max = random.choice(PAYLOADS_MAX) if random.random() < 0.3 else 131_072
        if random.random() < 0.5:
            # Its memory ends where it ends, for the sanitizer.
            run = assert_same_scan(data[pos:end], 0, end - pos, payload_max, random)
        else:
            run = assert_same_scan(data, pos, end, payload_max, random)
        found.append("none" if run is None else "incomplete" if not run.count else "run" if run.count > 1 else "one")
        if run is not None:
            found.append(f"{min(run.body_frames, 2)} body frames")
    return found


def compared(compare: Callable[[int], list[str]], streams: int) -> Counter[str]:
    """How much of each kind the streams of these seeds had; the seed is said when one is not the same to both."""
    totals: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + streams):
        try:
            totals.update(compare(seed))
        except Exception as error:
            raise AssertionError(
                f"AMQPD_TEST_KERNEL_FIRST={seed} AMQPD_TEST_KERNEL_STREAMS=1 fails: {error!r}"
            ) from error
    return totals


def test_any_stream_cut_anywhere_is_the_same_to_both() -> None:
    totals = compared(compare_stream, STREAMS)
    for kind in ("valid", "mutated", "random", "none", "incomplete", "run", "one", "2 body frames"):
        assert totals[kind] >= STREAMS // 50, totals


@given(st.binary(max_size=80), st.integers(0, 80), st.integers(0, 80), st.sampled_from(PAYLOADS_MAX))
def test_any_bytes_are_the_same_to_both(data: bytes, pos: int, end: int, payload_max: int) -> None:
    end = min(end, len(data))
    assert_same_scan(data, min(pos, end), end, payload_max, Random(0))


@given(
    at=st.integers(0, 75),
    octets=st.binary(min_size=1, max_size=9),
    cut=st.integers(0, 230),
    payload_max=st.sampled_from(PAYLOADS_MAX),
)
def test_any_octets_in_a_publish_are_the_same_to_both(at: int, octets: bytes, cut: int, payload_max: int) -> None:
    one = bytearray(publish_bytes(b"0123456789", "key", "amq.direct", delivery_mode=2))
    one[at : at + len(octets)] = octets
    data = bytes(one) * 3
    assert_same_scan(data, 0, min(cut, len(data)), payload_max, Random(0))


@pytest.mark.parametrize("size", [1, 255, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_body_of_any_announced_size_is_the_same_to_both(size: int) -> None:
    """As large as 64 bits can say, with frames as large as 32 bits can say."""
    whole = bytearray(publish_bytes(b"0123456789"))
    header = whole.index(b"\x02\x00\x01")
    struct.pack_into(">Q", whole, header + 11, size)
    for frame_size in (10, 0, 1, 2**31 - 1, 2**31, 2**32 - 1):
        struct.pack_into(">I", whole, len(whole) - 15, frame_size)
        for payload_max in PAYLOADS_MAX:
            for data in (bytes(whole), bytes(whole) * 3):
                assert_same_scan(data, 0, len(data), payload_max, Random(0))


# What the reference need not look at, and pointers must


@pytest.mark.parametrize(("pos", "end"), [(-1, 5), (0, 6), (3, 2), (6, 6), (0, 2**63 - 1), (-(2**63), -(2**63))])
def test_a_range_outside_the_data_is_refused(pos: int, end: int) -> None:
    assert outcome(Kernel.scan_publishes, bytes(5), pos, end, 100) is ValueError
    assert outcome(Kernel.scan_acks, bytes(5), pos, end) is ValueError


@pytest.mark.parametrize(
    ("place", "number"),
    [(place, number) for place in range(1, 8) for number in (-1, 1000, 2**32, 2**62, 2**63 - 1, -(2**63))],
)
def test_a_run_of_other_numbers_than_its_data_has_is_refused(place: int, number: int) -> None:
    run = Kernel.scan_publishes(publish_bytes(b"abc") * 4, 0, 4 * len(publish_bytes(b"abc")), 4096)
    numbers = [getattr(run, name) for name in SHAPE]
    numbers[place] = number
    with pytest.raises(ValueError):
        Kernel.Run(*numbers)


def test_a_body_that_is_not_framed_as_the_run_says_is_refused() -> None:
    """A run of two body frames whose first one is larger than the whole message, or smaller than both should be."""
    for size in (1, 4, 200, 2**32 - 1):
        frames = publish_bytes(b"abcdef")[:-14] + b"\x03\0\x01" + struct.pack(">I", size) + b"abc\xce"
        data = frames + b"\x03\0\x01\0\0\0\x03def\xce"
        method = data.index(b"\x02\0\x01\0\0\0\x0e")
        run = Kernel.Run(data, 0, len(data), 1, method, 22, 6, 2)
        assert outcome(run.body, 0) is ValueError
        assert outcome(Kernel.encode_content, run, 0, 1, 4096) is ValueError
        assert outcome(Kernel.encode_deliveries, run, 0, 1, 1, b"\x01t", 1, False, 4096) is ValueError


def test_a_run_that_was_never_filled_is_a_run_of_nothing() -> None:
    run = Kernel.Run.__new__(Kernel.Run)
    assert shape(run) == shape(Kernel.INCOMPLETE) == shape(reference.INCOMPLETE)
    assert outcome(run.body, 0) is IndexError
    assert Kernel.encode_deliveries(run, 0, 0, 1, b"\x01t", 1, False, 4096) == b""


def test_a_run_does_not_change_and_costs_the_garbage_collector_nothing() -> None:
    run = Kernel.scan_publishes(publish_bytes(b"abc"), 0, len(publish_bytes(b"abc")), 4096)
    with pytest.raises(AttributeError):
        run.count = 2
    assert not gc.is_tracked(run)
    assert run.__sizeof__() <= 64


def test_both_have_the_same_interface() -> None:
    for name in reference.__all__:
        assert hasattr(Kernel, name)
    for kind, twin in ((reference.Run, Kernel.Run), (reference.Mixed, Kernel.Mixed)):
        public = {name for name in dir(kind) if not name.startswith("_")} - {"content", "deliveries"}
        assert public == {name for name in dir(twin) if not name.startswith("_")}
    assert Kernel.NAME == "cython"


@given(
    channel=st.sampled_from((-1, 0, 1, 255, 256, 65_535, 65_536)) | st.integers(-(2**70), 2**70),
    tag=st.sampled_from((*TAGS, -1, 2**64)) | st.integers(-(2**70), 2**70),
    multiple=st.booleans(),
)
def test_acknowledgements_are_the_same_frames(channel: int, tag: int, multiple: bool) -> None:
    frame = outcome(reference.encode_ack, channel, tag, multiple)
    assert outcome(Kernel.encode_ack, channel, tag, multiple) == frame
    if frame is not OverflowError:
        assert reference.scan_acks(frame, 0, len(frame))[:3] == (tag, tag, multiple)
