"""SIGTERM, handshakes that never end, and what a clean stop keeps."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable

import pika
import pytest
from pamqp import commands, frame

from ..clients import address
from ..clients.broker_process import BrokerProcess, wait_until_refused
from ..clients.wire import PROTOCOL_HEADER, Wire, publish_bytes
from .conftest import opened, settings

MakeBroker = Callable[..., BrokerProcess]
PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


def test_sigterm_tells_clients_and_ends_with_0(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.forks = False  # the end of the interpreter, too
    broker.start()
    with Wire(broker.port) as idle, Wire(broker.port) as consuming:
        idle.open()
        consuming.open()
        consuming.open_channel()
        consuming.call(commands.Queue.Declare(queue="kept", durable=True), channel=1)
        consuming.call(commands.Basic.Consume(queue="kept"), channel=1)
        broker.send_signal(signal.SIGTERM)
        for wire in (idle, consuming):
            close = wire.read_method()[1]
            assert isinstance(close, commands.Connection.Close)
            assert close.reply_code == 320
            assert close.reply_text.startswith("CONNECTION_FORCED")
            with contextlib.suppress(ConnectionError):  # RabbitMQ does not wait for the answer
                wire.send(commands.Connection.CloseOk())
            assert wire.at_end()
        assert broker.wait() == 0
    wait_until_refused(broker.port)


def test_a_clean_stop_keeps_what_is_durable_and_every_ack(make_broker: MakeBroker) -> None:
    # The client here does not answer while the broker drains.
    broker = make_broker(**settings(amqpd={"AMQPD_DRAIN_TIMEOUT_S": "0.5"}, rabbitmq=[]))
    broker.start()
    with opened(broker) as channel:
        channel.exchange_declare("kept.exchange", "topic", durable=True)
        channel.queue_declare("kept", durable=True)
        channel.queue_declare("gone")
        channel.queue_bind("kept", "kept.exchange", "a.#")
        channel.confirm_delivery()
        for number in range(10):
            channel.basic_publish("kept.exchange", "a.b", b"%d" % number, properties=PERSISTENT)
        channel.basic_publish("", "kept", b"transient")
        tags = [channel.basic_get("kept")[0].delivery_tag for _ in range(5)]
        for tag in tags[:3]:
            channel.basic_ack(tag)
        channel.queue_declare("kept", passive=True)
        assert broker.terminate() == 0
    broker.start()
    with opened(broker) as channel:
        got = []
        while (message := channel.basic_get("kept", auto_ack=True))[0] is not None:
            got.append((message[2], message[0].redelivered))
        assert got == [(b"%d" % number, number < 5) for number in range(3, 10)]
        channel.basic_publish("kept.exchange", "a.c", b"still bound")
        assert channel.basic_get("kept", auto_ack=True)[2] == b"still bound"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            channel.queue_declare("gone", passive=True)


@pytest.mark.slow
def test_deleted_stays_deleted_over_a_kill(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.start()
    with opened(broker) as channel:
        channel.confirm_delivery()
        for queue in ("deleted", "kept"):
            channel.queue_declare(queue, durable=True)
            channel.basic_publish("", queue, b"old", properties=PERSISTENT)
        channel.exchange_declare("deleted.exchange", "fanout", durable=True)
        channel.exchange_declare("kept.exchange", "fanout", durable=True)
        channel.queue_bind("kept", "kept.exchange")
        channel.queue_unbind("kept", "kept.exchange")
        channel.exchange_delete("deleted.exchange")
        channel.queue_delete("deleted")
        broker.kill()  # at once: each -ok above is a promise
    broker.start()
    with opened(broker) as channel:
        assert channel.queue_declare("deleted", durable=True).method.message_count == 0
        channel.basic_publish("kept.exchange", "", b"no longer bound")
        assert channel.queue_declare("kept", passive=True).method.message_count == 1
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            channel.exchange_declare("deleted.exchange", passive=True)


@pytest.mark.usefixtures("only_amqpd")
def test_a_client_that_does_not_answer_cannot_hold_the_stop_up(make_broker: MakeBroker) -> None:
    broker = make_broker(environment={"AMQPD_DRAIN_TIMEOUT_S": "0.5"})
    broker.start()
    with Wire(broker.port) as silent:
        silent.open()
        assert broker.terminate(10) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("only_amqpd")
def test_a_second_sigterm_ends_it_at_once(make_broker: MakeBroker) -> None:
    broker = make_broker(environment={"AMQPD_DRAIN_TIMEOUT_S": "60"})
    broker.start()
    with Wire(broker.port) as silent:
        silent.open()
        silent.open_channel()
        silent.call(commands.Queue.Declare(queue="q", durable=True), channel=1)
        silent.call(commands.Confirm.Select(), channel=1)
        silent.send_bytes(publish_bytes(1, "", "q", b"x", commands.Basic.Properties(delivery_mode=2)))
        assert isinstance(silent.read_method()[1], commands.Basic.Ack)
        broker.send_signal(signal.SIGTERM)
        assert isinstance(silent.read_method()[1], commands.Connection.Close)
        for _ in range(20):
            # One that comes within a moment of the first counts as the same (a forwarded signal).
            broker.send_signal(signal.SIGTERM)
            if (code := broker.exit_code(within_s=0.5)) is not None:
                break
    assert code not in (0, None), f"exit code {code}"
    broker.kill()
    broker.start()
    with Wire(broker.port) as wire:
        wire.open()
        wire.open_channel()
        wire.send(commands.Basic.Get(queue="q", no_ack=True), channel=1)
        assert wire.read_message()[1].body == b"x"


@pytest.mark.slow
def test_a_handshake_that_never_ends_is_cut_off_and_nobody_else_notices(make_broker: MakeBroker) -> None:
    broker = make_broker(**settings(amqpd={"AMQPD_HANDSHAKE_TIMEOUT_S": "1"}, rabbitmq=["handshake_timeout = 1000"]))
    broker.start()
    start_ok = commands.Connection.StartOk({"long": "x" * 5000}, "PLAIN", "\0guest\0guest")
    handshake = PROTOCOL_HEADER + frame.marshal(start_ok, 0)
    silent = [address.connect(broker.port, 15) for _ in range(20)]
    dripping = address.connect(broker.port, 0.05)
    try:
        with Wire(broker.port) as busy:
            busy.open()
            busy.open_channel()
            assert drip(dripping, handshake) < len(handshake), "it was let finish, drop by drop"
            for each in silent:
                assert ended(each)
            answer = busy.call(commands.Queue.Declare(queue="", exclusive=True), channel=1)
            assert isinstance(answer, commands.Queue.DeclareOk)
            busy.close()
    finally:
        for each in [*silent, dripping]:
            each.close()


def ended(client: socket.socket) -> bool:
    """Whether the other end closes now (waits for it); a reset is an end too."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def drip(client: socket.socket, data: bytes) -> int:
    """Send byte by byte, one per receive timeout, until the other end closes; how many were sent."""
    for sent, byte in enumerate(data):
        try:
            client.send(bytes([byte]))
            while client.recv(4096):
                pass
        except TimeoutError:
            continue
        except OSError:
            pass
        return sent
    return len(data)
