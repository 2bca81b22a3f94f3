"""What is counted stays counted when connections, channels and queues go."""

from __future__ import annotations

from pamqp import commands

from amqpd.node.totals import ConnectionCounts, QueueCounts, Totals
from amqpd.queues.facts import Facts
from tests.harness.harness import Client, Harness, Message

Basic, Channel, Confirm, Queue = commands.Basic, commands.Channel, commands.Confirm, commands.Queue


def counted(harness: Harness) -> tuple[ConnectionCounts, QueueCounts]:
    """Of all that is there, and all that was."""
    connections, queues = harness.node.totals.of_connections.copy(), QueueCounts()
    for connection in harness.node.connections.values():
        connections.add(connection)
    for known in harness.node.totals.of_queues.values():
        queues = known.copy()
    for queue in harness.node.queues.values():
        queues.add(queue.facts)
    return connections, queues


def publisher(harness: Harness) -> Client:
    client = harness.client()
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.declare("q")
    client.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    for body, queue in ((b"1", "q"), (b"22", "full"), (b"333", "nowhere"), (b"4444", "q")):
        client.publish(body, queue)
    client.take((Basic.Ack, Basic.Nack))
    return client


def confirms(found: ConnectionCounts) -> tuple[int, ...]:
    return found.published, found.published_bytes, found.to_confirm, found.confirmed


def test_a_connection_s_publishes_stay_when_its_channel_and_it_go() -> None:
    harness = Harness()
    client = publisher(harness)
    assert confirms(counted(harness)[0]) == (4, 10, 4, 3)
    client.call(Channel.Close(0, "", 0, 0), Channel.CloseOk)
    assert confirms(counted(harness)[0]) == (4, 10, 4, 3)
    client.lose()
    assert confirms(counted(harness)[0]) == (4, 10, 4, 3)
    other = publisher(harness)
    assert confirms(counted(harness)[0]) == (8, 20, 8, 6)
    other.lose()
    assert confirms(counted(harness)[0]) == (8, 20, 8, 6)


def test_a_queue_s_counts_stay_when_it_is_deleted_and_one_of_its_name_begins_at_nothing() -> None:
    harness = Harness()
    client = publisher(harness)
    client.call(Basic.Get(queue="q", no_ack=True), Message)
    client.collect()
    for _ in range(2):
        counts = counted(harness)[1]
        of = dict(zip(QueueCounts.names, counts.counted, strict=True))
        assert (of["accepted"], of["got"], of["got_auto_acked"], of["refused"]) == (2, 1, 1, 1)
        assert sum(counts.time_in_queue) == 1
        client.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    client.declare("q")
    assert harness.node.queues["/", "q"].facts.accepted == 0


def test_each_way_of_taking_a_message_is_counted_as_what_it_is() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q")
    client.call(Basic.Get(queue="q"), Basic.GetEmpty)
    for number in range(6):
        client.publish(b"%d" % number, "q")
    client.call(Basic.Get(queue="q", no_ack=True), Message)
    client.send(Basic.Reject(delivery_tag=client.call(Basic.Get(queue="q"), Message).tag, requeue=True))
    client.call(Basic.Qos(prefetch_count=2), Basic.QosOk)
    client.consume("q", "with")
    client.send(Basic.Ack(delivery_tag=client.messages()[-1].tag, multiple=True))
    client.messages()
    client.consume("q", "without", no_ack=True)
    facts = harness.node.queues["/", "q"].facts
    assert (facts.got_nothing, facts.got, facts.got_auto_acked, facts.redelivered) == (1, 2, 1, 1)
    by_consumers = facts.delivered - facts.got
    assert by_consumers - facts.auto_acked == facts.acked_by_clients + harness.node.queues["/", "q"].unacked_count
    assert facts.auto_acked > 0
    assert facts.acked == 1 + facts.acked_by_clients + facts.auto_acked
    assert facts.acked + harness.node.queues["/", "q"].unacked_count == 6


def test_what_comes_and_goes_is_counted() -> None:
    harness = Harness()
    client = publisher(harness)
    client.declare("q")
    client.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    client.channel(2)
    client.lose()
    totals = harness.node.totals
    assert (totals.connections_opened, totals.connections_closed) == (1, 1)
    assert (totals.channels_opened, totals.channels_closed) == (2, 2)
    assert (totals.queues_declared, totals.queues_created, totals.queues_deleted) == (3, 2, 1)


def test_what_was_there_at_the_start_was_not_created_now() -> None:
    harness = Harness()
    harness.client().declare("q", durable=True)
    harness.restart()
    harness.step()
    assert harness.node.totals.queues_created == 0


def test_bytes_that_go_through_a_socket_after_its_connection_has_ended_are_counted_once() -> None:
    harness = Harness()
    client = harness.client()
    connection = next(iter(harness.node.connections.values()))
    connection.bytes_in, connection.bytes_out = 100, 200
    client.lose()
    connection.bytes_out += 5
    for _ in range(2):
        harness.node.totals.socket_closed(connection)
    found = harness.node.totals.of_connections
    assert (found.bytes_in, found.bytes_out) == (100, 205)


def test_a_queue_that_stands_when_its_virtual_host_is_made_again_is_in_the_new_one() -> None:
    totals, facts, other = Totals(), Facts(0), Facts(0)
    facts.accepted = other.accepted = 5
    totals.look_at("v", facts, 5, 0)
    totals.keep_vhosts({"/"})
    totals.look_at("v", other, 5, 0)
    facts.accepted = 6
    totals.look_at("v", facts, 6, 0)
    assert totals.sums_by_vhost["v"] == [6, 0, 0, 0, 11, 0]
    assert totals.of_gone_vhosts == [5, 0, 0, 0, 0, 0], "what it had counted there"
    totals.queue_gone("v", "classic", facts)
    totals.queue_gone("v", "classic", other)
    assert totals.sums_by_vhost["v"] == [6, 0, 0, 0, 0, 0]
    assert totals.sums == [11, 0, 0, 0, 0, 0]


def test_what_ends_after_its_virtual_host_takes_nothing_from_the_next_of_that_name() -> None:
    totals, facts, unseen = Totals(), Facts(0), Facts(0)
    facts.accepted = 10
    totals.look_at("gone", facts, 10, 0)
    assert totals.sums_by_vhost["gone"] == [10, 0, 0, 0, 10, 0]
    totals.keep_vhosts({"/"})
    totals.queue_gone("gone", "classic", facts)
    assert totals.sums_by_vhost == {}
    assert totals.sums == [10, 0, 0, 0, 0, 0], "the node counts on"
    unseen.accepted = 3
    totals.queue_gone("gone", "classic", unseen)
    assert totals.sums_by_vhost == {"gone": [3, 0, 0, 0, 0, 0]}, "it went before anybody looked at it"
    assert totals.of_gone_vhosts == [10, 0, 0, 0, 0, 0]
    totals.keep_vhosts({"/", "others"})
    assert totals.of_gone_vhosts == totals.sums == [13, 0, 0, 0, 0, 0]
    assert totals.sums_by_vhost == {}, "although there are more names than entries"
