"""The bytes of messages between an edge and the leader of a source.

What comes in: a message, or the bytes of one and which end has sent it. What goes out: its bytes, in pieces; the
message.
Rules: 1. The first byte of a message is its kind, which keeps its number in all versions; no other message between
nodes has it (`peers/encoding.py`). 2. What the other end does not say is malformed: an edge reads what a leader says,
a leader what an edge says. 3. What is no message raises `MalformedMessage`, and nothing else does. 4. A part of a run
is delivered as that part: nothing else of the run travels.
Not here: what the messages mean (`messages.py`), the bytes of what is in them (`formats.py`), in which session they
are, lengths and checksums (`peers/links`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from struct import Struct
from typing import Any, NamedTuple

from amqpd.journal.operation_marks import OUTCOMES_MAX
from amqpd.kernel.transfer import frames_of
from amqpd.peers.entry import EPOCH_MAX, NUMBER_MAX
from amqpd.peers.formats import DRAWN_MAX, MalformedMessage, MessageReader
from amqpd.remote.formats import (
    CLAIMS_MAX,
    COUNT_MAX,
    DELIVERY_MAX,
    OPERATIONS_MAX,
    SEQ_MAX,
    SUBSCRIPTIONS_MAX,
    FieldReader,
    Pieces,
    few,
    number_in,
    once,
    read_endings,
    read_frames,
    read_operation,
    read_outcomes,
    read_ranges,
    read_received,
    read_states,
    write_endings,
    write_operations,
    write_outcomes,
    write_ranges,
    write_received,
    write_states,
)
from amqpd.remote.messages import (
    Attach,
    Attached,
    Counted,
    CountMessages,
    Credit,
    Decided,
    Deliver,
    DeliveredCounts,
    Empty,
    FromEdge,
    FromLeader,
    Lower,
    Lowered,
    Operations,
    Received,
    SessionEnded,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    Unknown,
)

MESSAGE_BYTES_MAX = 1 << 30
"""As of any message between nodes: one that has a run has at least one message of a client whole."""
STATE_BYTES_MAX = 128 << 20
"""Of an Attach with all subscriptions and claims that there may be, and of its answer: no others are as large."""
REASON_BYTES_MAX = 512


def bytes_max_of(kind: int) -> int:
    """What a message that begins with this byte may have: who sends it is not believed a larger one."""
    return MESSAGE_BYTES_MAX if kind in (OPERATIONS, DELIVER) else STATE_BYTES_MAX


def encode(message: FromEdge | FromLeader) -> Pieces:
    """The frames of runs are in it as they are. Raises ValueError for a message that is too large."""
    form = _BY_TYPE[type(message)]
    pieces = form.write(message)
    nbytes, bytes_max = sum(map(len, pieces)), bytes_max_of(form.kind)
    if nbytes > bytes_max:
        raise ValueError(f"{form.type.__name__} has {nbytes} bytes: the limit is {bytes_max}")
    return pieces


def decode_from_edge(data: memoryview) -> FromEdge:
    """One whole message. Raises MalformedMessage."""
    message: FromEdge = _decode(data, _EDGE_SAYS)
    return message


def decode_from_leader(data: memoryview) -> FromLeader:
    """One whole message. Raises MalformedMessage."""
    message: FromLeader = _decode(data, _LEADER_SAYS)
    return message


class _Format(NamedTuple):
    kind: int
    type: type
    write: Callable[[Any], Pieces]
    read: Callable[[MessageReader], Any]


def _decode(data: memoryview, formats: dict[int, _Format]) -> Any:
    reading = FieldReader(data)
    form = formats.get(data[0]) if data else None
    if form is None:
        raise MalformedMessage(f"there is no message from this end that begins with {bytes(data[:1])!r}")
    message = form.read(reading)
    if reading.left:
        raise MalformedMessage(f"{reading.left} bytes follow the end of {form.type.__name__}")
    return message


# Each head begins with the kind.
_kind = Struct("<B")
_attach = Struct("<BQI")
_operations = Struct("<BQQQI")
_counts = Struct("<BI")
_attached = Struct("<BQQII")
_decided = Struct("<BQI")
_deliver = Struct("<BQQQII?")
_counted = Struct("<BQ?II")
_pair = Struct("<QQ")


def _of_numbers(kind: int, made: type) -> _Format:
    """Of a message that has nothing but numbers."""
    names = [each.name for each in fields(made)]
    layout, number_max = Struct(f"<B{len(names)}Q"), DRAWN_MAX if "queue" in names else NUMBER_MAX

    def write(message: Any) -> Pieces:
        return [layout.pack(kind, *[getattr(message, name) for name in names])]

    def read(reading: MessageReader) -> Any:
        _, *numbers = reading.fixed(layout, number_max)
        if names[0] == "subscription":
            number_in(numbers[0], 1)
        elif names[0] == "epoch":
            number_in(numbers[0], 1, EPOCH_MAX)
        return made(*numbers)

    return _Format(kind, made, write, read)


# From an edge


def _write_attach(attach: Attach) -> Pieces:
    return [_attach.pack(ATTACH, attach.decided, len(attach.subscriptions)) + write_states(attach.subscriptions)]


def _read_attach(reading: MessageReader) -> Attach:
    _, decided, count = reading.fixed(_attach)
    return Attach(decided, read_states(reading, count, decided))


def _write_operations(message: Operations) -> Pieces:
    count = few(message.operations, OPERATIONS_MAX)
    head = _operations.pack(OPERATIONS, message.first, message.maybe_below, message.decided, count)
    return write_operations(head, message.operations)


def _read_operations(reading: MessageReader) -> Operations:
    _, first, maybe_below, decided, count = reading.fixed(_operations)
    number_in(count, 1, OPERATIONS_MAX)
    if not decided < first <= NUMBER_MAX - count or maybe_below > first + count:
        raise MalformedMessage(f"there are no {count} operations from {first} on, behind {decided} that are decided")
    return Operations(first, tuple([read_operation(reading) for _ in range(count)]), maybe_below, decided)


def _write_subscribe(message: Subscribe) -> Pieces:
    return [_kind.pack(SUBSCRIBE) + write_states((message.subscription,))]


def _read_subscribe(reading: MessageReader) -> Subscribe:
    reading.fixed(_kind)
    [state] = read_states(reading, 1, 0)
    if state.received or state.received_bytes or state.claims:
        raise MalformedMessage(f"the new subscription {state.subscription} has received something")
    return Subscribe(state)


def _write_received(message: Received) -> Pieces:
    return [_counts.pack(RECEIVED, few(message.counts, SUBSCRIPTIONS_MAX)) + write_received(message.counts)]


def _read_received(reading: MessageReader) -> Received:
    _, count = reading.fixed(_counts)
    return Received(read_received(reading, count))


# From a leader


def _write_attached(message: Attached) -> Pieces:
    refused, ended = few(message.refused, CLAIMS_MAX), few(message.ended, SUBSCRIPTIONS_MAX)
    head = _attached.pack(ATTACHED, message.epoch, message.mark, refused, ended)
    return [head + write_ranges(message.refused) + write_endings(message.ended)]


def _read_attached(reading: MessageReader) -> Attached:
    _, epoch, mark, refused, ended = reading.fixed(_attached)
    number_in(epoch, 1, EPOCH_MAX)
    ranges = read_ranges(reading, refused, CLAIMS_MAX)
    return Attached(epoch, mark, ranges, read_endings(reading, ended))


def _write_decided(message: Decided) -> Pieces:
    head = _decided.pack(DECIDED, message.number, few(message.outcomes, OUTCOMES_MAX))
    return [head + write_outcomes(message.outcomes)]


def _read_decided(reading: MessageReader) -> Decided:
    _, number, count = reading.fixed(_decided)
    return Decided(number, read_outcomes(reading, count, number))


def _write_deliver(message: Deliver) -> Pieces:
    low, high = message.low, message.high
    head = _deliver.pack(
        DELIVER,
        message.subscription,
        message.number,
        message.seq,
        min(message.ready, COUNT_MAX),
        high - low,
        message.redelivered,
    )
    return [head, frames_of(message.run, low, high)]


def _read_deliver(reading: MessageReader) -> Deliver:
    _, subscription, number, seq, ready, count, redelivered = reading.fixed(_deliver, SEQ_MAX)
    if not (subscription and count and 1 <= number <= DELIVERY_MAX - count and seq <= SEQ_MAX - count):
        raise MalformedMessage(f"there are no {count} deliveries of subscription {subscription} from {number} on")
    run = read_frames(reading, reading.left, count)
    return Deliver(subscription, number, seq, run, 0, count, redelivered, ready)


def _write_subscription_ended(message: SubscriptionEnded) -> Pieces:
    return [_kind.pack(SUBSCRIPTION_ENDED) + write_endings((message,))]


def _read_subscription_ended(reading: MessageReader) -> SubscriptionEnded:
    reading.fixed(_kind)
    [ended] = read_endings(reading, 1)
    return ended


def _write_counted(message: Counted) -> Pieces:
    known = message.ready >= 0
    ready, consumers = (message.ready, message.consumers) if known else (0, 0)
    return [_counted.pack(COUNTED, message.question, known, min(ready, COUNT_MAX), min(consumers, COUNT_MAX))]


def _read_counted(reading: MessageReader) -> Counted:
    _, question, known, ready, consumers = reading.fixed(_counted)
    if not known:
        number_in(max(ready, consumers), 0, 0)
    return Counted(question, ready if known else -1, consumers)


def _write_delivered(message: DeliveredCounts) -> Pieces:
    return [
        _counts.pack(DELIVERED_COUNTS, len(message.counts)) + b"".join([_pair.pack(*each) for each in message.counts])
    ]


def _read_delivered(reading: MessageReader) -> DeliveredCounts:
    _, count = reading.fixed(_counts)
    found = reading.many(count, _pair, SUBSCRIPTIONS_MAX)
    once([subscription for subscription, _ in found])
    return DeliveredCounts(tuple([(subscription, delivered) for subscription, delivered in found]))


def _write_ended(message: SessionEnded) -> Pieces:
    reason = message.reason.encode(errors="replace")[:REASON_BYTES_MAX]
    return [_kind.pack(SESSION_ENDED) + reason.decode(errors="ignore").encode()]


def _read_ended(reading: MessageReader) -> SessionEnded:
    reading.fixed(_kind)
    if reading.left > REASON_BYTES_MAX:
        raise MalformedMessage(f"a reason of {reading.left} bytes, the limit is {REASON_BYTES_MAX}")
    return SessionEnded(reading.text(reading.left))


ATTACH, OPERATIONS, SUBSCRIBE, CREDIT, LOWER, COUNT_MESSAGES, RECEIVED = range(64, 71)
ATTACHED, UNKNOWN, DECIDED, SUBSCRIBED, LOWERED, DELIVER, EMPTY, SUBSCRIPTION_ENDED = range(96, 104)
COUNTED, DELIVERED_COUNTS, SESSION_ENDED = range(104, 107)

_FROM_EDGE = (
    _Format(ATTACH, Attach, _write_attach, _read_attach),
    _Format(OPERATIONS, Operations, _write_operations, _read_operations),
    _Format(SUBSCRIBE, Subscribe, _write_subscribe, _read_subscribe),
    _of_numbers(CREDIT, Credit),
    _of_numbers(LOWER, Lower),
    _of_numbers(COUNT_MESSAGES, CountMessages),
    _Format(RECEIVED, Received, _write_received, _read_received),
)
_FROM_LEADER = (
    _Format(ATTACHED, Attached, _write_attached, _read_attached),
    _of_numbers(UNKNOWN, Unknown),
    _Format(DECIDED, Decided, _write_decided, _read_decided),
    _of_numbers(SUBSCRIBED, Subscribed),
    _of_numbers(LOWERED, Lowered),
    _Format(DELIVER, Deliver, _write_deliver, _read_deliver),
    _of_numbers(EMPTY, Empty),
    _Format(SUBSCRIPTION_ENDED, SubscriptionEnded, _write_subscription_ended, _read_subscription_ended),
    _Format(COUNTED, Counted, _write_counted, _read_counted),
    _Format(DELIVERED_COUNTS, DeliveredCounts, _write_delivered, _read_delivered),
    _Format(SESSION_ENDED, SessionEnded, _write_ended, _read_ended),
)
_EDGE_SAYS = {form.kind: form for form in _FROM_EDGE}
_LEADER_SAYS = {form.kind: form for form in _FROM_LEADER}
_BY_TYPE = {form.type: form for form in (*_FROM_EDGE, *_FROM_LEADER)}
