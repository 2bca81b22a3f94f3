"""What comes into a queue with one consumer goes to it at the end of the tick, and counts as ready until then.

What is verified: other methods of the same read see it, in its place; the consumer gets it in order, as far as its
connection takes it; what went straight is settled, and what is to be acknowledged can come back.
Not here: that all this adds up whatever happens (`tests/model/test_model.py`).
"""

from __future__ import annotations

import pytest
from pamqp import commands, frame

from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import PolicyRecord, Put
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.invariants import check_node


def marshalled(method: object) -> bytes:
    return frame.marshal(method, 1)


def stored(client: Client) -> list[list[int]]:
    """Sequence numbers that the segments of queue q hold."""
    queue = client.harness.node.queues["/", "q"]
    return [[segment.first, segment.last] for level in queue.messages.levels() for segment in level.store.segments]


def consuming(no_ack: bool, limits: Limits | None = None) -> Client:
    client = Harness(limits).client()
    client.declare("q")
    client.consume("q", no_ack=no_ack)
    return client


def test_without_acknowledgements_it_goes_straight() -> None:
    client = consuming(True)
    client.raw(b"".join(publish_bytes(b"x" * size) for size in (1, 2, 2, 3)))
    messages = client.messages()
    assert [len(message.body) for message in messages] == [1, 2, 2, 3]
    assert [message.tag for message in messages] == [1, 2, 3, 4]
    queue = client.harness.node.queues["/", "q"]
    assert (queue.backlog.ready, queue.backlog.unacked, queue.messages.memory_bytes) == (0, 0, 0)
    assert (queue.facts.accepted, queue.facts.delivered, queue.facts.acked) == (4, 4, 4)
    assert sum(queue.facts.time_in_queue) == 4
    assert not stored(client)


def test_what_is_to_be_acknowledged_can_come_back() -> None:
    client = consuming(False)
    client.raw(publish_bytes(b"a") + publish_bytes(b"bb") + publish_bytes(b"ccc"))
    assert [message.tag for message in client.messages()] == [1, 2, 3]
    assert stored(client) == [[0, 2]]
    client.send(commands.Basic.Ack(2))
    client.send(commands.Basic.Reject(1, requeue=True))
    (again,) = client.messages()
    assert (again.body, again.redelivered) == (b"a", True)
    client.publish(b"dddd")
    (new,) = client.messages()
    assert (new.body, new.redelivered) == (b"dddd", False)
    check_node(client.harness.node)
    assert not client.harness.bugs


def test_what_the_prefetch_leaves_waits_in_its_place() -> None:
    client = Harness().client()
    client.declare("q")
    client.call(commands.Basic.Qos(prefetch_count=2), commands.Basic.QosOk)
    client.consume("q")
    client.raw(b"".join(publish_bytes(b"x" * size) for size in (1, 2, 3)))
    assert [len(body) for body in client.bodies()] == [1, 2]
    client.send(commands.Basic.Ack(1))
    assert [len(body) for body in client.bodies()] == [3]


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_full_connection_gets_the_rest_later(no_ack: bool) -> None:
    client = consuming(no_ack, Limits(outbox_bytes_max=4000))
    sizes = [500 + number for number in range(30)]
    client.connection.receive(b"".join(publish_bytes(b"x" * size) for size in sizes))
    client.harness.step()
    assert client.connection.outbox_full
    check_node(client.harness.node)
    found: list[int] = []
    for _ in range(30):
        found += [len(body) for body in client.bodies()]
        client.harness.step()
    assert found == sizes
    check_node(client.harness.node)


def busy() -> Client:
    """Its consumer has as much as it may have."""
    client = Harness().client()
    client.declare("q")
    client.call(commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    client.consume("q")
    client.publish(b"first")
    assert client.bodies() == [b"first"]
    return client


def test_what_a_busy_consumer_does_not_take_is_seen_and_purged() -> None:
    client = busy()
    methods = (commands.Queue.Declare(queue="q", passive=True), commands.Queue.Purge(queue="q"))
    client.raw(publish_bytes(b"a") + b"".join(map(marshalled, methods)) + publish_bytes(b"b"))
    assert client.expect(commands.Queue.DeclareOk).message_count == 1
    assert client.expect(commands.Queue.PurgeOk).message_count == 1
    client.send(commands.Basic.Ack(1))
    assert client.bodies() == [b"b"]


def test_basic_get_takes_what_a_busy_consumer_does_not() -> None:
    client = busy()
    client.raw(publish_bytes(b"a") + publish_bytes(b"bb") + marshalled(commands.Basic.Get(queue="q", no_ack=True)))
    (got,) = client.messages()
    assert got.body == b"a"
    assert isinstance(got.method, commands.Basic.GetOk)
    client.send(commands.Basic.Ack(1))
    assert client.bodies() == [b"bb"]


def test_a_queue_that_is_deleted_forgets_it() -> None:
    client = consuming(True)
    queue = client.harness.node.queues["/", "q"]
    client.raw(publish_bytes(b"a") + marshalled(commands.Queue.Delete(queue="q")))
    assert queue.messages.memory_bytes == 0
    client.harness.step()
    assert client.take(commands.Queue.DeleteOk)
    assert not client.harness.bugs


def test_a_persistent_message_stays_behind_it() -> None:
    client = Harness().client()
    client.declare("q", durable=True)
    client.consume("q", no_ack=True)
    client.raw(publish_bytes(b"a") + publish_bytes(b"b", delivery_mode=2) + publish_bytes(b"c"))
    assert client.bodies() == [b"a", b"b", b"c"]


def test_a_policy_that_comes_in_between_finds_it() -> None:
    client = consuming(True)
    client.connection.receive(publish_bytes(b"a"))
    policy = PolicyRecord("/", "short", ".*", "queues", {"message-ttl": 60_000})
    client.harness._apply([Put(policy)])
    client.connection.receive(publish_bytes(b"b"))
    client.harness.step()
    assert client.bodies() == [b"a", b"b"]
