"""A queue of the node behind `JournalledQueue`, beside the plain model that the simulation of remote queues has.

Both are asked the same, in any order, and have to say the same: what came in, what was held, what was delivered, and
as redelivered, how often it came back, what is left."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pamqp import commands, frame, header

from amqpd.kernel import Run
from amqpd.node.led_queue import JournalledQueue
from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import Got, unheard
from amqpd.queues.queue import Queue
from amqpd.queues.states import QueueState
from amqpd.remote.leader import ALL_MESSAGES
from amqpd.remote.source import LedQueue
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Harness
from tests.remote.simulation.log import LeaderLog, Log
from tests.remote.simulation.queue import NO_BOUND, PlainQueue, make_run

SMALL = Limits(queue_memory_bytes=500, backlog_memory_bytes=500, small_queue_bytes=0)
"""two or three messages"""
QUEUE = 1
BOUND = 8


class Taker(Subscriber):
    """Takes as many as it may."""

    def __init__(self) -> None:
        self.no_ack = self.exclusive = self.parked = False
        self.priority = self.unacked = 0
        self.left = 0
        self.got: list[tuple[int, bool]] = []
        """sequence numbers, redelivered"""

    def credit(self) -> int:
        return self.left

    def wait_for_credit(self) -> None:
        pass

    def deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool) -> None:
        self.left -= high - low
        self.got += [(seq + i, redelivered) for i in range(high - low)]

    def pass_on(self, runs: list[Run], seq: int) -> int:
        raise AssertionError("durable messages are not passed on")

    def record(self, *_: object) -> None:
        pass

    def cancelled(self) -> None:
        pass


class Pair:
    """The queue and its model."""

    def __init__(self, kind: str, bound: int, chance: random.Random) -> None:
        self.bound, self.chance = bound, chance
        self.harness = Harness(SMALL)
        arguments: dict[str, Any] = {"quorum": {"x-queue-type": "quorum", "x-delivery-limit": -1}}.get(kind, {})
        if bound != NO_BOUND:
            arguments = {**arguments, "x-max-length": bound, "x-overflow": "reject-publish"}
        self.harness.client().declare("q", durable=True, arguments=arguments)
        self.log = Log()
        self.takers = Taker(), Taker()
        self.withholds = False
        self.held: set[int] = set()
        self._begin(0)

    def _begin(self, first: int) -> None:
        self.led_log = LeaderLog(self.log, 1)
        self.model = PlainQueue(
            QUEUE, self.led_log, self.log.contents([QUEUE]), first, self.bound, random.Random(self.chance.random())
        )
        self.led = JournalledQueue(self.harness.node, self.queue)

    @property
    def queue(self) -> Queue:
        return self.harness.node.queues["/", "q"]

    def settle_down(self) -> None:
        """Both give what they have to give."""
        if not self.withholds:
            self.model.dispatch()
        for _ in range(100):
            before = self.queue.ready_count, self.queue.unacked_count
            self.harness.step()
            if before == (self.queue.ready_count, self.queue.unacked_count) and not self.harness.reads:
                break
        there, here = sorted(self.takers[0].got), sorted(self.takers[1].got)
        assert there == here
        self.held.update(seq for seq, _ in there)
        for taker in self.takers:
            taker.got = []

    def each(self, act: Callable[[Any], Any]) -> Any:
        """What both answer."""
        there, here = act(self.model), act(self.led)
        assert there == here
        return here

    def restart(self, is_handed: bool) -> None:
        """Another leader. It is passed what is held, and what was delivered before, or all may have been."""
        self.settle_down()
        self.led_log.cut()
        passed = self.model.redelivered(), self.led.redelivered()
        self.harness.restart()
        self._begin(next(iter(self.queue.levels())).store.next_seq)
        self.takers = Taker(), Taker()
        self.withholds = False
        held, self.held = sorted(self.held), set()
        if not is_handed:
            self.each(lambda queue: queue.mark_redelivered(0, ALL_MESSAGES))
            return
        for queue, ranges in zip((self.model, self.led), passed, strict=True):
            queue.forget_redelivered()
            for first, last in ranges:
                queue.mark_redelivered(first, last)
        for seq in self.chance.sample(held, len(held) - len(held) // 4):
            assert self.each(partial(_hold, seq)) == [(seq, seq)]
            self.held.add(seq)

    def holds(self) -> None:
        queue, model = self.queue, self.model
        assert not self.harness.bugs
        assert not queue.damage
        assert (queue.ready_count, queue.unacked_count) == (len(model.ready), len(model.runs) - len(model.ready))
        assert queue.unacked_count == len(self.held)
        for level in queue.levels():
            backlog, store = level.backlog, level.store
            assert backlog.ready_bytes + backlog.unacked_bytes == sum(each.body_bytes for each in store.segments)
            assert backlog.ready_bytes == 8 * backlog.ready
            for first, last in backlog.returned:
                assert store.segments[store.index_of(first)].last >= last
        if queue.quorum:
            assert all(queue.delivery_count(seq) == model.counts.get(seq, 0) for seq in model.runs)
        again = {seq for first, last in self.led.redelivered() for seq in model.runs if first <= seq <= last}
        assert again == model.delivered & model.runs.keys()


def _step(steps: list[tuple[int, bool]], count: int, is_last: bool) -> None:
    steps.append((count, is_last))


def _publish(run: Run, redelivered: bool, queue: LedQueue) -> int:
    return queue.publish(run, redelivered)


def _hold(seq: int, queue: LedQueue) -> list[tuple[int, int]]:
    return queue.hold(seq, seq)


class LedQueues(RuleBasedStateMachine):
    """Random calls."""

    pair: Pair

    @initialize(
        kind=st.sampled_from(["plain", "quorum"]),
        bound=st.sampled_from([NO_BOUND, NO_BOUND, BOUND]),
        seed=st.integers(0, 1 << 16),
    )
    def begin(self, kind: str, bound: int, seed: int) -> None:
        self.pair = Pair(kind, bound, random.Random(seed))
        self.kind = kind
        self.names = 0
        self.consumes = False
        self.publish(5, False, 3)

    @rule(count=st.integers(1, 5), redelivered=st.booleans(), times=st.integers(1, 4))
    def publish(self, count: int, redelivered: bool, times: int) -> None:
        for _ in range(times):
            run = make_run(list(range(self.names + 1, self.names + count + 1)))
            self.names += count
            self.pair.each(partial(_publish, run, redelivered))
            self.pair.settle_down()

    @rule(credit=st.integers(0, 9))
    def consume(self, credit: int) -> None:
        pair = self.pair
        # What came back to a quorum queue comes in another order than it does in the model.
        credit = 1_000 if self.kind == "quorum" and credit else credit
        if not self.consumes:
            pair.takers = Taker(), Taker()
        for queue, taker in ((pair.model, pair.takers[0]), (pair.led, pair.takers[1])):
            taker.left = credit
            if not self.consumes:
                queue.consume(taker, unheard)
            else:
                queue.credited(taker)
        self.consumes = True
        pair.settle_down()

    @precondition(lambda self: self.consumes)
    @rule()
    def cancel(self) -> None:
        for queue, taker in zip((self.pair.model, self.pair.led), self.pair.takers, strict=True):
            queue.cancel(taker, unheard)
        self.consumes = False

    @precondition(lambda self: self.pair.held)
    @rule(data=st.data(), how=st.sampled_from(["settle", "reject", "requeue", "give_back"]), more=st.integers(0, 8))
    def end(self, data: st.DataObject, how: str, more: int) -> None:
        held = self.pair.held
        first = last = data.draw(st.sampled_from(sorted(held)))
        while last + 1 in held and last < first + more:
            last += 1
        self.pair.each(lambda queue: getattr(queue, how)(first, last))
        held.difference_update(range(first, last + 1))
        self.pair.settle_down()

    @rule(data=st.data(), more=st.sampled_from([0, 1, 2, 5, 20, ALL_MESSAGES]))
    def hold(self, data: st.DataObject, more: int) -> None:
        seqs = sorted(self.pair.model.runs) or [0]
        first = data.draw(st.sampled_from(seqs)) + data.draw(st.integers(-1, 1))
        parts = self.pair.each(lambda queue: queue.hold(max(first, 0), first + more))
        for low, high in parts:
            # As a subscription does: it has them.
            self.pair.model.delivered.update(range(low, high + 1))
            self.pair.held.update(range(low, high + 1))
        self.pair.settle_down()

    @rule(data=st.data(), more=st.sampled_from([0, 3, 20]))
    def mark(self, data: st.DataObject, more: int) -> None:
        first = data.draw(st.sampled_from(sorted(self.pair.model.runs) or [0]))
        self.pair.each(lambda queue: queue.mark_redelivered(first, first + more))

    @precondition(lambda self: not self.pair.withholds and self.kind == "plain")
    @rule(taken=st.booleans())
    def get(self, taken: bool) -> None:
        answers: list[Any] = []

        def got(answer: Any) -> bool:
            answers.append((answer.piece[3:], answer.ready) if isinstance(answer, Got) else answer)
            return taken

        self.pair.model.get(False, got)
        self.pair.led.get(False, got)
        self.pair.settle_down()
        there, here = answers
        assert there == here
        if there is not None and taken:
            self.pair.held.add(there[0][0])

    @precondition(lambda self: not self.pair.withholds)
    @rule()
    def purge(self) -> None:
        counts: dict[Any, list[tuple[int, bool]]] = {}
        for queue in (self.pair.model, self.pair.led):
            queue.purge(partial(_step, counts.setdefault(queue, [])))
        while self.pair.model.purges:
            self.pair.model.step()
        self.pair.settle_down()
        there, here = counts.values()
        assert sum(count for count, _ in there) == sum(count for count, _ in here)
        assert [last for _, last in here].index(True) == len(here) - 1

    @rule(withholds=st.booleans())
    def withhold(self, withholds: bool) -> None:
        self.pair.withholds = withholds
        self.pair.led.withhold(withholds)
        self.pair.settle_down()

    @rule(is_handed=st.booleans())
    def restart(self, is_handed: bool) -> None:
        self.pair.restart(is_handed)
        self.consumes = False

    @invariant()
    def both_have_the_same(self) -> None:
        if hasattr(self, "pair"):
            self.pair.holds()


TestLedQueues = LedQueues.TestCase
TestLedQueues.settings = settings(max_examples=60, stateful_step_count=40)


# What the model has not


def made(**arguments: Any) -> tuple[Harness, JournalledQueue, Queue]:
    harness = Harness()
    harness.client().declare("q", durable=True, arguments={"x-queue-type": "quorum", **arguments})
    queue = harness.node.queues["/", "q"]
    return harness, JournalledQueue(harness.node, queue), queue


def run_of(**properties: Any) -> Run:
    """One message with these properties."""
    method = frame.marshal(commands.Basic.Publish(exchange="", routing_key="q"), 1)
    head = frame.marshal(header.ContentHeader(body_size=1, properties=commands.Basic.Properties(**properties)), 1)
    data = method + head + b"\x03\x00\x01\x00\x00\x00\x01x\xce"
    return Run(data, 0, len(data), 1, len(method), len(head), 1, 1)


def test_what_is_refused_is_turned_away_as_that_of_a_publisher_here() -> None:
    harness, led, queue = made(
        **{
            "x-max-length": 3,
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
    )
    assert led.publish(make_run([1, 2]), False) == 2
    assert led.publish(make_run([3, 4, 5]), False) == 1
    assert led.publish(make_run([6]), False) == 0
    harness.step()
    assert (queue.ready_count, queue.facts.refused) == (3, 3)


def test_what_a_classic_queue_turns_away_goes_to_its_dead_letter_exchange() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("dead")
    arguments = {
        "x-max-length": 1,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    client.declare("q", durable=True, arguments=arguments)
    led = JournalledQueue(harness.node, harness.node.queues["/", "q"])
    assert led.publish(make_run([1, 2, 3]), False) == 1
    harness.step()
    assert harness.node.queues["/", "dead"].ready_count == 2


def test_consumers_with_credit_make_space() -> None:
    _, led, _ = made(**{"x-max-length": 1, "x-overflow": "reject-publish"})
    taker = Taker()
    taker.left = 2
    led.consume(taker, unheard)
    assert led.publish(make_run([1, 2, 3, 4, 5]), False) == 3


@pytest.mark.parametrize("properties", [{"expiration": "soon"}, {"headers": {"CC": 1}}])
def test_what_no_publisher_may_ask_is_not_taken(properties: dict[str, Any]) -> None:
    harness, led, queue = made()
    assert led.publish(run_of(**properties), False) == 0
    assert (queue.ready_count, harness.bugs) == (0, [])


def test_properties_that_cannot_be_read_are_not_taken() -> None:
    harness, led, queue = made()
    run = run_of(headers={"a": 1})
    data = bytearray(run.data)
    at = run.start + run.method_size + 21
    data[at : at + 4] = b"\xff\xff\xff\xff"
    broken = Run(bytes(data), 0, run.stride, 1, run.method_size, run.header_size, 1, 1)
    assert led.publish(broken, True) == 0
    assert (queue.ready_count, harness.bugs) == (0, [])


@pytest.mark.parametrize("state", [QueueState.CRASHED, QueueState.MOVED])
def test_a_queue_that_is_not_served_takes_nothing_and_swallows_what_is_settled(state: QueueState) -> None:
    harness, led, queue = made()
    led.publish(make_run([1, 2, 3]), False)
    assert led.hold(0, 1) == [(0, 1)]
    queue.enter(state)
    assert led.publish(make_run([4]), True) == 0
    assert led.hold(2, 2) == []
    for act in (led.settle, led.reject, led.requeue, led.give_back):
        act(0, 1)
    answers: list[Any] = []
    led.consume(Taker(), answers.append)
    led.get(False, lambda got: answers.append(got) is None)
    assert type(answers[0]).__name__ == "AMQPNotFound"
    assert answers[1] is None
    gone: list[Any] = []
    led.purge(lambda *step: gone.append(step))
    assert gone == ([] if state is QueueState.MOVED else [(0, True)])
    assert (queue.ready_count, queue.unacked_count, harness.bugs) == (1, 2, [])


class Faulty(Taker):
    """Its credit cannot be told."""

    def credit(self) -> int:
        raise RuntimeError("a bug")


def test_a_fault_of_the_queue_takes_it_out_of_service_and_nothing_else() -> None:
    harness, led, queue = made(**{"x-max-length": 1, "x-overflow": "reject-publish"})
    led.consume(Faulty(), unheard)
    assert led.publish(make_run([1, 2]), False) == 0
    assert queue.state is QueueState.CRASHED
    assert len(harness.bugs) == 1
    assert led.publish(make_run([4]), False) == 0
    assert led.hold(0, 1) == []


def test_a_get_waits_for_what_must_be_read() -> None:
    harness = Harness(Limits(queue_memory_bytes=4000, backlog_memory_bytes=4000, small_queue_bytes=0))
    client = harness.client()
    client.declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    for _ in range(4):
        client.publish(bytes(80_000))
    led = JournalledQueue(harness.node, harness.node.queues["/", "q"])
    harness.automatic = False
    assert led.hold(0, 0) == [(0, 0)]
    answers: list[Any] = []
    led.get(False, lambda got: answers.append(got) is None)
    assert answers == []
    harness.automatic = True
    harness.step()
    assert answers[0].piece[3:] == (1, False)
