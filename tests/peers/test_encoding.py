"""The bytes of messages: each message comes back as it was, and nothing else than a message comes through.

What is verified: round trips of every kind; that payloads are not copied when they are sent; that cut, changed and
absurd bytes raise `MalformedMessage` and take no memory for what they only announce. Not verified: what a message
makes a forwarder do.
"""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.cluster.records import SOURCES
from amqpd.peers.encoding import GREETING_BYTES_MAX, MESSAGE_BYTES_MAX, PAGE_BYTES_MAX, decode, encode
from amqpd.peers.entry import EPOCH_MAX, NUMBER_MAX, SOURCES_MAX, START, Frame, LogEntry, Vote, checksum_of, new_entry
from amqpd.peers.formats import ENTRIES_MAX, HEAD_BYTES_MAX, NAME_BYTES_MAX, NAMES_MAX, MalformedMessage
from amqpd.peers.messages import (
    FROM_ACCEPTOR,
    FROM_DIALER,
    HANDSHAKE,
    NONCE_BYTES,
    OVER,
    Acknowledgement,
    Answered,
    AppliedRevision,
    AskRevision,
    Cut,
    DataHeartbeat,
    Entries,
    Fetched,
    Filled,
    Greeting,
    HandedSessions,
    Heartbeat,
    Hello,
    HoldsNothing,
    Message,
    OpenedSource,
    Opening,
    OpenReplicaSet,
    Page,
    Proof,
    Purpose,
    Query,
    Refusal,
    RequestVote,
    SnapshotPart,
    SourceEpoch,
    ToEdge,
    ToLeader,
)
from amqpd.peers.versions import HAS_DATA_LINKS, HIGHEST, OWN, RANGED, Versions
from tests.peers.message_strategies import BY_KIND, EXAMPLES, messages
from tests.replication.lies import ANSWERS, FROM_LEADER, lies_in

OF_BEFORE = (HANDSHAKE | OVER[Purpose.REPLICATION].dialer | OVER[Purpose.REPLICATION].acceptor) - {HandedSessions}
"""kinds of messages that versions 4 and 5 have, too"""


def bytes_of(message: Message) -> bytes:
    return b"".join(encode(message))


def decode_or_refuse(data: bytes | bytearray) -> None:
    """Raises nothing but what `decode` may."""
    with suppress(MalformedMessage):
        decode(data)


def test_every_message_can_be_drawn() -> None:
    assert set(BY_KIND) == HANDSHAKE.union(*[kinds for allowed in OVER.values() for kinds in allowed])
    assert {Greeting, Proof} == FROM_DIALER & FROM_ACCEPTOR


def test_what_goes_over_a_link_of_one_purpose_goes_over_none_of_the_other() -> None:
    replication, data = (allowed.dialer | allowed.acceptor for allowed in OVER.values())
    assert not replication & data
    assert not (replication | data) & HANDSHAKE
    assert OVER[Purpose.DATA] == (
        {ToLeader, HoldsNothing, DataHeartbeat, AskRevision},
        {ToEdge, DataHeartbeat, AppliedRevision},
    )


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
    elif isinstance(message, Proof | Refusal) and cut:
        decode_or_refuse(cut)
    elif isinstance(message, HandedSessions | ToLeader | ToEdge) and len(cut) > len(whole) - _body_bytes(message):
        assert decode(cut) != message
    else:
        with pytest.raises(MalformedMessage):
            decode(cut)


def _body_bytes(message: HandedSessions | ToLeader | ToEdge) -> int:
    return sum(map(len, message.pieces))


OPEN_ENDED = Filled | Fetched | HandedSessions | Proof | Refusal | ToLeader | ToEdge
"""their last field takes what there is"""


@given(messages.filter(lambda message: not isinstance(message, OPEN_ENDED)), st.binary(min_size=1))
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
    assert encode(Filled(1, 1, SnapshotPart(1, 1, (1, 2), part, True, True)))[1] is part


def test_a_body_is_sent_without_a_copy_but_for_a_small_head() -> None:
    head, payload = b"h" * HEAD_BYTES_MAX, b"y" * 50_000
    first, *pieces = encode(ToEdge(1, 2, 3, (head, payload)))
    assert first.endswith(head)
    assert pieces[0] is payload
    assert encode(ToLeader(1, 2, 3, 4, (payload, payload)))[1] is payload
    assert ToLeader(1, 2, 3, 4, (b"one", b"two")).body == b"onetwo"
    views = ToLeader(1, 2, 3, 4, (memoryview(b"one"), memoryview(payload)))
    assert bytes_of(views) == bytes_of(ToLeader(1, 2, 3, 4, (b"one", payload)))
    assert ToLeader(1, 2, 3, 4, (memoryview(b"one"),)).body == b"one"


@pytest.mark.parametrize("head", [struct.pack("<Bqqqq", 21, 1, 2, 3, 4), struct.pack("<Bqqq", 22, 1, 2, 3)])
def test_a_message_of_a_session_has_a_body(head: bytes) -> None:
    with pytest.raises(MalformedMessage, match="without a body"):
        decode(head)
    with pytest.raises(ValueError, match="without a body"):
        encode(ToLeader(1, 2, 3, 4, (b"",)))


OUT_OF_ORDER = LogEntry(1, (2, 5), (2, 5), b"", checksum_of(1, (2, 5), (2, 5), b""))


@pytest.mark.parametrize("entry", [LogEntry(1, (2, 5), (2, 3), b"payload", 17), OUT_OF_ORDER])
def test_an_entry_that_is_not_as_it_was_made_is_malformed(entry: LogEntry) -> None:
    with pytest.raises(MalformedMessage, match="not as its leader made it"):
        decode(bytes_of(Entries(1, (entry,))))


def test_a_flipped_bit_of_a_payload_is_found() -> None:
    whole = bytearray(bytes_of(Entries(1, (new_entry(1, (1, 1), START, bytes(1000)),))))
    whole[-500] ^= 4
    with pytest.raises(MalformedMessage, match="not as its leader made it"):
        decode(whole)


def test_a_greeting_of_another_version_is_read_as_far_as_it_is_known() -> None:
    of_three = bytes.fromhex("01 616d7170640d0a00 0300 0700000000000000 0800000000000000 0400 0100 73686f7061")
    assert decode(of_three) == Greeting(Hello(3, "shop", "a", 7, 8, 3), "", b"", secret=False)
    for purpose in Purpose:
        later = replace(greeting(Hello(9, "shop", "a", 7, 8, 6)), purpose=purpose)
        read = decode(bytes_of(later) + b"and more")
        assert read == replace(later, more=b"and more")
        assert bytes_of(read) == bytes_of(later) + b"and more", (
            "both ends prove what was said, who understood it or not"
        )


def test_a_greeting_has_a_purpose_from_version_6_on_and_one_that_is_known() -> None:
    of_five, of_six = (greeting(Hello(version, "shop", "a", 7, 8, 4)) for version in (5, 6))
    for_data = replace(of_six, purpose=Purpose.DATA)
    assert bytes_of(of_six)[-3:] == b"\4\0\0"
    assert bytes_of(for_data)[-3:] == b"\4\0\1"
    assert decode(bytes_of(for_data)) == for_data
    with pytest.raises(MalformedMessage, match="a purpose 2"):
        decode(bytes_of(for_data)[:-1] + b"\2")
    with pytest.raises(MalformedMessage, match="1 bytes are announced where 0 are left"):
        decode(bytes_of(of_six)[:-1])
    for exact in (of_five, of_six):
        with pytest.raises(MalformedMessage, match="1 bytes follow the end"):
            decode(bytes_of(exact) + b"\1")
    with pytest.raises(ValueError, match="version 5 for data"):
        encode(replace(of_five, purpose=Purpose.DATA))


@given(messages.filter(lambda message: type(message) in OF_BEFORE))
def test_the_version_before_has_all_but_the_revisions(message: Message) -> None:
    if isinstance(message, Greeting):  # who speaks an older version only says so
        message = replace(message, hello=replace(message.hello, version=4, lowest=4), purpose=Purpose.REPLICATION)
    frame = isinstance(message, Cut) and message.frame.revision
    if frame:
        with pytest.raises(ValueError, match=f"revision {frame}, for a node of version 4"):
            encode(message, 4)
        return
    data = b"".join(encode(message, 4))
    read = decode(data, 4)
    if isinstance(message, Heartbeat | Answered):
        assert read == replace(message, revision=0)
        assert data != bytes_of(message)
    elif isinstance(message, Greeting | Cut):
        assert read == message
    else:
        assert (read, data) == (message, bytes_of(message))


@given(st.sampled_from([each for each in BY_KIND if each not in OF_BEFORE]).flatmap(BY_KIND.__getitem__))
def test_older_versions_have_nothing_of_sessions_of_remote_queues(message: Message) -> None:
    for version in (4, 5):
        with pytest.raises(ValueError, match=f"version {version} has no {type(message).__name__}"):
            encode(message, version)
        with pytest.raises(MalformedMessage, match="there is no message of kind"):
            decode(bytes_of(message), version)


@given(
    messages.filter(lambda message: type(message) in OF_BEFORE),
    st.permutations([4, 5, 6]).map(lambda of: of[:2]),
    st.data(),
)
def test_bytes_of_the_other_version_are_malformed_or_a_message(
    message: Message, versions: list[int], data: st.DataObject
) -> None:
    """Never another error, and never with something left over."""
    written, read = versions
    if isinstance(message, Cut):
        message = replace(message, frame=replace(message.frame, revision=0))
    whole = bytearray(b"".join(encode(message, written)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    with suppress(MalformedMessage):
        came = decode(whole, read)
        assert decode(b"".join(encode(came, read)), read) == came


@given(st.integers(0, 65535), st.integers(0, 65535))
def test_a_greeting_lies_about_its_versions(highest: int, lowest: int) -> None:
    said = greeting(Hello(6, "shop", "a", 7, 8, 4))
    data = bytearray(bytes_of(said))
    data[9:11] = struct.pack("<H", highest)
    data[-3:-1] = struct.pack("<H", lowest)
    try:
        read = decode(data)
    except MalformedMessage:
        assert 4 <= highest < HAS_DATA_LINKS or (highest >= RANGED and not 1 <= lowest <= highest)
        return
    assert isinstance(read, Greeting)
    spoken = read.hello.versions
    assert spoken == (Versions(lowest, highest) if highest >= RANGED else Versions(highest, highest))
    used = OWN.common(spoken)
    assert used is None or (used in (4, 5, 6) and spoken.lowest <= used <= spoken.highest)


def test_what_is_no_forwarder_is_told_from_one() -> None:
    data = bytearray(bytes_of(EXAMPLES[0]))
    data[1:9] = b"HTTP/1.1"
    with pytest.raises(MalformedMessage, match="no forwarder"):
        decode(data)


def test_names_have_to_be_text() -> None:
    data = bytearray(bytes_of(greeting(Hello(HIGHEST, "shop", "a", 7, 8))))
    data[data.index(b"shop")] = 0xFF
    with pytest.raises(MalformedMessage, match="UTF-8"):
        decode(data)


def greeting(hello: Hello) -> Greeting:
    return Greeting(hello, "b", b"\5" * NONCE_BYTES, secret=True)


class Announced(bytes):
    """Bytes that say that they are more than they are: as many as the test needs would not fit into memory."""

    def __len__(self) -> int:
        return MESSAGE_BYTES_MAX


@pytest.mark.parametrize(
    "message",
    [
        greeting(Hello(1, "x" * GREETING_BYTES_MAX, "a", 1, 1)),
        Filled(1, 1, SnapshotPart(1, 1, (1, 2), Announced(), True, True)),
        Query(1, "x" * (PAGE_BYTES_MAX + 1)),
        Page(1, "ü" * (PAGE_BYTES_MAX // 2 + 1)),
    ],
    ids=["Greeting", "Filled", "Query", "Page"],
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
    """A change of these is a new version."""
    said: dict[Message, str] = {
        Heartbeat(1, 2, 3, 4): "06 01000000 0200000000000000 0300000000000000 0400000000000000",
        Query(1, "{}"): "11 0100000000000000 02000000 7b7d",
        Page(1, "{}"): "12 0100000000000000 02000000 7b7d",
        greeting(Hello(4, "shop", "a", 7, 8)): (
            "01 616d7170640d0a00 0400 0700000000000000 0800000000000000 0400 0100 73686f7061 0100 01 62" + "05" * 32
        ),
        greeting(Hello(5, "shop", "a", 7, 8, 4)): (
            "01 616d7170640d0a00 0500 0700000000000000 0800000000000000 0400 0100 73686f7061 0100 01 62"
            + "05" * 32
            + "0400"
        ),
        replace(greeting(Hello(6, "shop", "a", 7, 8, 4)), purpose=Purpose.DATA): (
            "01 616d7170640d0a00 0600 0700000000000000 0800000000000000 0400 0100 73686f7061 0100 01 62"
            + "05" * 32
            + "0400 01"
        ),
        ToLeader(
            5, 6, 7, 8, (b"\1\2", b"\3")
        ): "15 0500000000000000 0600000000000000 0700000000000000 0800000000000000 010203",
        ToEdge(5, 6, 7, (b"\1\2", b"\3")): "16 0500000000000000 0600000000000000 0700000000000000 010203",
        HoldsNothing((SourceEpoch(5, 2),)): "17 01000000 0500000000000000 0200000000000000",
        DataHeartbeat(): "18",
        HandedSessions(5, (6, 7), (b"\1\2", b"\3")): "19 0500000000000000 0600000000000000 0700000000000000 010203",
        AskRevision(5): "1a 0500000000000000",
        AppliedRevision(5, 6, "g", ("b", "cd")): (
            "1b 0500000000000000 0600000000000000 0100 67 02000000 0100 62 0200 6364"
        ),
        Proof(b"\1\2"): "13 0102",
        Refusal("no"): "14 6e6f",
    }
    assert {message: bytes_of(message) for message in said} == {
        message: bytes.fromhex(text) for message, text in said.items()
    }
    opening = OpenReplicaSet(1, 2, Opening(5, (OpenedSource(9, 3, (2, 4), None, 6),), 4))
    head = struct.pack("<BIqqqI", 2, 1, 2, 5, 4, 1)
    assert bytes_of(opening) == head + struct.pack("<qqqq?Iq", 9, 3, 2, 4, False, 0, 6)
    answered = Answered(1, 2, Acknowledgement(5, {}, {}, frozenset({9}), frozenset()), 6)
    assert bytes_of(answered) == struct.pack("<BIqqIIIIIqq", 8, 1, 2, 5, 0, 0, 0, 1, 0, 9, 6)
    assert b"".join(encode(answered, 4)) == struct.pack("<BIqqIIIIIq", 8, 1, 2, 5, 0, 0, 0, 1, 0, 9)
    cut = Cut(1, 2, Frame(9, 8, (), 7, 6, (3,), 5))
    assert bytes_of(cut) == struct.pack("<BIqqqqqqIqI", 3, 1, 2, 5, 9, 8, 7, 6, 1, 3, 0)
    of_four = b"".join(encode(Cut(1, 2, Frame(9, 8, (), 7, 6, (3,))), 4))
    assert of_four == struct.pack("<BIqqqqqIqI", 3, 1, 2, 9, 8, 7, 6, 1, 3, 0)
    assert b"".join(encode(Heartbeat(1, 2, 3, 4), 4)) == struct.pack("<BIqq", 6, 1, 2, 3)


def is_malformed(message: Message) -> bool:
    try:
        decode(bytes_of(message))
    except MalformedMessage:
        return True
    return False


WIDTHS = {"replica_set": 32, "checksum": 32}
"""of fields that are not 64 bits wide: there every number is one"""
DRAWN = {"generation"}
"""random numbers: all that are not below zero"""


BOUNDED = [
    *FROM_LEADER,
    *ANSWERS,
    ToLeader(5, 6, 7, 8, (b"body",)),
    ToEdge(5, 6, 7, (b"body",)),
    HoldsNothing((SourceEpoch(5, 2),)),
    HandedSessions(5, (6, 7), (b"body",)),
    AskRevision(5),
]


@pytest.mark.parametrize("message", BOUNDED, ids=lambda message: type(message).__name__)
def test_every_number_of_a_message_is_bounded_where_it_comes_in(message: Message) -> None:
    """Of `RequestVote` with epoch 2^63-1, which was granted, the next epoch was no number of the disk any more."""

    def absurd(name: str) -> list[int]:
        if name in WIDTHS:
            return []
        return [-1, -(2**63)] if name in DRAWN else [-1, -(2**63), NUMBER_MAX + 1, 2**63 - 1]

    tried = 0
    for path, lie in lies_in(message, absurd):
        if path.rpartition("=")[2] in ("True", "False"):
            continue
        tried += 1
        assert is_malformed(lie), path
    assert tried


@pytest.mark.parametrize("message", BOUNDED, ids=lambda message: type(message).__name__)
def test_epochs_and_sources_have_bounds_of_their_own(message: Message) -> None:
    sources = [SOURCES_MAX + 1] if isinstance(message, ToLeader | ToEdge | HoldsNothing) else [0, SOURCES_MAX + 1]

    def absurd(name: str) -> list[int]:
        return {"epoch": [EPOCH_MAX + 1], "source": sources}.get(name, [])

    for path, lie in lies_in(message, absurd):
        if "=" in path and path.rpartition("=")[2] not in ("True", "False"):
            assert is_malformed(lie), path


def test_sources_are_those_of_the_cluster() -> None:
    assert SOURCES_MAX == SOURCES


def test_a_list_that_is_longer_than_any_forwarder_sends_is_malformed() -> None:
    none = new_entry(1, (1, 1), START, b"")
    for message in (
        Entries(1, (none,) * (ENTRIES_MAX + 1)),
        Answered(1, 1, Acknowledgement(1, {}, {}, frozenset(range(1, SOURCES_MAX + 2)), frozenset())),
        Cut(1, 1, Frame(2, 1, (), 0, 0, (1,) * (SOURCES_MAX + 1))),
        HoldsNothing((SourceEpoch(1, 1),) * (SOURCES_MAX + 1)),
        AppliedRevision(1, 1, "g", ("b",) * (NAMES_MAX + 1)),
        AppliedRevision(1, 1, "g" * (NAME_BYTES_MAX + 1)),
    ):
        with pytest.raises(MalformedMessage, match="the limit is"):
            decode(bytes_of(message))


def test_a_name_that_no_forwarder_has_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="the limit is"):
        decode(bytes_of(RequestVote(1, 1, Vote(1, "x" * (NAME_BYTES_MAX + 1), 1))))
