"""The kernels against each other where publishes differ: for any bytes, cut anywhere, both make the same batch."""

from __future__ import annotations

import os
from array import array
from itertools import accumulate, chain
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqpd.kernel import reference
from tests.harness.harness import publish_bytes
from tests.harness.kernels import compiled, needs_compiled
from tests.harness.mutations import mutated
from tests.kernel.test_kernels_agree import FRAMES_MAX, PAYLOADS_MAX, TAGS, compared, cuts, outcome, shape

pytestmark = needs_compiled

STREAMS = int(os.environ.get("AMQPD_TEST_KERNEL_STREAMS", "600"))
Kernel: Any = compiled


def form(run: Any) -> Any:
    """All that a run or a batch says of itself."""
    if run is None or not run.count:
        return run is None
    if not run.mixed:
        return shape(run)
    return (
        *(run.data, run.index, run.keys, run.common, run.count, run.nbytes, run.body_bytes, run.body_size_max),
        *(run.memory_bytes, run.measures, run.raw()),
    )


def assert_same(data: bytes, pos: int, end: int, payload_max: int, random: Random) -> Any:
    batch: Any = reference.scan_batch(data, pos, end, payload_max)
    other = Kernel.scan_batch(data, pos, end, payload_max)
    assert form(batch) == form(other)
    if batch is None or not batch.mixed:
        return batch
    by_hand = Kernel.Mixed(batch.data, batch.index, batch.keys, batch.common)
    count, leads = random.choice((1, 2, 9)), random.choice((0.1, 0.5, 0.9))
    by_key = [[part for part in range(count) if random.random() < leads] for _ in batch.keys]
    ends, parts = array("I", accumulate(map(len, by_key))), array("I", chain.from_iterable(by_key))
    if random.random() < 0.1:
        ends = array("I", (random.choice((0, 1, 2**31)) for _ in ends))
    arguments: Any = (ends.tobytes(), parts.tobytes(), count)
    divided, same = outcome(batch.divided, *arguments), outcome(other.divided, *arguments)
    assert (divided is same is ValueError) or [form(each) for each in divided] == [form(each) for each in same]
    for low, high in (
        (0, batch.count),
        tuple(sorted(random.choices(range(batch.count + 1), k=2))),
        (random.randint(-1, 2), random.randint(-1, batch.count + 1)),
    ):
        arguments = (
            *(low, high, random.choice((0, 1, 300, 65_535, 65_536, -1)), random.choice((b"\x02ct", b"\x00"))),
            *(random.choice(TAGS), random.random() < 0.5, random.choice(FRAMES_MAX)),
        )
        encoded = outcome(reference.encode_deliveries, batch, *arguments)
        assert encoded == outcome(Kernel.encode_deliveries, other, *arguments), arguments
        assert encoded == outcome(Kernel.encode_deliveries, by_hand, *arguments), arguments
        part, same = outcome(batch.part, low, high), outcome(other.part, low, high)
        assert (part is same is IndexError) or form(part) == form(same)
        assert outcome(batch.bytes_in, low, high) == outcome(other.bytes_in, low, high)
    for i in {-1, 0, batch.count - 1, batch.count, random.randint(0, batch.count)}:
        assert outcome(batch.body, i) == outcome(other.body, i)
        assert outcome(batch.names_of, i) == outcome(other.names_of, i)
        for frame_max in (*random.sample(FRAMES_MAX, 2), 8, 0):
            content = outcome(reference.encode_content, batch, i, 7, frame_max)
            assert content == outcome(Kernel.encode_content, other, i, 7, frame_max), (i, frame_max)
    return batch


def stream(random: Random) -> list[bytes]:
    """Frames of publishes; most of them may be in one batch with the next."""
    frames: list[bytes] = []
    keys = [random.choice(("", "q", "a.b", "k" * 250)) + str(i) for i in range(random.choice((1, 3, 40)))]
    common: dict[str, Any] = random.choice(({}, {"delivery_mode": 2}, {"priority": 3, "expiration": "100"}))
    for i in range(random.choice((2, 5, 30, 200))):
        properties = {**common, "message_id": str(i) * random.choice((0, 1, 3))}
        if random.random() < 0.5:
            properties["headers"] = {"a": i, "t": {"x": [1, 2.5, None, {"y": "z"}]}, "s": "v" * random.randint(0, 9)}
        if random.random() < 0.03:
            properties["headers"] = {random.choice(("CC", "BCC", "x-delay", "x-death", "cc")): ["a"]}
        if random.random() < 0.02:
            properties |= random.choice(({"user_id": "u"}, {"reply_to": "amq.rabbitmq.reply-to"}, {"priority": 9}))
        body = random.randbytes(random.choice((0, 0, 1, 30, 300)))
        channel = 1 if random.random() < 0.99 else 2
        whole = publish_bytes(body, random.choice(keys), "amq.topic", channel, random.random() < 0.1, **properties)
        repeated = random.choice((1, 1, 1, 1, 2, 20))
        for _ in range(repeated):
            rest = whole
            while rest:
                stop = 8 + int.from_bytes(rest[3:7], "big")
                frames.append(rest[:stop])
                rest = rest[stop:]
    return frames


def compare_stream(seed: int) -> list[str]:
    random = Random(seed)
    frames = stream(random)
    data, kind = b"".join(frames), "valid"
    if random.random() < 0.6:
        (data, _), kind = mutated(random, frames, stream(random)), "mutated"
    found = [kind]
    for pos, end in cuts(random, data, frames):
        payload_max = random.choice(PAYLOADS_MAX) if random.random() < 0.2 else 131_072
        if random.random() < 0.5:
            batch = assert_same(data[pos:end], 0, end - pos, payload_max, random)
        else:
            batch = assert_same(data, pos, end, payload_max, random)
        found.append("none" if batch is None else "batch" if batch.mixed else "run")
    return found


def test_any_stream_of_unlike_publishes_cut_anywhere_is_the_same_to_both() -> None:
    totals = compared(compare_stream, STREAMS)
    for kind in ("valid", "mutated", "none", "run", "batch"):
        assert totals[kind] >= STREAMS // 20, totals


@given(at=st.integers(0, 110), octets=st.binary(min_size=1, max_size=9), cut=st.integers(0, 400))
def test_any_octets_in_properties_are_the_same_to_both(at: int, octets: bytes, cut: int) -> None:
    headers = {"a": 1, "b": {"c": [1, "x"]}, "s": "text"}
    first = publish_bytes(b"0", "key", "amq.direct", message_id="1", headers=headers, expiration="10")
    one = bytearray(
        publish_bytes(b"0123456789", "key", "amq.direct", message_id="22", headers=headers, expiration="10")
    )
    one[at : at + len(octets)] = octets
    data = first + bytes(one) + first
    assert_same(data, 0, min(cut, len(data)), 131_072, Random(0))
    assert_same(bytes(one) + data, 0, len(one) + len(data), 131_072, Random(0))
