"""Queues and channels that end are freed at once: they do not wait for a garbage collection, during which nobody is
served. Of a connection a little is left."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest
from pamqp import commands

from tests.harness.harness import Client, Harness
from tests.harness.slow import slow_but

Basic, Channel, Confirm, Queue, Tx = commands.Basic, commands.Channel, commands.Confirm, commands.Queue, commands.Tx

KINDS: dict[str, dict[str, object]] = {
    "classic": {},
    "ttl": {"x-message-ttl": 60_000, "x-dead-letter-exchange": "amq.fanout", "x-expires": 60_000},
    "limited": {"x-max-length": 5, "x-overflow": "reject-publish"},
    "priority": {"x-max-priority": 5},
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 3, "x-dead-letter-exchange": ""},
    "single": {"x-single-active-consumer": True},
}


@pytest.fixture
def garbage() -> Iterator[Counter[str]]:
    """What a collection finds after the test has ended what it made: filled by `found`."""
    gc.collect()
    # What other tests left in this process is not looked at: that may take ten times as long as the test.
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield Counter()
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()
    gc.unfreeze()


def found() -> Counter[str]:
    """Of amqpd's types, what only a collection would free."""
    gc.collect()
    types = (type(each) for each in gc.garbage)
    return Counter(each.__qualname__ for each in types if each.__module__.startswith("amqpd"))


def use(client: Client, queue: str, **arguments: object) -> None:
    client.declare(queue, durable=True, arguments=arguments)
    client.call(Queue.Bind(queue=queue, exchange="amq.topic", routing_key=f"{queue}.#"), Queue.BindOk)
    for number in range(8):
        client.publish(b"x" * number, queue, delivery_mode=2, expiration="50000")
    client.consume(queue, f"of-{queue}")
    tags = [message.tag for message in client.messages()]
    client.send(Basic.Nack(delivery_tag=tags[0], requeue=True))
    # What is not acknowledged holds on to its queue.
    client.send(Basic.Ack(delivery_tag=0, multiple=True))


@pytest.mark.usefixtures("garbage")
@pytest.mark.parametrize("kind", slow_but(("classic", "quorum"), KINDS))
def test_of_a_deleted_queue_nothing_is_left(kind: str) -> None:
    harness = Harness()
    client = harness.client()
    found()
    gc.garbage.clear()
    # One may still be remembered as the last.
    for number in range(3):
        use(client, f"{kind}{number}", **KINDS[kind])
        client.send(Queue.Delete(queue=f"{kind}{number}"))
        assert client.take(Queue.DeleteOk)
        client.inbox.clear()
    # Cleaned only when much of it is passed over.
    harness.node.wakes.heap.clear()
    assert not found()


@pytest.mark.usefixtures("garbage")
@pytest.mark.parametrize("how", ["channel", "lost"])
def test_of_a_channel_and_a_connection_nothing_is_left(how: str) -> None:
    harness = Harness()
    harness.client().declare("q")
    found()
    gc.garbage.clear()
    client = harness.client()
    client.call(Basic.Qos(prefetch_count=3, global_=True), Basic.QosOk)
    use(client, "q2")
    client.send(Confirm.Select())
    client.publish(b"x", "q2", delivery_mode=2)
    client.send(Channel.Open(), 2)
    client.send(Tx.Select(), 2)
    assert client.take(Tx.SelectOk)
    if how == "channel":
        for channel in (1, 2):
            client.send(Channel.Close(200, "", 0, 0), channel)
        assert len(client.take(Channel.CloseOk)) == 2
    else:
        client.lose()
        del client
    left = found()
    assert not left.keys() & {"Channel", "Unacked", "Consumer", "Queue", "Run"}
    assert left.total() < 10
