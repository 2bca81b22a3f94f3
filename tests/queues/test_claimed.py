"""What clients of other nodes hold of a queue: claims, what goes back unseen, what was delivered before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from amqpd.queues.delivered_ranges import DeliveredRanges
from amqpd.queues.levels import SEQ_MASK
from amqpd.queues.messages import Messages
from amqpd.queues.queue import Queue
from amqpd.queues.states import QueueState
from amqpd.queues.store import SEQ_BITS
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, Message

Basic = commands.Basic
SMALL = Limits(queue_memory_bytes=4000, backlog_memory_bytes=4000, small_queue_bytes=0)
SIZE = 80_000
"""more than a queue may keep in memory"""
ARGUMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": -1},
    "priority": {"x-max-priority": 5},
}


class Claimed:
    """A queue `q` with messages 0..count-1 whose places are theirs."""

    def __init__(self, kind: str, where: str, count: int = 12, more: dict[str, Any] | None = None) -> None:
        paged = where != "memory"
        self.harness = Harness(SMALL if paged else None)
        self.client = self.harness.client()
        self.client.declare("q", durable=True, arguments={**ARGUMENTS[kind], **(more or {})})
        self.size = SIZE if where == "paged" else 100
        for number in range(count):
            self.publish(number)
        if where == "recovered":
            self.restart()

    def publish(self, number: int, **properties: Any) -> None:
        self.client.publish(b"%04d" % number + bytes(self.size), **{"delivery_mode": 2, **properties})

    def restart(self) -> None:
        self.harness.restart()
        self.client = self.harness.client()

    @property
    def queue(self) -> Queue:
        return self.harness.node.queues["/", "q"]

    def level(self) -> Messages:
        level = next(iter(self.queue.levels()))
        assert isinstance(level, Messages)
        return level

    def counts(self) -> tuple[int, int]:
        return self.queue.ready_count, self.queue.unacked_count

    def consume(self, tag: str = "t") -> None:
        self.client.consume("q", tag)

    def arrived(self, client: Client | None = None) -> list[tuple[int, bool]]:
        messages: list[Message] = (client or self.client).messages()
        return [(int(each.body[:4]), each.redelivered) for each in messages]

    def numbers(self) -> list[int]:
        return [number for number, _ in self.arrived()]

    def step(self) -> None:
        self.harness.node.to_dispatch.add(self.queue)
        self.harness.step()

    def holds(self) -> None:
        """What must hold whatever was done."""
        assert not self.harness.bugs
        assert not self.queue.damage
        for level in self.queue.levels():
            backlog, store = level.backlog, level.store
            assert backlog.ready + backlog.unacked == sum(each.left for each in store.segments)
            nbytes = sum(each.body_bytes for each in store.segments)
            assert backlog.ready_bytes + backlog.unacked_bytes == nbytes
            assert store.memory_bytes == sum(each.memory_bytes for each in store.segments)
            for first, last in backlog.returned:
                assert store.segments[store.index_of(first)].last >= last, "a stretch lies in one segment"
            if not backlog.ready:
                assert not backlog.ready_bytes


@pytest.fixture(params=["memory", "paged", "recovered"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=ARGUMENTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_is_held_is_nobody_elses(kind: str, where: str) -> None:
    claimed = Claimed(kind, where)
    assert claimed.queue.hold(3, 5) == [(3, 5)]
    assert claimed.queue.hold(2, 7) == [(2, 2), (6, 7)]
    assert claimed.queue.hold(4, 4) == []
    assert claimed.queue.hold(10, 1 << 61)[:1] == [(10, 11)]
    assert claimed.queue.hold(12, 20) == []
    assert claimed.counts() == (4, 8)
    claimed.holds()
    claimed.consume()
    assert claimed.numbers() == [0, 1, 8, 9]
    claimed.holds()


def test_what_is_held_is_settled_and_stays_so_after_a_restart(kind: str, where: str) -> None:
    claimed = Claimed(kind, where)
    assert claimed.queue.hold(3, 8) == [(3, 8)]
    claimed.queue.settle(4, 5)
    claimed.queue.settle(8, 8)
    assert claimed.counts() == (6, 3)
    claimed.holds()
    claimed.step()
    claimed.restart()
    assert claimed.counts() == (9, 0)
    claimed.holds()
    claimed.consume()
    assert claimed.numbers() == [0, 1, 2, 3, 6, 7, 9, 10, 11]
    claimed.holds()


def test_what_is_rejected_goes_to_the_dead_letter_exchange(where: str) -> None:
    claimed = Claimed("quorum", where, more={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    claimed.client.declare("dead", durable=True)
    assert claimed.queue.hold(6, 8) == [(6, 8)]
    claimed.queue.reject(7, 7)
    claimed.step()
    claimed.client.consume("dead", "d")
    assert claimed.numbers() == [7]
    assert claimed.counts() == (9, 2)
    claimed.holds()


@pytest.mark.parametrize("goes_back", [Queue.requeue, Queue.give_back])
def test_what_goes_back_stands_at_its_place_and_is_redelivered(kind: str, where: str, goes_back: Any) -> None:
    claimed = Claimed(kind, where)
    claimed.queue.forget_redelivered()
    assert claimed.queue.hold(3, 5) == [(3, 5)]
    goes_back(claimed.queue, 4, 5)
    assert claimed.counts() == (11, 1)
    claimed.holds()
    claimed.consume()
    assert claimed.arrived() == [(number, number in (4, 5)) for number in range(12) if number != 3]
    claimed.holds()


def test_only_a_requeue_counts_as_a_delivery(where: str) -> None:
    claimed = Claimed("quorum", where)
    claimed.queue.hold(0, 5)
    claimed.queue.give_back(0, 2)
    claimed.queue.requeue(3, 3)
    assert [claimed.queue.delivery_count(seq) for seq in range(6)] == [0, 0, 0, 1, 0, 0]
    claimed.consume()
    got = {int(each.body[:4]): each.properties.headers for each in claimed.client.messages()}
    assert {number: headers for number, headers in got.items() if headers} == {3: {"x-delivery-count": 1}}


def test_a_message_that_came_back_too_often_dies_and_one_that_nobody_saw_does_not(where: str) -> None:
    claimed = Claimed("quorum", where, more={"x-delivery-limit": 1})
    for _ in range(5):
        assert claimed.queue.hold(2, 2) == [(2, 2)]
        claimed.queue.give_back(2, 2)
    claimed.queue.hold(2, 2)
    claimed.queue.requeue(2, 2)
    claimed.queue.hold(2, 2)
    claimed.queue.requeue(2, 2)
    assert claimed.queue.facts.delivery_limit == 1
    assert claimed.queue.hold(2, 2) == []
    claimed.holds()


def test_levels_have_numbers_of_their_own() -> None:
    claimed = Claimed("priority", "memory", 3)
    for number in range(3, 6):
        claimed.publish(number, priority=4)
    high = 4 << SEQ_BITS
    assert claimed.queue.hold(high, high + 1) == [(high, high + 1)]
    assert claimed.queue.hold(1, high | SEQ_MASK) == [(1, 2), (high + 2, high + 2)]
    assert claimed.queue.hold(1 << 62, 1 << 63) == []
    claimed.queue.give_back(high + 1, high + 1)
    claimed.queue.mark_redelivered(0, 0)
    claimed.queue.hold(0, 0)
    claimed.queue.give_back(0, 0)
    assert [part for part in claimed.queue.redelivered() if part[0] >> SEQ_BITS == 4] == [(high, high + 2)]
    claimed.consume()
    assert claimed.arrived() == [(4, True), (0, True)]


def test_a_claim_costs_rows_up_to_those_that_it_names_and_not_all() -> None:
    """A recovered backlog is one segment of all its rows."""
    claimed = Claimed("quorum", "recovered", 300)
    store = claimed.level().store
    assert len(store.segments) == 1
    assert claimed.queue.hold(20, 22) == [(20, 22)]
    assert claimed.queue.hold(7, 7) == [(7, 7)]
    assert len(store.segments) == 24
    claimed.queue.settle(21, 21)
    claimed.holds()
    claimed.step()
    claimed.consume()
    assert claimed.numbers() == [each for each in range(300) if each not in (7, 20, 21, 22)]
    claimed.holds()


def test_claims_that_name_all_there_is() -> None:
    """Whoever claims what it never had costs no more than there is."""
    claimed = Claimed("plain", "recovered", 300)
    assert claimed.queue.hold(0, 1 << 62) == [(0, 299)]
    assert claimed.counts() == (0, 300)
    claimed.holds()
    claimed.queue.give_back(0, 299)
    claimed.holds()
    claimed.consume()
    assert claimed.numbers() == list(range(300))


def test_what_is_held_does_not_expire_and_does_so_when_it_is_back(where: str) -> None:
    claimed = Claimed("plain", where, more={"x-message-ttl": 1000})
    assert claimed.queue.hold(4, 6) == [(4, 6)]
    claimed.harness.node.now_ms += 5000
    claimed.step()
    assert claimed.counts() == (0, 3)
    claimed.queue.settle(4, 4)
    claimed.queue.give_back(5, 5)
    claimed.queue.requeue(6, 6)
    claimed.step()
    assert claimed.counts() == (0, 0)
    assert claimed.queue.facts.expired == 11
    claimed.holds()


def test_a_claim_behind_what_dies_leaves_that_alone(where: str) -> None:
    """Expired, and on the way to a dead letter exchange: nobody can claim it."""
    claimed = Claimed(
        "plain",
        where,
        more={"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    claimed.client.declare("dead", durable=True)
    claimed.queue.hold(5, 5)
    claimed.harness.automatic = False
    claimed.harness.node.now_ms += 5000
    claimed.step()
    found = claimed.queue.hold(3, 8)
    claimed.harness.automatic = True
    for first, last in found:
        claimed.queue.give_back(first, last)
    claimed.queue.give_back(5, 5)
    claimed.step()
    claimed.step()
    assert claimed.counts() == (0, 0)
    claimed.client.consume("dead", "d")
    assert sorted(claimed.numbers()) == list(range(12))
    claimed.holds()


def test_transient_messages_that_wait_for_the_end_of_the_tick() -> None:
    claimed = Claimed("plain", "memory", 0)
    claimed.consume()
    claimed.queue.withhold(True)
    for number in range(4):
        claimed.publish(number, delivery_mode=1)
    assert claimed.queue.hold(1, 2) == [(1, 2)]
    claimed.queue.withhold(False)
    claimed.harness.step()
    assert claimed.numbers() == [0, 3]
    claimed.holds()


# What may have been delivered before


def test_ranges_of_what_was_delivered_before(kind: str, where: str) -> None:
    claimed = Claimed(kind, where)
    claimed.queue.forget_redelivered()
    claimed.queue.mark_redelivered(2, 3)
    claimed.queue.mark_redelivered(7, 8)
    claimed.queue.mark_redelivered(9, 9)
    assert claimed.queue.redelivered() == [(2, 3), (7, 9)]
    claimed.client.call(Basic.Qos(prefetch_count=5), Basic.QosOk)
    claimed.consume()
    assert claimed.queue.redelivered() == [(0, 4), (7, 9)]
    claimed.queue.mark_redelivered(10, 1 << 62)
    claimed.client.send(Basic.Ack(0, True))
    claimed.client.send(Basic.Ack(0, True))
    assert claimed.arrived() == [(number, number in (2, 3, 7, 8, 9, 10, 11)) for number in range(12)]


def test_what_a_claim_passes_over_was_not_delivered_before(where: str) -> None:
    """Only what was, the next leader is told."""
    claimed = Claimed("plain", where)
    claimed.queue.forget_redelivered()
    claimed.queue.mark_redelivered(1, 1)
    claimed.queue.hold(6, 7)
    assert claimed.queue.redelivered() == [(1, 1), (6, 7)]
    assert [claimed.level().is_redelivered(seq) for seq in (0, 1, 2, 8)] == [False, True, False, False]
    claimed.queue.mark_redelivered(3, 3)
    claimed.consume()
    assert claimed.arrived() == [(each, each in (1, 3)) for each in range(12) if each not in (6, 7)]


def test_a_run_that_may_have_been_here_before(kind: str) -> None:
    claimed = Claimed(kind, "memory", 2)
    node = claimed.harness.node
    claimed.client.publish(b"0009", "elsewhere")
    other = claimed.client.declare("other", durable=True).queue
    assert other == "other"
    claimed.client.publish(b"%04d" % 2, "other", delivery_mode=2, priority=3)
    piece = node.queues["/", "other"].backlog.take(1)
    assert piece is not None
    properties = node.properties.read(piece[0].properties)
    claimed.queue.publish_again(piece[0], properties, None)
    claimed.publish(3)
    claimed.consume()
    assert sorted(claimed.arrived()) == [(0, False), (1, False), (2, True), (3, False)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6))), st.integers(0, 40))
def test_delivered_ranges_are_a_set(ranges: list[tuple[int, int]], begins: int) -> None:
    found, model = DeliveredRanges(), set[int]()
    for first, more in ranges:
        found.add(first, first + more)
        model.update(range(first, first + more + 1))
    assert found.end == max(model, default=-1) + 1
    for seq in range(50):
        inside, end = found.at(seq)
        assert inside is (seq in model)
        assert all((each in model) is inside for each in range(seq, min(end, 60)))
    assert [seq for first, last in found.within(5, 30) for seq in range(first, last + 1)] == sorted(
        model & set(range(5, 31))
    )
    found.add(60, 60, begins)
    assert {seq for first, last in found.within(begins, 60) for seq in range(first, last + 1)} == {
        seq for seq in model | {60} if seq >= begins
    }


# While a new leader waits for claims


def test_nothing_leaves_while_it_withholds(kind: str, where: str) -> None:
    claimed = Claimed(kind, where)
    claimed.queue.withhold(True)
    claimed.consume()
    claimed.publish(12)
    claimed.client.channel(2)
    claimed.client.send(Basic.Get(queue="q"), 2)
    assert claimed.arrived() == []
    assert claimed.counts() == (13, 0)
    assert claimed.queue.hold(0, 2) == [(0, 2)]
    claimed.queue.withhold(False)
    claimed.harness.step()
    assert sorted(claimed.numbers()) == list(range(3, 13))
    claimed.holds()


def test_nothing_expires_or_is_dropped_while_it_withholds(where: str) -> None:
    claimed = Claimed("plain", where, more={"x-message-ttl": 1000, "x-max-length": 6})
    before = claimed.counts()[0]
    claimed.queue.withhold(True)
    claimed.publish(12)
    claimed.publish(13, expiration="0")
    claimed.harness.node.now_ms += 5000
    claimed.step()
    assert claimed.counts() == (before + 2, 0)
    claimed.queue.withhold(False)
    claimed.harness.step()
    claimed.step()
    assert claimed.counts() == (0, 0)
    claimed.holds()


def test_an_unused_queue_stays_while_it_withholds() -> None:
    claimed = Claimed("quorum", "memory", 1, more={"x-expires": 1000})
    claimed.queue.withhold(True)
    claimed.harness.node.now_ms += 5000
    claimed.step()
    assert ("/", "q") in claimed.harness.node.queues
    claimed.queue.withhold(False)
    claimed.harness.step()
    assert ("/", "q") in claimed.harness.node.queues, "its time begins again"
    claimed.harness.node.now_ms += 1001
    claimed.harness.step()
    assert ("/", "q") not in claimed.harness.node.queues


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_consumers_that_get_nothing_make_no_space(overflow: str) -> None:
    claimed = Claimed("plain", "memory", 0, more={"x-max-length": 2, "x-overflow": overflow})
    claimed.queue.withhold(True)
    claimed.consume()
    for number in range(4):
        claimed.publish(number)
    assert claimed.counts() == (2, 0)
    assert claimed.queue.facts.refused == 2
    claimed.queue.withhold(False)
    claimed.harness.step()
    assert claimed.numbers() == [0, 1]


def test_a_purge_waits_until_it_does_not_withhold() -> None:
    claimed = Claimed("quorum", "memory")
    claimed.queue.withhold(True)
    claimed.client.send(commands.Queue.Purge(queue="q"))
    assert not claimed.client.inbox
    assert claimed.queue.hold(0, 4) == [(0, 4)]
    claimed.queue.withhold(False)
    claimed.harness.step()
    assert claimed.client.expect(commands.Queue.PurgeOk).message_count == 7
    assert claimed.counts() == (0, 5)


def test_a_purge_that_waits_is_answered_when_the_queue_goes() -> None:
    claimed = Claimed("quorum", "memory")
    claimed.queue.withhold(True)
    claimed.client.send(commands.Queue.Purge(queue="q"))
    claimed.harness.client().call(commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
    claimed.harness.step()
    assert claimed.client.expect(commands.Channel.Close).reply_code == 406


@pytest.mark.parametrize("state", [QueueState.CRASHED, QueueState.MOVED, QueueState.DELETED])
def test_a_queue_that_is_not_served_has_nothing_to_hold(state: QueueState) -> None:
    claimed = Claimed("quorum", "memory")
    claimed.queue.hold(0, 1)
    claimed.queue.enter(state)
    assert claimed.queue.hold(2, 3) == []
    claimed.queue.give_back(0, 1)
    assert claimed.counts() == (10, 2)
