"""Classic queues that clients of another node use, where they are otherwise than quorum queues: their node is killed
and starts again, or does not come back; they may be transient, exclusive, or go with their last consumer."""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.node.remote_sessions import LOCAL_CLAIM_WAIT_MS
from amqpd.remote.edges import AWAY_MS
from amqpd.vocabulary.records import Put
from tests.harness.harness import Client, Message
from tests.remote.two_nodes import TwoNodes

Basic, Channel, Confirm, Queue = commands.Basic, commands.Channel, commands.Confirm, commands.Queue
HELD = 5


@pytest.fixture
def nodes() -> TwoNodes:
    return TwoNodes(is_classic=True)


def publisher(nodes: TwoNodes, name: str) -> Client:
    client = nodes.client(name)
    client.call(Confirm.Select(), Confirm.SelectOk)
    return client


def consumer(nodes: TwoNodes, name: str, prefetch: int = 0) -> Client:
    client = nodes.client(name)
    client.call(Basic.Qos(prefetch_count=prefetch), Basic.QosOk)
    client.send(Basic.Consume(queue="q", consumer_tag="t"))
    nodes.step()
    client.expect(Basic.ConsumeOk)
    return client


def published(nodes: TwoNodes, client: Client, *bodies: bytes, mode: int = 2) -> None:
    for body in bodies:
        client.publish(body, "q", delivery_mode=mode)
    nodes.step()


def got(client: Client) -> list[tuple[bytes, bool]]:
    return [(each.body, each.redelivered) for each in client.take(Message)]


def test_what_a_client_holds_stays_its_own_and_what_it_published_meanwhile_is_confirmed(nodes: TwoNodes) -> None:
    client, holder = publisher(nodes, "a"), consumer(nodes, "a", HELD)
    published(nodes, client, *(b"%d" % i for i in range(HELD + 2)))
    assert got(holder) == [(b"%d" % i, False) for i in range(HELD)]
    client.take(Basic.Ack)
    nodes.restart()
    local = consumer(nodes, "b")
    published(nodes, client, b"meanwhile")
    assert got(local) == [], "it waits for what the other node's client holds"
    assert client.take(Basic.Ack) == []
    nodes.heal()
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [HELD + 3]
    assert got(local) == [(b"5", True), (b"6", True), (b"meanwhile", False)]
    holder.send(Basic.Ack(delivery_tag=HELD, multiple=True))
    nodes.step()
    queue = nodes.harness["b"].node.queues["/", "q"]
    assert (queue.ready_count, queue.unacked_count) == (0, 3)
    assert got(holder) == []


def test_a_message_that_was_lost_with_the_process_is_no_other_one_for_who_holds_it(nodes: TwoNodes) -> None:
    client, holder = publisher(nodes, "a"), consumer(nodes, "a", 1)
    published(nodes, client, b"transient", mode=1)
    assert got(holder) == [(b"transient", False)]
    nodes.restart()
    published(nodes, publisher(nodes, "b"), b"another")
    nodes.heal()
    holder.send(Basic.Ack(delivery_tag=1))
    nodes.step()
    assert got(holder) == [(b"another", False)], "its acknowledgement is swallowed"
    assert nodes.harness["b"].node.queues["/", "q"].unacked_count == 1


def test_what_was_done_before_the_end_of_the_process_is_not_done_again(nodes: TwoNodes) -> None:
    """The answer is lost with the connection."""
    client = publisher(nodes, "a")
    client.publish(b"one", "q", delivery_mode=2)
    nodes.harness["a"].step()
    while nodes.wire:
        nodes.arrives()
        nodes.wire = type(nodes.wire)(each for each in nodes.wire if each[0] == "a")  # nothing comes back
    nodes.restart()
    nodes.heal()
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [1]
    assert nodes.harness["b"].node.queues["/", "q"].ready_count == 1


def test_when_a_node_does_not_come_back_its_share_is_given_to_others(nodes: TwoNodes) -> None:
    client, holder = publisher(nodes, "a"), consumer(nodes, "a")
    published(nodes, client, b"one")
    assert got(holder) == [(b"one", False)]
    nodes.restart()
    local, node = consumer(nodes, "b"), nodes.harness["b"].node
    node.now_ms += int(LOCAL_CLAIM_WAIT_MS)
    node.remote_sessions.beat()
    nodes.step()
    assert got(local) == [(b"one", True)]


def test_a_node_that_starts_and_whose_queues_nobody_elsewhere_uses_waits_for_nobody(nodes: TwoNodes) -> None:
    published(nodes, publisher(nodes, "b"), b"one")
    nodes.restart()
    assert got(consumer(nodes, "b")) == [(b"one", True)]


def test_a_transient_queue_is_gone_and_its_consumer_is_cancelled() -> None:
    nodes = TwoNodes(is_classic=True, durable=False)
    holder = consumer(nodes, "a")
    published(nodes, publisher(nodes, "b"), b"one")
    assert got(holder) == [(b"one", False)]
    nodes.restart()
    nodes.heal()
    assert [each.consumer_tag for each in holder.take(Basic.Cancel)] == ["t"]


def test_transient_messages_that_the_process_may_have_had_are_refused_and_persistent_ones_sent_again(
    nodes: TwoNodes,
) -> None:
    """Only those that were on their way: of others nobody can have seen anything."""
    client = publisher(nodes, "a")
    published(nodes, client, b"before")
    client.take(Basic.Ack)
    client.publish(b"lost", "q", delivery_mode=1)
    client.publish(b"kept", "q", delivery_mode=2)
    nodes.harness["a"].step()
    nodes.restart()  # they were on their way
    published(nodes, client, b"not sent yet", mode=1)
    nodes.heal()
    assert [each.delivery_tag for each in client.take(Basic.Nack)] == [2]
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [3, 4]
    assert got(consumer(nodes, "b")) == [(b"before", True), (b"kept", True), (b"not sent yet", False)]


def test_of_a_node_that_is_away_for_long_publishes_are_refused_and_consumers_cancelled(nodes: TwoNodes) -> None:
    client, holder, getter = publisher(nodes, "a"), consumer(nodes, "a"), nodes.client("a")
    published(nodes, client, b"one")
    client.take(Basic.Ack)
    assert got(holder) == [(b"one", False)]
    nodes.cut()
    published(nodes, client, b"two")
    getter.send(Queue.Declare(queue="q", passive=True))
    node = nodes.harness["a"].node
    node.now_ms += AWAY_MS
    node.remote_sessions.beat()
    nodes.step()
    assert [each.delivery_tag for each in client.take(Basic.Nack)] == [2]
    assert [each.consumer_tag for each in holder.take(Basic.Cancel)] == ["t"]
    close = getter.expect(Channel.Close)
    assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - home node 'b' is down or inaccessible")
    assert node.remote["/", "q"].is_away
    holder.send(Basic.Ack(delivery_tag=1))
    nodes.heal()
    assert not node.remote["/", "q"].is_away
    queue = nodes.harness["b"].node.queues["/", "q"]
    assert (queue.ready_count, queue.unacked_count, queue.consumer_count) == (0, 0, 0), "the settle was kept"


def test_what_waits_for_a_node_that_is_away_for_long_has_an_answer(nodes: TwoNodes) -> None:
    asked = {
        method: nodes.client("a")
        for method in (
            Basic.Get(queue="q"),
            Basic.Consume(queue="q"),
            Queue.Purge(queue="q"),
            Queue.Delete(queue="q", if_empty=True),
        )
    }
    published(nodes, nodes.client("a"), b"one")
    nodes.cut()
    for method, client in asked.items():
        client.send(method)
    node = nodes.harness["a"].node
    node.now_ms += AWAY_MS
    for _ in range(2):
        node.remote_sessions.beat()
        nodes.step()
    for method, client in asked.items():
        assert client.expect(Channel.Close).reply_code == 404, method
    nodes.heal()
    queue = nodes.harness["b"].node.queues["/", "q"]
    assert queue.consumer_count == 0
    assert queue.unacked_count == 0


def test_a_queue_that_goes_with_its_last_consumer_does_so_when_that_is_of_another_node() -> None:
    nodes = TwoNodes(is_classic=True, auto_delete=True)
    first, second = consumer(nodes, "a"), consumer(nodes, "b")
    second.call(Basic.Cancel(consumer_tag="t"), Basic.CancelOk)
    assert ("/", "q") in nodes.harness["b"].node.queues
    first.send(Basic.Cancel(consumer_tag="t"))
    nodes.step()
    first.expect(Basic.CancelOk)
    assert ("/", "q") not in nodes.harness["b"].node.queues


def test_a_consumer_that_wants_to_be_alone_is_refused_where_another_one_is(nodes: TwoNodes) -> None:
    consumer(nodes, "b")
    client = nodes.client("a")
    client.send(Basic.Consume(queue="q", exclusive=True))
    nodes.step()
    close = client.expect(Channel.Close)
    assert (close.reply_code, close.reply_text) == (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use")
    assert nodes.harness["a"].node.remote["/", "q"].consumer_count == 0


def test_a_prefetch_of_the_whole_channel_is_refused_as_for_quorum_queues(nodes: TwoNodes) -> None:
    client = nodes.client("a")
    client.call(Basic.Qos(prefetch_count=1, global_=True), Basic.QosOk)
    client.send(Basic.Consume(queue="q"))
    nodes.step()
    assert client.expect(commands.Connection.Close).reply_code == 540


def test_what_is_lost_with_the_process_anyway_needs_no_journal(nodes: TwoNodes) -> None:
    client, disk = publisher(nodes, "a"), nodes.harness["b"].transactions
    before = len(disk)
    published(nodes, client, b"one", b"two", mode=1)
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [1, 2]
    assert len(disk) == before
    published(nodes, client, b"three")
    assert [change.mark for transaction in disk for change in transaction.marks] == [3]
    published(nodes, client, b"four", mode=1)
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [3, 4]
    nodes.restart()
    nodes.heal()
    published(nodes, client, b"five")
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [5]
    assert got(consumer(nodes, "b")) == [(b"three", True), (b"five", False)]


def test_a_transient_message_is_confirmed_behind_a_persistent_one_that_is_on_its_way_to_the_disk(
    nodes: TwoNodes,
) -> None:
    client, leader = publisher(nodes, "a"), nodes.harness["b"]
    published(nodes, client, b"before")
    client.take(Basic.Ack)
    leader.automatic, leader.catches_up = False, True
    published(nodes, client, b"persistent")
    published(nodes, client, b"transient", mode=1)
    assert client.take(Basic.Ack) == []
    leader.automatic = True
    nodes.step()
    assert [each.delivery_tag for each in client.take(Basic.Ack)] == [2, 3]


def test_a_reply_queue_of_a_client_of_another_node_gets_what_is_published_and_is_nobody_elses(
    nodes: TwoNodes,
) -> None:
    asker, answerer = nodes.client("b"), nodes.client("a")
    asker.declare("replies", exclusive=True)
    asker.consume("replies")
    here = nodes.harness["a"]
    put = Put(nodes.harness["b"].node.queues["/", "replies"].record)
    here.topology.apply([put])
    here.node.applied([put])
    answerer.publish(b"answer", "replies")
    nodes.step()
    assert got(asker) == [(b"answer", False)]
    answerer.send(Basic.Consume(queue="replies"))
    nodes.step()
    assert answerer.expect(Channel.Close).reply_code == 405


def test_priorities_are_kept_and_claimed() -> None:
    nodes = TwoNodes({"x-max-priority": 255}, is_classic=True)
    client = publisher(nodes, "a")
    for priority in (0, 7, 255):
        client.publish(b"%d" % priority, "q", delivery_mode=2, priority=priority)
    nodes.step()
    holder = consumer(nodes, "a", 2)
    assert got(holder) == [(b"255", False), (b"7", False)]
    nodes.restart()
    nodes.heal()
    queue = nodes.harness["b"].node.queues["/", "q"]
    assert (queue.ready_count, queue.unacked_count) == (1, 2)
    holder.send(Basic.Ack(delivery_tag=2, multiple=True))
    nodes.step()
    assert got(holder) == [(b"0", True)]
    assert (queue.ready_count, queue.unacked_count) == (0, 1)
