"""Prefetch: how many deliveries a consumer, or all of a channel, may have unacknowledged."""

from __future__ import annotations

import pytest
from pamqp import commands

from conformance.rules import rule
from conformance.talk import ask, consume, filled, get, nothing_more, read, refused
from tests.clients.wire import Wire

Basic = commands.Basic


@rule("RabbitMQ: consumer-prefetch", "Each consumer has at most its prefetch unacknowledged.")
@pytest.mark.parametrize("prefetch", [1, 3])
def test_prefetch(client: Wire, prefetch: int) -> None:
    queue = filled(client, 8)
    ask(client, Basic.Qos(prefetch_count=prefetch))
    consume(client, queue, "a")
    consume_while(client, queue, "b", prefetch)
    assert nothing_more(client)
    client.send(Basic.Ack(1), channel=1)
    assert len(read(client, 1)) == 1
    assert nothing_more(client)


def consume_while(client: Wire, queue: str, tag: str, prefetch: int) -> None:
    """A second consumer, while deliveries to the first may be on their way before consume-ok."""
    read(client, prefetch)
    consume(client, queue, tag)
    read(client, prefetch)


@rule("RabbitMQ: consumer-prefetch", "Prefetch counts for consumers to come, not for those that are there.")
def test_prefetch_of_a_live_channel(client: Wire) -> None:
    queue = filled(client, 10)
    ask(client, Basic.Qos(prefetch_count=2))
    consume(client, queue, "a")
    read(client, 2)
    ask(client, Basic.Qos(prefetch_count=5))
    assert nothing_more(client)
    consume(client, queue, "b")
    read(client, 5)
    assert nothing_more(client)


@rule("RabbitMQ: consumer-prefetch", "With global the prefetch is shared by the channel, and holds at once.")
def test_prefetch_of_the_channel(client: Wire) -> None:
    queue = filled(client, 10)
    ask(client, Basic.Qos(prefetch_count=3, global_=True))
    consume(client, queue, "a")
    read(client, 3)
    consume(client, queue, "b")
    assert nothing_more(client)
    ask(client, Basic.Qos(prefetch_count=4, global_=True))
    read(client, 1)
    assert nothing_more(client)
    client.send(Basic.Ack(2, True), channel=1)
    read(client, 2)
    assert nothing_more(client)


@rule("RabbitMQ: consumer-prefetch", "Both limits hold when both are set.")
def test_both_prefetches(client: Wire) -> None:
    queue = filled(client, 10)
    ask(client, Basic.Qos(prefetch_count=2))
    ask(client, Basic.Qos(prefetch_count=3, global_=True))
    consume(client, queue, "a")
    read(client, 2)
    consume(client, queue, "b")
    read(client, 1)
    assert nothing_more(client)


@rule("RabbitMQ: consumer-prefetch", "basic.get and no-ack deliveries are not limited by a prefetch.")
def test_what_prefetch_does_not_limit(client: Wire) -> None:
    queue = filled(client, 6)
    ask(client, Basic.Qos(prefetch_count=1))
    for _ in range(3):
        assert get(client, queue, no_ack=False) is not None
    consume(client, queue, no_ack=True)
    read(client, 3)


@rule("AMQP 0-9-1 section 1.8.3.1", "prefetch-size is not implemented: 540.")
def test_prefetch_size(client: Wire) -> None:
    refused(client, Basic.Qos(prefetch_size=10), 540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)", "connection")
