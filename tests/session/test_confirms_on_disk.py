"""A confirm, a commit-ok, after the disk and never before: every way that a message may take there, or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands

from amqpd.journal.transaction import JournalTransaction
from tests.harness.harness import Client, Harness, Message, publish_bytes

Basic, Channel, Confirm, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)


class Node:
    """A publisher in confirm mode; commits come in two halves, when the test says so."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.publisher = self.harness.client()
        self.publisher.call(Confirm.Select(), Confirm.SelectOk)
        self.other = self.harness.client()
        for queue, durable in (("one", True), ("two", True), ("transient", False)):
            self.publisher.declare(queue, durable=durable)
            self.publisher.call(Queue.Bind(queue=queue, exchange="amq.fanout"), Queue.BindOk)
        self.harness.automatic = False

    def take(self) -> JournalTransaction:
        """The writer begins a commit."""
        return self.harness.node.journal.take()

    def committed(self, transaction: JournalTransaction) -> None:
        """It is on disk."""
        self.harness.node.journal.stored(transaction.index)
        self.harness.node.journal.committed(transaction.index)
        self.harness.node.reported(self.harness.node.journal.lane)
        self.harness.node.tick()

    def acks(self) -> list[int]:
        return [ack.delivery_tag for ack in self.publisher.take(Basic.Ack)]

    def id_of(self, queue: str) -> int:
        return self.harness.node.queues["/", queue].record.id


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_message_for_several_queues_waits_for_one_commit(node: Node) -> None:
    node.publisher.publish(b"x", "", "amq.fanout", delivery_mode=2)
    assert node.acks() == []
    transaction = node.take()
    assert {row.queue_id for row in transaction.rows} == {node.id_of("one"), node.id_of("two")}
    assert node.acks() == []
    node.committed(transaction)
    assert node.acks() == [1]


def test_what_is_published_during_a_commit_waits_for_the_next(node: Node) -> None:
    node.publisher.publish(b"1", "one", delivery_mode=2)
    first = node.take()
    node.publisher.publish(b"2", "one", delivery_mode=2)
    node.publisher.publish(b"3", "transient", delivery_mode=2)
    node.committed(first)
    assert node.acks() == [1], "the third is safe, but keeps its place behind the second"
    second = node.take()
    node.committed(second)
    assert node.acks() == [2, 3]
    assert [row.first_seq for row in first.rows + second.rows] == [0, 1]


Step = Callable[[Node], object]
BETWEEN: dict[str, Step] = {
    "purge": lambda node: node.other.send(Queue.Purge(queue="one", nowait=True)),
    "delete": lambda node: node.other.send(Queue.Delete(queue="one", nowait=True)),
    "delete and make again": lambda node: (
        node.other.send(Queue.Delete(queue="one", nowait=True)),
        node.harness.answer(),
        node.other.send(Queue.Declare(queue="one", durable=True, nowait=True)),
    ),
    "consume and ack": lambda node: (
        node.other.send(Basic.Consume(queue="one", consumer_tag="t", nowait=True)),
        node.other.send(Basic.Ack(0, True)),
    ),
    "consume and give back": lambda node: (
        node.other.send(Basic.Consume(queue="one", consumer_tag="t", nowait=True)),
        node.other.lose(),
    ),
    "get": lambda node: node.other.send(Basic.Get(queue="one", no_ack=True)),
}


# With these a consumer has settled it.
SETTLED = ("consume and ack", "get")


@pytest.mark.parametrize("when", ["before the commit begins", "while it runs"])
@pytest.mark.parametrize("between", BETWEEN)
def test_whatever_happens_to_it_meanwhile_it_is_confirmed_once(node: Node, when: str, between: str) -> None:
    node.publisher.publish(b"x", "one", delivery_mode=2)
    if when == "before the commit begins":
        BETWEEN[between](node)
        transaction = node.take()
    else:
        transaction = node.take()
        BETWEEN[between](node)
    node.harness.answer()
    at_once = when == "before the commit begins" and between in SETTLED
    assert node.acks() == [1] * at_once
    node.committed(transaction)
    assert node.acks() == [1] * (not at_once)
    while node.harness.node.journal.pending:
        node.committed(node.take())
    assert node.acks() == []
    assert not node.harness.bugs


def test_a_message_that_was_settled_before_its_commit_is_not_written_and_is_confirmed_at_once(node: Node) -> None:
    node.other.send(Basic.Consume(queue="one", consumer_tag="t", no_ack=True, nowait=True))
    node.publisher.publish(b"x", "one", delivery_mode=2)
    assert node.acks() == [1]
    node.committed(node.take())  # how far deliveries may have come
    for tag in range(2, 5):
        node.publisher.publish(b"x", "one", mandatory=True, delivery_mode=2)
        assert node.acks() == [tag]
        assert not node.harness.node.journal.pending, "there is nothing to commit"


@pytest.mark.parametrize("how", ["channel", "connection", "error"])
def test_a_publisher_that_is_gone_when_its_message_is_on_disk(node: Node, how: str) -> None:
    node.publisher.publish(b"x", "one", delivery_mode=2)
    transaction = node.take()
    if how == "channel":
        node.publisher.send(Channel.Close(200, "", 0, 0))
        node.publisher.send(Channel.Open())
        node.publisher.send(Confirm.Select())
    elif how == "error":
        node.publisher.publish(b"x", "k", "nowhere")
    else:
        node.publisher.lose()
    node.committed(transaction)
    assert node.acks() == [], "tags of the channel before are nobody's"
    assert not node.harness.bugs
    assert node.harness.node.queues["/", "one"].backlog.ready == 1


def test_through_alternates_and_exchanges_it_is_the_queue_that_counts(node: Node) -> None:
    harness, publisher = node.harness, node.publisher
    harness.automatic = True
    arguments = {"alternate-exchange": "amq.fanout"}
    publisher.call(Exchange.Declare(exchange="x", arguments=arguments), Exchange.DeclareOk)
    publisher.call(Exchange.Declare(exchange="h", exchange_type="headers"), Exchange.DeclareOk)
    publisher.call(Exchange.Bind(destination="x", source="h", arguments={"a": 1}), Exchange.BindOk)
    harness.automatic = False
    publisher.publish(b"1", "nobody", "x", mandatory=True, delivery_mode=2)
    publisher.publish(b"2", "nobody", "h", mandatory=True, delivery_mode=2, headers={"a": 1})
    assert node.acks() == []
    node.committed(node.take())
    assert node.acks() == [1, 2]
    publisher.publish(b"3", "nobody", "h", mandatory=True, delivery_mode=2, headers={"a": 2})
    assert isinstance(publisher.expect(Message).method, Basic.Return)
    assert node.acks() == [3], "nothing to wait for"


def test_queues_that_are_gone_at_a_restart_are_not_waited_for(node: Node) -> None:
    node.harness.automatic = True
    node.publisher.declare("mine", exclusive=True, durable=True)
    node.harness.automatic = False
    node.publisher.publish(b"x", "mine", delivery_mode=2)
    node.publisher.publish(b"x", "transient", delivery_mode=2)
    node.publisher.publish(b"x", "one", delivery_mode=1)
    assert node.acks() == [1, 2, 3]
    assert not node.take().rows


def test_a_run_of_publishes_is_confirmed_as_one(node: Node) -> None:
    node.publisher.raw(publish_bytes(b"x", "one", delivery_mode=2) * 100)
    node.committed(node.take())
    (ack,) = node.publisher.take(Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (100, True)


def test_a_transaction_is_one_on_the_disk_too(node: Node) -> None:
    """Messages and acks of a tx.commit reach the disk together, and commit-ok comes after that."""
    client: Client = node.other
    node.publisher.publish(b"old", "one", delivery_mode=2)
    node.committed(node.take())
    node.publisher.publish(b"old too", "one", delivery_mode=2)
    node.committed(node.take())
    client.send(Tx.Select())
    client.send(Basic.Get(queue="one"))
    client.expect(Tx.SelectOk)
    message = client.expect(Message)
    node.committed(node.take())
    client.raw(publish_bytes(b"new", "two", delivery_mode=2) + publish_bytes(b"new", "one", delivery_mode=2))
    client.send(Basic.Ack(message.tag))
    assert not node.take().rows
    node.harness.node.journal.stored(node.harness.node.journal.index - 1)
    node.harness.node.journal.committed(node.harness.node.journal.index - 1)
    client.send(Tx.Commit())
    client.send(Basic.Qos(prefetch_count=1))
    transaction = node.take()
    assert {row.queue_id for row in transaction.rows} == {node.id_of("one"), node.id_of("two")}
    assert [(each.queue_id, each.first_seq) for each in transaction.settled] == [(node.id_of("one"), 0)]
    client.collect()
    assert not client.inbox
    node.committed(transaction)
    client.expect(Tx.CommitOk)
    client.expect(Basic.QosOk)


def test_a_transaction_without_anything_to_write_is_answered_after_a_commit_all_the_same(node: Node) -> None:
    client = node.other
    client.send(Tx.Select())
    client.expect(Tx.SelectOk)
    client.send(Tx.Commit())
    assert not client.inbox
    assert node.harness.node.journal.pending, "or nobody would ever answer"
    node.committed(node.take())
    client.expect(Tx.CommitOk)


def test_confirms_go_out_before_the_close_that_follows_them(node: Node) -> None:
    node.publisher.raw(publish_bytes(b"x", "transient") * 3 + publish_bytes(b"x", "k", "nowhere"))
    assert [node.publisher.expect(Basic.Ack).delivery_tag for _ in range(3)] == [1, 2, 3]
    assert node.publisher.expect(Channel.Close).reply_code == 404
