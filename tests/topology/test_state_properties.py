"""The topology value under any changes in any order, against a model that knows records only."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from amqpd.exchanges import Message
from amqpd.topology.routes import match_alone
from amqpd.vocabulary.records import (
    BindingRecord,
    Delete,
    DestinationType,
    ExchangeRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    Record,
)
from tests.topology.samples import (
    alternate_policy,
    exchange,
    queue,
    reads_more,
    routed,
    to_exchange,
    to_queue,
    topology_of,
)

EXCHANGES = ("a", "b", "c", "d")
QUEUES = ("p", "q", "k", "a")
KEYS = ("k", "l")
TYPES = ("direct", "fanout", "topic", "headers")
HEADERS = (None, {}, {"h": 1}, {"h": 2, "g": 1})
ARGUMENTS: tuple[dict[str, Any], ...] = ({}, {"h": 1}, {"x-match": "any", "h": 2, "g": 1})


class Model:
    """The set of records, and routing by looking at all of them each time."""

    def __init__(self) -> None:
        self.records: dict[Any, Record] = {}

    def all_of(self, kind: type) -> list[Any]:
        return [record for record in self.records.values() if isinstance(record, kind)]

    def exists(self, kind: str, name: str) -> bool:
        return (kind, "/", name) in self.records

    def matches(self, source: ExchangeRecord, binding: BindingRecord, key: str, headers: Any) -> bool:
        if source.type == "direct":
            return binding.routing_key == key
        if source.type == "topic":
            return binding.routing_key in (key, "*", "#")
        if source.type == "headers":
            wanted = {name: value for name, value in binding.arguments.items() if name != "x-match"}
            met = [name in (headers or {}) and headers[name] == value for name, value in wanted.items()]
            return any(met) if binding.arguments.get("x-match") == "any" else all(met)
        return True

    def route(self, name: str, key: str, headers: Any) -> set[str]:
        if name == "":
            return {key} if self.exists("queue", key) else set()
        return self._walk(name, key, headers, set())

    def _walk(self, name: str, key: str, headers: Any, seen: set[str]) -> set[str]:
        if name in seen:
            return set()
        seen.add(name)
        source = self.records.get(("exchange", "/", name))
        if not isinstance(source, ExchangeRecord):
            return set()
        reached: set[str] = set()
        matched = False
        for binding in self.all_of(BindingRecord):
            if binding.source != name or not self.matches(source, binding, key, headers):
                continue
            if not self.exists(binding.destination_type, binding.destination):
                continue
            matched = True
            if binding.destination_type == "queue":
                reached.add(binding.destination)
            else:
                reached |= self._walk(binding.destination, key, headers, seen)
        alternate = source.arguments.get("alternate-exchange", self.alternate_by_policy(name))
        if not matched and alternate is not None:
            reached |= self._walk(alternate, key, headers, seen)
        return reached

    def alternate_by_policy(self, name: str) -> str | None:
        matching = [policy for policy in self.all_of(PolicyRecord) if policy.pattern in name]
        first = min(matching, key=lambda policy: (-policy.priority, policy.name), default=None)
        return None if first is None else first.definition["alternate-exchange"]


record_strategy = st.one_of(
    st.builds(
        exchange,
        st.sampled_from(EXCHANGES),
        st.sampled_from(TYPES),
        st.sampled_from([None, *EXCHANGES, "missing", ""]),
        durable=st.booleans(),
    ),
    st.builds(queue, st.sampled_from(QUEUES), st.integers(1, 2)),
    st.builds(
        alternate_policy,
        st.sampled_from(["one", "two"]),
        st.sampled_from(["", *EXCHANGES]),
        st.sampled_from([*EXCHANGES, "missing"]),
        st.integers(-1, 1),
    ),
    st.builds(
        to_queue,
        st.sampled_from(EXCHANGES),
        st.sampled_from(QUEUES),
        st.sampled_from([*KEYS, "*", "#"]),
        st.sampled_from(ARGUMENTS),
    ),
    st.builds(to_exchange, st.sampled_from(EXCHANGES), st.sampled_from(EXCHANGES), st.sampled_from([*KEYS, "#"])),
)


class AppliedInAnyOrder(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.topology, self.vhost = topology_of()
        self.model = Model()
        self.cached: dict[Any, tuple[str, ...]] = {}
        self.cached_version = self.vhost.version

    @rule(records=st.lists(record_strategy, min_size=1, max_size=8))
    def put(self, records: list[Record]) -> None:
        self.topology.apply(Put(record) for record in records)
        self.model.records.update((record.key, record) for record in records)

    @rule(records=st.lists(record_strategy, min_size=1, max_size=8), data=st.data())
    def delete(self, records: list[Record], data: st.DataObject) -> None:
        keys = [record.key for record in records]
        if self.model.records:
            keys += data.draw(st.lists(st.sampled_from(sorted(self.model.records)), max_size=4))
        self.topology.apply(Delete(key) for key in keys)
        for key in keys:
            self.model.records.pop(key, None)

    @rule()
    def routes_are_equal(self) -> None:
        if self.vhost.version != self.cached_version:
            self.cached, self.cached_version = {}, self.vhost.version
        for name in (*EXCHANGES, "", "missing"):
            for key in KEYS:
                routes = {routed(self.vhost, name, key, headers) for headers in HEADERS}
                for headers in HEADERS:
                    route = routed(self.vhost, name, key, headers)
                    assert len(route) == len(set(route))
                    assert set(route) == self.model.route(name, key, headers)
                    assert self.cached.setdefault((name, key, repr(headers)), route) == route
                assert len(routes) == 1 or reads_more(self.vhost, name)
                if name in self.vhost.exchanges and not self.vhost.leads_on(name) and len(routes) == 1:
                    assert match_alone(self.vhost, name, Message((key,)))[0] in routes

    @rule()
    def indexes_are_equal(self) -> None:
        bindings = self.model.all_of(BindingRecord)
        for name in EXCHANGES:
            assert set(self.keys(self.vhost.bindings_from(name))) == {b.key for b in bindings if b.source == name}
        ends: list[tuple[DestinationType, str]] = [("queue", name) for name in QUEUES]
        ends += [("exchange", name) for name in EXCHANGES]
        for end in ends:
            expected = {b.key for b in bindings if (b.destination_type, b.destination) == end}
            assert set(self.keys(self.vhost.bindings_to(*end))) == expected
        assert set(self.vhost.exchanges) == {x.name for x in self.model.all_of(ExchangeRecord)}
        assert set(self.vhost.queues) == {q.name for q in self.model.all_of(QueueRecord)}
        for record in self.model.all_of(ExchangeRecord):
            assert self.vhost.exchanges[record.name].record == record

    @staticmethod
    def keys(bindings: Any) -> list[Any]:
        return [binding.key for binding in bindings]


AppliedInAnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=12)
TestAppliedInAnyOrder = AppliedInAnyOrder.TestCase
