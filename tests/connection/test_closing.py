"""The end of a connection: closes that come twice or cross, heartbeats, and who does not answer any more."""

from __future__ import annotations

import pytest
from pamqp import commands, frame

from amqpd.pump import RECEIVE_BYTES_MAX
from amqpd.session.liveness import CLOSE_TIMEOUT_S
from amqpd.topology import plans
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import Delete
from amqpd.vocabulary.states import ConnectionState
from amqpd.wire.frames import HEARTBEAT
from tests.harness.harness import PROTOCOL_HEADER, Client, Harness, publish_bytes

Connection, Queue = commands.Connection, commands.Queue
CLOSE = frame.marshal(Connection.Close(200, "bye", 0, 0), 0)
CLOSE_OK = frame.marshal(Connection.CloseOk(), 0)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def gone(client: Client) -> bool:
    """The node does not know it any more."""
    return client.connection.id not in client.harness.node.connections


def second(client: Client, now: float) -> None:
    client.connection.liveness.on_timer(now)
    client.harness.step()


def test_a_close_that_comes_again_is_answered_again_while_the_client_has_not_ended_the_stream(
    harness: Harness,
) -> None:
    client = harness.client()
    client.raw(CLOSE)
    client.expect(Connection.CloseOk)
    assert gone(client)
    client.raw(CLOSE + publish_bytes() + CLOSE)
    assert len(client.take(Connection.CloseOk)) == 2
    assert client.connection.state is ConnectionState.LINGERING


def test_closes_in_one_segment_are_each_answered(harness: Harness) -> None:
    client = harness.client()
    client.raw(CLOSE * 3)
    assert len(client.take(Connection.CloseOk)) == 3


def test_a_close_behind_a_change_that_waits_is_answered_as_often_as_it_came(harness: Harness) -> None:
    client = harness.client()
    harness.automatic = False
    client.raw(frame.marshal(Queue.Declare(queue="q"), 1) + CLOSE)
    client.raw(CLOSE)
    assert client.take(Connection.CloseOk) == []
    harness.automatic = True
    harness.step()
    client.expect(Queue.DeclareOk)
    assert len(client.take(Connection.CloseOk)) == 2


def test_a_close_that_crossed_ours_is_answered_and_only_close_ok_ends_the_connection(harness: Harness) -> None:
    client = harness.client()
    client.connection.force_close("enough")
    client.raw(CLOSE * 2)
    client.expect(Connection.Close)
    assert len(client.take(Connection.CloseOk)) == 2
    assert client.connection.state is ConnectionState.CLOSING
    client.raw(CLOSE_OK)
    assert client.connection.state is ConnectionState.CLOSED


@pytest.mark.parametrize("ours", [False, True])
def test_who_closes_again_and_again_and_reads_nothing_does_not_fill_the_memory(ours: bool) -> None:
    harness = Harness(Limits(outbox_bytes_max=64 * 1024))
    connection = harness.client().connection
    if ours:
        connection.force_close("enough")
    limit = harness.limits.outbox_bytes_max
    for _ in range(1 + 2 * limit // len(CLOSE_OK) // 1000):
        connection.receive(CLOSE * 1000)
        harness.step()
    assert limit / 2 < sum(map(len, connection.outbox)) <= limit + 100
    assert not connection.reading_paused


def test_nothing_counts_behind_a_close(harness: Harness) -> None:
    client, other = harness.client(), harness.client()
    other.declare("q")
    client.raw(CLOSE + publish_bytes(b"late"))
    assert harness.node.queues["/", "q"].backlog.ready == 0


def test_who_loses_framing_behind_its_close_is_let_go(harness: Harness) -> None:
    client = harness.client()
    client.raw(CLOSE + b"\x01\x00\x00\x00\x00\x00\x04aaaa\x00")
    assert client.connection.state is ConnectionState.CLOSED
    assert harness.node.ended == 1


def test_a_heartbeat_is_sent_each_half_interval_in_which_nothing_else_was(harness: Harness) -> None:
    client = Client(harness, heartbeat=1)
    client.open()
    liveness, sent = client.connection.liveness, []
    liveness.sent_at = 0.0
    for half in range(1, 9):
        now = half / 2
        liveness.on_timer(now, heartbeat_only=half % 2 == 1)
        liveness.received_at = now
        if client.connection.outbox:
            assert client.connection.outbox == [b"\x08\0\0\0\0\0\0\xce"]
            client.connection.outbox, liveness.sent_at = [], now
            sent.append(now)
    assert sent == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]


def test_who_is_silent_for_more_than_two_intervals_is_not_there_any_more(harness: Harness) -> None:
    client = Client(harness, heartbeat=5)
    client.open()
    client.connection.liveness.received_at = 100.0
    second(client, 110.0)
    assert client.connection.state is ConnectionState.RUNNING
    second(client, 110.5)
    assert client.connection.state is ConnectionState.CLOSED
    assert client.connection.aborted


@pytest.mark.parametrize(("heartbeat_s", "timeout_s"), [(0, CLOSE_TIMEOUT_S), (5, 5.0), (600, CLOSE_TIMEOUT_S)])
def test_the_wait_for_close_ok_is_no_longer_than_the_heartbeats_interval(
    harness: Harness, heartbeat_s: int, timeout_s: float
) -> None:
    client = Client(harness, heartbeat=heartbeat_s)
    client.open()
    client.connection.force_close("enough")
    second(client, 100.0)
    second(client, 100.0 + timeout_s - 0.5)
    assert client.connection.state is ConnectionState.CLOSING
    second(client, 100.0 + timeout_s)
    assert client.connection.state is ConnectionState.CLOSED
    assert client.connection.aborted
    assert client.connection.liveness.close_timeout_s == timeout_s


@pytest.mark.parametrize("how", ["failed", "closed", "refused"])
def test_who_sends_on_and_on_behind_the_end_is_read_no_faster_than_it_is_thrown_away(
    harness: Harness, how: str
) -> None:
    """What a turn has no space for waits, so the socket has to wait too: what is kept is copied for each read."""
    client = Client(harness) if how == "refused" else harness.client()
    if how == "refused":  # before any log-in
        client.raw(PROTOCOL_HEADER)
    client.raw(CLOSE if how == "closed" else b"\x09\x00\x00\x00\x00\x00\x00\xce")
    connection, turns = client.connection, harness.node.turns
    assert connection.state is (ConnectionState.LINGERING if how == "closed" else ConnectionState.CLOSING)
    read = HEARTBEAT * (RECEIVE_BYTES_MAX // len(HEARTBEAT))
    reads = 0
    for _ in range(50):
        turns.begin(1)
        if not connection.reading_paused:
            connection.receive(read)
            reads += 1
        turns.next()
        harness.node.tick()
        assert len(connection._rest) <= RECEIVE_BYTES_MAX + connection.frame_max
    assert reads > 1
    while connection.reading_paused:
        turns.begin(0)
        turns.next()
    connection.receive(CLOSE_OK)
    while turns.waiting:
        turns.begin(0)
        turns.next()
    assert connection.state is ConnectionState.CLOSED, "its close-ok is read in the end"


def test_what_comes_while_a_closed_connection_still_leaves_is_thrown_away(harness: Harness) -> None:
    """Also where the kernel would take it; its virtual host may be gone."""
    harness._apply(plans.create_vhost("other"))
    client = Client(harness)
    client.open("other")
    client.declare("q")
    client.publish(b"1")
    for number in range(2, 200):
        client.channel(number)
        client.send(commands.Basic.Consume(queue="q", consumer_tag=f"t{number}"), number)
        client.inbox.clear()
    harness.automatic = False
    harness.node.turns.turn_work = 250
    harness._apply([Delete(("vhost", "other"))])
    assert client.connection.intake.unfinished
    assert client.connection.channels
    client.connection.receive(publish_bytes(b"2", "new", "amq.fanout", channel=199))
    client.expect(Connection.Close)
    assert client.connection.state is ConnectionState.CLOSING
    assert not harness.bugs
    harness.automatic = True
    client.raw(CLOSE_OK)
    assert client.connection.state is ConnectionState.CLOSED
    assert not harness.bugs


def test_who_is_still_logging_in_when_the_node_ends_is_told_to_connect_again(
    harness: Harness,
) -> None:
    """Not that it may not: libraries take 530 for a missing permission, and do not try again."""
    client = Client(harness)
    harness.node.draining = True
    with pytest.raises(AssertionError, match=r"320.*CONNECTION_FORCED"):
        client.open()
