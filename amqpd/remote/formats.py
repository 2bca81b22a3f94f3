"""The bytes of what messages between an edge and a leader consist of: runs, operations, outcomes, subscriptions.

What comes in: values of `messages.py`. What goes out: their bytes in pieces; the same again.
Rules: 1. As in `peers/formats.py`: numbers are little-endian and of fixed width, none is above NUMBER_MAX, except ids
of queues, which are drawn, and sequence numbers, which have a level in front; a count is compared with the bytes that
are there, and with its maximum, before anything is made for it. 2. The frames of a run
are a piece of their own when they are written, and copied once when they are read. 3. What is read is what an honest
peer may say, as far as that can be told without knowing what was said before: ranges that are none, claims of what
was not received, things that are there twice are malformed. 4. The properties of what is read can be read
(`message/properties.py`), its expirations are numbers.
Not here: which message has which of them (`encoding.py`), what contradicts the session (`edge.py`, `leader.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sized
from struct import Struct
from typing import Any

from pamqp.exceptions import AMQPSyntaxError

from amqpd.journal.operation_marks import OUTCOMES_MAX, Outcome, Purged, Refused
from amqpd.kernel import Mixed, Run
from amqpd.kernel.transfer import frames_of, read_run
from amqpd.message.claims import expiration_problem
from amqpd.message.properties import PropertiesReader
from amqpd.peers.entry import NUMBER_MAX
from amqpd.peers.formats import DRAWN_MAX, MalformedMessage, MessageReader
from amqpd.remote.messages import (
    Cancel,
    DeliveryClaim,
    DeliveryRange,
    EndReason,
    Operation,
    Publish,
    Purge,
    ReceivedCount,
    Release,
    Settle,
    Settling,
    SubscriptionEnded,
    SubscriptionState,
)
from amqpd.remote.subscription import NUMBER_MASK

Pieces = list[bytes | memoryview]
"""to be sent one behind the other"""

DELIVERY_MAX = NUMBER_MASK
"""of the numbers of a subscription's deliveries"""
SUBSCRIPTIONS_MAX = 1 << 20
"""of one incarnation of an edge, and so of an Attach and of an audit: consumers of one source at one node"""
SEQ_MAX = DRAWN_MAX
"""of sequence numbers: those of a priority queue have the level in their upper bits (`queues/levels.py`)"""
CLAIMS_MAX = 1 << 20
"""in one Attach, and of ranges that are refused in its answer"""
OPERATIONS_MAX = 4096
"""in one message: some milliseconds of a leader's work"""
PARTS_MAX = 4096
"""of one operation: ranges that are settled, queues to which a run goes"""
COUNT_MAX = (1 << 32) - 1
"""of messages, as clients are told a number of them"""

_count = Struct("<I")
_id = Struct("<Q")
_pair = Struct("<QQ")
_triple = Struct("<QQQ")
_run = Struct("<II")
_state = Struct("<QQQQQQqQBI")
_claim = Struct("<QQQQB")
_received = Struct("<QQQQQ")
_outcome = Struct("<BQQQ")
_ended = Struct("<QBQQ")
_operation = Struct("<BI")

_properties = PropertiesReader()
"""it remembers small ones, at most a thousand"""


class FieldReader(MessageReader):
    """The bytes of one message, from front to end. All of its numbers are written without a sign."""

    def fixed(self, layout: Struct, number_max: int = NUMBER_MAX) -> tuple[Any, ...]:
        """In one call, since each message has a head: a run of one message is read in a few microseconds."""
        at = self._at
        self._at = end = at + layout.size
        if end > len(self._data):
            raise MalformedMessage(f"{layout.size} bytes are missing behind byte {at} of {len(self._data)}")
        values = layout.unpack_from(self._data, at)
        if max(values) > number_max:
            raise MalformedMessage(f"{max(values)} is no number that a forwarder gives")
        return values


def number_in(value: int, low: int, high: int = NUMBER_MAX) -> int:
    """Raises MalformedMessage."""
    if not low <= value <= high:
        raise MalformedMessage(f"{value} is not a number from {low} to {high}")
    return value


def once(numbers: Collection[object]) -> None:
    """Raises MalformedMessage if one of them is there twice."""
    if len(set(numbers)) != len(numbers):
        raise MalformedMessage("what is to be there once is there twice")


def few(parts: Sized, count_max: int) -> int:
    """How many there are. Raises ValueError for more than a message may have."""
    if len(parts) > count_max:
        raise ValueError(f"a list of {len(parts)}: the limit is {count_max}")
    return len(parts)


# Runs


def read_frames(reading: MessageReader, nbytes: int, count: int, is_published: bool = False) -> Run:
    """`count` messages of `nbytes` bytes. `is_published`: as messages are that queues take; others may have come in
    when an older version looked at them."""
    try:
        run = read_run(bytes(reading.view(nbytes)), count)
        properties = _properties.read(run.common if isinstance(run, Mixed) else run.properties)
    except (ValueError, AMQPSyntaxError) as error:
        raise MalformedMessage(f"a run that is none: {error}") from None
    if is_published and properties.expiration is not None:
        problem = expiration_problem(properties.expiration)
        if problem is not None:
            raise MalformedMessage(f"a run that no queue takes: {problem}")
    return run


# Operations

_PUBLISH, _NOTHING, _ACK, _REJECT, _REQUEUE, _CANCEL, _RELEASE, _PURGE = range(1, 9)
_SETTLES = {_ACK: Settling.ACK, _REJECT: Settling.REJECT, _REQUEUE: Settling.REQUEUE}
_KINDS = {settling: kind for kind, settling in _SETTLES.items()}


def write_operations(head: bytes, operations: Iterable[Operation]) -> Pieces:
    """Behind the head. Raises ValueError for one that has too many parts."""
    pieces: Pieces = []
    said = [head]
    for each in operations:
        if isinstance(each, Publish):
            if each.run is None:
                said.append(_operation.pack(_NOTHING, 0))
                continue
            frames = frames_of(each.run, 0, each.run.count)
            said += (
                _operation.pack(_PUBLISH, few(each.queues, PARTS_MAX)),
                *map(_id.pack, each.queues),
                _run.pack(each.run.count, len(frames)),
            )
            pieces += (b"".join(said), frames)
            said = []
        elif isinstance(each, Settle):
            said.append(_operation.pack(_KINDS[each.kind], few(each.parts, PARTS_MAX)))
            said += [_triple.pack(*part) for part in each.parts]
        elif isinstance(each, Purge):
            said.append(_operation.pack(_PURGE, 1) + _id.pack(each.queue))
        else:
            kind = _CANCEL if isinstance(each, Cancel) else _RELEASE
            said.append(_operation.pack(kind, 1) + _pair.pack(each.subscription, each.last))
    return [*pieces, b"".join(said)] if said else pieces


def read_operation(reading: MessageReader) -> Operation:
    kind, count = reading.fixed(_operation)
    if not 1 <= count <= PARTS_MAX:
        if kind == _NOTHING and not count:
            return Publish((), None)
        raise MalformedMessage(f"an operation of kind {kind} with {count} parts")
    if kind == _PUBLISH:
        queues = tuple([queue for (queue,) in reading.many(count, _id, PARTS_MAX, DRAWN_MAX)])
        if count > 1:
            once(queues)
        messages, nbytes = reading.fixed(_run)
        return Publish(queues, read_frames(reading, nbytes, messages, True))
    settling = _SETTLES.get(kind)
    if settling is not None:
        return Settle(settling, read_ranges(reading, count, PARTS_MAX))
    if count == 1 and kind == _PURGE:
        return Purge(*reading.fixed(_id, DRAWN_MAX))
    if count == 1 and kind in (_CANCEL, _RELEASE):
        subscription, last = reading.fixed(_pair)
        made = Cancel if kind == _CANCEL else Release
        return made(number_in(subscription, 1), number_in(last, 0, DELIVERY_MAX))
    raise MalformedMessage(f"an operation of kind {kind} with {count} parts")


# Ranges, outcomes, counts


def write_ranges(ranges: Iterable[DeliveryRange]) -> bytes:
    return b"".join([_triple.pack(*each) for each in ranges])


def read_ranges(reading: MessageReader, count: int, count_max: int) -> tuple[DeliveryRange, ...]:
    found = []
    for subscription, first, last in reading.many(count, _triple, count_max):
        if not subscription or not 1 <= first <= last <= DELIVERY_MAX:
            raise MalformedMessage(f"there are no deliveries {first} to {last} of subscription {subscription}")
        found.append(DeliveryRange(subscription, first, last))
    return tuple(found)


def write_endings(endings: Iterable[SubscriptionEnded]) -> bytes:
    return b"".join([_ended.pack(each.subscription, each.reason.value, each.first, each.last) for each in endings])


def read_endings(reading: MessageReader, count: int) -> tuple[SubscriptionEnded, ...]:
    found = reading.many(count, _ended, SUBSCRIPTIONS_MAX, SEQ_MAX)
    once([subscription for subscription, _, _, _ in found])
    return tuple([_ending(*each) for each in found])


def _ending(subscription: int, reason: int, first: int, last: int) -> SubscriptionEnded:
    number_in(subscription, 1)
    why = _REASONS.get(reason)
    if why is None:
        raise MalformedMessage(f"a subscription ends for no reason that there is: {reason}")
    if why is EndReason.DAMAGED:
        number_in(last, number_in(first, 1, SEQ_MAX), SEQ_MAX)
    elif first or last:
        raise MalformedMessage(f"messages {first} to {last} are no reason: {why.name}")
    return SubscriptionEnded(subscription, why, first, last)


_REASONS = {reason.value: reason for reason in EndReason}
_REFUSED, _PURGED = 1, 2


def write_outcomes(outcomes: Iterable[Outcome]) -> bytes:
    return b"".join(
        [
            _outcome.pack(_REFUSED, *each)
            if isinstance(each, Refused)
            else _outcome.pack(_PURGED, each.number, min(each.messages, COUNT_MAX), 0)
            for each in outcomes
        ]
    )


def read_outcomes(reading: MessageReader, count: int, decided: int) -> tuple[Outcome, ...]:
    """Of operations up to `decided`, in their order."""
    found: list[Outcome] = []
    before = 1
    for kind, number, first, second in reading.many(count, _outcome, OUTCOMES_MAX):
        before = number_in(number, before, decided)
        if kind == _REFUSED:
            found.append(Refused(number, first, number_in(second, first + 1, COUNT_MAX)))
        elif kind == _PURGED and first <= COUNT_MAX and not second:
            found.append(Purged(number, first))
        else:
            raise MalformedMessage(f"there is no outcome {first}, {second} of kind {kind}")
    return tuple(found)


def write_received(counts: Iterable[ReceivedCount]) -> bytes:
    return b"".join(
        [
            _received.pack(number, received, held, total >> 62, total & NUMBER_MAX - 1)
            for number, received, held, total in counts
        ]
    )


def read_received(reading: MessageReader, count: int) -> tuple[ReceivedCount, ...]:
    found = []
    for subscription, received, held, high, low in reading.many(count, _received, SUBSCRIPTIONS_MAX):
        total = high << 62 | low
        if received > DELIVERY_MAX or held > received or total > held * received:
            raise MalformedMessage(f"{held} of {received} deliveries cannot be held, with a sum of {total}")
        found.append(ReceivedCount(number_in(subscription, 1), received, held, total))
    once([each.subscription for each in found])
    return tuple(found)


# Subscriptions

_EXCLUSIVE, _CANCELLED, _GET = 1, 2, 4


def write_states(states: tuple[SubscriptionState, ...]) -> bytes:
    """All claims behind all states. Raises ValueError for too many of either."""
    claims = [claim for each in states for claim in each.claims]
    if len(states) > SUBSCRIPTIONS_MAX or len(claims) > CLAIMS_MAX:
        raise ValueError(f"{len(states)} subscriptions with {len(claims)} claims: more than one message has")
    return b"".join(
        [
            *[_write_state(each) for each in states],
            *[_claim.pack(*claim) for claim in claims],
        ]
    )


def _write_state(state: SubscriptionState) -> bytes:
    flags = state.exclusive * _EXCLUSIVE | state.cancelled * _CANCELLED | state.get * _GET
    return _state.pack(
        state.subscription,
        state.queue,
        state.messages,
        state.nbytes,
        state.received,
        state.received_bytes,
        state.priority,
        state.after,
        flags,
        len(state.claims),
    )


def read_states(reading: MessageReader, count: int, decided: int) -> tuple[SubscriptionState, ...]:
    """`decided`: no claim is of an operation up to it."""
    if count > SUBSCRIPTIONS_MAX:
        raise MalformedMessage(f"{count} subscriptions are announced, the limit is {SUBSCRIPTIONS_MAX}")
    heads = list(_state.iter_unpack(reading.view(count * _state.size)))
    once([head[0] for head in heads])
    claims = sum([head[9] for head in heads])
    if claims > CLAIMS_MAX:
        raise MalformedMessage(f"{claims} claims are announced, the limit is {CLAIMS_MAX}")
    return tuple([_read_state(reading, head, decided) for head in heads])


def _read_state(reading: MessageReader, head: tuple[int, ...], decided: int) -> SubscriptionState:
    subscription, queue, messages, nbytes, received, received_bytes, priority, after, flags, count = head
    number_in(subscription, 1)
    if queue > DRAWN_MAX or max(messages, nbytes, received_bytes, after) > NUMBER_MAX or flags > 7:
        raise MalformedMessage(f"subscription {subscription} has numbers that no forwarder gives")
    number_in(received, 0, DELIVERY_MAX)
    found = reading.many(count, _claim, CLAIMS_MAX, SEQ_MAX)
    claims = tuple([_read_claim(each, received, decided) for each in found])
    last = 0
    for number, size in sorted([(claim.number, claim.size) for claim in claims]):
        if number <= last:
            raise MalformedMessage(f"delivery {number} of subscription {subscription} is claimed twice")
        last = number + size - 1
    return SubscriptionState(
        subscription,
        queue,
        messages,
        nbytes,
        received,
        received_bytes,
        bool(flags & _EXCLUSIVE),
        priority,
        bool(flags & _CANCELLED),
        bool(flags & _GET),
        after,
        claims,
    )


def _read_claim(values: tuple[int, ...], received: int, decided: int) -> DeliveryClaim:
    number, seq, size, operation, gives_way = values
    is_of_one = operation > decided or not (operation or gives_way)
    if not number or not size or number + size - 1 > received or seq > SEQ_MAX - size or gives_way > 1:
        raise MalformedMessage(f"there are no {size} deliveries from {number} on of {received} that were received")
    if not is_of_one:
        raise MalformedMessage(f"a claim of operation {operation}, where {decided} are decided")
    return DeliveryClaim(number, seq, size, operation, bool(gives_way))
