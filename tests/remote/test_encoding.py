"""The bytes of messages between an edge and a leader: each comes back as it was, and nothing else comes through.

What is verified: round trips of every kind; the octets of each kind; that frames are not copied when they are sent;
that cut, changed and absurd bytes raise `MalformedMessage` and take no memory for what they only announce; that one
end does not read what the other one does not say. Not verified: what a message makes of the other end.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.journal.operation_marks import OUTCOMES_MAX, Purged, Refused
from amqpd.kernel import Run, encode_deliveries
from amqpd.message.properties import PropertiesReader
from amqpd.peers.formats import DRAWN_MAX, MalformedMessage
from amqpd.remote.encoding import MESSAGE_BYTES_MAX, bytes_max_of, decode_from_edge, decode_from_leader, encode
from amqpd.remote.formats import CLAIMS_MAX, OPERATIONS_MAX, PARTS_MAX
from amqpd.remote.messages import (
    Attach,
    Attached,
    Cancel,
    Counted,
    CountMessages,
    Credit,
    Decided,
    Deliver,
    DeliveredCounts,
    DeliveryClaim,
    DeliveryRange,
    Empty,
    EndReason,
    FromEdge,
    FromLeader,
    Lower,
    Lowered,
    Operations,
    Publish,
    Purge,
    Received,
    ReceivedCount,
    Release,
    SessionEnded,
    Settle,
    Settling,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    SubscriptionState,
    Unknown,
)
from tests.harness.harness import publish_bytes
from tests.remote.message_strategies import FROM_EDGE, FROM_LEADER, plain, scanned
from tests.remote.simulation.queue import make_run

Decode = Callable[[memoryview], Any]
KINDS: list[tuple[type, st.SearchStrategy[Any], Decode]] = [
    *[(kind, drawn, decode_from_edge) for kind, drawn in FROM_EDGE.items()],
    *[(kind, drawn, decode_from_leader) for kind, drawn in FROM_LEADER.items()],
]
each_kind = pytest.mark.parametrize(("kind", "drawn", "decode"), KINDS, ids=[kind.__name__ for kind, _, _ in KINDS])


def bytes_of(message: FromEdge | FromLeader) -> bytes:
    return b"".join(encode(message))


def decode_or_refuse(data: bytes | bytearray) -> None:
    """Raises nothing but what decoding may."""
    for decode in (decode_from_edge, decode_from_leader):
        with suppress(MalformedMessage):
            decode(memoryview(data))


def test_every_message_can_be_drawn() -> None:
    assert FROM_EDGE.keys() == set(get_args(FromEdge))
    assert FROM_LEADER.keys() == set(get_args(FromLeader))


@each_kind
def test_a_message_comes_back_as_it_was(kind: type, drawn: st.SearchStrategy[Any], decode: Decode) -> None:
    other = decode_from_leader if decode is decode_from_edge else decode_from_edge

    @given(drawn)
    def comes_back(message: Any) -> None:
        whole = bytes_of(message)
        assert plain(decode(memoryview(whole))) == plain(message)
        assert plain(decode(memoryview(bytearray(whole)))) == plain(message)
        with pytest.raises(MalformedMessage, match="no message from this end"):
            other(memoryview(whole))

    comes_back()


@each_kind
def test_a_message_that_is_cut_or_goes_on_is_malformed(
    kind: type, drawn: st.SearchStrategy[Any], decode: Decode
) -> None:
    @given(drawn, st.data())
    def is_malformed(message: Any, data: st.DataObject) -> None:
        whole = bytes_of(message)
        if kind is SessionEnded:  # its text takes what there is
            return
        with pytest.raises(MalformedMessage):
            decode(memoryview(whole[: data.draw(st.integers(0, len(whole) - 1))]))
        with pytest.raises(MalformedMessage):
            decode(memoryview(whole + b"\0"))

    is_malformed()


@each_kind
def test_changed_bytes_are_a_message_or_malformed(kind: type, drawn: st.SearchStrategy[Any], decode: Decode) -> None:
    """And what is a message says something that can be said again."""

    @given(drawn, st.data())
    def is_read_or_refused(message: Any, data: st.DataObject) -> None:
        changed = bytearray(bytes_of(message)[:5000])
        for _ in range(data.draw(st.integers(1, 8))):
            at = data.draw(st.integers(0, min(len(changed), 200) - 1))
            changed[at] = data.draw(st.integers(0, 255))
        with suppress(MalformedMessage):
            read = decode(memoryview(changed))
            assert plain(decode(memoryview(bytes_of(read)))) == plain(read)

    is_read_or_refused()


@given(st.binary(max_size=400))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    decode_or_refuse(data)
    for kind in (*range(64, 71), *range(96, 107)):
        decode_or_refuse(bytes([kind]) + data)


RUN = scanned(publish_bytes(b"hi", "k"))
EXAMPLES: list[tuple[FromEdge | FromLeader, str]] = [
    (
        Attach(
            3,
            (
                SubscriptionState(
                    2, 7, 50, 900, 12, 80, True, -1, False, False, 0, (DeliveryClaim(9, 40, 4, 5, True),)
                ),
            ),
        ),
        "40 0300000000000000 01000000"
        " 0200000000000000 0700000000000000 3200000000000000 8403000000000000 0c00000000000000 5000000000000000"
        " ffffffffffffffff 0000000000000000 01 01000000"
        " 0900000000000000 2800000000000000 0400000000000000 0500000000000000 01",
    ),
    (
        Operations(4, (Publish((7, 8), RUN), Publish((), None)), 5, 3),
        "41 0400000000000000 0500000000000000 0300000000000000 02000000"
        " 01 02000000 0700000000000000 0800000000000000 01000000 32000000" + RUN.raw().hex() + " 02 00000000",
    ),
    (
        Operations(
            4,
            (
                Settle(Settling.ACK, (DeliveryRange(1, 2, 3),)),
                Settle(Settling.REJECT, (DeliveryRange(1, 2, 3),)),
                Settle(Settling.REQUEUE, (DeliveryRange(1, 2, 3),)),
                Cancel(1, 2),
                Release(1, 2),
                Purge(7),
            ),
            0,
            0,
        ),
        "41 0400000000000000 0000000000000000 0000000000000000 06000000"
        + "".join(
            f" {kind} 01000000 0100000000000000 0200000000000000 0300000000000000" for kind in ("03", "04", "05")
        )
        + " 06 01000000 0100000000000000 0200000000000000 07 01000000 0100000000000000 0200000000000000"
        " 08 01000000 0700000000000000",
    ),
    (
        Subscribe(SubscriptionState(2, 7, 50, 900, get=True, after=6)),
        "42 0200000000000000 0700000000000000 3200000000000000 8403000000000000 0000000000000000 0000000000000000"
        " 0000000000000000 0600000000000000 04 00000000",
    ),
    (Credit(2, 60, 1000), "43 0200000000000000 3c00000000000000 e803000000000000"),
    (Lower(2, 9, 60, 1000), "44 0200000000000000 0900000000000000 3c00000000000000 e803000000000000"),
    (CountMessages(9, 7, 6), "45 0900000000000000 0700000000000000 0600000000000000"),
    (
        Received((ReceivedCount(2, 9, 3, 20),)),
        "46 01000000 0200000000000000 0900000000000000 0300000000000000 0000000000000000 1400000000000000",
    ),
    (
        Attached(5, 4, (DeliveryRange(2, 3, 4),), (SubscriptionEnded(9, EndReason.QUEUE_GONE),)),
        "60 0500000000000000 0400000000000000 01000000 01000000"
        " 0200000000000000 0300000000000000 0400000000000000"
        " 0900000000000000 01 0000000000000000 0000000000000000",
    ),
    (Unknown(5), "61 0500000000000000"),
    (
        Decided(9, (Refused(8, 1, 3), Purged(9, 4))),
        "62 0900000000000000 02000000 01 0800000000000000 0100000000000000 0300000000000000"
        " 02 0900000000000000 0400000000000000 0000000000000000",
    ),
    (Subscribed(2), "63 0200000000000000"),
    (Lowered(2, 9, 60, 1000), "64 0200000000000000 0900000000000000 3c00000000000000 e803000000000000"),
    (
        Deliver(2, 13, 41, RUN, 0, 1, True, 6),
        "65 0200000000000000 0d00000000000000 2900000000000000 06000000 01000000 01" + RUN.raw().hex(),
    ),
    (Empty(2), "66 0200000000000000"),
    (
        SubscriptionEnded(2, EndReason.EXCLUSIVE_USE),
        "67 0200000000000000 02 0000000000000000 0000000000000000",
    ),
    (
        SubscriptionEnded(2, EndReason.OUT_OF_SERVICE),
        "67 0200000000000000 03 0000000000000000 0000000000000000",
    ),
    (
        SubscriptionEnded(2, EndReason.DAMAGED, 40, 41),
        "67 0200000000000000 04 2800000000000000 2900000000000000",
    ),
    (Counted(9, 4, 1), "68 0900000000000000 01 04000000 01000000"),
    (Counted(9, -1, 0), "68 0900000000000000 00 00000000 00000000"),
    (DeliveredCounts(((2, 13),)), "69 01000000 0200000000000000 0d00000000000000"),
    (SessionEnded("ends"), "6a 656e6473"),
]
each_example = pytest.mark.parametrize(
    ("message", "octets"), EXAMPLES, ids=[f"{type(message).__name__}{i}" for i, (message, _) in enumerate(EXAMPLES)]
)


@each_example
def test_these_are_the_octets(message: FromEdge | FromLeader, octets: str) -> None:
    """They are the protocol: other versions read them."""
    assert bytes_of(message) == bytes.fromhex(octets)


def test_every_kind_has_its_octets() -> None:
    assert {type(message) for message, _ in EXAMPLES} == FROM_EDGE.keys() | FROM_LEADER.keys()


@each_example
def test_each_number_may_be_absurd(message: FromEdge | FromLeader, octets: str) -> None:
    """Every four bytes of it in turn say the largest number there is, the largest that is positive, and nothing."""
    whole = bytes_of(message)
    for at in range(len(whole) - 3):
        for absurd in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0"):
            decode_or_refuse(whole[:at] + absurd + whole[at + 4 :])


@pytest.mark.parametrize("kind", [*range(64, 71), *range(96, 107)])
def test_a_count_that_is_not_true_takes_no_memory(kind: int) -> None:
    decode_or_refuse(bytes_of(EXAMPLES[0][0]))
    tracemalloc.start()
    try:
        for absurd in (b"\xff", b"\x01\0\0\0\0\0\0\0", b"\0\0\0\x7f"):
            decode_or_refuse(bytes([kind]) + absurd * 40)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 16


def test_ids_of_queues_have_63_bits_and_so_have_sequence_numbers() -> None:
    """An id is drawn, and a priority queue's numbers have the level in front: half of all queues were refused."""
    queue, seq = DRAWN_MAX, DRAWN_MAX - 9
    run = Publish((queue, queue - 1), make_run([1]))
    claim = DeliveryClaim(1, seq, 3, 0, False)
    for said in (
        Subscribe(SubscriptionState(1, queue, 1, 1)),
        Attach(0, (SubscriptionState(1, queue, 1, 1, received=3, claims=(claim,)),)),
        CountMessages(1, queue, 0),
        Operations(1, (Purge(queue),), 0, 0),
    ):
        assert decode_from_edge(memoryview(b"".join(encode(said)))) == said
    operations = decode_from_edge(memoryview(b"".join(encode(Operations(1, (run,), 0, 0)))))
    assert isinstance(operations, Operations)
    [published] = operations.operations
    assert isinstance(published, Publish)
    assert published.queues == run.queues
    delivered = decode_from_leader(memoryview(b"".join(encode(Deliver(1, 1, seq, make_run([1]), 0, 1, False)))))
    assert isinstance(delivered, Deliver)
    assert delivered.seq == seq


def test_the_frames_of_runs_are_sent_without_a_copy() -> None:
    run = scanned(publish_bytes(bytes(20_000), "k"))
    pieces = encode(Operations(1, (Purge(1), Publish((7,), run), Purge(2), Publish((7,), run)), 0, 0))
    assert [piece is run.data for piece in pieces] == [False, True, False, True]
    assert encode(Deliver(1, 1, 1, run, 0, 1, False))[1] is run.data


def test_a_part_of_a_run_travels_alone() -> None:
    run = scanned(publish_bytes(bytes(100), "k") * 100)
    whole = bytes_of(Deliver(1, 1, 1, run, 98, 100, False))
    assert len(whole) == 34 + 2 * run.stride
    read = decode_from_leader(memoryview(whole))
    assert isinstance(read, Deliver)
    assert (read.low, read.high, read.run.count, len(read.run.data)) == (0, 2, 2, 2 * run.stride)


def test_what_arrives_is_cut_to_the_frames_of_the_client() -> None:
    run = scanned(publish_bytes(bytes(range(256)) * 100, "k"))
    read = decode_from_leader(memoryview(bytes_of(Deliver(1, 1, 1, run, 0, 1, False))))
    assert isinstance(read, Deliver)
    args = (0, 1, 3, b"\x01t", 1, False, 4096)
    assert encode_deliveries(read.run, *args) == encode_deliveries(run, *args)
    assert len(encode_deliveries(run, *args)) > run.nbytes + 5 * 8


def state(**other: Any) -> SubscriptionState:
    return SubscriptionState(**{"subscription": 2, "queue": 7, "messages": 9, "nbytes": 9, "received": 20, **other})


def claims(*found: tuple[int, int, int, int, bool]) -> SubscriptionState:
    return state(claims=tuple([DeliveryClaim(*each) for each in found]))


def operations(first: int = 4, maybe_below: int = 0, decided: int = 0, *found: Any) -> Operations:
    return Operations(first, found or (Purge(1),), maybe_below, decided)


def forged(kind: int, *found: tuple[str, tuple[int, ...]]) -> bytes:
    """A message as a liar writes it."""
    return bytes([kind]) + b"".join([struct.pack(f"<{layout}", *values) for layout, values in found])


def gone(subscription: int) -> SubscriptionEnded:
    return SubscriptionEnded(subscription, EndReason.QUEUE_GONE)


LIES: dict[str, FromEdge | FromLeader] = {
    "two states of one subscription": Attach(0, (state(), state(queue=8))),
    "no subscription": Attach(0, (state(subscription=0),)),
    "a claim of what was not received": Attach(0, (claims((19, 1, 3, 0, False)),)),
    "a claim of nothing": Attach(0, (claims((19, 1, 0, 0, False)),)),
    "a claim of a delivery that has no number": Attach(0, (claims((0, 1, 1, 0, False)),)),
    "a claim twice": Attach(0, (claims((3, 1, 4, 0, False), (1, 1, 3, 9, True)),)),
    "a claim of a decided operation": Attach(5, (claims((3, 1, 4, 5, False)),)),
    "a claim that gives way to nothing": Attach(0, (claims((3, 1, 4, 0, True)),)),
    "a claim of messages that there cannot be": Attach(0, (claims((3, DRAWN_MAX - 1, 4, 0, False)),)),
    "more received than there are numbers": Attach(0, (state(received=1 << 40),)),
    "an operation that has no number": operations(0),
    "an operation that is decided": operations(4, 0, 4),
    "numbers that end": operations(1 << 62),
    "maybe a duplicate, and not sent": operations(4, 6),
    "a queue twice": operations(4, 0, 0, Publish((7, 7), RUN)),
    "no queue": operations(4, 0, 0, Publish((), RUN)),
    "no part": operations(4, 0, 0, Settle(Settling.ACK, ())),
    "first behind last": operations(4, 0, 0, Settle(Settling.ACK, (DeliveryRange(1, 3, 2),))),
    "the delivery 0": operations(4, 0, 0, Settle(Settling.ACK, (DeliveryRange(1, 0, 2),))),
    "a range without an end": operations(4, 0, 0, Settle(Settling.ACK, (DeliveryRange(1, 1, 1 << 62),))),
    "a cancel above all deliveries": operations(4, 0, 0, Cancel(1, 1 << 40)),
    "a new subscription that has received": Subscribe(state(claims=())),
    "a new subscription that claims": Subscribe(claims((1, 1, 1, 0, False))),
    "credit without an end": Credit(1, 1 << 63, 1),
    "more held than received": Received((ReceivedCount(1, 3, 4, 1),)),
    "a sum that cannot be": Received((ReceivedCount(1, 3, 2, 7),)),
    "two counts of one subscription": Received((ReceivedCount(1, 0, 0, 0), ReceivedCount(1, 1, 1, 1))),
    "an outcome of what is not decided": Decided(4, (Purged(5, 1),)),
    "outcomes out of order": Decided(4, (Purged(4, 1), Purged(3, 1))),
    "an outcome of no operation": Decided(4, (Purged(0, 1),)),
    "nothing refused": Decided(4, (Refused(4, 3, 3),)),
    "an epoch that there is not": Attached((1 << 48) + 1, 1, (), ()),
    "the epoch 0": Unknown(0),
    "a refusal of no delivery": Attached(1, 1, (DeliveryRange(1, 5, 4),), ()),
    "an end of two subscriptions that are one": Attached(1, 1, (), (gone(2), gone(2))),
    "an end of no subscription": gone(0),
    "damage that is nowhere": SubscriptionEnded(1, EndReason.DAMAGED),
    "damage that ends before it begins": SubscriptionEnded(1, EndReason.DAMAGED, 5, 4),
    "damage above all numbers": SubscriptionEnded(1, EndReason.DAMAGED, 5, 1 << 63),
    "damage of a queue that is gone": SubscriptionEnded(1, EndReason.QUEUE_GONE, 1, 1),
    "two counts of what was delivered": DeliveredCounts(((1, 1), (1, 2))),
    "a delivery without a number": Deliver(1, 0, 1, RUN, 0, 1, False),
    "a delivery of nothing": Deliver(1, 1, 1, RUN, 0, 0, False),
    "a delivery above all numbers": Deliver(1, 1 << 40, 1, RUN, 0, 1, False),
    "a message above all numbers": Deliver(1, 1, DRAWN_MAX, RUN, 0, 1, False),
    "a delivery to nobody": Deliver(0, 1, 1, RUN, 0, 1, False),
    "a body that is cut": Deliver(1, 1, 1, RUN, 0, 1, False),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_no_honest_peer_says_is_malformed(lie: str) -> None:
    message = LIES[lie]
    whole = bytes_of(message)
    if lie == "a body that is cut":
        whole = whole[:-1]
    with pytest.raises(MalformedMessage):
        (decode_from_edge if type(message) in FROM_EDGE else decode_from_leader)(memoryview(whole))


@pytest.mark.parametrize("reason", [0, 5, 255])
def test_a_subscription_ends_for_a_reason_that_there_is(reason: int) -> None:
    with pytest.raises(MalformedMessage, match="for no reason"):
        decode_from_leader(memoryview(forged(0x67, ("QBQQ", (1, reason, 0, 0)))))


HEADERS = {
    "flags that there are not": b"\0\1",
    "a list that ends early": b"\x80\0\5ab",
    "a table that ends early": b"\x20\0\0\0\0\4\1aI\0",
    "an array of a type that there is not": b"\x20\0\0\0\0\x09\1aA\0\0\0\2?\0",
}


def with_properties(raw: bytes) -> Run:
    content = struct.pack(">BHIHHQ", 2, 1, 12 + len(raw), 60, 0, 0) + raw + b"\xce"
    return scanned(publish_bytes(b"", "k")[:-22] + content)


@pytest.mark.parametrize("raw", HEADERS.values(), ids=HEADERS)
def test_properties_that_cannot_be_read_are_malformed(raw: bytes) -> None:
    run = with_properties(raw)
    for message in (operations(1, 0, 0, Publish((7,), run)), Deliver(1, 1, 1, run, 0, 1, False)):
        with pytest.raises(MalformedMessage, match="properties"):
            (decode_from_edge if type(message) in FROM_EDGE else decode_from_leader)(memoryview(bytes_of(message)))


@pytest.mark.parametrize("expiration", ["+", "soon", "-1", "9" * 200])
def test_an_expiration_that_no_queue_takes_is_malformed(expiration: str) -> None:
    single = scanned(publish_bytes(b"x", "k", expiration=expiration))
    batch = scanned(
        publish_bytes(b"x", "k", expiration=expiration) + publish_bytes(b"xx", "k", expiration=expiration)
    )
    assert batch.mixed
    for run in (single, batch):
        with pytest.raises(MalformedMessage, match="no queue takes"):
            decode_from_edge(memoryview(bytes_of(operations(1, 0, 0, Publish((7,), run)))))


@given(st.binary(max_size=40), st.booleans())
def test_the_properties_of_what_is_read_can_be_read(raw: bytes, is_table: bool) -> None:
    run = with_properties(b"\x20\0" + struct.pack(">I", len(raw)) + raw if is_table else (raw + b"\0\0"))
    with suppress(MalformedMessage):
        read = decode_from_leader(memoryview(bytes_of(Deliver(1, 1, 1, run, 0, 1, False))))
        assert isinstance(read, Deliver)
        assert PropertiesReader().read(read.run.properties).plain in (False, True)


def test_lists_are_bounded() -> None:
    range_ = DeliveryRange(1, 1, 1)
    for many in (
        operations(1, 0, 0, *[Purge(1)] * (OPERATIONS_MAX + 1)),
        operations(1, 0, 0, Settle(Settling.ACK, (range_,) * (PARTS_MAX + 1))),
        operations(1, 0, 0, Publish(tuple(range(PARTS_MAX + 1)), RUN)),
        Attach(0, (state(claims=(DeliveryClaim(1, 1, 1, 0, False),) * (CLAIMS_MAX + 1)),)),
        Attached(1, 1, (range_,) * (CLAIMS_MAX + 1), ()),
        Decided(1, (Purged(1, 1),) * (OUTCOMES_MAX + 1)),
    ):
        with pytest.raises(ValueError, match=r"limit|more than"):
            encode(many)
    purges = forged(0x41, ("QQQI", (1, 0, 0, OPERATIONS_MAX + 1)), *[("BIQ", (8, 1, 7))] * (OPERATIONS_MAX + 1))
    with pytest.raises(MalformedMessage, match=f"not a number from 1 to {OPERATIONS_MAX}"):
        decode_from_edge(memoryview(purges))
    outcomes = forged(0x62, ("QI", (1, OUTCOMES_MAX + 1))) + bytes(25) * (OUTCOMES_MAX + 1)
    with pytest.raises(MalformedMessage, match=f"the limit is {OUTCOMES_MAX}"):
        decode_from_leader(memoryview(outcomes))


def test_only_runs_are_large() -> None:
    assert [kind for kind in range(256) if bytes_max_of(kind) == MESSAGE_BYTES_MAX] == [0x41, 0x65]


def test_a_reason_is_cut() -> None:
    read = decode_from_leader(memoryview(bytes_of(SessionEnded("ö" * 1000))))
    assert read == SessionEnded("ö" * 256)
    with pytest.raises(MalformedMessage, match="the limit is 512"):
        decode_from_leader(memoryview(b"\x6a" + b"x" * 513))
    with pytest.raises(MalformedMessage, match="not UTF-8"):
        decode_from_leader(memoryview(b"\x6a\xff"))


def test_counts_are_what_clients_can_be_told() -> None:
    for message, counts in (
        (Counted(1, 1 << 40, 1 << 33), Counted(1, (1 << 32) - 1, (1 << 32) - 1)),
        (Decided(1, (Purged(1, 1 << 40),)), Decided(1, (Purged(1, (1 << 32) - 1),))),
    ):
        assert decode_from_leader(memoryview(bytes_of(message))) == counts
    read = decode_from_leader(memoryview(bytes_of(Deliver(1, 1, 1, RUN, 0, 1, False, 1 << 40))))
    assert isinstance(read, Deliver)
    assert read.ready == (1 << 32) - 1
