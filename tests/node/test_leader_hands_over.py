"""What clients see of a queue whose leader moves: they wait until it is decided who leads it, then they go on, or
connect again; no publish is refused.

What is verified: the node's half; the test says whether the source moves. Not verified: when it does
(`tests/cluster/test_forwarder.py`), what waits for confirms when a leader is lost (`test_source_moves.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from pamqp import commands

from amqpd.flow.leader_moves import WAIT_MS
from amqpd.management.running import Running
from amqpd.management.why.connections import explained
from tests.harness.harness import publish_bytes
from tests.node.test_source_moves import SOURCE, ReplicaLane, Scene, declared, scene

__all__ = ["scene"]

Basic, Channel, Confirm, Connection, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Connection,
    commands.Queue,
    commands.Tx,
)


class Moving:
    """A queue "q" of a source whose leader this node is, with a publisher of it."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.node = scene, scene.node
        self.client = declared(scene)
        self.client.call(Confirm.Select(), Confirm.SelectOk)

    def stop(self) -> None:
        """The queues stand still, to be handed over."""
        self.scene.harness.cluster.moving.add(SOURCE)
        self.node.source_stops(SOURCE)
        self.scene.harness.step()

    def decide(self, *, here: bool = False) -> None:
        """The source has another leader; or this node is it again."""
        self.scene.harness.cluster.moving.clear()
        if here:
            self.node.journal.leave(SOURCE)
            self.scene.lane = ReplicaLane(1, 0)
            self.scene.begin()
        self.look()

    def look(self) -> None:
        self.node.leader_moves.look(self.node.now_ms)
        self.scene.harness.step()

    def publish(self, *bodies: bytes, key: str = "q", exchange: str = "") -> None:
        self.client.raw(b"".join(publish_bytes(body, key, exchange, delivery_mode=2) for body in bodies))

    def told(self) -> list[str]:
        return [each.name for each in self.client.take((Basic.Ack, Basic.Nack, Connection.Close, Channel.Close))]


@pytest.fixture
def moving(scene: Scene) -> Moving:
    return Moving(scene)


def test_what_was_taken_before_is_confirmed_and_what_comes_meanwhile_waits(moving: Moving) -> None:
    moving.publish(b"before")
    moving.stop()
    moving.publish(b"meanwhile", b"and", b"more")
    assert moving.told() == []
    moving.scene.report()
    assert moving.told() == ["Basic.Ack"]
    moving.decide()
    assert moving.told() == ["Connection.Close"]
    assert not moving.node.leader_moves.waiting


def test_it_is_taken_in_order_when_this_node_is_the_leader_again(moving: Moving) -> None:
    moving.publish(b"0")
    moving.scene.report()
    assert moving.told() == ["Basic.Ack"]
    moving.stop()
    moving.publish(b"1", b"2")
    moving.publish(b"3")
    assert moving.told() == []
    moving.decide(here=True)
    moving.publish(b"4")
    moving.scene.report()
    assert moving.told() == ["Basic.Ack"] * 4
    reader = moving.scene.harness.client()
    reader.consume("q")
    assert reader.bodies() == [b"1", b"2", b"3", b"4"], "of this epoch, which knows nothing of the one before"


def test_a_publish_to_several_queues_is_in_none_of_them_before_it_is_decided(moving: Moving) -> None:
    client = moving.scene.harness.client()
    client.declare("here", durable=True)
    for name in ("q", "here"):
        client.call(Queue.Bind(queue=name, exchange="amq.fanout"), Queue.BindOk)
    moving.stop()
    moving.publish(b"one", exchange="amq.fanout")
    assert moving.node.queues["/", "here"].ready_count == 0
    moving.decide(here=True)
    assert [moving.node.queues["/", name].ready_count for name in ("q", "here")] == [1, 1]
    moving.scene.report()
    assert moving.told() == ["Basic.Ack"]


def test_a_connection_that_was_there_before_connects_again_and_one_that_came_later_is_refused(moving: Moving) -> None:
    """Once for each move: who is connected to a node that is not the leader is told so, message by message."""
    moving.stop()
    moving.decide()
    moving.publish(b"idle while it moved")
    [close] = moving.client.take(Connection.Close)
    assert (close.reply_code, close.reply_text.startswith("CONNECTION_FORCED - the leader")) == (320, True)
    moving.client = moving.scene.harness.client()
    moving.client.call(Confirm.Select(), Confirm.SelectOk)
    moving.publish(b"one", b"two")
    assert moving.told() == ["Basic.Nack", "Basic.Nack"]


def test_who_publishes_without_confirms_is_not_left_to_believe_that_it_arrived(moving: Moving) -> None:
    moving.client = moving.scene.harness.client()
    moving.publish(b"one")
    moving.stop()
    moving.decide()
    moving.publish(b"two")
    assert moving.told() == ["Connection.Close"]


def test_others_are_served_while_it_waits(moving: Moving) -> None:
    other = moving.scene.harness.client()
    other.declare("here", durable=True)
    other.call(Confirm.Select(), Confirm.SelectOk)
    moving.stop()
    moving.publish(b"one")
    other.publish(b"two", "here", delivery_mode=2)
    assert len(other.take(Basic.Ack)) == 1
    assert moving.client.connection.reading_paused
    assert not other.connection.reading_paused


def test_the_wait_has_an_end(moving: Moving) -> None:
    moving.stop()
    moving.publish(b"one")
    moving.node.now_ms += WAIT_MS - 1
    moving.look()
    assert moving.told() == []
    moving.node.now_ms += 1
    moving.look()
    assert moving.told() == ["Connection.Close"]


def test_a_client_that_goes_meanwhile_gives_back_what_it_has(moving: Moving) -> None:
    client, other = moving.client, moving.scene.harness.client()
    other.declare("here", durable=True)
    other.publish(b"one", "here", delivery_mode=2)
    client.consume("here")
    assert client.bodies() == [b"one"]
    moving.stop()
    moving.publish(b"two")
    client.lose()
    moving.look()
    assert moving.node.queues["/", "here"].ready_count == 1
    assert not moving.node.leader_moves.waiting
    moving.decide(here=True)
    assert moving.node.queues["/", "q"].ready_count == 0, "nobody was told that it is there"


@pytest.mark.parametrize(
    "method",
    [Queue.Declare(queue="q", passive=True), Basic.Consume(queue="q"), Basic.Get(queue="q"), Queue.Purge(queue="q")],
    ids=lambda method: method.name,
)
@pytest.mark.parametrize("here", [True, False])
def test_what_names_the_queue_waits_too(moving: Moving, method: Any, here: bool) -> None:
    """A consumer that is cancelled consumes again at once, with many clients' libraries."""
    moving.scene.harness.cluster.leaders = lambda source: "b"
    moving.stop()
    moving.client.send(method)
    moving.client.send(Basic.Qos(prefetch_count=1))
    assert moving.client.inbox == []
    moving.decide(here=here)
    moving.client.collect()
    answer, *others = [each for _, each in moving.client.inbox]
    if here:
        assert answer.name in ("Queue.DeclareOk", "Basic.ConsumeOk", "Basic.GetEmpty", "Queue.PurgeOk")
        assert [each.name for each in others] == ["Basic.QosOk"]
    else:
        assert (answer.name, answer.reply_code, others) == ("Channel.Close", 404, [])


def test_a_commit_that_finds_its_queue_gone_ends_in_a_reconnect(moving: Moving) -> None:
    client = moving.client = moving.scene.harness.client()
    client.call(Tx.Select(), Tx.SelectOk)
    moving.publish(b"one")
    moving.stop()
    client.send(Tx.Commit())
    assert moving.told() == ["Connection.Close"]


def test_a_connection_that_waits_says_why(moving: Moving) -> None:
    on = Running(moving.node, lambda: None)
    moving.stop()
    moving.publish(b"one")
    [sentence] = trio.run(explained, on, moving.client.connection)
    assert sentence == "what it asks of a queue waits until it is decided which node leads that"


def test_a_node_that_takes_a_source_over_lets_its_publishers_wait(scene: Scene) -> None:
    """They were sent here before its queues are."""
    moving = Moving(scene)
    moving.stop()
    moving.decide()
    client = moving.client = scene.harness.client()
    client.call(Confirm.Select(), Confirm.SelectOk)
    scene.harness.cluster.moving.add(SOURCE)
    moving.publish(b"one")
    assert moving.told() == []
    moving.decide(here=True)
    scene.report()
    assert moving.told() == ["Basic.Ack"]
