"""Connection: what happens on an open one: heartbeats, close, update-secret, methods out of place."""

from __future__ import annotations

import socket
from typing import Any

import pika
import pytest
from pamqp import commands, frame, heartbeat

from conformance.admin import Admin
from conformance.broker import Broker
from conformance.conftest import Names, OpenWire
from conformance.rules import rule
from conformance.talk import alive, ask, bodies, check_close, consume, publish
from tests.clients.brokers import Connect
from tests.clients.wire import HEARTBEAT, METHOD, Wire, decode_method, described, frame_bytes, publish_bytes

Basic, Channel, Connection, Queue = commands.Basic, commands.Channel, commands.Connection, commands.Queue


def heartbeats_until_the_end(client: Wire) -> tuple[int, OSError]:
    """How many come before the stream ends, and how it does; nothing else comes."""
    heartbeats = 0
    try:
        while client.read_frame()[0] == HEARTBEAT:
            heartbeats += 1
    except OSError as error:
        return heartbeats, error
    raise AssertionError("something else than a heartbeat came")


@rule("AMQP 0-9-1 section 1.4.2.9", "connection.close is answered by close-ok, and nothing follows.")
def test_close(wire: OpenWire) -> None:
    client = wire()
    client.send(Connection.Close(200, "bye", 0, 0))
    client.expect(Connection.CloseOk)
    client.socket.shutdown(socket.SHUT_WR)  # RabbitMQ leaves it to the client who ends the stream
    assert client.at_end()


@rule("AMQP 0-9-1 section 1.4.2.9", "The stream is the client's to end: a close that comes again is answered again.")
def test_close_comes_again(wire: OpenWire) -> None:
    client = wire()
    for _ in range(3):
        client.send(Connection.Close(200, "bye", 0, 0))
        client.expect(Connection.CloseOk)
    client.send_bytes(frame.marshal(Connection.Close(200, "bye", 0, 0), 0) * 2)
    client.expect(Connection.CloseOk, Connection.CloseOk)


@rule("AMQP 0-9-1 section 1.4.2.9", "Who does not end the stream after close-ok is let go within the heartbeat.")
@pytest.mark.slow
def test_close_without_an_end(wire: OpenWire) -> None:
    client = wire(heartbeat_s=1)
    client.send(Connection.Close(200, "bye", 0, 0))
    client.expect(Connection.CloseOk)
    assert isinstance(heartbeats_until_the_end(client)[1], ConnectionError)


@rule("AMQP 0-9-1 section 1.4.2.9", "Who does not answer connection.close is let go within the heartbeat.")
@pytest.mark.slow
def test_close_without_an_answer(wire: OpenWire) -> None:
    client = wire(heartbeat_s=1)
    client.send(Channel.Open(), channel=0)  # 504
    while client.read_frame()[0] == HEARTBEAT:
        pass
    assert isinstance(heartbeats_until_the_end(client)[1], ConnectionError)


@rule("AMQP 0-9-1 section 1.4.2.9", "What was sent before connection.close has its effect.")
def test_what_came_before_close_counts(wire: OpenWire, client: Wire, unique: Names) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue))
    other = wire()
    other.open_channel()
    other.send_bytes(publish_bytes(1, "", queue, b"x") * 20 + frame.marshal(Connection.Close(200, "", 0, 0), 0))
    other.expect(Connection.CloseOk)
    assert bodies(client, queue) == [b"x"] * 20


@rule("AMQP 0-9-1 section 1.4.2.9", "After its own close the broker takes no method but close and close-ok.")
def test_after_a_connection_error_nothing_counts(wire: OpenWire, client: Wire, unique: Names) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue))
    other = wire()
    other.open_channel()
    other.send(Channel.Open(), channel=1)  # the second one: 504
    other.send_bytes(publish_bytes(1, "", queue, b"x"))
    other.closed("connection")
    assert bodies(client, queue) == []


@rule("AMQP 0-9-1 section 1.4.2.9", "Closes that cross are both answered.")
def test_closes_that_cross(client: Wire) -> None:
    client.send_bytes(frame.marshal(Channel.Open(), 0) + frame.marshal(Connection.Close(200, "", 0, 0), 0))
    client.expect(Connection.Close, Connection.CloseOk)


@rule("AMQP 0-9-1 section 2.2.2", "Unacknowledged messages of a connection that is lost are delivered again.")
def test_a_lost_connection_gives_back(wire: OpenWire, client: Wire, unique: Names) -> None:
    queue = unique("queue")
    ask(client, Queue.Declare(queue=queue))
    other = wire()
    other.open_channel()
    publish(other, "", queue)
    consume(other, queue)
    other.read_message()
    other.socket.close()
    consume(client, queue)
    message = client.read_message()[1]
    assert (message.body, message.method.redelivered) == (b"x", True)


@rule("AMQP 0-9-1 section 4.2.3", "Methods of other classes do not belong on channel 0.")
@pytest.mark.parametrize(
    "method", [pytest.param(Channel.Open(), id="channel.open"), pytest.param(Basic.Qos(), id="basic.qos")]
)
def test_channel_0_is_for_the_connection(client: Wire, method: Any) -> None:
    client.send(method, channel=0)
    check_close(client.closed("connection"), 504)


@rule("AMQP 0-9-1 section 4.2.3", "Methods of the connection class do not belong on another channel.")
def test_connection_methods_on_a_channel(client: Wire) -> None:
    client.send(Connection.Close(200, "", 0, 0), channel=1)
    check_close(client.closed("connection"), 503)


@rule("AMQP 0-9-1 section 2.2.4", "The handshake happens once.")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(Connection.StartOk({}, "PLAIN", "\0guest\0guest"), id="start-ok"),
        pytest.param(Connection.TuneOk(10, 131072, 0), id="tune-ok"),
        pytest.param(Connection.Open("/"), id="open"),
    ],
)
def test_the_handshake_is_over(client: Wire, method: Any) -> None:
    client.send(method)
    close = client.closed("connection")
    assert close.reply_code in (503, 504), described(close)
    assert (close.class_id, close.method_id) == (method.index >> 16, method.index & 0xFFFF)


@rule("RabbitMQ: access-control", "connection.update-secret is answered by update-secret-ok.")
def test_update_secret(wire: OpenWire, broker: Broker) -> None:
    client = wire()
    assert isinstance(client.call(Connection.UpdateSecret(broker.password, "time")), Connection.UpdateSecretOk)
    client.close()


@rule("RabbitMQ: access-control", "A secret is looked at by back ends whose secrets expire; passwords do not.")
def test_any_secret_is_taken(wire: OpenWire) -> None:
    client = wire()
    assert isinstance(client.call(Connection.UpdateSecret("not the password", "time")), Connection.UpdateSecretOk)
    client.close()


@rule("AMQP 0-9-1 section 4.2.7", "With a heartbeat of 1 s the broker sends heartbeats, and ends on silence.")
@pytest.mark.slow
def test_silence_ends_the_connection(wire: OpenWire) -> None:
    client = wire(heartbeat_s=1)
    seen = 0
    while True:
        try:
            kind, channel, payload = client.read_frame()
        except ConnectionError:
            break
        assert kind != METHOD or isinstance(decode_method(payload), Connection.Close)
        if kind == HEARTBEAT:
            assert (channel, payload) == (0, b"")
            seen += 1
    assert seen >= 1


@rule("AMQP 0-9-1 section 4.2.7", "Who is silent for more than two intervals is gone: the stream is reset.")
@pytest.mark.slow
def test_silence_resets_the_stream(wire: OpenWire) -> None:
    client = wire(heartbeat_s=1)
    heartbeats, end = heartbeats_until_the_end(client)
    assert isinstance(end, ConnectionResetError)
    # Each half second of the two or three that it is given; some may be late on a slow machine.
    assert heartbeats >= 3


@rule("AMQP 0-9-1 section 4.2.7", "Heartbeats, and any other traffic, keep the connection.")
@pytest.mark.parametrize("with_", ["heartbeats", "methods"])
@pytest.mark.slow
def test_traffic_keeps_the_connection(wire: OpenWire, with_: str) -> None:
    client = wire(heartbeat_s=1)
    client.open_channel()
    for _ in range(5):  # one each second at the least: longer than the three seconds that are let pass
        while client.read_frame()[0] != HEARTBEAT:
            pass
        if with_ == "heartbeats":
            client.send_bytes(frame.marshal(heartbeat.Heartbeat(), 0))
        else:
            assert isinstance(client.call(Basic.Qos(prefetch_count=1), channel=1), Basic.QosOk)
    assert isinstance(client.call(Queue.Declare(queue="", exclusive=True), channel=1), Queue.DeclareOk)


@rule("AMQP 0-9-1 section 4.2.7", "With a heartbeat of 0 there are none.")
@pytest.mark.slow
def test_no_heartbeats(wire: OpenWire) -> None:
    silent, beating = wire(heartbeat_s=0), wire(heartbeat_s=1)
    assert beating.read_frame()[0] == HEARTBEAT
    silent.open_channel()  # the next frame is the answer
    assert not silent.buffer


@rule("AMQP 0-9-1 section 4.2.7", "A heartbeat may come at any time, also when none was asked for.")
def test_a_heartbeat_that_was_not_asked_for(client: Wire) -> None:
    client.send_bytes(frame.marshal(heartbeat.Heartbeat(), 0))
    assert alive(client)


@rule("AMQP 0-9-1 section 4.2.7", "A heartbeat frame on another channel than 0 is an error.")
def test_a_heartbeat_on_a_channel(client: Wire) -> None:
    client.send_bytes(frame_bytes(HEARTBEAT, b""))
    check_close(client.closed("connection"), 505)


@rule("RabbitMQ: connections", "An operator who closes a connection gives it 320 and a reason.")
@pytest.mark.slow
def test_closed_by_an_operator(wire: OpenWire, admin: Admin) -> None:
    client = wire()
    admin.close_connection(client.name, "closed by a test")
    check_close(client.closed("connection"), 320, "CONNECTION_FORCED - closed by a test")


@rule("RabbitMQ: vhosts", "Deleting a virtual host closes its connections with 320.")
def test_a_deleted_vhost_closes_its_connections(wire: OpenWire, admin: Admin, broker: Broker, unique: Names) -> None:
    vhost = str(unique)
    admin.add_vhost(vhost)
    admin.set_permissions(vhost, broker.user, ".*", ".*", ".*")
    client = wire(vhost=vhost)
    admin.delete_vhost(vhost)
    check_close(client.closed("connection"), 320)


@rule("RabbitMQ: access-control", "Deleting a user closes its connections with 320.")
def test_a_deleted_user_is_out(wire: OpenWire, admin: Admin, broker: Broker, unique: Names) -> None:
    user = str(unique)
    admin.add_user(user, "secret")
    admin.set_permissions(broker.vhost, user, ".*", ".*", ".*")
    client = wire(user=user, password="secret")
    admin.delete_user(user)
    check_close(client.closed("connection"), 320)


@rule("RabbitMQ: connection-blocked", "A publisher is told of an alarm, and of its end; a consumer never.")
def test_connection_blocked(wire: OpenWire, admin: Admin, unique: Names) -> None:
    queue = unique("queue")
    publisher, consumer, bystander = wire(), wire(), wire()
    for each in (publisher, consumer, bystander):
        each.open_channel()
    ask(publisher, Queue.Declare(queue=queue))
    consume(consumer, queue, no_ack=True)
    admin.set_alarm(True)
    try:
        publish(publisher, "", queue, b"first")
        assert publisher.expect(Connection.Blocked).reason == "low on memory"
        publish(publisher, "", queue, b"second")
        assert alive(bystander)
    finally:
        admin.set_alarm(False)
    publisher.expect(Connection.Unblocked)
    assert [consumer.read_message()[1].body for _ in range(2)] == [b"first", b"second"]
    for each in (consumer, bystander):  # nor were they told before
        assert alive(each)


@rule("AMQP 0-9-1 section 1.4.2.9", "pika sees code and text of a connection error, and can connect again.")
def test_pika_sees_the_error(connect: Connect) -> None:
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connect().channel().basic_qos(prefetch_size=1)
    assert (caught.value.reply_code, caught.value.reply_text) == (540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)")
    assert connect().channel().is_open
