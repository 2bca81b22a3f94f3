"""What is too much for one turn goes on in the next: the others are served between, and what is seen is the same."""

from __future__ import annotations

import pytest
from pamqp import base, commands, frame

from amqpd.flow.turns import TURN_WORK_MAX
from amqpd.session.settling import ENTRY_WORK
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.invariants import check_node

Basic, Channel, Connection, Queue = commands.Basic, commands.Channel, commands.Connection, commands.Queue
Tx = commands.Tx
# More than one turn has space for, whatever is done with each.
MANY = TURN_WORK_MAX // ENTRY_WORK + 500


class Watched(Harness):
    """With another client, which asks for something in each tick."""

    other: Client


@pytest.fixture
def harness() -> Watched:
    harness = Watched()
    harness.other = harness.client()
    harness.other.declare("others")
    return harness


@pytest.fixture
def client(harness: Watched) -> Client:
    client = harness.client()
    client.declare("q")
    return client


def work(harness: Harness) -> int:
    """Ticks until nothing is left to do; in each of them the other client is answered."""
    assert isinstance(harness, Watched)
    ticks, other = 0, harness.other
    while harness.node.turns.waiting or harness.node.behind:
        harness.node.turns.begin(1)
        other.connection.receive(frame.marshal(Queue.Declare(queue="others", passive=True), 1))
        harness.node.turns.next()
        harness.reads += harness.node.tick()
        assert other.take(Queue.DeclareOk), "another client waits"
        ticks += 1
        assert ticks < 1000
    harness.step()
    return ticks


def give(client: Client, *methods: base.Frame, channel: int = 1) -> None:
    """Sent, and one tick."""
    client.harness.node.turns.begin(1)
    client.connection.receive(b"".join(frame.marshal(method, channel) for method in methods))
    client.harness.reads += client.harness.node.tick()


def consume_each(client: Client, count: int, no_ack: bool = False) -> None:
    """Consumers with an unacknowledged message each."""
    methods: list[base.Frame] = [Basic.Qos(prefetch_count=1)]
    methods += [Basic.Consume(queue="q", consumer_tag=f"t{n}", nowait=True) for n in range(count)]
    give(client, *methods)
    work(client.harness)
    for at in range(0, count, 100):
        client.raw(publish_bytes(b"x", "q") * min(100, count - at))
    client.collect()
    client.inbox.clear()
    assert client.connection.channels[1].unacked.count == count
    assert len(list(client.connection.channels[1].unacked)) == count, "one entry each"


def backlog(harness: Harness) -> tuple[int, int]:
    found = harness.node.queues["/", "q"].backlog
    return found.ready, found.unacked


def test_a_channel_with_very_many_consumers_closes_in_steps(harness: Watched, client: Client) -> None:
    consume_each(client, MANY)
    give(client, Channel.Close(200, "", 0, 0))
    assert not client.take(Channel.CloseOk), "it is not done yet"
    assert work(harness), "it was done at once"
    client.expect(Channel.CloseOk)
    assert backlog(harness) == (MANY, 0)
    assert not harness.node.queues["/", "q"].consumers
    check_node(harness.node)


def test_what_is_being_given_back_gets_nothing_more(harness: Watched, client: Client) -> None:
    consume_each(client, MANY)
    give(client, Channel.Close(200, "", 0, 0))
    while client.connection.intake.unfinished:
        harness.node.turns.begin(0)
        harness.node.turns.next()
        harness.reads += harness.node.tick()
        assert not client.messages()
    client.expect(Channel.CloseOk)
    assert backlog(harness) == (MANY, 0)


def test_a_failed_channel_says_so_when_it_has_given_everything_back(harness: Watched, client: Client) -> None:
    consume_each(client, MANY)
    give(client, Queue.Declare(queue="nothing", passive=True))
    assert not client.take(Channel.Close)
    work(harness)
    assert client.expect(Channel.Close).reply_code == 404
    assert backlog(harness) == (MANY, 0)
    client.send(Channel.CloseOk())
    client.channel(1)
    check_node(harness.node)


@pytest.mark.parametrize("how", ["lost", "close", "forced"])
def test_a_connection_leaves_in_steps(harness: Watched, client: Client, how: str) -> None:
    consume_each(client, MANY)
    for number in range(200):
        client.declare(f"x{number}", exclusive=True)
    if how == "lost":
        client.connection.lost()
        assert client.connection.id not in harness.node.connections
    elif how == "forced":
        client.connection.force_close("enough")
        client.expect(Connection.Close)
    else:
        client.harness.node.turns.begin(1)
        client.connection.receive(frame.marshal(Connection.Close(200, "", 0, 0), 0))
        assert not client.take(Connection.CloseOk)
    assert work(harness), "it was done at once"
    if how == "close":
        client.expect(Connection.CloseOk)
    assert backlog(harness) == (MANY, 0)
    assert list(harness.node.queues) == [("/", "others"), ("/", "q")]
    assert not list(harness.node.owned_queues(client.connection.id))
    check_node(harness.node)


def test_a_client_that_is_lost_while_its_channel_closes(harness: Watched, client: Client) -> None:
    """The second thing begins behind the first."""
    consume_each(client, MANY)
    give(client, Channel.Close(200, "", 0, 0))
    client.connection.lost()
    work(harness)
    assert backlog(harness) == (MANY, 0)
    assert not harness.node.queues["/", "q"].consumers
    check_node(harness.node)


@pytest.mark.parametrize("how", ["ack", "nack", "reject", "recover"])
def test_very_many_deliveries_are_settled_in_steps(harness: Watched, client: Client, how: str) -> None:
    consume_each(client, MANY)
    methods: dict[str, base.Frame] = {
        "ack": Basic.Ack(MANY, True),
        "nack": Basic.Nack(0, True, True),
        "reject": Basic.Nack(MANY, True, False),
        "recover": Basic.Recover(True),
    }
    give(client, *(Basic.Cancel(f"t{n}", True) for n in range(MANY)))
    work(harness)
    give(client, methods[how], Queue.Declare(queue="q", passive=True))
    assert not client.take((Queue.DeclareOk, Basic.RecoverOk)), "what comes behind it waits"
    assert work(harness), "it was done at once"
    if how == "recover":
        client.expect(Basic.RecoverOk)
    back = how in ("nack", "recover")
    assert client.expect(Queue.DeclareOk).message_count == (MANY if back else 0)
    assert backlog(harness) == ((MANY, 0) if back else (0, 0))
    assert client.connection.channels[1].consumed == 0
    check_node(harness.node)


def test_what_is_delivered_meanwhile_was_not_meant(harness: Watched, client: Client) -> None:
    """basic.ack(0, multiple) is of what was outstanding: the acknowledged consumers have had more since."""
    consume_each(client, MANY)
    client.connection.receive(publish_bytes(b"y", "q") * MANY)
    give(client, Basic.Ack(0, True))
    work(harness)
    assert client.connection.channels[1].unacked.count == MANY
    assert backlog(harness) == (0, MANY)
    assert {message.body for message in client.messages()} == {b"y"}
    check_node(harness.node)


def test_a_tag_that_is_unknown_behind_many_that_are_not(harness: Watched, client: Client) -> None:
    consume_each(client, MANY)
    # As the kernel takes a range of single acknowledgements.
    client.harness.node.turns.begin(1)
    client.connection.receive(b"".join(frame.marshal(Basic.Ack(tag), 1) for tag in range(1, MANY + 2)))
    work(harness)
    assert "unknown delivery tag" in client.expect(Channel.Close).reply_text
    check_node(harness.node)


def test_the_consumers_of_a_deleted_queue_are_told_in_steps(harness: Watched, client: Client) -> None:
    other = harness.client()
    count = 2000
    give(client, *(Basic.Consume(queue="q", consumer_tag=f"t{n}", nowait=True) for n in range(count)))
    work(harness)
    other.send(Queue.Delete(queue="q"))
    work(harness)
    other.expect(Queue.DeleteOk)
    assert len(client.take(Basic.Cancel)) == count
    assert not client.connection.channels[1].consumers


def test_a_consumer_that_its_client_cancels_before_it_was_told(harness: Watched, client: Client) -> None:
    """The queue is gone, the tag is free again, and the new consumer of that tag is another one."""
    count = 2000
    client.declare("p")
    give(client, *(Basic.Consume(queue="q", consumer_tag=f"t{n}", nowait=True) for n in range(count)))
    work(harness)
    queue = harness.node.queues["/", "q"]
    harness.node.end_queue(queue)
    last = f"t{count - 1}"
    client.connection.receive(
        frame.marshal(Basic.Cancel(last, True), 1)
        + frame.marshal(Basic.Consume(queue="p", consumer_tag=last, nowait=True), 1)
    )
    work(harness)
    assert len(client.take(Basic.Cancel)) == count - 1
    assert list(client.connection.channels[1].consumers) == [last]


def test_all_consumers_are_checked_when_a_secret_is_renewed(harness: Watched, client: Client) -> None:
    client.declare("forbidden")
    give(
        client,
        *(Basic.Consume(queue="q", consumer_tag=f"t{n}", nowait=True) for n in range(3000)),
        Basic.Consume(queue="forbidden", consumer_tag="last", nowait=True),
    )
    work(harness)
    harness.access.forbidden.add(("read", "forbidden"))
    client.harness.node.turns.begin(1)
    client.connection.receive(frame.marshal(Connection.UpdateSecret("s", "r"), 0))
    assert not client.take(Connection.UpdateSecretOk)
    work(harness)
    assert [cancel.consumer_tag for cancel in client.take(Basic.Cancel)] == ["last"]
    client.expect(Connection.UpdateSecretOk)
    assert "last" not in client.connection.channels[1].consumers


def test_channels_that_wait_for_close_ok_are_bounded(harness: Watched, client: Client) -> None:
    limit = client.connection.channel_max
    fail = [Channel.Open(), Queue.Declare(queue="nothing", passive=True)]
    for number in range(2, limit + 2):
        client.connection.receive(b"".join(frame.marshal(method, number) for method in fail))
        work(harness)
    assert len(client.take(Channel.Close)) == limit
    client.take(Channel.OpenOk)
    client.send(Channel.Open(), limit + 2)
    close = client.expect(Connection.Close)
    assert (close.reply_code, close.reply_text) == (530, f"NOT_ALLOWED - {limit} channels wait for channel.close-ok")


def acknowledge_every_second(client: Client) -> None:
    """In a transaction, so that the ledger cannot keep neighbours as one."""
    give(client, Tx.Select())
    work(client.harness)
    for at in range(1, MANY, 200):
        give(client, *(Basic.Ack(delivery_tag=tag) for tag in range(at, min(at + 200, MANY), 2)))
        work(client.harness)
    client.collect()
    client.inbox.clear()


def test_a_rollback_puts_back_in_steps(harness: Watched, client: Client) -> None:
    consume_each(client, MANY)
    acknowledge_every_second(client)
    harness.node.turns.turn_work = 250
    client.connection.receive(frame.marshal(Tx.Rollback(), 1))
    assert not client.take(Tx.RollbackOk), "it is not done yet"
    assert work(harness) > 1, "it was done at once"
    client.expect(Tx.RollbackOk)
    ledger = client.connection.channels[1].unacked
    assert [entry.tag for entry in ledger] == list(range(1, MANY + 1))
    assert backlog(harness) == (0, MANY)
    check_node(harness.node)
    give(client, Channel.Close(200, "", 0, 0))
    work(harness)
    assert backlog(harness) == (MANY, 0)


@pytest.mark.parametrize("how", ["close", "lost"])
def test_a_transaction_is_given_up_in_steps(harness: Watched, client: Client, how: str) -> None:
    consume_each(client, MANY)
    acknowledge_every_second(client)
    if how == "lost":
        client.connection.lost()
    else:
        give(client, Channel.Close(200, "", 0, 0))
        assert not client.take(Channel.CloseOk), "it is not done yet"
    assert work(harness), "it was done at once"
    assert backlog(harness) == (MANY, 0)
    assert harness.node.client_counters.unfinished.nbytes == 0
    check_node(harness.node)
