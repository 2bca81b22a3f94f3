"""The bytes of what one leader passes to the next: each hand-over comes back as it was, and lies do no harm.

What is verified: a round trip; the octets; that cut, changed and absurd bytes are a hand-over or malformed, and take
no memory for what they only announce; that a leader which begins with any lie serves its edges. Not verified: where
the bytes come from (`tests/cluster`).
"""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest

from amqpd.journal.operation_marks import IncarnationEnded, Marks
from amqpd.peers.formats import MalformedMessage
from amqpd.remote.handed_bytes import HAND_OVER_BYTES_MAX, decode_hand_over, encode_hand_over
from amqpd.remote.handing import taken_over
from amqpd.remote.held import Range
from amqpd.remote.source import HandedIncarnation, HandedSubscription, SessionHandOver
from tests.remote.simulation.queue import make_run
from tests.remote.test_lies import Leading, Pair, assert_nothing_leaks, assert_serves

HANDED = SessionHandOver(
    0,
    (
        HandedIncarnation(
            ("a", 2),
            9,
            3,
            (
                HandedSubscription(1, 1, False, (Range(1, 1 << 20, 2), Range(4, (1 << 20) + 3, 1)), ()),
                HandedSubscription(2, 2, True, (), (Range(1, 1 << 20, 1),)),
            ),
        ),
    ),
    frozenset({"b"}),
    1200.0,
    {1: ((0, 4), (6, 7)), 2: ()},
)
OCTETS = (
    "c8000000 01000000 01000000 02000000"
    " 0100 62"
    " 0100 61 0200000000000000 0900000000000000 0300000000000000 02000000"
    " 0100000000000000 0100000000000000 00 02000000 00000000"
    " 0100000000000000 0000100000000000 0200000000000000 0400000000000000 0300100000000000 0100000000000000"
    " 0200000000000000 0200000000000000 01 00000000 01000000"
    " 0100000000000000 0000100000000000 0100000000000000"
    " 0100000000000000 02000000 0000000000000000 0400000000000000 0600000000000000 0700000000000000"
    " 0200000000000000 00000000"
)
WHOLE = bytes.fromhex(OCTETS)


def test_these_are_the_octets_and_they_come_back() -> None:
    assert encode_hand_over(HANDED, 1000.0) == WHOLE
    assert decode_hand_over(WHOLE, 1000.0) == HANDED


def test_the_clock_of_the_next_leader_is_another_one() -> None:
    assert decode_hand_over(WHOLE, 5.0).wait_ends_ms == 205.0
    late = encode_hand_over(HANDED, 9000.0)
    assert decode_hand_over(late, 5.0).wait_ends_ms == 5.0


def of(*subscriptions: HandedSubscription) -> SessionHandOver:
    return replace(HANDED, incarnations=(HandedIncarnation(("a", 2), 9, 3, subscriptions),))


def holding(*ranges: Range) -> SessionHandOver:
    return of(HandedSubscription(1, 1, False, ranges, ()))


LIES = {
    "an incarnation twice": replace(HANDED, incarnations=HANDED.incarnations * 2),
    "an incarnation that there is not": replace(HANDED, incarnations=(HandedIncarnation(("a", 0), 9, 3, ()),)),
    "nobody": replace(HANDED, incarnations=(HandedIncarnation(("", 1), 9, 3, ()),)),
    "a subscription twice": of(*[HandedSubscription(1, 1, False, (), ())] * 2),
    "a subscription without a number": of(HandedSubscription(0, 1, False, (), ())),
    "a delivery that is held twice": holding(Range(1, 5, 2), Range(2, 9, 1)),
    "a delivery that is held, and given": of(HandedSubscription(1, 1, False, (Range(1, 5, 2),), (Range(2, 6, 1),))),
    "a range of nothing": holding(Range(1, 5, 0)),
    "the delivery 0": holding(Range(0, 5, 1)),
    "more than there are deliveries": holding(Range(1 << 39, 5, 1 << 40)),
    "more than there are messages": holding(Range(1, (1 << 63) - 1, 2)),
    "ranges that overlap": replace(HANDED, redelivered={1: ((0, 4), (4, 5))}),
    "a range that ends before it begins": replace(HANDED, redelivered={1: ((4, 3),)}),
    "a wait without an end": replace(HANDED, wait_ends_ms=1e6),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_no_honest_leader_passes_is_malformed(lie: str) -> None:
    said = encode_hand_over(LIES[lie], 1000.0)
    with pytest.raises(MalformedMessage):
        decode_hand_over(said, 1000.0)


def test_what_is_cut_or_goes_on_is_malformed() -> None:
    for at in range(len(WHOLE)):
        with pytest.raises(MalformedMessage):
            decode_hand_over(WHOLE[:at], 0)
    with pytest.raises(MalformedMessage):
        decode_hand_over(WHOLE + b"\0", 0)


def test_more_than_is_passed_is_not_passed() -> None:
    ranges = tuple([Range(2 * i + 1, 2 * i, 1) for i in range(HAND_OVER_BYTES_MAX // 24)])
    assert encode_hand_over(holding(*ranges), 0) == b""
    with pytest.raises(MalformedMessage, match="the limit is"):
        decode_hand_over(bytes(HAND_OVER_BYTES_MAX + 1), 0)


def begun_with(handed: SessionHandOver, marks: Marks) -> Leading:
    """A new leader of what is there after some messages."""
    leading = Leading(2)
    run = make_run([1, 2, 3, 4, 5])
    for queue in leading.queues.values():
        queue.publish(run, False)
    leading.commit()
    leading.leader = taken_over(2, leading.log, marks, leading.queues, ("a", "b"), leading.now_ms, handed, first=0)
    return leading


def test_a_leader_begins_with_any_lie() -> None:
    """Every four bytes in turn say the largest number there is, the largest that is positive, and nothing."""
    tried = 0
    for at in range(len(WHOLE) - 3):
        for absurd in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0"):
            with suppress(MalformedMessage):
                handed = decode_hand_over(WHOLE[:at] + absurd + WHOLE[at + 4 :], 0)
                leading = begun_with(handed, Marks())
                assert_nothing_leaks(leading)
                leading.leader.tick(leading.now_ms + 10_000)
                assert_serves(Pair(leading, "b", 1 << 50))
                tried += 1
    assert tried > 50


def test_what_the_log_says_has_ended_is_not_handed_on() -> None:
    marks = Marks()
    marks.apply(IncarnationEnded("a", 2))
    leading = begun_with(HANDED, marks)
    assert not leading.leader.incarnations
    assert_nothing_leaks(leading)


def test_counts_that_are_not_true_take_no_memory() -> None:
    tracemalloc.start()
    try:
        for absurd in (b"\xff", b"\x01\0\0\0\0\0\0\0", b"\0\0\0\x7f"):
            with suppress(MalformedMessage):
                decode_hand_over(absurd * 60, 0)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 16
