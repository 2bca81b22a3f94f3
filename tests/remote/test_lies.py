"""A peer that lies: it costs its session, and nothing else.

What is verified: whatever a message says in place of what an honest end would say, decoding it raises nothing but
`MalformedMessage`, a live edge and a live leader raise nothing at all, take no memory for it, and serve the next
session as if nothing had been. Not verified: that a lie is found out: an edge may say that its clients have settled
what they hold.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.exceptions import AMQPSoftError

from amqpd.journal.operation_marks import Marks
from amqpd.peers.formats import MalformedMessage
from amqpd.queues.port import DeclareCounts, Got
from amqpd.remote.edge import Edge, EdgeState
from amqpd.remote.encoding import decode_from_edge, decode_from_leader, encode
from amqpd.remote.held import Range
from amqpd.remote.leader import Leader
from amqpd.remote.messages import (
    Attach,
    Attached,
    Decided,
    FromEdge,
    FromLeader,
    Sender,
    SessionEnded,
    Unknown,
)
from tests.remote.holding import Holding
from tests.remote.lies import all_lies, changed, others, places
from tests.remote.message_strategies import FROM_EDGE, FROM_LEADER
from tests.remote.simulation.log import Contents, LeaderLog, Log
from tests.remote.simulation.queue import PlainQueue, make_run

QUEUES = (1, 2)
NO_BOUND = 1 << 40


class Leading:
    """A leader with two queues that commits at once, and the edges that it is told of."""

    def __init__(self, epoch: int = 1) -> None:
        log, self.now_ms = Log(), 1000.0
        self.log = LeaderLog(log, epoch)
        found = Contents({number: {} for number in QUEUES})
        self.queues = {
            number: PlainQueue(number, self.log, found, epoch << 20, NO_BOUND if number == 1 else 6, random.Random(1))
            for number in QUEUES
        }
        self.leader = Leader(epoch, self.log, Marks(), self.queues, ("a", "b"), self.now_ms)
        self.leader.has_nothing("a")
        self.leader.has_nothing("b")

    def commit(self) -> None:
        if self.log.cut():
            self.leader.committed(self.log.next - 1)

    def tell(self, sender: Sender, message: FromEdge) -> None:
        self.leader.receive(sender, message, self.now_ms)

    def take(self) -> list[tuple[Sender, FromLeader]]:
        for queue in self.queues.values():
            while queue.purges:
                queue.step()
            queue.dispatch()
        self.commit()
        return self.leader.take()


class Pair:
    """An edge and a leader; what they say goes over as bytes, and is remembered."""

    def __init__(self, leading: Leading, name: str = "a", incarnation: int = 1, epoch_max: int | None = None) -> None:
        self.leading, self.edge = leading, Edge(name, incarnation)
        self.said: list[FromEdge] = []
        self.heard: list[FromLeader] = []
        self.counts: list[DeclareCounts | AMQPSoftError | None] = []
        self.clients: list[Holding] = []
        self.answers: list[Any] = []
        self.attach()

    @property
    def sender(self) -> Sender:
        return Sender(self.edge.forwarder, self.edge.incarnation, self.edge.session)

    def attach(self) -> None:
        self.edge.detached()
        self.edge.attach(self.leading.leader.epoch)
        self.exchange()

    def exchange(self) -> None:
        """Until nobody has anything to say."""
        while True:
            for message in self.edge.take():
                self.said.append(message)
                self.leading.tell(self.sender, decode_from_edge(memoryview(b"".join(encode(message)))))
            out = [each for sender, each in self.leading.take() if sender == self.sender]
            for answer in out:
                self.heard.append(answer)
                self.edge.receive(self.edge.session, decode_from_leader(memoryview(b"".join(encode(answer)))))
            if not out:
                return

    def consume(self, queue: int, messages: int) -> int:
        client = Holding()
        self.clients.append(client)
        return self.edge.subscribe(queue, client, messages, 1 << 30)

    def get(self, queue: int) -> None:
        def got(found: object) -> bool:
            self.answers.append(found)
            return True

        self.edge.get(queue, got)

    def live(self) -> None:
        """One of everything that an honest edge does; some of it is left open."""
        edge = self.edge
        first = self.consume(1, 6)
        second = self.consume(2, 3)
        self.exchange()
        run = make_run([1, 2, 3, 4])
        for queue in QUEUES:
            edge.publish(queue, run)
        self.exchange()
        edge.publish(2, make_run([5, 6, 7, 8, 9, 10]))  # of which some are refused
        self.get(2)
        self.get(2)
        edge.count(1, self.counts.append)
        edge.count(9, self.counts.append)
        edge.limit(first, 20, 1 << 30)
        edge.limit(second, 2, 1 << 29)
        self.exchange()
        held = self.clients[0].got
        edge.settle(held[0], held[1])
        edge.requeue(held[2], held[2])
        edge.reject(held[3], held[3])
        edge.audit()
        self.leading.leader.audit()
        self.exchange()
        edge.cancel(second)
        third = self.consume(1, 2)
        edge.release(third)
        edge.purge(2, self.answers.append)
        self.get(2)
        self.exchange()
        self.attach()  # with claims
        self.consume(9, 5)
        edge.publish(1, make_run([11, 12, 13]))
        self.exchange()


def assert_serves(pair: Pair) -> None:
    """All that is asked now is done."""
    edge = pair.edge
    assert edge.state is EdgeState.ATTACHED
    pair.consume(1, 1000)
    number = edge.publish(1, make_run([100 + len(pair.said)]))
    counted = len(pair.counts)
    edge.count(1, pair.counts.append)
    pair.exchange()
    assert edge.state is EdgeState.ATTACHED
    assert edge.lane.reported == number == edge.operation_count
    assert len(pair.counts) == counted + 1
    assert not pair.leading.queues[1].ready
    client = pair.clients[-1]
    if client.got:
        edge.settle(client.got[-1], client.got[-1])
        pair.exchange()
        assert edge.lane.reported == edge.operation_count


def conversation() -> Pair:
    pair = Pair(Leading())
    pair.live()
    return pair


RECORDED = conversation()


def test_everything_is_said() -> None:
    """By the honest pair whose messages are changed below."""
    assert {type(each) for each in RECORDED.said} == FROM_EDGE.keys()
    assert {type(each) for each in RECORDED.heard} == FROM_LEADER.keys() - {Unknown, SessionEnded}
    assert RECORDED.edge.differences == RECORDED.leading.leader.differences == 0
    assert RECORDED.edge.state is EdgeState.ATTACHED
    assert any(state.claims for each in RECORDED.said if isinstance(each, Attach) for state in each.subscriptions)
    assert any(each.outcomes for each in RECORDED.heard if isinstance(each, Decided))
    assert len([each for each in RECORDED.answers if isinstance(each, Got)]) == 2
    assert_serves(conversation())


def test_an_edge_that_another_one_followed_is_unknown() -> None:
    leading = Leading()
    second = Pair(leading, incarnation=2)
    first = Pair(leading, incarnation=1)
    assert first.heard == [Unknown(1)]
    assert first.edge.state is EdgeState.ENDED
    assert_serves(second)


def arrived(message: Any, decode: Callable[[memoryview], Any]) -> Any:
    """As the other end reads it; None: it does not."""
    try:
        return decode(memoryview(b"".join(encode(message))))
    except (MalformedMessage, ValueError, IndexError, struct.error):
        return None  # the last three: nobody can write it


def assert_nothing_leaks(leading: Leading) -> None:
    """Each message is ready or held by somebody whom the leader knows, and so is each consumer."""
    known = list(leading.leader.subscribers())
    for number, queue in leading.queues.items():
        of = [each for each in known if each.queue is queue]
        held = [
            seq for each in of for found in (each.held, each.gives_way) for range_ in found for seq in seqs(range_)
        ]
        assert sorted([*queue.ready, *held]) == sorted(queue.runs), f"queue {number}"
        assert {id(each) for each in queue.consumers} == {id(each) for each in of if each.consuming}


def seqs(held: Range) -> range:
    return range(held.seq, held.last_seq + 1)


def lie_to_leader(pair: Pair, lies: list[Any]) -> None:
    for lie in lies:
        message = arrived(lie, decode_from_edge)
        if message is not None:
            session = pair.edge.session + (1 if isinstance(message, Attach) else 0)
            pair.edge.session = session
            pair.leading.tell(pair.sender, message)
            for _, answer in pair.leading.take():
                encode(answer)
            assert_nothing_leaks(pair.leading)
    leading = pair.leading
    leading.leader.audit()
    leading.leader.tick(leading.now_ms)
    # Whoever lied has another process now, and others never noticed.
    other = Pair(leading, "b")
    assert_serves(other)
    after = Pair(leading, "a", 2)
    other.exchange()
    assert_serves(after)
    assert set(leading.leader.incarnations) == {("a", 2), ("b", 1)}


def lie_to_edge(pair: Pair, lies: list[Any]) -> None:
    edge = pair.edge
    for lie in lies:
        message = arrived(lie, decode_from_leader)
        if message is not None:
            if isinstance(message, Attached | Unknown):
                edge.attach(2)
            edge.receive(edge.session, message)
            for said in edge.take():
                encode(said)
    if edge.state is EdgeState.ENDED:
        assert any(isinstance(lie, Unknown) for lie in lies)
        return
    # The next leader is honest.
    pair.leading = Leading(3)
    pair.attach()
    assert_serves(pair)


def recorded(of: list[Any]) -> list[Any]:
    """Of each kind the one that says the most, and the one that says the least."""
    found = [
        sorted([each for each in of if type(each) is kind], key=places) for kind in {type(each): None for each in of}
    ]
    return [each for kind in found for each in {id(each): each for each in (kind[-1], kind[0])}.values()]


@pytest.mark.parametrize("message", recorded(RECORDED.said), ids=lambda message: type(message).__name__)
def test_a_leader_survives_each_lie_of_an_edge(message: FromEdge) -> None:
    for lie in all_lies(message):
        lie_to_leader(conversation(), [lie])


LEADER_LIES = [*recorded(RECORDED.heard), Unknown(1), SessionEnded("it moved")]


@pytest.mark.parametrize("message", LEADER_LIES, ids=lambda message: type(message).__name__)
def test_an_edge_survives_each_lie_of_a_leader(message: FromLeader) -> None:
    for lie in (message, *all_lies(message)):
        lie_to_edge(conversation(), [lie])


@st.composite
def lies(draw: st.DrawFn, of: list[Any]) -> list[Any]:
    """Some messages in a row, each changed in some places."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        message = draw(st.sampled_from(of))
        for _ in range(draw(st.integers(0, 3))):
            count = places(message)
            if count:
                message = _changed_once(draw, message, draw(st.integers(0, count - 1)))
        found.append(message)
    return found


def _changed_once(draw: st.DrawFn, message: Any, place: int) -> Any:
    values: list[Any] = []

    def note(value: Any) -> Any:
        values[:] = [others(value) or [value]]
        return value

    changed(message, place, note)
    other = draw(st.sampled_from(values[0]))
    return changed(message, place, lambda _: other)


@given(lies(RECORDED.said))
def test_a_leader_survives_lies_in_a_row(found: list[Any]) -> None:
    lie_to_leader(conversation(), found)


@given(lies(LEADER_LIES))
def test_an_edge_survives_lies_in_a_row(found: list[Any]) -> None:
    lie_to_edge(conversation(), found)


def test_lies_take_no_memory() -> None:
    """Whatever they say of sizes and counts."""
    pair = conversation()
    lies_of_edge = [lie for message in recorded(RECORDED.said) for lie in all_lies(message)]
    lies_of_leader = [lie for message in recorded(RECORDED.heard) for lie in all_lies(message)]
    edges, leaders = conversation(), conversation()
    tracemalloc.start()
    try:
        for lie in lies_of_edge:
            message = arrived(lie, decode_from_edge)
            if message is not None:
                leaders.edge.session += 1
                leaders.leading.tell(leaders.sender, Attach(0, ()))
                leaders.leading.tell(leaders.sender, message)
                leaders.leading.take()
        for lie in lies_of_leader:
            answer = arrived(lie, decode_from_leader)
            if answer is not None:
                edges.edge.attach(1)
                edges.edge.receive(edges.edge.session, Attached(1, edges.edge.operation_count, (), ()))
                edges.edge.receive(edges.edge.session, answer)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20
    assert pair.edge.state is EdgeState.ATTACHED
