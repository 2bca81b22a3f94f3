"""Consumers and gets that the leader of their queue refuses, or ends later: what clients of another node are told.

What is verified: each refusal has the code and the text that it has where the queue is led; who was a consumer is
cancelled instead; what it held is ready again, where somebody else may have it. Not verified: clients that move.
"""

from __future__ import annotations

import pytest
from pamqp import commands
from pamqp.base import Frame

from amqpd.queues.damage import QueueFenced
from amqpd.remote.endings import ended_by, refusal_of
from amqpd.remote.messages import EndReason, SubscriptionEnded
from tests.harness.harness import Client, Message
from tests.remote.two_nodes import TwoNodes

Basic, Channel, Queue = commands.Basic, commands.Channel, commands.Queue
CONSUME, GET = Basic.Consume(queue="q"), Basic.Get(queue="q")


@pytest.fixture
def nodes() -> TwoNodes:
    """Quorum queues ignore that a consumer wants to be alone."""
    return TwoNodes({"x-queue-type": "classic"})


def refusal(nodes: TwoNodes, name: str, asked: Frame) -> tuple[int, str]:
    """What a new client of this node is told."""
    client = nodes.client(name)
    client.send(asked)
    nodes.step()
    client.collect()
    closed = client.expect(Channel.Close)
    return closed.reply_code, closed.reply_text


def consumer(nodes: TwoNodes, name: str, exclusive: bool = False) -> Client:
    client = nodes.client(name)
    client.send(Basic.Consume(queue="q", consumer_tag="t", exclusive=exclusive))
    nodes.step()
    client.collect()
    client.expect(Basic.ConsumeOk)
    return client


@pytest.mark.parametrize("first", ["a", "b"])
@pytest.mark.parametrize("exclusive", [True, False])
def test_a_consumer_beside_one_that_is_alone_is_refused_as_where_the_queue_is_led(
    nodes: TwoNodes, first: str, exclusive: bool
) -> None:
    consumer(nodes, first, exclusive=exclusive)
    asked = Basic.Consume(queue="q", exclusive=not exclusive)
    here, there = refusal(nodes, "a", asked), refusal(nodes, "b", asked)
    assert here == there == (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use")


def test_a_consumer_that_is_refused_is_forgotten_and_another_one_may_come(nodes: TwoNodes) -> None:
    alone = consumer(nodes, "b", exclusive=True)
    refusal(nodes, "a", CONSUME)
    assert nodes.harness["a"].node.remote["/", "q"].consumer_count == 0
    alone.send(Basic.Cancel(consumer_tag="t"))
    nodes.step()
    consumer(nodes, "a")


@pytest.mark.parametrize("asked", [CONSUME, GET], ids=["consume", "get"])
def test_a_queue_that_is_out_of_service_refuses_as_where_it_is_led(nodes: TwoNodes, asked: Frame) -> None:
    leader = nodes.harness["b"].node
    leader.quarantine(leader.queues["/", "q"], ValueError("a bug"))
    nodes.step()
    here, there = refusal(nodes, "a", asked), refusal(nodes, "b", asked)
    assert here == there == (404, "NOT_FOUND - queue 'q' in vhost '/' has crashed and failed to restart")


def test_a_consumer_whose_queue_goes_out_of_service_is_cancelled(nodes: TwoNodes) -> None:
    client = consumer(nodes, "a")
    leader = nodes.harness["b"].node
    leader.quarantine(leader.queues["/", "q"], ValueError("a bug"))
    nodes.step()
    client.collect()
    assert client.expect(Basic.Cancel).consumer_tag == "t"
    assert not list(nodes.leader_of_source().subscribers())
    assert nodes.harness["a"].node.remote["/", "q"].consumer_count == 0


def test_a_get_that_waits_while_its_queue_is_deleted_is_told_that_there_is_none(nodes: TwoNodes) -> None:
    client, other = nodes.client("a"), nodes.client("b")
    client.send(GET)
    nodes.step()
    client.expect(Basic.GetEmpty)
    nodes.cut()
    client.send(GET)
    other.send(Queue.Delete(queue="q"))
    nodes.step()
    nodes.heal()
    client.collect()
    assert client.expect(Channel.Close).reply_text == "NOT_FOUND - no queue 'q' in vhost '/'"


def test_a_consumer_that_another_one_took_the_place_of_while_its_link_was_cut_is_cancelled(nodes: TwoNodes) -> None:
    client, other = consumer(nodes, "a"), nodes.client("b")
    client.publish(b"one", "q")
    nodes.step()
    client.collect()
    client.expect(Message)
    nodes.cut()
    nodes.end_what_edges_hold()
    other.send(Basic.Consume(queue="q", consumer_tag="other", exclusive=True))
    nodes.step()
    other.collect()
    other.expect(Basic.ConsumeOk)
    nodes.heal()
    client.collect()
    assert client.expect(Basic.Cancel).consumer_tag == "t"
    other.collect()
    assert [(each.body, each.redelivered) for each in other.take(Message)] == [(b"one", True)]


def test_damage_is_told_with_the_messages_that_are_damaged(nodes: TwoNodes) -> None:
    here = QueueFenced(nodes.record, (7, 9), told=True)
    ended = ended_by(3, here)
    assert ended == SubscriptionEnded(3, EndReason.DAMAGED, 7, 9)
    there = refusal_of(nodes.record, ended)
    assert (type(there), str(there)) == (type(here), str(here))
