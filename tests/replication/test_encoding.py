"""The bytes of messages: each message comes back as it was, and nothing else than a message comes through.

What is verified: round trips of every kind; that payloads are not copied when they are sent; that cut, changed and
absurd bytes raise `MalformedMessage` and take no memory for what they only announce. Not verified: what a message
makes a forwarder do.
"""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.replication.encoding import HELLO_BYTES_MAX, LENGTH, MESSAGE_BYTES_MAX, PAGE_BYTES_MAX, decode, encode
from amqpd.replication.entry import START, Frame, LogEntry, checksum_of, new_entry
from amqpd.replication.formats import MalformedMessage
from amqpd.replication.messages import (
    FROM_ACCEPTOR,
    FROM_DIALER,
    Answered,
    Cut,
    Entries,
    Fetched,
    Filled,
    Hello,
    Message,
    OpenLane,
    Page,
    Query,
    Told,
)
from amqpd.replication.receiver import Answer, Opened, Opening, State
from tests.replication.message_strategies import BY_KIND, EXAMPLES, messages


def bytes_of(message: Message) -> bytes:
    """Without the length in front."""
    whole = b"".join(encode(message))
    assert LENGTH.unpack_from(whole) == (len(whole) - LENGTH.size,)
    return whole[LENGTH.size :]


def decode_or_refuse(data: bytes | bytearray) -> None:
    """Raises nothing but what `decode` may."""
    with suppress(MalformedMessage):
        decode(data)


def test_every_message_can_be_drawn() -> None:
    assert set(BY_KIND) == FROM_DIALER | FROM_ACCEPTOR
    assert {Hello} == FROM_DIALER & FROM_ACCEPTOR


@pytest.mark.parametrize("kind", BY_KIND, ids=lambda kind: kind.__name__)
def test_a_message_comes_back_as_it_was(kind: type) -> None:
    @given(BY_KIND[kind])
    def comes_back(message: Message) -> None:
        assert decode(bytes_of(message)) == message
        assert decode(memoryview(bytearray(bytes_of(message)))) == message

    comes_back()


@given(messages, st.data())
def test_a_message_that_is_cut_is_malformed(message: Message, data: st.DataObject) -> None:
    whole = bytes_of(message)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    # Of a state the last field takes what there is: its end is the message's.
    if isinstance(message, Filled | Fetched) and len(cut) >= len(whole) - len(message.state.part):
        assert decode(cut) != message
    else:
        with pytest.raises(MalformedMessage):
            decode(cut)


@given(messages.filter(lambda message: not isinstance(message, Hello | Filled | Fetched)), st.binary(min_size=1))
def test_what_follows_a_message_is_malformed(message: Message, behind: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(bytes_of(message) + behind)


@given(messages, st.data())
def test_changed_bytes_are_a_message_or_malformed(message: Message, data: st.DataObject) -> None:
    changed = bytearray(bytes_of(message))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, min(len(changed), 200) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    decode_or_refuse(changed)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    decode_or_refuse(data)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_each_number_may_be_absurd(message: Message) -> None:
    """Every four bytes of it in turn say the largest number there is, and the largest that is positive."""
    whole = bytes_of(message)
    for at in range(len(whole) - 3):
        for absurd in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"):
            decode_or_refuse(whole[:at] + absurd + whole[at + 4 :])


@pytest.mark.parametrize("kind", range(256))
def test_a_count_that_is_not_true_takes_no_memory(kind: int) -> None:
    """Wherever a message of this kind has its counts and lengths, they say four billions."""
    data = bytes([kind]) + b"\xff" * 300
    decode(bytes_of(EXAMPLES[0]))
    tracemalloc.start()
    try:
        decode_or_refuse(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_payloads_are_sent_without_a_copy() -> None:
    payloads = [bytes(100_000), b"x" * 50_000]
    frame = Frame(2, 1, tuple(new_entry(source, (1, 2), START, each) for source, each in enumerate(payloads)), 0)
    _, *pieces = encode(Cut(1, 1, frame))
    assert [id(piece) for piece in pieces] == [id(each) for each in payloads]
    part = b"y" * 50_000
    assert encode(Filled(1, 1, State(1, 1, (1, 2), part, True, True)))[1] is part


OUT_OF_ORDER = LogEntry(1, (2, 5), (2, 5), b"", checksum_of(1, (2, 5), (2, 5), b""))


@pytest.mark.parametrize("entry", [LogEntry(1, (2, 5), (2, 3), b"payload", 17), OUT_OF_ORDER])
def test_an_entry_that_is_not_as_it_was_made_is_malformed(entry: LogEntry) -> None:
    with pytest.raises(MalformedMessage, match="not as its home made it"):
        decode(bytes_of(Entries(1, (entry,))))


def test_a_flipped_bit_of_a_payload_is_found() -> None:
    whole = bytearray(bytes_of(Entries(1, (new_entry(1, (1, 1), START, bytes(1000)),))))
    whole[-500] ^= 4
    with pytest.raises(MalformedMessage, match="not as its home made it"):
        decode(whole)


def test_a_hello_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    hello = Hello(9, "shop", "a", 7, 8)
    assert decode(bytes_of(hello) + b"and more") == hello


def test_what_is_no_forwarder_is_told_from_one() -> None:
    data = bytearray(bytes_of(EXAMPLES[0]))
    data[1:9] = b"HTTP/1.1"
    with pytest.raises(MalformedMessage, match="no forwarder"):
        decode(data)


def test_names_have_to_be_text() -> None:
    data = bytearray(bytes_of(Hello(1, "shop", "a", 7, 8)))
    data[-1] = 0xFF
    with pytest.raises(MalformedMessage, match="UTF-8"):
        decode(data)


class Announced(bytes):
    """Bytes that say that they are more than they are: as many as the test needs would not fit into memory."""

    def __len__(self) -> int:
        return MESSAGE_BYTES_MAX


@pytest.mark.parametrize(
    "message",
    [
        Hello(1, "x" * HELLO_BYTES_MAX, "a", 1, 1),
        Filled(1, 1, State(1, 1, (1, 2), Announced(), True, True)),
        Query(1, "x" * (PAGE_BYTES_MAX + 1)),
        Page(1, "ü" * (PAGE_BYTES_MAX // 2 + 1)),
    ],
    ids=["Hello", "Filled", "Query", "Page"],
)
def test_a_message_that_is_too_large_is_not_sent(message: Message) -> None:
    with pytest.raises(ValueError, match="the limit is"):
        encode(message)


@pytest.mark.parametrize("kind", [17, 18])
def test_a_page_that_is_too_large_is_malformed(kind: int) -> None:
    whole = struct.pack("<BqI", kind, 1, PAGE_BYTES_MAX) + b"x" * PAGE_BYTES_MAX
    assert len(decode(whole).text) == PAGE_BYTES_MAX  # type: ignore[union-attr]
    with pytest.raises(MalformedMessage, match="the limit is"):
        decode(struct.pack("<BqI", kind, 1, PAGE_BYTES_MAX + 1) + b"x" * (PAGE_BYTES_MAX + 1))


def test_the_bytes_of_a_version_do_not_change() -> None:
    """A change of these is a new VERSION."""
    said: dict[Message, str] = {
        Told(1, 2, 3): "06 01000000 0200000000000000 0300000000000000",
        Query(1, "{}"): "11 0100000000000000 02000000 7b7d",
        Page(1, "{}"): "12 0100000000000000 02000000 7b7d",
        Hello(
            1, "shop", "a", 7, 8
        ): "01 616d7170640d0a00 0100 0700000000000000 0800000000000000 0400 0100 73686f7061",
    }
    assert {message: bytes_of(message) for message in said} == {
        message: bytes.fromhex(text) for message, text in said.items()
    }
    opening = OpenLane(1, 2, Opening(5, (Opened(9, 3, (2, 4), None, 6),), 4))
    head = struct.pack("<BIqqqI", 2, 1, 2, 5, 4, 1)
    assert bytes_of(opening) == head + struct.pack("<qqqq?Iq", 9, 3, 2, 4, False, 0, 6)
    answered = Answered(1, 2, Answer(5, {}, {}, frozenset({9}), frozenset()))
    assert bytes_of(answered) == struct.pack("<BIqqIIIIIq", 8, 1, 2, 5, 0, 0, 0, 1, 0, 9)
