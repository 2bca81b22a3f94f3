"""Messages come out of the bytes as they went in, however these are cut; and what is only announced takes no memory.

Not verified: sockets (`test_links.py`).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.peers.encoding import MESSAGE_BYTES_MAX, SMALL_BYTES_MAX
from amqpd.peers.formats import MalformedMessage
from amqpd.peers.links.framing import FIRST_BYTES, INVERTED, KEPT_BYTES_MAX, LENGTHS, Crc, Incoming, framed
from amqpd.peers.messages import Filled, Heartbeat, Message, SnapshotPart
from tests.peers.message_strategies import messages


def filled(nbytes: int) -> Filled:
    return Filled(1, 1, SnapshotPart(1, 1, (1, 1), bytes(nbytes), True, True))


def bytes_of(*some: Message) -> bytes:
    return b"".join(piece for message in some for piece in framed(message, Crc()))


def announced(nbytes: int) -> bytes:
    """The length of a message."""
    return LENGTHS.pack(nbytes, nbytes ^ INVERTED)


def feed(incoming: Incoming, data: bytes) -> list[Message]:
    """In reads as large as they are taken."""
    found = []
    while data:
        space = incoming.space()
        nbytes = min(len(space), len(data))
        space[:nbytes] = data[:nbytes]
        data = data[nbytes:]
        incoming.took(nbytes)
        while (message := incoming.next()) is not None:
            found.append(message)
    return found


@given(st.lists(messages, max_size=6), st.data())
def test_messages_come_out_wherever_the_bytes_are_cut(sent: list[Message], data: st.DataObject) -> None:
    incoming, whole = Incoming(Crc()), bytes_of(*sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    found: list[Message] = []
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += feed(incoming, whole[begin:end])
    assert found == sent


def test_messages_come_out_byte_by_byte() -> None:
    incoming = Incoming(Crc())
    sent: list[Message] = [Heartbeat(1, 2, 3), filled(3), Heartbeat(4, 5, 6)]
    found: list[Message] = []
    for each in bytes_of(*sent):
        found += feed(incoming, bytes([each]))
    assert found == sent


@pytest.mark.parametrize("nbytes", [FIRST_BYTES - 60, FIRST_BYTES, 3 * FIRST_BYTES, 5_000_000])
def test_large_messages_come_out_between_small_ones(nbytes: int) -> None:
    incoming = Incoming(Crc())
    sent: list[Message] = [Heartbeat(1, 2, 3), filled(nbytes), filled(nbytes), Heartbeat(4, 5, 6), filled(nbytes)]
    assert feed(incoming, bytes_of(*sent)) == sent


def test_a_length_alone_takes_no_memory() -> None:
    incoming = Incoming(Crc())
    assert feed(incoming, announced(MESSAGE_BYTES_MAX) + b"\5") == []
    assert incoming.nbytes == FIRST_BYTES
    assert len(incoming.space()) > 0
    came = FIRST_BYTES
    while came < 10_000_000:
        assert feed(incoming, bytes(100_000)) == []
        came += 100_000
        assert incoming.nbytes <= 2 * came


def test_a_length_above_the_bound_is_refused_at_once() -> None:
    incoming = Incoming(Crc(), 1000)
    with pytest.raises(MalformedMessage, match="the limit is 1000"):
        feed(incoming, announced(1005))


def test_the_buffer_of_large_messages_is_given_back() -> None:
    incoming = Incoming(Crc())
    feed(incoming, bytes_of(filled(3 * KEPT_BYTES_MAX)))
    assert incoming.nbytes > KEPT_BYTES_MAX
    assert feed(incoming, bytes_of(Heartbeat(1, 2, 3))) == [Heartbeat(1, 2, 3)]
    assert incoming.nbytes == FIRST_BYTES


def test_there_is_always_space() -> None:
    incoming, whole = Incoming(Crc()), bytes_of(filled(1_000_000))
    for begin in range(0, len(whole), 7919):
        assert len(incoming.space()) > 0
        feed(incoming, whole[begin : begin + 7919])


@pytest.mark.parametrize("kind", [6, 9, 11, 17, 99])
def test_a_message_that_has_no_payload_is_not_waited_for_when_it_is_large(kind: int) -> None:
    """A stranger's gigabyte would be kept until it has come."""
    incoming = Incoming(Crc())
    with pytest.raises(MalformedMessage, match=f"the limit is {SMALL_BYTES_MAX}"):
        feed(incoming, announced(SMALL_BYTES_MAX + 5) + bytes([kind]))
