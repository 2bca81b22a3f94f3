"""What the generator sends is what pamqp reads."""

from __future__ import annotations

import pytest
from pamqp import commands, frame, header
from pamqp.body import ContentBody

from bench.encode import ACK_BYTES, STAMP, PublishRing, SingleAcks, encode_ack, encode_publish, stamp


def frames_of(data: bytes) -> list:
    values = []
    while data:
        taken, channel, value = frame.unmarshal(data)
        assert channel == 1
        values.append(value)
        data = data[taken:]
    return values


def test_publish_is_method_header_and_body():
    one, body_at = encode_publish("x", "key", b"b" * 100, persistent=True)
    method, head, body = frames_of(one)
    assert isinstance(method, commands.Basic.Publish)
    assert (method.exchange, method.routing_key) == ("x", "key")
    assert isinstance(head, header.ContentHeader)
    assert (head.body_size, head.properties.delivery_mode) == (100, 2)
    assert isinstance(body, ContentBody)
    assert body.value == b"b" * 100
    assert one[body_at : body_at + 100] == b"b" * 100


def test_large_body_is_cut_to_frame_max():
    one, body_at = encode_publish("", "q", bytes(range(256)) * 40, frame_bytes_max=4096)
    _, head, *bodies = frames_of(one)
    assert head.body_size == 10_240
    assert [len(body.value) for body in bodies] == [4088, 4088, 2064]
    assert b"".join(body.value for body in bodies) == bytes(range(256)) * 40
    assert one[body_at : body_at + 8] == bytes(range(8))


def test_ack_is_what_pamqp_encodes():
    ack = encode_ack(7, 2**40 + 5, multiple=True)
    assert len(ack) == ACK_BYTES
    assert ack == frame.marshal(commands.Basic.Ack(2**40 + 5, True), 7)


@pytest.mark.parametrize(("messages", "laps"), [(1, 300), (16, 40), (256, 300), (1000, 140), (1024, 70), (65_536, 2)])
def test_every_message_of_a_ring_has_its_own_number(messages, laps):
    one, body_at = encode_publish("", "q", bytes(20))
    ring = PublishRing([one], body_at, messages, stream=9)
    for lap in range(laps):
        ring.stamp_lap(lap)
        # All of them in small rings, each second byte's first and last in large ones.
        for position in {*range(min(messages, 64)), *range(255, messages, 256), *range(0, messages, 256)}:
            at = position * ring.stride
            assert STAMP.unpack_from(ring.data, at + body_at)[0] == stamp(9, lap * messages + position), (
                lap,
                position,
            )
    whole = bytearray(ring.data)
    for position in range(messages):
        whole[position * ring.stride + body_at : position * ring.stride + body_at + 8] = bytes(8)
    assert whole == one * messages


def test_numbers_carry_into_high_bytes():
    one, body_at = encode_publish("", "q", bytes(8))
    ring = PublishRing([one], body_at, 1024)
    for lap in (2**14 - 1, 2**14, 2**22, 2**22 + 1, 3):
        ring.stamp_lap(lap)
        for position in (0, 255, 256, 1023):
            number = STAMP.unpack_from(ring.data, position * ring.stride + body_at)[0]
            assert number == lap * 1024 + position


def test_ring_of_several_keys():
    pairs = [encode_publish("x", key, bytes(8)) for key in ("aa", "bb", "cc")]
    ring = PublishRing([one for one, _ in pairs], pairs[0][1], 4)
    keys = [value.routing_key for value in frames_of(bytes(ring.data)) if value.name == "Basic.Publish"]
    assert keys == ["aa", "bb", "cc", "aa"]


@pytest.mark.parametrize("messages", [0, 131_072])
def test_ring_of_another_length_is_refused(messages):
    one, body_at = encode_publish("", "q", bytes(8))
    with pytest.raises(ValueError, match="a ring holds"):
        PublishRing([one], body_at, messages)


def test_ring_needs_room_for_the_stamp_and_one_size():
    one, body_at = encode_publish("", "q", bytes(7))
    with pytest.raises(ValueError, match="stamp"):
        PublishRing([one], body_at, 4)
    longer, _ = encode_publish("", "qq", bytes(7))
    with pytest.raises(ValueError, match="one size"):
        PublishRing([one, longer], body_at, 4)


def test_single_acks_are_one_for_each_tag():
    acks, tag, data = SingleAcks(), 0, b""
    for count in (0, 1, 2, 255, 1024, 1025, 3000, 1):
        data += acks.encode(tag + 1, tag + count)
        tag += count
    assert data == b"".join(encode_ack(1, number + 1, multiple=False) for number in range(tag))
