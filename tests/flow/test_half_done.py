"""What a client begins and does not finish is bounded: bodies, frames, transactions, channels."""

from __future__ import annotations

import struct
from itertools import islice

import pytest
from pamqp import body, commands, frame, header

from amqpd import KERNEL
from amqpd.methods import basic
from amqpd.publishing import transaction
from amqpd.publishing.transaction import TX_BYTES_MAX
from amqpd.session.handshake import HANDSHAKE_FRAME_BYTES_MAX
from amqpd.session.intake import HELD_BYTES_MAX
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.states import ConnectionState
from tests.harness.harness import PROTOCOL_HEADER, Client, Harness, publish_bytes
from tests.harness.resident import MIB, ROOMY, queue_of, traced


def test_a_body_in_many_frames_takes_no_more_than_its_size() -> None:
    """9 octets on the wire for each octet of the body; an object for each of them would be hundreds."""
    harness = Harness(ROOMY)
    client = harness.client()
    client.declare("q")
    size = 50_000
    start = frame.marshal(commands.Basic.Publish(routing_key="q"), 1)
    start += frame.marshal(header.ContentHeader(0, size, commands.Basic.Properties()), 1)
    piece = frame.marshal(body.ContentBody(b"x"), 1) * 5_000
    with traced() as resident:
        client.connection.receive(start)
        for _ in range(size // 5_000 - 1):
            client.connection.receive(piece)
            while harness.node.turns.waiting:
                harness.node.turns.next()
    assert resident[0] < 2 * size, f"{resident[0]} bytes for {size} of a body"
    client.raw(piece)
    assert queue_of(harness).backlog.ready == 1
    client.send(commands.Basic.Get(queue="q", no_ack=True))
    (message,) = client.messages()
    assert message.body == b"x" * size


def test_a_body_that_has_only_begun_is_stopped_by_the_memory_alarm() -> None:
    harness = Harness()
    client = harness.client()
    harness.node.alarms.put("memory", "watch", True, 0)
    start = frame.marshal(commands.Basic.Publish(routing_key="q"), 1)
    start += frame.marshal(header.ContentHeader(0, 100 * MIB, commands.Basic.Properties()), 1)
    client.raw(start + frame.marshal(body.ContentBody(bytes(100_000)), 1) * 2)
    assert client.connection.reading_paused
    client.expect(commands.Connection.Blocked)


def test_what_a_suspended_channel_holds_is_bounded_also_for_frames_without_content() -> None:
    harness = Harness(automatic=False)
    harness.automatic = True
    client = harness.client()
    harness.automatic = False
    client.connection.receive(frame.marshal(commands.Queue.Declare(queue="q"), 1))
    empty = frame.marshal(body.ContentBody(b""), 1)
    with traced() as resident:
        received = 0
        while not client.connection.reading_paused:
            client.connection.receive(empty * 1000)
            received += 1000
            assert received * len(empty) < 10 * MIB, "it is read on and on"
    assert resident[0] < 3 * HELD_BYTES_MAX


@pytest.mark.skipif(KERNEL != "python", reason="counts calls of a method that compiled modules call directly")
def test_the_rest_of_a_frame_that_comes_octet_by_octet_is_not_copied_for_each() -> None:
    """A frame of the largest size, the last of it in single octets: one buffer grows, and is looked into once."""
    harness = Harness()
    client = harness.client()
    client.declare("q")
    connection = client.connection
    data = publish_bytes(bytes(131_000), "q")
    connection.receive(data[:120_000])
    looked = 0
    consume = connection._consume

    def counted(data: bytes, pos: int) -> None:
        nonlocal looked
        looked += 1
        consume(data, pos)

    connection._consume = counted  # type: ignore[method-assign]
    for octet in data[120_000:]:
        connection.receive(bytes((octet,)))
    harness.step()
    assert queue_of(harness).backlog.ready == 1
    assert looked < 30, f"{looked} looks for {len(data) - 120_000} octets"


def test_a_transaction_is_bounded() -> None:
    harness = Harness(Limits(message_bytes_max=MIB))
    client = harness.client()
    client.declare("q")
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    one = publish_bytes(bytes(100_000), "q")
    sent = 0
    while not client.connection.channels[1].closing:
        client.connection.receive(one)
        sent += len(one)
        assert sent < 2 * TX_BYTES_MAX
    assert sent > TX_BYTES_MAX - MIB
    close = client.expect(commands.Channel.Close)
    assert (close.reply_code, (close.class_id, close.method_id)) == (406, (60, 40))
    assert "too large" in close.reply_text
    assert queue_of(harness).backlog.ready == 0


def test_a_transaction_counts_the_queues_that_each_publish_goes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange that looks at headers is asked each time, and each answer is a list of its own."""
    monkeypatch.setattr(transaction, "TX_BYTES_MAX", 1_000_000)
    harness = Harness(Limits(message_bytes_max=1000))
    client = harness.client()
    for number in range(200):
        client.declare(f"q{number}")
        client.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.headers"), commands.Queue.BindOk)
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    one = publish_bytes(b"", "k", "amq.headers", headers={"a": 1}) + publish_bytes(b"", "k", "amq.headers")
    published = 0
    while not client.connection.channels[1].closing:
        client.connection.receive(one)
        published += 2
    assert published * 200 * 8 < 1_000_000


def test_the_consumers_of_a_channel_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basic, "CONSUMERS_MAX", 50)
    client = Harness().client()
    client.declare("q")
    for number in range(50):
        client.consume("q", f"t{number}")
    client.send(commands.Basic.Consume(queue="q"))
    close = client.expect(commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (
        530,
        "NOT_ALLOWED - reached maximum (50) of consumers per channel",
    )


def test_frames_before_the_negotiation_are_small() -> None:
    """From anybody: no log-in yet."""
    client = Client(Harness())
    client.raw(PROTOCOL_HEADER)
    client.expect(commands.Connection.Start)
    client.raw(struct.pack(">BHI", 1, 0, HANDSHAKE_FRAME_BYTES_MAX + 1))
    assert client.expect(commands.Connection.Close).reply_code == 501


def test_a_wide_table_is_read_in_linear_work() -> None:
    """131,000 voids in an array: pamqp copies what is left for each of them, 8 GB in all. Counted in allocations."""
    client = Harness().client()
    values = b"V" * 131_000
    array = b"\x01aA" + struct.pack(">I", len(values)) + values
    properties = struct.pack(">HHQH", 60, 0, 0, 1 << 13) + struct.pack(">I", len(array)) + array
    client.connection.receive(
        frame.marshal(commands.Basic.Publish(routing_key="q"), 1)
        + struct.pack(">BHI", 2, 1, len(properties))
        + properties
        + b"\xce"
    )
    assert client.connection.state is ConnectionState.RUNNING
    assert len(client.connection.node.properties._known) == 0


def test_channels_are_bounded() -> None:
    client = Harness(Limits(channel_max=20)).client()
    for number in islice(range(2, 100), 19):
        client.channel(number)
    client.send(commands.Channel.Open(), 21)
    assert client.expect(commands.Connection.Close).reply_code == 530


def test_what_a_client_says_of_itself_before_its_log_in_is_bounded() -> None:
    """Decoded, empty tables take many times the octets of their frame."""
    harness = Harness()
    clients = [Client(harness) for _ in range(50)]
    large = {
        "capabilities": {"connection.blocked": True, "unknown": [{}] * 700},
        "product": "P",
        "tables": [{}] * 700,
    }
    with traced() as resident:
        for client in clients:
            client.raw(PROTOCOL_HEADER)
            start = commands.Connection.StartOk(client_properties=large, response="\0guest\0wrong", mechanism="PLAIN")
            harness.automatic = False
            client.connection.receive(frame.marshal(start, 0))
    assert resident[0] / 50 < 20_000, f"{resident[0] / 50:.0f} bytes for each connection"
    connection = clients[0].connection
    assert connection.client_properties == {"product": "P", "capabilities": {"connection.blocked": True}}
    assert connection.capabilities == {"connection.blocked": True}
