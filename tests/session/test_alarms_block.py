"""Alarms: blocked means that nothing is taken, and nothing is lost (https://www.rabbitmq.com/docs/connection-blocked)."""

from __future__ import annotations

import pytest
from pamqp import base, body, commands, frame, header

from tests.harness.harness import Client, Harness, Message, publish_bytes

Basic, Channel, Connection, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Connection,
    commands.Queue,
    commands.Tx,
)


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    client.declare("q")
    return client


def ready(harness: Harness) -> int:
    return harness.node.queues["/", "q"].backlog.ready


def frames(*methods: base.Frame, channel: int = 1) -> bytes:
    return b"".join(frame.marshal(method, channel) for method in methods)


def test_not_even_the_first_publish_is_taken_while_an_alarm_is_on(harness: Harness, client: Client) -> None:
    harness.node.alarms.put("memory", "watch", True, 0)
    client.raw(publish_bytes(b"1") + publish_bytes(b"2", mandatory=True) + publish_bytes(b"3"))
    assert client.expect(Connection.Blocked).reason == "low on memory"
    assert client.connection.reading_paused
    assert ready(harness) == 0
    harness.node.alarms.put("memory", "watch", False, 0)
    harness.step()
    client.collect()
    client.expect(Connection.Unblocked)
    assert not client.connection.reading_paused
    assert ready(harness) == 3


def test_what_came_before_the_publish_is_done_and_what_came_behind_it_waits(harness: Harness, client: Client) -> None:
    harness.node.alarms.put("disk", "watch", True, 0)
    client.raw(
        frames(Queue.Declare(queue="before"))
        + publish_bytes(b"x")
        + frames(Queue.Declare(queue="behind"))
        + frames(Channel.Open(), channel=2)
    )
    client.expect(Connection.Blocked)
    assert client.expect(Queue.DeclareOk).queue == "before"  # the store answered later
    assert not client.inbox
    assert set(harness.topology.vhosts["/"].queues) == {"q", "before"}
    harness.node.alarms.put("disk", "watch", False, 0)
    harness.step()
    client.collect()
    client.expect(Connection.Unblocked)
    client.expect(Channel.OpenOk)
    assert client.expect(Queue.DeclareOk).queue == "behind"
    assert ready(harness) == 1


def test_a_second_alarm_is_not_told_and_the_last_that_ends_lets_go_on(harness: Harness, client: Client) -> None:
    harness.node.alarms.put("disk", "watch", True, 0)
    client.publish()
    client.expect(Connection.Blocked)
    harness.node.alarms.put("memory", "watch", True, 0)
    harness.node.alarms.put("disk", "watch", False, 0)
    harness.step()
    client.collect()
    assert not client.inbox
    assert ready(harness) == 0
    harness.node.alarms.put("memory", "watch", False, 0)
    harness.step()
    client.collect()
    client.expect(Connection.Unblocked)
    assert ready(harness) == 1


@pytest.mark.parametrize("cut", range(1, 4))
def test_content_that_was_half_received_is_neither_taken_further_nor_lost(
    harness: Harness, client: Client, cut: int
) -> None:
    parts = [
        frames(Basic.Publish(routing_key="q")),
        frame.marshal(header.ContentHeader(0, 9, Basic.Properties()), 1),
        frame.marshal(body.ContentBody(b"begun"), 1),
        frame.marshal(body.ContentBody(b"-end"), 1),
    ]
    client.raw(b"".join(parts[:cut]))
    harness.node.alarms.put("memory", "watch", True, 0)
    for part in parts[cut:]:
        client.raw(part)
    client.expect(Connection.Blocked)
    assert client.connection.reading_paused
    assert ready(harness) == 0
    harness.node.alarms.put("memory", "watch", False, 0)
    harness.step()
    client.collect()
    client.expect(Connection.Unblocked)
    client.send(Basic.Get(queue="q", no_ack=True))
    (message,) = client.messages()
    assert message.body == b"begun-end"


def test_a_transaction_that_was_begun_commits_when_the_alarm_is_over(harness: Harness, client: Client) -> None:
    client.call(Tx.Select(), Tx.SelectOk)
    client.publish(b"1")
    harness.node.alarms.put("memory", "watch", True, 0)
    client.raw(publish_bytes(b"2") + frames(Tx.Commit()))
    client.expect(Connection.Blocked)
    assert not client.inbox
    harness.node.alarms.put("memory", "watch", False, 0)
    harness.step()
    client.collect()
    client.expect(Connection.Unblocked)
    client.expect(Tx.CommitOk)
    assert ready(harness) == 2


def test_a_transaction_without_another_publish_commits_during_the_alarm(harness: Harness, client: Client) -> None:
    client.call(Tx.Select(), Tx.SelectOk)
    client.publish(b"1")
    harness.node.alarms.put("memory", "watch", True, 0)
    client.call(Tx.Commit(), Tx.CommitOk)
    assert ready(harness) == 1


def test_a_publish_that_a_suspended_channel_held_is_not_taken_either() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q")
    harness.automatic = False
    client.raw(frames(Queue.Declare(queue="late")) + publish_bytes(b"1") + frames(Queue.Declare(queue="later")))
    harness.node.alarms.put("memory", "watch", True, 0)
    harness.automatic = True
    harness.step()  # the store answers now
    client.collect()
    assert client.expect(Queue.DeclareOk).queue == "late"
    client.expect(Connection.Blocked)
    assert not client.inbox
    assert ready(harness) == 0
    harness.node.alarms.put("memory", "watch", False, 0)
    harness.step()
    client.collect()
    client.expect(Connection.Unblocked)
    assert client.expect(Queue.DeclareOk).queue == "later"
    assert ready(harness) == 1


def test_consumers_on_other_connections_go_on(harness: Harness, client: Client) -> None:
    client.publish(b"there already")
    consumer = harness.client()
    harness.node.alarms.put("memory", "watch", True, 0)
    client.publish(b"not taken")
    consumer.consume("q")
    message = consumer.expect(Message)
    assert message.body == b"there already"
    consumer.send(Basic.Ack(message.tag))
    assert not consumer.inbox
    assert not consumer.connection.reading_paused


def test_a_blocked_connection_keeps_no_more_than_one_read(harness: Harness, client: Client) -> None:
    harness.node.alarms.put("memory", "watch", True, 0)
    data = publish_bytes(bytes(1000)) * 200
    client.raw(data)
    assert client.connection.reading_paused
    assert len(client.connection._rest) == len(data)
    assert client.connection.intake.held_bytes == 0


def test_a_blocked_connection_that_is_silent_has_not_missed_a_heartbeat(harness: Harness) -> None:
    client = Client(harness, heartbeat=10)
    client.open()
    harness.node.alarms.put("memory", "watch", True, 0)
    client.publish()
    for second in range(100):
        client.connection.liveness.on_timer(float(second))
    assert harness.node.connections
    harness.node.alarms.put("memory", "watch", False, 0)
    harness.step()
    client.connection.liveness.on_timer(119.0)
    assert harness.node.connections
    client.connection.liveness.on_timer(130.0)
    assert not harness.node.connections


def test_publishes_wait_without_a_word_while_the_node_is_not_current(harness: Harness, client: Client) -> None:
    harness.node.alarms.set_current(False)
    client.raw(publish_bytes(b"1") + publish_bytes(b"2"))
    assert not client.inbox
    assert client.connection.reading_paused
    assert ready(harness) == 0
    harness.node.alarms.set_current(True)
    harness.step()
    client.collect()
    assert not client.inbox
    assert ready(harness) == 2


def test_an_alarm_that_outlasts_it_is_told_at_the_next_publish(harness: Harness, client: Client) -> None:
    harness.node.alarms.set_current(False)
    harness.node.alarms.put("disk", "watch", True, 0)
    assert harness.node.alarms.shortages == ["disk"]
    client.publish()
    assert client.expect(Connection.Blocked).reason == "low on disk"
    harness.node.alarms.put("disk", "watch", False, 0)
    harness.step()
    client.collect()
    assert not client.inbox, "it still waits"
    harness.node.alarms.set_current(True)
    harness.step()
    client.collect()
    client.expect(Connection.Unblocked)
    assert ready(harness) == 1
