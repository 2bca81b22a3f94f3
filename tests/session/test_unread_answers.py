"""A client that does not read what it is sent is not read any more, and loses nothing."""

from __future__ import annotations

import pytest
from pamqp import commands, frame

from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.states import ConnectionState
from tests.harness.harness import Harness, publish_bytes
from tests.harness.invariants import check_node
from tests.harness.resident import KIB, MIB, RECEIVE_BYTES, queue_of

SMALL_OUTBOX = Limits(outbox_bytes_max=256 * KIB)


def test_deliveries_stop_for_a_consumer_that_does_not_read_and_go_on_later() -> None:
    harness = Harness(SMALL_OUTBOX)
    publisher, consumer = harness.client(), harness.client()
    publisher.declare("q")
    consumer.consume("q", no_ack=True)
    one = publish_bytes(bytes(1000), "q")
    count = 0
    for _ in range(40):
        publisher.connection.receive(one * 100)
        harness.step()
        count += 100
    waiting = queue_of(harness).backlog.ready
    # One run more than the bound may be in the outbox: it is delivered whole.
    held = sum(map(len, consumer.connection.outbox))
    assert held <= SMALL_OUTBOX.outbox_bytes_max + 110 * len(one)
    assert waiting > count / 2
    consumer.connection.sent(held * 2 // 3)
    harness.step()
    assert queue_of(harness).backlog.ready == waiting, "it goes on before there is space"
    assert len(consumer.bodies()) == count - waiting
    harness.step()
    received = count - waiting
    while queue_of(harness).backlog.ready or consumer.connection.outbox:
        received += len(consumer.bodies())
        harness.step()
    assert received == count


COMMANDS = {
    "queue.declare passive": frame.marshal(commands.Queue.Declare(queue="q", passive=True), 1),
    "basic.get": frame.marshal(commands.Basic.Get(queue="q", no_ack=False), 1)
    + frame.marshal(commands.Basic.Nack(0, True, True), 1),
    "basic.get of an empty queue": frame.marshal(commands.Basic.Get(queue="empty"), 1),
    "publish that comes back": publish_bytes(b"x", "nowhere", mandatory=True),
    "channel.flow": frame.marshal(commands.Channel.Flow(True), 1),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_client_that_does_not_read_its_answers_is_not_read_any_more(command: str) -> None:
    """Each answer to a basic.get of 20 bytes is 50 kB here: without a bound inside of a buffer it would be 300 MB."""
    harness = Harness(SMALL_OUTBOX)
    other, client = harness.client(), harness.client()
    other.declare("q")
    other.declare("empty")
    other.publish(bytes(50_000), "q")
    data = COMMANDS[command] * (RECEIVE_BYTES // len(COMMANDS[command]))
    sent = 0
    while not client.connection.reading_paused:
        client.connection.receive(data)
        harness.step()
        sent += len(data)
        # One answer more than the bound, or what one run of publishes brings back.
        held = sum(map(len, client.connection.outbox))
        assert held <= 2 * SMALL_OUTBOX.outbox_bytes_max + 2 * RECEIVE_BYTES
        assert len(client.connection._rest) <= len(data)
        assert sent < 20 * MIB, "it is read on and on"
    assert other.declare("q", passive=True).message_count in (0, 1)
    # It reads: all of what it sent is answered.
    connection, answers = client.connection, 0
    while connection.outbox:
        answers += b"".join(connection.outbox).count(b"\xce\x01\0\x01") + 1
        connection.outbox = []
        connection.sent(0)
        harness.step()
    assert not connection.reading_paused
    assert not connection._rest
    assert answers > 0
    assert not harness.bugs
    check_node(harness.node)


def test_answers_of_held_frames_wait_for_the_client_too() -> None:
    """Frames that a suspended channel held are as many gets as frames of a buffer."""
    harness = Harness(SMALL_OUTBOX)
    other, client = harness.client(), harness.client()
    other.declare("q")
    other.publish(bytes(50_000), "q")
    harness.automatic = False
    client.connection.receive(frame.marshal(commands.Queue.Declare(queue="new"), 1))
    client.connection.receive(COMMANDS["basic.get"] * 2000)
    client.connection.receive(publish_bytes(b"last", "q"))
    harness.automatic = True
    harness.step()
    connection = client.connection
    assert sum(map(len, connection.outbox)) <= 2 * SMALL_OUTBOX.outbox_bytes_max + 60_000
    assert connection.reading_paused
    got = 0
    while connection.outbox:
        got += b"".join(connection.outbox).count(b"\x00\x3c\x00\x47")
        connection.outbox = []
        connection.sent(0)
        harness.step()
        check_node(harness.node)
    assert got == 2000
    assert queue_of(harness).backlog.ready == 2, "what was published behind the gets"
    assert connection.intake.held_bytes == 0


def test_a_close_behind_answers_that_are_not_read_comes_in_its_turn() -> None:
    harness = Harness(SMALL_OUTBOX)
    other, client = harness.client(), harness.client()
    other.declare("q")
    other.publish(bytes(50_000), "q")
    harness.automatic = False
    client.connection.receive(frame.marshal(commands.Queue.Declare(queue="new"), 1))
    client.connection.receive(COMMANDS["basic.get"] * 100)
    client.connection.receive(frame.marshal(commands.Connection.Close(200, "", 0, 0), 0))
    harness.automatic = True
    harness.step()
    assert client.connection.state is ConnectionState.RUNNING
    got = b""
    while client.connection.outbox:
        got += b"".join(client.connection.outbox)
        client.connection.outbox = []
        client.connection.sent(0)
        harness.step()
    assert got.count(b"\x00\x3c\x00\x47") == 100
    assert got.endswith(frame.marshal(commands.Connection.CloseOk(), 0))
    assert client.connection.state is ConnectionState.LINGERING


def test_a_client_that_does_not_read_what_tls_answers_is_not_read_any_more() -> None:
    """Of those answers only the pump knows: no method was sent."""
    harness = Harness(SMALL_OUTBOX)
    client = harness.client()
    client.connection.sent(2 * SMALL_OUTBOX.outbox_bytes_max)
    assert not client.connection.reading_paused
    client.connection.sent(2 * SMALL_OUTBOX.outbox_bytes_max + 1)
    assert client.connection.reading_paused
    client.connection.receive(frame.marshal(commands.Channel.Flow(True), 1))
    harness.step()
    assert not client.take(commands.Channel.FlowOk)
    client.connection.sent(0)
    harness.step()
    assert not client.connection.reading_paused
    client.expect(commands.Channel.FlowOk)
    check_node(harness.node)
