"""What a remote queue is asked, and its answer that comes late, never, or is a refusal.

What is verified: the order of a channel's methods is kept, other channels go on; whatever happens to the asker
meanwhile, nothing of the question stays behind, and an answer that comes then harms nobody. The remote queue is a
test double (`tests/harness/late_port.py`). Not verified: what queues of this node answer (`tests/queues`), how a
question gets to another node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pamqp import base, commands
from pamqp.exceptions import AMQPAccessRefused, AMQPNotFound, AMQPPreconditionFailed, AMQPSoftError

from amqpd.flow.client_counters import CONSUMERS, VHOST
from amqpd.queues.port import DeclareCounts
from amqpd.session.intake import HELD_BYTES_MAX
from tests.harness.harness import Harness, Message, publish_bytes
from tests.harness.invariants import check_node
from tests.harness.late_port import late_port

Basic, Channel, Connection, Queue = commands.Basic, commands.Channel, commands.Connection, commands.Queue


class Scene:
    """One client with two channels, and the queue "late" of another node."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.port = late_port(self.harness)
        self.client = self.harness.client()
        self.client.channel(2)
        self.before = self.charged()

    @property
    def channel(self) -> Any:
        return self.client.connection.channels[1]

    def answer(self, kind: str, value: object) -> object:
        said = self.port.answer(kind, value)
        self.harness.step()
        self.client.collect()
        return said

    def consumed(self) -> Any:
        """A consumer of the queue, with the tag "t"."""
        self.client.send(Basic.Consume(queue="late", consumer_tag="t"))
        self.answer("consume", None)
        self.client.expect(Basic.ConsumeOk)
        return self.channel.consumers["t"]

    def charged(self) -> tuple[object, ...]:
        """What the node counts."""
        client_counters = self.harness.node.client_counters
        return (
            client_counters.count(CONSUMERS),
            client_counters.unfinished.nbytes,
            self.harness.node.holds.waiting,
        )

    def check(self) -> None:
        check_node(self.harness.node)
        assert not self.harness.bugs

    def check_nothing_left(self) -> None:
        """All that was asked is forgotten."""
        self.check()
        assert self.charged() == self.before
        assert not self.port.taken
        assert self.client.connection.intake.held_bytes == 0


@pytest.fixture
def scene() -> Scene:
    return Scene()


@dataclass(frozen=True)
class Operation:
    """A method, what it asks a queue, an answer to that, and what the client is told then."""

    method: base.Frame
    kind: str
    answer: Any
    told: type[Any]


def operations() -> list[Operation]:
    return [
        Operation(Basic.Consume(queue="late", consumer_tag="t"), "consume", None, Basic.ConsumeOk),
        Operation(Basic.Get(queue="late"), "get", None, Basic.GetEmpty),
        Operation(Queue.Declare(queue="late", passive=True), "count", DeclareCounts(5, 2), Queue.DeclareOk),
        Operation(Queue.Declare(queue="late", durable=True), "count", DeclareCounts(5, 2), Queue.DeclareOk),
        Operation(Queue.Purge(queue="late"), "purge", 7, Queue.PurgeOk),
        Operation(Queue.Delete(queue="late", if_unused=True), "remove", 3, Queue.DeleteOk),
    ]


each_operation = pytest.mark.parametrize(
    "operation", operations(), ids=lambda each: f"{each.method.name} {getattr(each.method, 'passive', '')}"
)


@each_operation
def test_the_answer_comes_later_and_the_methods_of_the_channel_stay_in_order(
    scene: Scene, operation: Operation
) -> None:
    client = scene.client
    client.send(operation.method)
    client.send(Basic.Qos(prefetch_count=1))
    client.declare("beside", channel=2)
    assert client.inbox == [], "the channel waits, the other one does not"
    scene.answer(operation.kind, operation.answer)
    client.expect(operation.told)
    client.expect(Basic.QosOk)
    assert not scene.port.asked
    scene.check()


@each_operation
def test_a_refusal_closes_the_channel_for_that_method(scene: Scene, operation: Operation) -> None:
    scene.client.send(operation.method)
    scene.client.send(Basic.Qos(prefetch_count=1))
    scene.answer(operation.kind, AMQPNotFound("home node 'b' of queue 'late' is down or inaccessible"))
    close = scene.client.expect(Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (
        404,
        operation.method.index >> 16,
        operation.method.index & 0xFFFF,
    )
    assert scene.client.inbox == [], "what came behind it is thrown away"
    scene.client.send(Channel.CloseOk())
    scene.check_nothing_left()


@each_operation
def test_the_connection_is_lost_before_the_answer(scene: Scene, operation: Operation) -> None:
    scene.client.send(operation.method)
    scene.client.send(Basic.Qos(prefetch_count=1))
    scene.client.lose()
    scene.check_nothing_left()
    late = next(iter(scene.port.asked))
    late.answer(operation.answer)
    scene.harness.step()
    scene.check_nothing_left()


@each_operation
@pytest.mark.parametrize("answered", ["before close-ok", "after close-ok", "never"])
def test_the_channel_is_closed_before_the_answer(scene: Scene, operation: Operation, answered: str) -> None:
    """By the broker: its client is the one that has begun too much."""
    client, connection = scene.client, scene.client.connection
    client.send(operation.method)
    client.send(Basic.Qos(prefetch_count=1))
    connection.guard(lambda: scene.channel.refuse_unfinished(AMQPPreconditionFailed("too much")))
    scene.harness.step()
    client.expect(Channel.Close)
    late = next(iter(scene.port.asked))
    if answered == "before close-ok":
        late.answer(operation.answer)
    client.send(Channel.CloseOk())
    if answered == "after close-ok":
        late.answer(operation.answer)
    scene.harness.step()
    client.collect()
    assert client.inbox == []
    scene.check_nothing_left()
    client.channel(1)
    client.declare("again")


@each_operation
def test_connection_close_is_answered_behind_it(scene: Scene, operation: Operation) -> None:
    scene.client.send(operation.method)
    scene.client.send(Connection.Close(200, "", 0, 0), 0)
    assert scene.client.inbox == []
    scene.answer(operation.kind, operation.answer)
    scene.client.expect(operation.told)
    scene.client.expect(Connection.CloseOk)
    scene.check_nothing_left()


def test_a_channel_that_is_closed_while_it_holds_much_is_read_on(scene: Scene) -> None:
    """Or its close-ok would never be read."""
    client, connection = scene.client, scene.client.connection
    client.send(Basic.Get(queue="late"))
    client.raw(publish_bytes(bytes(100_000), "late") * (HELD_BYTES_MAX // 100_000 + 1))
    assert connection.reading_paused
    connection.guard(lambda: scene.channel.refuse_unfinished(AMQPPreconditionFailed("too much")))
    scene.harness.step()
    assert not connection.reading_paused
    client.send(Connection.Close(200, "", 0, 0), 0)
    assert [type(each) for _, each in client.inbox] == [Channel.Close, Connection.CloseOk]
    scene.check_nothing_left()


def test_connection_close_does_not_wait_for_a_channel_that_is_closed_meanwhile(scene: Scene) -> None:
    client, connection = scene.client, scene.client.connection
    client.send(Basic.Get(queue="late"))
    client.send(Connection.Close(200, "", 0, 0), 0)
    connection.guard(lambda: scene.channel.refuse_unfinished(AMQPPreconditionFailed("too much")))
    scene.harness.step()
    client.collect()
    assert [type(each) for _, each in client.inbox] == [Channel.Close, Connection.CloseOk]
    scene.check_nothing_left()


# Consumers


def test_a_consumer_that_another_one_keeps_out_is_refused_where_the_queue_is(scene: Scene) -> None:
    scene.client.send(Basic.Consume(queue="late", consumer_tag="t", exclusive=True))
    [asked] = scene.port.asked
    assert asked.details[0].exclusive
    scene.answer("consume", AMQPAccessRefused("queue 'late' in vhost '/' in exclusive use"))
    close = scene.client.expect(Channel.Close)
    assert (close.reply_code, close.reply_text) == (
        403,
        "ACCESS_REFUSED - queue 'late' in vhost '/' in exclusive use",
    )
    scene.client.send(Channel.CloseOk())
    scene.check_nothing_left()


def test_what_is_delivered_comes_behind_consume_ok_and_is_acknowledged_to_the_queue(scene: Scene) -> None:
    consumer = scene.consumed()
    scene.port.deliver(consumer)
    scene.client.collect()
    [message] = scene.client.messages()
    scene.client.send(Basic.Ack(delivery_tag=message.tag))
    assert scene.port.told == [("settle", 0, 0)]
    scene.check()


def test_a_consumer_is_counted_and_listed_when_it_is_taken(scene: Scene) -> None:
    client_counters = scene.harness.node.client_counters
    scene.client.send(Basic.Consume(queue="late", consumer_tag="t"))
    assert not client_counters.count(CONSUMERS, VHOST, "/")
    assert not scene.channel.consumers
    scene.answer("consume", None)
    assert client_counters.count(CONSUMERS, VHOST, "/") == 1
    assert list(scene.channel.consumers) == ["t"]


def test_cancel_ok_comes_when_the_queue_has_answered(scene: Scene) -> None:
    scene.consumed()
    scene.client.send(Basic.Cancel(consumer_tag="t"))
    scene.client.send(Basic.Qos(prefetch_count=1))
    assert scene.client.inbox == []
    assert not scene.channel.consumers
    scene.answer("cancel", None)
    scene.client.expect(Basic.CancelOk)
    scene.client.expect(Basic.QosOk)
    scene.check_nothing_left()


def test_a_cancel_that_is_not_to_be_answered_waits_for_nothing(scene: Scene) -> None:
    scene.consumed()
    scene.client.send(Basic.Cancel(consumer_tag="t", nowait=True))
    scene.client.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    scene.answer("cancel", None)
    assert scene.client.inbox == []
    scene.check_nothing_left()


@pytest.mark.parametrize("way", ["lost", "closed"])
@pytest.mark.parametrize("taken", [True, False])
def test_a_consumer_whose_channel_goes_is_cancelled_whether_it_was_taken_or_not(
    scene: Scene, way: str, taken: bool
) -> None:
    client = scene.client
    client.send(Basic.Consume(queue="late", consumer_tag="t"))
    consumer = scene.port.asked[0].details[0]
    if taken:
        scene.answer("consume", None)
        client.expect(Basic.ConsumeOk)
    if way == "lost":
        client.lose()
    else:
        client.connection.guard(lambda: scene.channel.refuse_unfinished(AMQPPreconditionFailed("too much")))
    scene.harness.step()
    assert scene.port.told == [("cancel", consumer)]
    if not taken:
        # The leader has taken it before it heard of the cancel.
        scene.answer("consume", None)
    scene.answer("cancel", None)
    if way == "closed":
        client.expect(Channel.Close)
        client.send(Channel.CloseOk())
    scene.check_nothing_left()


# basic.get


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_message_that_was_got_says_how_many_are_left_where_the_queue_is(scene: Scene, no_ack: bool) -> None:
    scene.client.send(Basic.Get(queue="late", no_ack=no_ack))
    assert scene.answer("get", scene.port.got(ready=41))
    message = scene.client.expect(Message)
    assert (message.body, message.method.message_count) == (b"far", 41)
    assert scene.channel.unacked.count == (0 if no_ack else 1)
    scene.check()


@pytest.mark.parametrize("when", ["lost", "closing", "closed"])
def test_a_message_that_comes_when_nobody_is_there_any_more_is_not_taken(scene: Scene, when: str) -> None:
    client = scene.client
    client.send(Basic.Get(queue="late"))
    if when == "lost":
        client.lose()
    else:
        client.connection.guard(lambda: scene.channel.refuse_unfinished(AMQPPreconditionFailed("too much")))
        scene.harness.step()
        client.expect(Channel.Close)
    if when == "closed":
        client.send(Channel.CloseOk())
    assert scene.answer("get", scene.port.got()) is False, "the queue is told, and keeps it"
    if when == "closing":
        client.send(Channel.CloseOk())
    assert client.inbox == []
    scene.check_nothing_left()


# Counts


def test_declare_ok_has_the_counts_of_the_queue(scene: Scene) -> None:
    scene.client.send(Queue.Declare(queue="late", passive=True))
    scene.answer("count", DeclareCounts(5, 2))
    ok = scene.client.expect(Queue.DeclareOk)
    assert (ok.message_count, ok.consumer_count) == (5, 2)


def test_a_declaration_that_is_not_to_be_answered_asks_for_no_counts(scene: Scene) -> None:
    scene.client.send(Queue.Declare(queue="late", durable=True, nowait=True))
    assert not scene.port.asked
    scene.check()


def test_the_queue_judges_the_conditions_of_a_deletion(scene: Scene) -> None:
    scene.client.send(Queue.Delete(queue="late", if_unused=True, if_empty=True))
    assert scene.port.asked[0].details == (True, True)
    refusal: AMQPSoftError = AMQPPreconditionFailed("queue 'late' in vhost '/' not empty")
    scene.answer("remove", refusal)
    assert scene.client.expect(Channel.Close).reply_text == (
        "PRECONDITION_FAILED - queue 'late' in vhost '/' not empty"
    )


def test_the_answers_say_what_went(scene: Scene) -> None:
    scene.client.send(Queue.Purge(queue="late"))
    scene.answer("purge", 7)
    assert scene.client.expect(Queue.PurgeOk).message_count == 7
    scene.client.send(Queue.Delete(queue="late"))
    scene.answer("remove", 3)
    assert scene.client.expect(Queue.DeleteOk).message_count == 3


def test_a_queue_that_fails_over_a_question_is_out_of_service_and_its_client_is_told(scene: Scene) -> None:
    class Bug(Exception):
        pass

    def breaks(answer: object) -> None:
        raise Bug

    scene.port.count = breaks  # type: ignore[method-assign]
    scene.client.send(Queue.Declare(queue="late", passive=True))
    close = scene.client.expect(Channel.Close)
    assert close.reply_text == "NOT_FOUND - queue 'late' in vhost '/' has crashed and failed to restart"
    assert scene.port.crash_reason == "Bug: "
    [bug] = scene.harness.bugs
    assert isinstance(bug, Bug)


def test_many_channels_wait_each_for_its_own_answer(scene: Scene) -> None:
    client = scene.client
    for number in (1, 2):
        client.send(Queue.Declare(queue="late", passive=True), number)
    first, second = scene.port.asked
    scene.port.asked.reverse()
    scene.answer("count", DeclareCounts(2, 0))
    scene.answer("count", DeclareCounts(1, 0))
    assert [(channel, each.message_count) for channel, each in client.inbox] == [(2, 2), (1, 1)]
    assert first is not second
