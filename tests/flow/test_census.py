"""The census of a node: what several processes count adds up to what one would count for all of their clients.

What is verified: sums of counts, in any grouping; that limits and figures count what other processes have. Not
verified: when something is counted (`test_limits.py`, `tests/harness/invariants.py`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.exceptions import AMQPNotAllowed, AMQPPreconditionFailed

from amqpd.flow.client_counters import (
    CHANNELS,
    CONNECTIONS,
    CONSUMERS,
    DECLARING,
    NOBODY,
    NODE,
    USER,
    VHOST,
    Census,
    ClientCounters,
)
from amqpd.topology import plans
from amqpd.topology.state import Topology
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import ParameterRecord, Put, QueueRecord, UserRecord

VHOSTS, USERS, PROCESSES = ("/", "v"), ("guest", "shop"), 3
SUBJECT = st.tuples(
    st.sampled_from((CONNECTIONS, CHANNELS, CONSUMERS, DECLARING)),
    st.sampled_from((VHOST, USER, NODE)),
    st.sampled_from(("a", "b")),
)
CENSUSES = st.builds(Census, st.dictionaries(SUBJECT, st.integers(1, 3), max_size=6))


def counters(limits: Limits | None = None) -> ClientCounters:
    """Of one process of a node."""
    topology = Topology()
    for vhost in VHOSTS:
        topology.apply(plans.create_vhost(vhost))
    return ClientCounters(limits or Limits(), topology, {}, "node@a")


class Session:
    """A client from its connection to its end: in one process, and in one that has all clients."""

    def __init__(self, parts: list[ClientCounters], user: str, vhost: str) -> None:
        self.parts = parts
        client: Any = SimpleNamespace(user=user, vhost=vhost)
        self.client = client
        self.channels: list[Any] = []
        self.answers: list[Any] = []
        self.consumers = 0
        for part in parts:
            part.entered(self.client)

    def act(self, what: str) -> None:
        vhost = self.client.vhost
        for part in self.parts:
            if what == "open":
                part.open_channel(self.client.user)
            elif what == "close" and self.channels:
                part.channel_gone(self.channels[-1])
            elif what == "consume":
                part.consumer_added(vhost)
            elif what == "cancel" and self.consumers:
                part.consumer_gone(vhost)
            elif what == "declare":
                record = QueueRecord(vhost, "q", 1)
                part.declare_queue(record, lambda _: None, lambda _, answer: self.answers.append(answer))
        if what == "open":
            self.channels.append(SimpleNamespace(client=self.client, closed=False))
        elif what == "close" and self.channels:
            self.channels.pop()
        self.consumers = max(0, self.consumers + {"consume": 1, "cancel": -1}.get(what, 0))
        if what == "answer":
            answers, self.answers = self.answers, []
            for answer in answers:
                answer(True)

    def end(self) -> None:
        while self.consumers:
            self.act("cancel")
        while self.channels:
            self.act("close")
        self.act("answer")
        for part in self.parts:
            part.left(self.client)


ACTS = st.sampled_from(("open", "close", "consume", "cancel", "declare", "answer"))
SESSIONS = st.lists(
    st.tuples(
        st.integers(0, PROCESSES - 1),
        st.sampled_from(USERS),
        st.sampled_from(VHOSTS),
        st.lists(ACTS, max_size=8),
        st.booleans(),
    ),
    max_size=8,
)


@given(SESSIONS)
def test_the_census_of_parts_adds_up_to_the_census_of_the_whole(sessions: list[Any]) -> None:
    parts, whole = [counters() for _ in range(PROCESSES)], counters()
    begun = []
    for process, user, vhost, acts, ends in sessions:
        session = Session([parts[process], whole], user, vhost)
        for act in acts:
            session.act(act)
        if ends:
            session.end()
        else:
            begun.append(session)
        assert sum((each.census() for each in parts), NOBODY) == whole.census()
    for session in begun:
        session.end()
    assert whole.census() == NOBODY


@given(SESSIONS)
def test_a_process_that_knows_the_others_counts_what_all_of_them_have(sessions: list[Any]) -> None:
    parts, whole = [counters() for _ in range(PROCESSES)], counters()
    for process, user, vhost, acts, _ in sessions:
        session = Session([parts[process], whole], user, vhost)
        for act in acts:
            session.act(act)
    parts[0].others = sum((each.census() for each in parts[1:]), NOBODY)
    for what in (CONNECTIONS, CHANNELS, CONSUMERS, DECLARING):
        assert parts[0].count(what) == whole.count(what)
        for of, names in ((VHOST, VHOSTS), (USER, USERS)):
            assert [parts[0].count(what, of, name) for name in names] == [
                whole.count(what, of, name) for name in names
            ]


@given(CENSUSES, CENSUSES, CENSUSES)
def test_the_order_and_the_grouping_do_not_matter_and_nobody_adds_nothing(
    one: Census, two: Census, three: Census
) -> None:
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one
    assert one + NOBODY == one


def test_it_is_a_value() -> None:
    own = counters()
    before = own.census()
    own.entered(SimpleNamespace(user="guest", vhost="/"))  # type: ignore[arg-type]
    assert before == NOBODY != own.census()
    with pytest.raises(TypeError):
        own.census().counts[CONNECTIONS, VHOST, "/"] = 2  # type: ignore[index]


def test_limits_count_what_other_processes_have() -> None:
    own = counters(Limits(node_connections_max=2, node_channels_max=3))
    topology = own._topology
    topology.apply([Put(ParameterRecord("/", "vhost-limits", "limits", {"max-connections": 5, "max-queues": 1}))])
    topology.apply([Put(UserRecord("guest", limits={"max-connections": 4, "max-channels": 2}))])
    own.require_node()
    own.require_entry("guest", "/")
    own.others = Census(
        {(CONNECTIONS, NODE, "node@a"): 2, (CONNECTIONS, VHOST, "/"): 5, (CHANNELS, USER, "guest"): 2}
    )
    with pytest.raises(AMQPNotAllowed, match="node connection limit"):
        own.require_node()
    with pytest.raises(AMQPNotAllowed, match=r"connection limit \(5\)"):
        own.require_entry("guest", "/")
    with pytest.raises(AMQPNotAllowed, match="maximum allowed user limit of 2"):
        own.open_channel("guest")
    own.others = Census({(CONNECTIONS, USER, "guest"): 4, (CHANNELS, NODE, "node@a"): 3, (DECLARING, VHOST, "/"): 1})
    with pytest.raises(AMQPNotAllowed, match=r"user connection limit \(4\)"):
        own.require_entry("guest", "/")
    with pytest.raises(AMQPNotAllowed, match="limit of 3"):
        own.open_channel("shop")
    with pytest.raises(AMQPPreconditionFailed, match=r"queue limit in vhost '/' \(1\)"):
        own.declare_queue(QueueRecord("/", "q", 1), lambda _: None, lambda *_: None)
