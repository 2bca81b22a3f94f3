"""Large bodies: the octets that go out are the same in pieces, and hardly any of them is copied on the way."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from amqpd.connection import Connection
from amqpd.kernel import (
    LARGE_BYTES_MIN,
    bytes_to_frame_end,
    content_pieces,
    delivery_pieces,
    encode_content,
    encode_deliveries,
)
from amqpd.kernel.rows import parse_row
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Harness, publish_bytes
from tests.harness.invariants import check_node

KIB, MIB = 1024, 1024 * 1024
ROOMY = Limits(queue_memory_bytes=1024 * MIB, backlog_memory_bytes=1024 * MIB, outbox_bytes_max=64 * MIB)
sizes = st.one_of(
    st.integers(0, 200), st.integers(LARGE_BYTES_MIN - 2, LARGE_BYTES_MIN + 2), st.integers(60_000, 300_000)
)


def octets(size: int, seed: int = 0) -> bytes:
    """That differ from place to place."""
    return (bytes(range(251)) * (size // 251 + 2))[seed % 251 :][:size]


def published(data: bytes, payload: int = 131_064, key: str = "q", channel: int = 1) -> bytes:
    """A publish whose body is cut into frames of `payload` octets."""
    frames = frame.marshal(commands.Basic.Publish(routing_key=key), channel)
    frames += frame.marshal(header.ContentHeader(0, len(data), commands.Basic.Properties()), channel)
    return frames + b"".join(
        frame.marshal(body.ContentBody(data[at : at + payload]), channel) for at in range(0, len(data), payload)
    )


@settings(max_examples=60)
@given(sizes, st.integers(1, 3), st.sampled_from([1, 7]), st.sampled_from([4096, 20_000, 131_072]), st.booleans())
def test_pieces_are_the_octets_of_a_delivery(
    size: int, count: int, channel: int, frame_max: int, redelivered: bool
) -> None:
    """Bodies in one frame, the reader's channel or another, cut again or not."""
    (run,) = parse_row(published(octets(size), payload=400_000) * count)
    arguments = (run, 0, count, channel, b"\x01c", 255, redelivered, frame_max)
    assert b"".join(delivery_pieces(*arguments)) == encode_deliveries(*arguments)
    for i in range(count):
        assert b"".join(content_pieces(run, i, channel, frame_max)) == encode_content(run, i, channel, frame_max)


@pytest.mark.parametrize("payload", [1, 1000, 20_000, 131_064])
@pytest.mark.parametrize("frame_max", [4096, 16_384, 65_536, 131_072])
def test_bodies_of_many_frames_come_as_the_reader_may_take_them(payload: int, frame_max: int) -> None:
    data = octets(150_000 if payload > 1 else 20_000)
    (run,) = parse_row(published(data, payload))
    pieces = delivery_pieces(run, 0, 1, 5, b"\x01c", 1, False, frame_max)
    assert len(pieces) <= 4 * (len(data) // LARGE_BYTES_MIN + 1)
    whole, found, at = b"".join(pieces), b"", 0
    while at < len(whole):
        nbytes, channel, one = frame.unmarshal(whole[at:])
        assert channel == 5
        assert nbytes <= frame_max
        at += nbytes
        if isinstance(one, body.ContentBody):
            found += one.value
    assert found == data


@given(st.binary(max_size=60), st.integers(0, 300))
def test_the_frame_that_is_due_is_the_one_that_was_cut(data: bytes, cut: int) -> None:
    whole = publish_bytes(data)
    cut = min(cut, len(whole) - 1)
    due = bytes_to_frame_end(whole[:cut], 0, cut)
    assert cut < due <= len(whole) + 7
    ends, at = [], 0
    while at < len(whole):
        at += frame.unmarshal(whole[at:])[0]
        ends.append(at)
    assert due in ends or due - 7 in [0, *ends]


# Whole nodes


def bodies_through(pieces: list[bytes], frame_max: int = 131_072) -> list[bytes]:
    """What a consumer on another channel number gets of publishes that come in these pieces."""
    harness = Harness(ROOMY)
    publisher, consumer = harness.client(), harness.client(frame_max=frame_max)
    consumer.channel(3)
    publisher.declare("q")
    publisher.declare("p")
    publisher.channel(2)
    consumer.consume("q", no_ack=True, channel=3)
    found: list[bytes] = []
    for piece in pieces:
        publisher.connection.receive(piece)
        harness.step()
        found += consumer.bodies()
    check_node(harness.node)
    assert not publisher.connection._rest
    return found


@settings(max_examples=40)
@given(st.data())
def test_bodies_come_through_however_the_receives_are_cut(data: st.DataObject) -> None:
    """Large and small messages in turn, also between the frames of another channel, in receives of any size."""
    sent = [octets(data.draw(sizes), n) for n in range(data.draw(st.integers(1, 6)))]
    payload = data.draw(st.sampled_from([20_000, 70_000, 131_064]))
    stream = b"".join(published(one, payload) for one in sent)
    other = published(octets(50_000), 30_000, key="p", channel=2)
    if data.draw(st.booleans()):
        # A publish of another channel stands between two frames of this one's last.
        last = published(octets(40_000, 9), 20_000)
        middle = len(last) - 20_008
        stream += last[:middle] + other + last[middle:]
        sent.append(octets(40_000, 9))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    frame_max = data.draw(st.sampled_from([4096, 40_000, 131_072]))
    assert bodies_through([piece for piece in pieces if piece], frame_max) == sent


# Copies, counted by what is allocated on the way


def highest(steps: list[bytes], harness: Harness, connection: Connection, out: list[Connection]) -> int:
    """The most bytes that were allocated at a time while these receives were handled, and their answers dropped."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        for data in steps:
            connection.receive(data)
            harness.step()
            for each in out:
                each.outbox = []
                each.sent(0)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("channel", [1, 2], ids=["same-number", "other-number"])
def test_messages_that_come_whole_are_not_copied(channel: int) -> None:
    """Four of 64 kB in a receive, each of which used to be copied twice on its way out."""
    harness = Harness(ROOMY)
    publisher, consumer = harness.client(), harness.client()
    consumer.channel(2)
    publisher.declare("q")
    consumer.consume("q", no_ack=True, channel=channel)
    one = published(octets(65_536)) * 4
    peak = highest([one] * 10, harness, publisher.connection, [publisher.connection, consumer.connection])
    assert peak < 40_000, f"{peak} bytes for messages of 262 kB"
    assert publisher.connection.stride == len(one) // 4


def test_only_the_message_that_was_cut_is_put_together() -> None:
    harness = Harness(ROOMY)
    publisher, consumer = harness.client(), harness.client()
    publisher.declare("q")
    consumer.consume("q", no_ack=True)
    one = published(octets(65_536))
    begun, rest = one[:40_000], one[40_000:] + one * 6
    publisher.connection.receive(begun)
    assert publisher.connection.missing == len(one) - len(begun)
    peak = highest([rest], harness, publisher.connection, [publisher.connection, consumer.connection])
    assert peak < 1.5 * len(one), f"{peak} bytes for one of {len(one)} that was cut"


def test_a_body_of_many_large_frames_is_put_together_once() -> None:
    """The frames, and the message that they make."""
    harness = Harness(ROOMY)
    publisher, consumer = harness.client(), harness.client()
    publisher.declare("q")
    consumer.consume("q", no_ack=True)
    size = 8 * MIB
    whole = published(octets(size))
    steps = [whole[at : at + 256 * KIB] for at in range(0, len(whole), 256 * KIB)]
    peak = highest(steps, harness, publisher.connection, [publisher.connection, consumer.connection])
    assert peak < 2.2 * size, f"{peak / size:.2f} times the body"


def test_a_small_share_of_a_buffer_is_copied_out_before_it_is_kept() -> None:
    """Many large messages in a buffer, one of them to a queue that keeps it."""
    harness = Harness(ROOMY)
    client = harness.client()
    client.declare("kept")
    kept, passing = published(octets(20_000), key="kept"), published(octets(20_000), key="nowhere")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            client.connection.receive(passing * 6 + kept + passing * 6)
            harness.step()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert harness.node.queues["/", "kept"].backlog.ready == 20
    assert held < 20 * 1.3 * len(kept), f"{held / 20 / len(kept):.1f} times what is kept"
