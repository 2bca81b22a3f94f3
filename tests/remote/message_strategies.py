"""Messages between an edge and a leader, drawn: every kind, as honest ends say it, with real runs of all shapes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import strategies as st

from amqpd.journal.operation_marks import Outcome, Purged, Refused
from amqpd.kernel import Run, encode_content, scan_batch
from amqpd.peers.entry import EPOCH_MAX, NUMBER_MAX
from amqpd.peers.formats import DRAWN_MAX
from amqpd.remote.formats import COUNT_MAX, DELIVERY_MAX
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
    Operation,
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

numbers = st.integers(0, NUMBER_MAX)
named = st.integers(1, NUMBER_MAX)
epochs = st.integers(1, EPOCH_MAX)
counts = st.integers(0, COUNT_MAX)


def scanned(data: bytes) -> Run:
    """All of it."""
    run = scan_batch(data, 0, len(data), 1 << 30)
    assert run is not None
    assert run.nbytes == len(data)
    return run


def contents(run: Run, low: int, high: int) -> tuple[Any, ...]:
    """What a client gets of messages low..high-1, and what queues count."""
    messages = [(run.names_of(i), encode_content(run, i, 1, 1 << 20)) for i in range(low, high)]
    return high - low, run.bytes_in(low, high), messages


def plain(value: Any) -> Any:
    """The same for messages that say the same: runs compare by what is in them."""
    if isinstance(value, Deliver):
        run = contents(value.run, value.low, value.high)
        return (Deliver, value.subscription, value.number, value.seq, value.redelivered, value.ready, *run)
    if isinstance(value, Run):
        return contents(value, 0, value.count)
    if isinstance(value, tuple):
        return type(value), [plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), [plain(getattr(value, each.name)) for each in fields(value)]
    return value


names = st.text(st.characters(codec="utf-8"), max_size=20)
tables = st.dictionaries(
    names, st.booleans() | st.integers(-(2**31), 2**31 - 1) | names | st.lists(names, max_size=2), max_size=3
)
properties = st.fixed_dictionaries(
    {},
    optional={
        "headers": tables.filter(lambda table: not {"CC", "BCC"} & table.keys()),
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "expiration": st.integers(0, 10**9).map(str),
        "message_id": names,
        "user_id": names,
    },
)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    key, exchange = draw(names), draw(st.sampled_from(["", "amq.topic"]))
    kind = draw(st.sampled_from(["alike", "one", "batch", "empty"]))
    if kind == "batch":
        frames = [
            publish_bytes(b"b" * (i % 7), f"{key}{i % 3}", exchange, message_id=str(i))
            for i in range(draw(st.integers(2, 40)))
        ]
        return scanned(b"".join(frames))
    of: dict[str, Any] = draw(properties)
    if kind == "one":
        size = draw(st.sampled_from([0, 1, 20_000, 1 << 20]))
        return scanned(publish_bytes(bytes(size), key, exchange, **of))
    size = 0 if kind == "empty" else draw(st.integers(1, 300))
    count = draw(st.integers(1, 200))
    return scanned(publish_bytes(b"a" * size, key, exchange, **of) * count)


@st.composite
def ranges(draw: st.DrawFn) -> DeliveryRange:
    first, last = sorted(draw(st.tuples(st.integers(1, DELIVERY_MAX), st.integers(1, DELIVERY_MAX))))
    return DeliveryRange(draw(named), first, last)


lists_of_ranges = st.lists(ranges(), max_size=4).map(tuple)
some_ranges = st.lists(ranges(), min_size=1, max_size=4).map(tuple)
lasts = st.integers(0, DELIVERY_MAX)
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Publish, st.lists(numbers, min_size=1, max_size=3, unique=True).map(tuple), runs()),
    st.just(Publish((), None)),
    st.builds(Settle, st.sampled_from(Settling), some_ranges),
    st.builds(Cancel, named, lasts),
    st.builds(Release, named, lasts),
    st.builds(Purge, numbers),
)


@st.composite
def states(draw: st.DrawFn, decided: int = 0, is_new: bool = False) -> SubscriptionState:
    number, claims = 0, list[DeliveryClaim]()
    for _ in range(0 if is_new else draw(st.integers(0, 4))):
        first, size = number + draw(st.integers(1, 9)), draw(st.integers(1, 1 << 30))
        operation, seq = draw(st.sampled_from([0, decided + 1, decided + 9])), draw(st.integers(0, 1 << 50))
        claims.append(DeliveryClaim(first, seq, size, operation, bool(operation) and draw(st.booleans())))
        number = first + size - 1
    return SubscriptionState(
        draw(named),
        draw(numbers),
        draw(numbers),
        draw(numbers),
        0 if is_new else draw(st.integers(number, DELIVERY_MAX)),
        0 if is_new else draw(numbers),
        exclusive=draw(st.booleans()),
        priority=draw(st.integers(-(2**63), 2**63 - 1)),
        cancelled=draw(st.booleans()),
        get=draw(st.booleans()),
        after=draw(numbers),
        claims=tuple(draw(st.permutations(claims))),
    )


@st.composite
def attaches(draw: st.DrawFn) -> Attach:
    decided = draw(st.integers(0, 1 << 50))
    return Attach(
        decided,
        tuple(draw(st.lists(states(decided), max_size=3, unique_by=lambda state: state.subscription))),
    )


@st.composite
def batches(draw: st.DrawFn) -> Operations:
    found = tuple(draw(st.lists(operations, min_size=1, max_size=4)))
    first = draw(st.integers(1, 1 << 60))
    return Operations(first, found, draw(st.integers(0, first + len(found))), draw(st.integers(0, first - 1)))


@st.composite
def decisions(draw: st.DrawFn) -> Decided:
    number = draw(numbers)
    outcomes: list[Outcome] = []
    for of in sorted(draw(st.lists(st.integers(1, number), max_size=4))) if number else []:
        low, high = sorted(draw(st.lists(counts, min_size=2, max_size=2, unique=True)))
        outcome: Outcome = Refused(of, low, high) if draw(st.booleans()) else Purged(of, high)
        outcomes.append(outcome)
    return Decided(number, tuple(outcomes))


@st.composite
def deliveries(draw: st.DrawFn) -> Deliver:
    run = draw(runs())
    low = draw(st.integers(0, run.count - 1))
    return Deliver(
        draw(named),
        draw(st.integers(1, DELIVERY_MAX - run.count)),
        draw(st.integers(0, NUMBER_MAX - run.count)),
        run,
        low,
        draw(st.integers(low + 1, run.count)),
        draw(st.booleans()),
        draw(counts),
    )


@st.composite
def received(draw: st.DrawFn) -> ReceivedCount:
    many = draw(st.integers(0, DELIVERY_MAX))
    held = draw(st.integers(0, many))
    return ReceivedCount(draw(named), many, held, draw(st.integers(0, held * many)))


def once(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Some of them, each of another subscription."""
    return st.lists(of, max_size=4, unique_by=lambda each: each[0]).map(tuple)


@st.composite
def endings(draw: st.DrawFn) -> SubscriptionEnded:
    reason = draw(st.sampled_from(EndReason))
    first = last = 0
    if reason is EndReason.DAMAGED:
        first, last = sorted(draw(st.tuples(st.integers(1, DRAWN_MAX), st.integers(1, DRAWN_MAX))))
    return SubscriptionEnded(draw(named), reason, first, last)


lists_of_endings = st.lists(endings(), max_size=3, unique_by=lambda ended: ended.subscription).map(tuple)


FROM_EDGE: dict[type, st.SearchStrategy[FromEdge]] = {
    Attach: attaches(),
    Operations: batches(),
    Subscribe: st.builds(Subscribe, states(is_new=True)),
    Credit: st.builds(Credit, named, numbers, numbers),
    Lower: st.builds(Lower, named, numbers, numbers, numbers),
    CountMessages: st.builds(CountMessages, numbers, numbers, numbers),
    Received: st.builds(Received, once(received())),
}
FROM_LEADER: dict[type, st.SearchStrategy[FromLeader]] = {
    Attached: st.builds(Attached, epochs, numbers, lists_of_ranges, lists_of_endings),
    Unknown: st.builds(Unknown, epochs),
    Decided: decisions(),
    Subscribed: st.builds(Subscribed, named),
    Lowered: st.builds(Lowered, named, numbers, numbers, numbers),
    Deliver: deliveries(),
    Empty: st.builds(Empty, named),
    SubscriptionEnded: endings(),
    Counted: st.one_of(
        st.builds(Counted, numbers, counts, counts), st.builds(Counted, numbers, st.just(-1), st.just(0))
    ),
    DeliveredCounts: st.builds(DeliveredCounts, once(st.tuples(named, numbers))),
    SessionEnded: st.builds(SessionEnded, st.text(st.characters(codec="utf-8"), max_size=100)),
}
