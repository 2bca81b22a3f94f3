"""The bytes of what one leader of a source passes to the next: of remote clients, beside the log.

What comes in: a `SessionHandOver`, or the bytes of one from the node that led before. What goes out: its bytes, if
they are not too many; the same again.
Rules: 1. As in `formats.py`: a count is compared with the bytes that are left before anything is made for it, and
what no honest leader says is malformed: things that are there twice, ranges that are none or overlap. 2. What is
larger than `HAND_OVER_BYTES_MAX` is not passed, and what cannot be read is not used: the next leader takes over as
from a lost one (rule 19 of docs/decisions/remote-protocol.md). 3. Times are passed as what is left: each node has its
own clock.
Not here: of which position of the log it is, and over which connection it goes (`amqpd.cluster`).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any

from amqpd.peers.formats import DRAWN_MAX, MalformedMessage, MessageReader
from amqpd.remote.formats import DELIVERY_MAX, SEQ_MAX, FieldReader, number_in, once
from amqpd.remote.held import Range
from amqpd.remote.leader import CLAIM_WAIT_MS
from amqpd.remote.source import HandedIncarnation, HandedSubscription, SessionHandOver

HAND_OVER_BYTES_MAX = 768 << 10
"""It goes between two transactions, over the connection of replication: thirty thousand ranges that clients hold."""
_NAME_BYTES_MAX = 255

_head = Struct("<IIII")
_name = Struct("<H")
_incarnation = Struct("<QQQI")
_subscription = Struct("<QQ?II")
_queue = Struct("<QI")
_triple = Struct("<QQQ")
_pair = Struct("<QQ")


def encode_hand_over(handed: SessionHandOver, now_ms: float) -> bytes:
    """Empty: it has more than is passed."""
    left_ms = max(0, int(handed.wait_ends_ms - now_ms)) if handed.waits_for else 0
    pieces = [_head.pack(left_ms, len(handed.waits_for), len(handed.incarnations), len(handed.redelivered))]
    pieces += [_named(name) for name in sorted(handed.waits_for)]
    for each in handed.incarnations:
        forwarder, number = each.member
        pieces += [_named(forwarder), _incarnation.pack(number, each.mark, each.session, len(each.subscriptions))]
        for of in each.subscriptions:
            counts = len(of.held), len(of.giving)
            pieces.append(_subscription.pack(of.number, of.queue, of.is_get, *counts))
            pieces += [_triple.pack(*found) for found in (*of.held, *of.giving)]
    for queue, ranges in handed.redelivered.items():
        pieces += [_queue.pack(queue, len(ranges)), *[_pair.pack(*found) for found in ranges]]
    said = b"".join(pieces)
    return said if len(said) <= HAND_OVER_BYTES_MAX else b""


def _named(name: str) -> bytes:
    said = name.encode()
    return _name.pack(len(said)) + said


def decode_hand_over(data: bytes, now_ms: float) -> SessionHandOver:
    """As the node that led has said it. Raises MalformedMessage."""
    if len(data) > HAND_OVER_BYTES_MAX:
        raise MalformedMessage(f"a hand-over of {len(data)} bytes, the limit is {HAND_OVER_BYTES_MAX}")
    reading = FieldReader(memoryview(data))
    left_ms, waits_for, incarnations, queues = reading.fixed(_head)
    number_in(left_ms, 0, int(CLAIM_WAIT_MS))
    names = [_read_name(reading) for _ in _counted(reading, waits_for, _name)]
    once(names)
    passed = [_read_incarnation(reading) for _ in _counted(reading, incarnations, _incarnation)]
    once([each.member for each in passed])
    redelivered = [_read_queue(reading) for _ in _counted(reading, queues, _queue)]
    once([queue for queue, _ in redelivered])
    if reading.left:
        raise MalformedMessage(f"{reading.left} bytes follow the end of a hand-over")
    return SessionHandOver(0, tuple(passed), frozenset(names), now_ms + left_ms, dict(redelivered))


def read_hand_over(data: bytes, now_ms: float) -> tuple[SessionHandOver | None, str]:
    """As `decode_hand_over`; None: why it cannot be read. Empty bytes are none, for no reason."""
    if not data:
        return None, ""
    try:
        return decode_hand_over(data, now_ms), ""
    except MalformedMessage as error:
        return None, str(error)


def _counted(reading: MessageReader, count: int, layout: Struct) -> Iterable[int]:
    """As many as are announced, each of which takes at least this."""
    if count * layout.size > reading.left:
        raise MalformedMessage(f"a list of {count} is announced where {reading.left} bytes are left")
    return range(count)


def _read_name(reading: FieldReader) -> str:
    [nbytes] = reading.fixed(_name)
    return reading.text(number_in(nbytes, 1, _NAME_BYTES_MAX))


def _read_incarnation(reading: FieldReader) -> HandedIncarnation:
    forwarder = _read_name(reading)
    number, mark, session, count = reading.fixed(_incarnation)
    number_in(number, 1)
    subscriptions = [_read_subscription(reading) for _ in _counted(reading, count, _subscription)]
    once([each.number for each in subscriptions])
    return HandedIncarnation((forwarder, number), mark, session, tuple(subscriptions))


def _read_subscription(reading: FieldReader) -> HandedSubscription:
    number, queue, is_get, held, giving = reading.fixed(_subscription, DRAWN_MAX)
    number_in(number, 1)
    found = _read_held(reading, held), _read_held(reading, giving)
    in_order([(each.number, each.last) for each in sorted([*found[0], *found[1]])], 1, DELIVERY_MAX)
    return HandedSubscription(number, queue, is_get, *found)


def _read_held(reading: FieldReader, count: int) -> tuple[Range, ...]:
    found = [Range(*each) for each in _many(reading, count, _triple)]
    for each in found:
        if not each.size or each.last_seq > SEQ_MAX:
            raise MalformedMessage(f"there are no {each.size} messages from {each.seq} on")
    return tuple(found)


def _read_queue(reading: FieldReader) -> tuple[int, tuple[tuple[int, int], ...]]:
    queue, count = reading.fixed(_queue, DRAWN_MAX)
    ranges = [(first, last) for first, last in _many(reading, count, _pair)]
    in_order(ranges, 0, SEQ_MAX)
    return queue, tuple(ranges)


def _many(reading: FieldReader, count: int, layout: Struct) -> list[tuple[Any, ...]]:
    return reading.many(count, layout, HAND_OVER_BYTES_MAX // layout.size, SEQ_MAX)


def in_order(ranges: Iterable[tuple[int, int]], low: int, high: int) -> None:
    """Raises MalformedMessage if one of them is no range, or they overlap."""
    before = low - 1
    for first, last in ranges:
        if not before < first <= last <= high:
            raise MalformedMessage(f"there is no range {first} to {last} behind {before}")
        before = last
