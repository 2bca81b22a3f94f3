"""Clients of a node that does not lead their queue: what they see is what clients of the leader see."""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.remote.edges import AWAY_MS
from tests.harness.harness import Client, Message
from tests.remote.two_nodes import TwoNodes

Basic, Channel, Confirm, Queue = commands.Basic, commands.Channel, commands.Confirm, commands.Queue


@pytest.fixture(params=["quorum", "classic"])
def nodes(request: pytest.FixtureRequest) -> TwoNodes:
    return TwoNodes(is_classic=request.param == "classic")


def test_what_is_published_at_another_node_is_confirmed_when_the_leader_has_committed_it(nodes: TwoNodes) -> None:
    client = nodes.client("a")
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.publish(b"one", "q")
    client.collect()
    assert client.take(Basic.Ack) == []
    nodes.step()
    client.collect()
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [1]
    assert nodes.harness["b"].node.queues["/", "q"].ready_count == 1


def test_a_consumer_at_another_node_gets_messages_and_settles_them(nodes: TwoNodes) -> None:
    consumer, publisher = nodes.client("a"), nodes.client("b")
    consumer.call(Basic.Qos(prefetch_count=2), Basic.QosOk)
    consumer.send(Basic.Consume(queue="q"))
    nodes.step()
    consumer.collect()
    consumer.expect(Basic.ConsumeOk)
    for body in (b"one", b"two", b"three"):
        publisher.publish(body, "q")
    nodes.step()
    consumer.collect()
    assert [each.tag for each in consumer.take(Message)] == [1, 2]
    queue = nodes.harness["b"].node.queues["/", "q"]
    assert (queue.ready_count, queue.unacked_count) == (1, 2)
    consumer.send(Basic.Ack(delivery_tag=2, multiple=True))
    nodes.step()
    consumer.collect()
    assert [each.tag for each in consumer.take(Message)] == [3]
    assert (queue.ready_count, queue.unacked_count) == (0, 1)


def test_nobody_waits_for_a_commit_of_acknowledgements() -> None:
    """With the next message they are one commit at each node; a publish and a purge are waited for."""
    nodes = TwoNodes()
    client, journal = nodes.client("a"), nodes.harness["b"].node.journal
    client.send(Basic.Consume(queue="q"))
    client.publish(b"one", "q")
    nodes.step()
    client.collect()
    [message] = client.take(Message)
    nodes.harness["b"].automatic = False
    before = nodes.lane.forced
    client.send(Basic.Ack(delivery_tag=message.tag))
    nodes.step()
    assert (journal.pending, journal.urgent, nodes.lane.forced) == (True, False, before)
    client.send(Queue.Purge(queue="q"))
    nodes.step()
    assert nodes.lane.forced > before
    client.publish(b"two", "q")
    nodes.step()
    assert (journal.pending, journal.urgent) == (True, True)


def test_get_answers_with_a_message_or_that_there_is_none(nodes: TwoNodes) -> None:
    client = nodes.client("a")
    client.send(Basic.Get(queue="q", no_ack=True))
    nodes.step()
    client.collect()
    client.expect(Basic.GetEmpty)
    client.publish(b"one", "q")
    client.send(Basic.Get(queue="q", no_ack=True))
    nodes.step()
    client.collect()
    assert client.expect(Message).method.message_count == 0
    nodes.step()
    assert nodes.harness["b"].node.queues["/", "q"].unacked_count == 0


def test_declare_purge_and_delete_count_at_the_leader(nodes: TwoNodes) -> None:
    client = nodes.client("a")
    for body in (b"one", b"two"):
        client.publish(body, "q")
    client.send(Queue.Declare(queue="q", passive=True))
    nodes.step()
    client.collect()
    assert client.expect(Queue.DeclareOk).message_count == 2
    client.send(Queue.Purge(queue="q"))
    nodes.step()
    client.collect()
    assert client.expect(Queue.PurgeOk).message_count == 2
    client.publish(b"three", "q")
    client.send(Queue.Delete(queue="q"))
    nodes.step()
    client.collect()
    assert client.expect(Queue.DeleteOk).message_count == 1


def test_what_is_given_back_is_redelivered(nodes: TwoNodes) -> None:
    client: Client = nodes.client("a")
    client.publish(b"one", "q")
    client.send(Basic.Consume(queue="q"))
    nodes.step()
    client.expect(Basic.ConsumeOk)
    assert not client.expect(Message).redelivered
    client.send(Basic.Nack(delivery_tag=1, requeue=True))
    nodes.step()
    client.collect()
    assert client.expect(Message).redelivered


def test_a_break_of_the_connection_is_not_seen_by_clients(nodes: TwoNodes) -> None:
    client = nodes.client("a")
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.publish(b"one", "q")
    client.send(Basic.Consume(queue="q"))
    nodes.step()
    client.collect()
    client.take(Basic.Ack)
    client.take(Basic.ConsumeOk)
    assert [each.body for each in client.take(Message)] == [b"one"]
    nodes.cut()
    client.publish(b"two", "q")
    nodes.step()
    client.collect()
    assert client.inbox == []
    nodes.heal()
    client.collect()
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [2]
    assert [(each.body, each.redelivered) for each in client.take(Message)] == [(b"two", False)]
    queue = nodes.harness["b"].node.queues["/", "q"]
    assert queue.unacked_count == 2
    client.send(Basic.Ack(delivery_tag=2, multiple=True))
    nodes.step()
    assert queue.unacked_count == 0


def test_a_cancelled_consumer_gets_nothing_more_and_what_it_has_is_given_back_with_its_channel(
    nodes: TwoNodes,
) -> None:
    client = nodes.client("a")
    client.publish(b"one", "q")
    client.send(Basic.Consume(queue="q", consumer_tag="t"))
    nodes.step()
    client.send(Basic.Cancel(consumer_tag="t"))
    nodes.step()
    client.publish(b"two", "q")
    nodes.step()
    client.collect()
    assert [each.body for each in client.take(Message)] == [b"one"]
    queue = nodes.harness["b"].node.queues["/", "q"]
    assert (queue.ready_count, queue.unacked_count, queue.consumer_count) == (1, 1, 0)
    client.send(Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
    nodes.step()
    assert (queue.ready_count, queue.unacked_count) == (2, 0)


def test_a_consumer_of_a_queue_that_is_deleted_at_its_leader_is_cancelled(nodes: TwoNodes) -> None:
    client, other = nodes.client("a"), nodes.client("b")
    client.send(Basic.Consume(queue="q", consumer_tag="t"))
    nodes.step()
    port = nodes.harness["a"].node.remote["/", "q"]
    assert port.consumer_count == 1
    other.send(Queue.Delete(queue="q"))
    nodes.step()
    client.collect()
    client.expect(Basic.ConsumeOk)
    assert nodes.harness["a"].node.connections
    assert not port.consumer_count
    assert not any(
        channel.consumers
        for each in nodes.harness["a"].node.connections.values()
        for channel in each.channels.values()
    )


def test_a_transaction_is_committed_when_the_leader_has_it(nodes: TwoNodes) -> None:
    client = nodes.client("a")
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish(b"one", "q")
    client.send(commands.Tx.Commit())
    nodes.step()
    client.collect()
    client.expect(commands.Tx.CommitOk)
    assert nodes.harness["b"].node.queues["/", "q"].ready_count == 1


def test_what_the_leader_refuses_is_refused_to_the_publisher(nodes: TwoNodes) -> None:
    nodes = TwoNodes({"x-max-length": 1, "x-overflow": "reject-publish"}, nodes.is_classic)
    client = nodes.client("a")
    client.call(Confirm.Select(), Confirm.SelectOk)
    for body in (b"one", b"two", b"three"):
        client.publish(body, "q")
        nodes.step()
    client.collect()
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [1]
    assert [each.delivery_tag for each in client.take(Basic.Nack)] == [2, 3]


def test_a_queue_that_nobody_has_used_waits_for_a_leader_that_was_just_lost(nodes: TwoNodes) -> None:
    """It was refused at once, where one that was used before waited."""
    client = nodes.client("a")
    nodes.cut()
    client.send(Basic.Get(queue="q"))
    nodes.step()
    client.collect()
    assert client.inbox == []
    nodes.heal()
    client.collect()
    client.expect(Basic.GetEmpty)


def test_a_queue_whose_leader_is_not_reached_for_ten_seconds_is_refused(nodes: TwoNodes) -> None:
    client = nodes.client("a")
    client.publish(b"one", "q")
    nodes.step()
    nodes.cut()
    node = nodes.harness["a"].node
    assert not node.remote["/", "q"].is_away
    node.now_ms += AWAY_MS
    assert node.remote["/", "q"].is_away
    client.send(Queue.Declare(queue="q", passive=True))
    nodes.step()
    assert client.expect(Channel.Close).reply_code == 404
