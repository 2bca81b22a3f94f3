"""What clients begin and do not finish: transactions without a commit, messages without an end.

It is counted, bounded for a connection and for the node, and given back when it ends; a user that holds much never
takes the space of one that holds little.
"""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import body, commands, frame, header

from amqpd.publishing import transaction
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.resident import KIB, MIB, queue_of, traced

SMALL = Limits(message_bytes_max=100 * KIB, unfinished_bytes_max=4 * MIB)


def tx_client(harness: Harness, channels: int = 1) -> Client:
    client = harness.client()
    for number in range(1, channels + 1):
        if number > 1:
            client.channel(number)
        client.call(commands.Tx.Select(), commands.Tx.SelectOk, number)
    return client


def begin(client: Client, body_size: int, channel: int = 1) -> None:
    """A publish without its body."""
    data = frame.marshal(commands.Basic.Publish(routing_key="q"), channel)
    data += frame.marshal(header.ContentHeader(body_size=body_size), channel)
    client.raw(data)


def go_on(client: Client, nbytes: int, channel: int = 1) -> None:
    client.raw(frame.marshal(body.ContentBody(bytes(nbytes)), channel))


def closes(client: Client) -> list[tuple[int, Any]]:
    client.collect()
    found = [
        (number, value.reply_code) for number, value in client.inbox if isinstance(value, commands.Channel.Close)
    ]
    client.inbox = []
    return found


def unfinished(harness: Harness) -> int:
    return harness.node.client_counters.unfinished.nbytes


# Acknowledgements in a transaction


def test_acknowledging_nothing_costs_a_transaction_nothing() -> None:
    """basic.ack of all there is, when there is nothing."""
    client = tx_client(Harness())
    ack = frame.marshal(commands.Basic.Ack(delivery_tag=0, multiple=True), 1)
    with traced() as resident:
        for _ in range(50):
            client.raw(ack * 1000)
    assert resident[0] < 100 * KIB, f"{resident[0] / 50_000:.0f} bytes for each"


def test_neighbours_that_are_acknowledged_one_by_one_are_one_entry() -> None:
    harness = Harness()
    client = tx_client(harness)
    client.declare("q")
    other = harness.client()
    other.raw(publish_bytes(b"x", "q") * 5000)
    client.consume("q")
    client.messages()
    with traced() as resident:
        for first in range(1, 5001, 500):
            acks = [frame.marshal(commands.Basic.Ack(delivery_tag=tag), 1) for tag in range(first, first + 500)]
            client.raw(b"".join(acks))
    assert resident[0] < 100 * KIB, f"{resident[0] / 5000:.0f} bytes for each"
    assert queue_of(harness).backlog.unacked == 5000
    client.call(commands.Tx.Rollback(), commands.Tx.RollbackOk)
    assert unfinished(harness) == 0
    client.send(commands.Basic.Ack(delivery_tag=5000, multiple=True))
    client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    assert (queue_of(harness).backlog.unacked, queue_of(harness).backlog.ready) == (0, 0)


def test_acknowledgements_and_rejections_of_a_transaction_keep_their_order_and_kind() -> None:
    harness = Harness()
    client = tx_client(harness)
    client.declare("q")
    harness.client().raw(b"".join(publish_bytes(str(number).encode(), "q") for number in range(1, 7)))
    client.consume("q")
    client.bodies()
    for method in (
        commands.Basic.Ack(delivery_tag=1),
        commands.Basic.Nack(delivery_tag=2, requeue=True),
        commands.Basic.Nack(delivery_tag=3, requeue=True),
        commands.Basic.Reject(delivery_tag=4, requeue=False),
        commands.Basic.Ack(delivery_tag=6),
        commands.Basic.Ack(delivery_tag=5),
    ):
        client.send(method)
    client.send(commands.Tx.Commit())
    assert client.bodies() == [b"2", b"3"]
    client.expect(commands.Tx.CommitOk)
    assert queue_of(harness).backlog.unacked == 2


def test_acknowledgements_in_any_order_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "TX_BYTES_MAX", 256 * KIB, raising=False)
    harness = Harness(Limits(message_bytes_max=1))
    monkeypatch.setattr(transaction, "MESSAGE_EXTRA_BYTES", 0, raising=False)
    client = tx_client(harness)
    client.declare("q")
    harness.client().raw(publish_bytes(b"x", "q") * 6000)
    client.consume("q")
    client.bodies()
    client.raw(b"".join(frame.marshal(commands.Basic.Ack(delivery_tag=tag), 1) for tag in range(1, 6001, 2)))
    assert closes(client) == [(1, 406)]
    assert (unfinished(harness), queue_of(harness).backlog.ready) == (0, 6000)


# Transactions of one connection


def test_the_transactions_of_a_connection_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "TX_BYTES_MAX", MIB)
    monkeypatch.setattr(transaction, "MESSAGE_EXTRA_BYTES", 0)
    harness = Harness(SMALL)
    client = tx_client(harness, channels=11)
    client.declare("q")
    refused = []
    for channel in range(1, 12):
        for _ in range(9):
            client.raw(publish_bytes(bytes(100 * KIB), "q", channel=channel))
        refused += closes(client)
    assert refused, "eleven times nearly the bound"
    assert {code for _, code in refused} == {406}
    assert client.connection.transaction_bytes <= MIB
    client.lose()
    assert (client.connection.transaction_bytes, unfinished(harness)) == (0, 0)


@pytest.mark.parametrize("end", ["commit", "rollback", "close", "lost", "error"])
def test_what_a_transaction_held_is_given_back_when_it_ends(end: str) -> None:
    harness = Harness()
    client = tx_client(harness)
    client.declare("q")
    client.raw(publish_bytes(bytes(100 * KIB), "q"))
    assert unfinished(harness) > 100 * KIB
    if end == "commit":
        client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    elif end == "rollback":
        client.call(commands.Tx.Rollback(), commands.Tx.RollbackOk)
    elif end == "close":
        client.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    elif end == "error":
        client.call(commands.Queue.Declare(queue="missing", passive=True), commands.Channel.Close)
    else:
        client.lose()
    assert (unfinished(harness), client.connection.transaction_bytes) == (0, 0)
    assert not harness.node.client_counters.unfinished._connections


@pytest.mark.slow
def test_headers_of_a_transaction_take_no_more_than_is_counted() -> None:
    """Decoded they are many times as large as they came."""
    harness = Harness()
    client = tx_client(harness)
    client.declare("q")
    with traced() as resident:
        for number in range(100):
            client.raw(publish_bytes(b"", "q", headers={"a": [{}] * 4000, "n": number}))
    assert resident[0] < 1.5 * unfinished(harness), f"{resident[0]} bytes, {unfinished(harness)} counted"


# All of the node


def test_transactions_of_all_connections_are_bounded_and_who_holds_little_is_left_alone() -> None:
    """Eleven transactions held the memory alarm on for ever."""
    harness = Harness(SMALL)
    modest = tx_client(harness)
    modest.connection.user = "modest"
    modest.declare("q")
    modest.raw(publish_bytes(b"mine", "q"))
    greedy = [tx_client(harness) for _ in range(11)]
    for _ in range(9):
        for client in greedy:
            if not client.connection.channels[1].closing:
                client.raw(publish_bytes(bytes(99 * KIB), "q"))
            assert unfinished(harness) <= SMALL.unfinished_bytes_max
    refused = [code for client in greedy for _, code in closes(client)]
    assert refused
    assert set(refused) == {406}
    modest.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    assert queue_of(harness).backlog.ready == 1


def test_a_user_with_many_connections_is_one_holder() -> None:
    """Spread over a hundred connections, each holds less than the one of somebody else."""
    harness = Harness(SMALL)
    alone = tx_client(harness)
    alone.connection.user = "alone"
    alone.declare("q")
    alone.raw(publish_bytes(bytes(99 * KIB), "q") * 5)
    many = [tx_client(harness) for _ in range(100)]
    for client in many:
        client.raw(publish_bytes(bytes(60 * KIB), "q"))
        assert unfinished(harness) <= SMALL.unfinished_bytes_max
    assert closes(alone) == []
    assert sum(len(closes(client)) for client in many) > 30


# Messages that do not end


def test_messages_that_do_not_end_are_bounded_together() -> None:
    """Announced and sent drop by drop, on many channels of many connections: no alarm comes before they are whole."""
    limits = Limits(message_bytes_max=10 * MIB, unfinished_bytes_max=4 * MIB)
    harness = Harness(limits)
    slow = harness.client()
    slow.connection.user = "slow"
    slow.declare("q")
    begin(slow, 200)
    go_on(slow, 100)
    clients = [harness.client() for _ in range(4)]
    with traced() as resident:
        for client in clients:
            for channel in range(2, 6):
                client.channel(channel)
                begin(client, 10 * MIB, channel)
        for _ in range(20):
            for client in clients:
                for channel in range(2, 6):
                    if not client.connection.channels[channel].closing:
                        go_on(client, 50 * KIB, channel)
    assert resident[0] < 1.2 * limits.unfinished_bytes_max, f"{resident[0] / MIB:.1f} MiB"
    refused = [code for client in clients for _, code in closes(client)]
    assert refused
    assert set(refused) == {311}
    go_on(slow, 100)
    assert queue_of(harness).backlog.ready == 1
    for client in clients:
        client.lose()
    assert unfinished(harness) == 0


@pytest.mark.parametrize("end", ["complete", "close", "lost", "error"])
def test_what_a_message_held_is_given_back_when_it_ends(end: str) -> None:
    harness = Harness(Limits(message_bytes_max=300_000))
    client = harness.client()
    client.declare("q")
    begin(client, 200_000)
    go_on(client, 100_000)
    assert unfinished(harness) > 100_000
    if end == "complete":
        go_on(client, 100_000)
        assert queue_of(harness).backlog.ready == 1
    elif end == "error":
        client.send(commands.Basic.Qos())
    elif end == "close":
        client.call(commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk, 0)
    else:
        client.lose()
    assert unfinished(harness) == 0


# Deliveries that are acknowledged with gaps


def consuming(harness: Harness, count: int) -> Client:
    harness.client().raw(publish_bytes(b"x", "q") * count)
    client = harness.client()
    client.consume("q")
    client.messages()
    return client


def ack_odd_tags(client: Client, count: int) -> None:
    client.raw(b"".join(frame.marshal(commands.Basic.Ack(delivery_tag=tag), 1) for tag in range(1, count, 2)))


def test_gaps_between_acknowledged_deliveries_are_charged_and_given_back() -> None:
    """Each acknowledgement of 21 bytes keeps ten times as much, for as long as the client likes."""
    harness = Harness()
    harness.client().declare("q")
    client = consuming(harness, 6000)
    client.connection.liveness.on_timer(1.0)
    assert unfinished(harness) == 0, "all in one piece"
    with traced() as resident:
        ack_odd_tags(client, 6000)
    client.connection.liveness.on_timer(2.0)
    assert unfinished(harness) > 3000 * 200
    assert resident[0] < 1.3 * unfinished(harness)
    client.send(commands.Basic.Ack(delivery_tag=0, multiple=True))
    client.connection.liveness.on_timer(3.0)
    assert unfinished(harness) == 0
    harness.client().raw(publish_bytes(b"x", "q") * 6000)
    client.messages()
    ack_odd_tags(client, 0)
    client.lose()
    assert unfinished(harness) == 0


def test_gaps_are_bounded_and_the_channel_with_most_is_closed() -> None:
    harness = Harness(Limits(message_bytes_max=100, unfinished_bytes_max=MIB))
    harness.client().declare("q")
    client = consuming(harness, 10_000)
    ack_odd_tags(client, 10_000)
    client.connection.liveness.on_timer(1.0)
    harness.step()
    assert closes(client) == [(1, 406)]
    assert (unfinished(harness), queue_of(harness).backlog.ready) == (0, 5000)


# What waits for clients that do not read


def unread(harness: Harness, clients: list[Client]) -> int:
    """The pump could send nothing."""
    for client in clients:
        connection = client.connection
        connection.sent(sum(map(len, connection.outbox)))
    return sum(client.connection.outbox_bytes for client in clients)


def test_many_clients_that_do_not_read_share_what_may_wait() -> None:
    limits = Limits(outbox_bytes_max=512 * KIB, outboxes_bytes_max=2 * MIB)
    harness = Harness(limits)
    publisher = harness.client()
    clients = []
    for number in range(40):
        client = harness.client()
        client.declare(f"q{number}")
        client.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), commands.Queue.BindOk)
        client.consume(f"q{number}", no_ack=True)
        clients.append(client)
    reader = clients.pop()
    for _ in range(100):
        publisher.raw(publish_bytes(bytes(10 * KIB), "", "amq.fanout"))
        waiting = unread(harness, clients)
        assert len(reader.messages()) == 1
    assert waiting < limits.outboxes_bytes_max + 40 * 100 * KIB, f"{waiting / MIB:.1f} MiB"
    for client in clients[1:]:
        client.lose()
    clients[0].collect()
    harness.step()
    while clients[0].connection.outbox:
        clients[0].collect()
        harness.step()
    assert len(clients[0].messages()) == 100
    assert harness.node.outboxes.nbytes == 0
    assert harness.node.outboxes.limit == limits.outbox_bytes_max
