"""Any publish to any exchanges: it is where a plain model says, its publisher is told, and nothing goes uncounted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from amqpd.kernel.rows import parse_row
from amqpd.publishing.routing import route_again
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord, PolicyRecord, Put, QueueRecord
from tests.harness.examples import EXAMPLES
from tests.harness.harness import Harness, Message, publish_bytes

QUEUES = ("q0", "q1", "q2")
EXCHANGES = ("x0", "x1", "x2")
KEYS = ("k0", "k1", "k2")

exchanges = st.fixed_dictionaries(
    {
        name: st.tuples(
            st.sampled_from(["direct", "fanout"]),
            st.sampled_from([None, None, *EXCHANGES, "missing"]),
            st.sampled_from([None, None, "drop", "nack", *EXCHANGES, "missing"]),
        )
        for name in EXCHANGES
    }
)
"""type, alternate, what to do with the unroutable"""
bindings = st.sets(
    st.tuples(
        st.sampled_from(EXCHANGES),
        st.one_of(
            st.sampled_from([("queue", name) for name in QUEUES]),
            st.sampled_from([("exchange", name) for name in EXCHANGES]),
        ),
        st.sampled_from(KEYS),
    ),
    max_size=6,
)
copies = st.none() | st.lists(st.sampled_from([*KEYS, *QUEUES]), max_size=3)
publishes = st.lists(
    st.tuples(
        st.sampled_from([*EXCHANGES, ""]),
        st.sampled_from([*KEYS, "q0"]),
        st.booleans(),
        copies,
        copies,
        st.sampled_from([1, 3]),
    ),
    max_size=8,
)


class Model:
    def __init__(self, exchanges: dict[str, Any], bindings: set[Any]) -> None:
        self.exchanges = exchanges
        self.bindings = bindings

    def reached(self, exchange: str, keys: set[str]) -> set[str]:
        """All that follows from going through an exchange and everything behind it."""
        if not exchange:
            return keys & set(QUEUES)
        queues: set[str] = set()
        seen: set[str] = set()
        todo = [exchange]
        while todo:
            name = todo.pop()
            if name in seen or name not in self.exchanges:
                continue
            seen.add(name)
            kind, alternate, _ = self.exchanges[name]
            found = {
                end for source, end, key in self.bindings if source == name and (kind == "fanout" or key in keys)
            }
            queues |= {end for of, end in found if of == "queue"}
            todo += [end for of, end in found if of == "exchange"]
            if not found and alternate is not None:
                todo.append(alternate)
        return queues

    def outcome(self, exchange: str, keys: set[str]) -> tuple[set[str], str]:
        """The queues, and the way that got them or that is left."""
        queues = self.reached(exchange, keys)
        way = self.exchanges[exchange][2] if exchange else None
        if queues:
            return queues, "routed"
        if way in EXCHANGES and self.reached(way, keys):
            return self.reached(way, keys), "rerouted"
        return set(), "nack" if way == "nack" else "drop"


def node_of(exchanges: dict[str, Any], bindings: set[Any]) -> Harness:
    harness = Harness()
    changes: list[Any] = [Put(QueueRecord("/", name, number + 1)) for number, name in enumerate(QUEUES)]
    for name, (kind, alternate, way) in exchanges.items():
        arguments = {} if alternate is None else {"alternate-exchange": alternate}
        changes.append(Put(ExchangeRecord("/", name, kind, arguments=arguments)))
        if way is not None:
            changes.append(Put(PolicyRecord("/", name, f"^{name}$", "exchanges", {"unroutable": way})))
    changes += [Put(BindingRecord("/", source, end, of, key)) for source, (of, end), key in sorted(bindings)]
    harness._apply(changes)
    return harness


@settings(max_examples=2 * EXAMPLES)
@given(exchanges, bindings, publishes, st.booleans())
def test_every_publish_is_where_the_model_says(
    exchanges: dict[str, Any], bindings: set[Any], publishes: list[Any], confirms: bool
) -> None:
    harness, model = node_of(exchanges, bindings), Model(exchanges, bindings)
    client = harness.client()
    if confirms:
        client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    queued: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    returned = acked = nacked = 0
    for exchange, key, mandatory, cc, bcc, count in publishes:
        headers = {name: keys for name, keys in (("CC", cc), ("BCC", bcc)) if keys is not None}
        properties = {"headers": headers} if headers else {}
        client.raw(publish_bytes(b"x", key, exchange, mandatory=mandatory, **properties) * count)
        queues, outcome = model.outcome(exchange, {key, *(cc or ()), *(bcc or ())})
        queued.update(dict.fromkeys(queues, count))
        refused = outcome == "nack" and confirms
        if outcome == "rerouted":
            counts["rerouted"] += count
        elif not queues:
            returned += count * mandatory
            counts["returned"] += count * mandatory
            counts["nacked"] += count * refused
            counts["dropped"] += count * (not mandatory and not refused)
        if confirms:
            nacked += count * refused
            acked += count * (not refused)
    found = harness.node.unroutable.of_vhost("/")
    assert {outcome.value: count for outcome, count in found.items() if count} == {
        name: count for name, count in counts.items() if count
    }
    assert {name: harness.node.queues["/", name].backlog.ready for name in QUEUES} == {
        name: queued[name] for name in QUEUES
    }
    assert len(client.take(Message)) == returned
    assert len(client.take(commands.Basic.Nack)) == nacked
    told = client.take(commands.Basic.Ack)
    assert (told[-1].delivery_tag if told else 0) <= acked + nacked
    assert not any(harness.node.durability.waiting.values())
    assert not harness.node.durability.due


@given(exchanges, bindings, st.sampled_from(EXCHANGES), st.sampled_from(KEYS), copies)
def test_what_is_routed_again_goes_the_same_way(
    exchanges: dict[str, Any], bindings: set[Any], exchange: str, key: str, cc: list[str] | None
) -> None:
    harness, model = node_of(exchanges, bindings), Model(exchanges, bindings)
    properties = {} if cc is None else {"headers": {"CC": cc}}
    (run,) = parse_row(publish_bytes(b"x", key, exchange, **properties))
    expected, _ = model.outcome(exchange, {key, *(cc or ())})
    for _ in range(2):
        assert {queue.record.name for queue in route_again(harness.node, "/", run)} == expected
    assert sum(harness.node.unroutable.of_vhost("/").values()) == 0
