"""What is counted stays counted when connections, channels and queues go."""

from __future__ import annotations

from copy import copy

from pamqp import commands

from amqpd.node.totals import SUMS, ConnectionCounts, QueueCounts, Rated, Totals
from amqpd.queues.facts import Facts
from tests.harness.harness import Client, Harness, Message

Basic, Channel, Confirm, Queue = commands.Basic, commands.Channel, commands.Confirm, commands.Queue


def sums(**counts: int) -> list[int]:
    """What is delivered here is delivered to consumers that acknowledge."""
    assert counts.keys() <= set(SUMS)
    counts["deliver"] = counts.get("deliver_get", 0)
    return [counts.get(name, 0) for name in SUMS]


def counted(harness: Harness) -> tuple[ConnectionCounts, QueueCounts]:
    """Of all that is there, and all that was."""
    connections, queues = copy(harness.node.totals.of_connections), QueueCounts()
    for connection in harness.node.connections.values():
        connections.add(connection)
    for known in harness.node.totals.of_queues.values():
        queues = copy(known)
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
    facts.delivered = other.delivered = 5
    totals.update_queue("v", facts, 5, 0)
    totals.keep_vhosts({"/"})
    totals.update_queue("v", other, 5, 0)
    facts.delivered = 6
    totals.update_queue("v", facts, 6, 0)
    assert totals.sums_by_vhost["v"] == sums(deliver_get=6, messages_ready=11)
    assert totals.of_gone_vhosts == sums(deliver_get=5), "what it had counted there"
    totals.queue_gone("v", "classic", facts)
    totals.queue_gone("v", "classic", other)
    assert totals.sums_by_vhost["v"] == sums(deliver_get=6)
    assert totals.sums == sums(deliver_get=11)


def test_what_ends_after_its_virtual_host_takes_nothing_from_the_next_of_that_name() -> None:
    totals, facts, unseen = Totals(), Facts(0), Facts(0)
    facts.delivered = 10
    totals.update_queue("gone", facts, 10, 0)
    assert totals.sums_by_vhost["gone"] == sums(deliver_get=10, messages_ready=10)
    totals.keep_vhosts({"/"})
    totals.queue_gone("gone", "classic", facts)
    assert totals.sums_by_vhost == {}
    assert totals.sums == sums(deliver_get=10), "the node counts on"
    unseen.delivered = 3
    totals.queue_gone("gone", "classic", unseen)
    assert totals.sums_by_vhost == {"gone": sums(deliver_get=3)}, "it went before anybody looked at it"
    assert totals.of_gone_vhosts == sums(deliver_get=10)
    totals.keep_vhosts({"/", "others"})
    assert totals.of_gone_vhosts == totals.sums == sums(deliver_get=13)
    assert totals.sums_by_vhost == {}, "although there are more names than entries"


def test_a_publish_counts_where_it_came_from_also_when_its_virtual_host_is_gone() -> None:
    harness = Harness()
    client, totals = harness.client(), harness.node.totals
    for name in ("a", "b", "c"):
        client.declare(name)
        client.call(commands.Queue.Bind(queue=name, exchange="amq.fanout"), commands.Queue.BindOk)
    client.publish(b"x", "", "amq.fanout")
    client.publish(b"to nobody", "none")
    totals.update_connection(client.connection)
    totals.update_connection(client.connection)
    assert totals.sums_by_vhost["/"][0] == totals.sums[0] == 2
    client.publish(b"x", "", "amq.fanout")
    client.lose()
    assert totals.sums[0] == 3
    totals.keep_vhosts({"other"})
    assert (totals.of_gone_vhosts[0], totals.rated) == (3, {})


def test_each_virtual_host_has_its_octets_confirms_and_what_reached_no_queue() -> None:
    harness = Harness()
    client = publisher(harness)
    totals, connection = harness.node.totals, client.connection
    connection.bytes_in, connection.bytes_out = 100, 30
    client.publish(b"x", "nowhere", mandatory=True)
    for _ in range(2):
        totals.update_connection(connection)
        totals.update_unroutable(harness.node.unroutable)
        found = dict(zip(SUMS, totals.sums_by_vhost["/"], strict=True))
        wanted = {"publish": 5, "confirm": 4, "recv_oct": 100, "send_oct": 30}
        assert found.items() >= {**wanted, "return_unroutable": 1, "drop_unroutable": 1}.items()
    client.lose()
    connection.bytes_out += 5
    totals.socket_closed(connection)
    assert totals.sums_by_vhost["/"][SUMS.index("send_oct")] == 35
    totals.keep_vhosts({"other"})
    assert totals.of_gone_vhosts[SUMS.index("drop_unroutable")] == 1
    assert totals.rated == {}


def test_the_ways_in_which_messages_are_taken_are_told_apart() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q")
    client.call(Basic.Get(queue="q"), Basic.GetEmpty)
    for number in range(5):
        client.publish(b"%d" % number, "q")
    client.call(Basic.Get(queue="q", no_ack=True), Message)
    client.send(Basic.Ack(delivery_tag=client.call(Basic.Get(queue="q"), Message).tag))
    client.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    client.consume("q", "with")
    client.messages()
    client.consume("q", "without", no_ack=True)
    harness.node.totals.update_queue("/", harness.node.queues["/", "q"].facts, 0, 1)
    found = dict(zip(SUMS, harness.node.totals.sums_by_vhost["/"], strict=True))
    assert (found["get"], found["get_no_ack"], found["get_empty"]) == (1, 1, 1)
    assert (found["deliver"], found["deliver_no_ack"]) == (1, 2)
    assert (found["deliver_get"], found["ack"]) == (5, 1), "taken without acknowledgement is no acknowledgement"


def test_the_rate_of_publishes_is_that_of_the_last_two_samples() -> None:
    published = Rated()
    published.count = 50
    assert published.rate(100_000) == 5
    published.count = 100
    assert published.rate(104_000) == 100 / 14
    assert published.rate(110_000) == 5
    assert published.rate(200_000) == 0
