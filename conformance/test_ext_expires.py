"""Queues that expire: x-expires ends a queue that nobody uses.

What comes in and goes out: queues with a short incarnation; whether they still exist.
Rules: use is a consumer, a basic.get or a declaration, a passive one too; publishing is not.
Not here: messages that expire (`test_ext_ttl.py`).
"""

from __future__ import annotations

import time

import pytest

from conformance.extensions import Reader, depth, gone, reachable, wait_until
from conformance.rules import rule

EXPIRES_MS = 400
EXPIRES_S = EXPIRES_MS / 1000
ARGUMENTS = {"x-expires": EXPIRES_MS}


@rule("RabbitMQ: ttl#queue-ttl", "An unused queue is deleted after x-expires, and not before.")
@pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])
def test_an_unused_queue_expires(connection, channel, unique, durable):
    before = time.monotonic()
    # Transient and shared is what newer brokers refuse by default, so the transient one is exclusive.
    channel.queue_declare(unique("q"), durable=durable, exclusive=not durable, arguments=ARGUMENTS)
    wait_until(lambda: not reachable(connection, unique("q")))
    assert time.monotonic() - before >= EXPIRES_S
    assert gone(connection, unique("q"))


@rule("RabbitMQ: ttl#queue-ttl", "A queue with a consumer does not expire; after the last one left it does.")
def test_a_consumer_keeps_a_queue(connection, channel, unique):
    channel.queue_declare(unique("used"), durable=True, arguments=ARGUMENTS)
    reader = Reader(channel, unique("used"))
    channel.queue_declare(unique("unused"), durable=True, arguments=ARGUMENTS)
    wait_until(lambda: not reachable(connection, unique("unused")))
    assert reachable(connection, unique("used"))
    before = time.monotonic()
    channel.basic_cancel(reader.tag)
    wait_until(lambda: not reachable(connection, unique("used")))
    assert time.monotonic() - before >= EXPIRES_S


@rule("RabbitMQ: ttl#queue-ttl", "Cancelling one of two consumers starts nothing.")
def test_the_other_consumer_keeps_the_queue(connection, channel, unique):
    channel.queue_declare(unique("used"), durable=True, arguments=ARGUMENTS)
    first, _ = Reader(channel, unique("used")), Reader(channel, unique("used"))
    channel.basic_cancel(first.tag)
    channel.queue_declare(unique("unused"), durable=True, arguments=ARGUMENTS)
    wait_until(lambda: not reachable(connection, unique("unused")))
    assert reachable(connection, unique("used"))


@rule("RabbitMQ: ttl#queue-ttl", "A declaration of the queue, passive or not, is a use of it.")
@pytest.mark.parametrize("passive", [False, True], ids=["active", "passive"])
def test_a_declaration_keeps_a_queue(connection, channel, unique, passive):
    channel.queue_declare(unique("q"), durable=True, arguments={"x-expires": 1500})
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        channel.queue_declare(unique("q"), durable=True, passive=passive, arguments={"x-expires": 1500})
        time.sleep(0.05)
    assert reachable(connection, unique("q"))


@rule("RabbitMQ: ttl#queue-ttl", "basic.get is a use of the queue, even when it finds nothing.")
def test_a_get_keeps_a_queue(connection, channel, unique):
    channel.queue_declare(unique("q"), durable=True, arguments={"x-expires": 1500})
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        channel.basic_get(unique("q"))
        time.sleep(0.05)
    assert reachable(connection, unique("q"))


@rule("RabbitMQ: ttl#queue-ttl", "Publishing into a queue is no use of it.")
def test_publishing_does_not_keep_a_queue(connection, channel, unique):
    channel.queue_declare(unique("q"), durable=True, arguments=ARGUMENTS)
    wait_until(lambda: not reachable(connection, unique("q")))  # which publishes all the time
    assert gone(connection, unique("q"))


@rule("RabbitMQ: dlx", "The messages of a queue that expires are not dead-lettered.")
def test_an_expiring_queue_dead_letters_nothing(connection, channel, unique):
    channel.queue_declare(unique("dead"), exclusive=True)
    routes = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": unique("dead")}
    channel.queue_declare(unique("q"), durable=True, arguments={**ARGUMENTS, **routes})
    channel.basic_publish("", unique("q"), b"x")
    wait_until(lambda: not reachable(connection, unique("q")))
    assert depth(channel, unique("dead")) == 0


@rule("RabbitMQ: quorum-queues", "A quorum queue that nobody uses expires too.")
def test_a_quorum_queue_expires(connection, channel, unique):
    channel.queue_declare(unique("q"), durable=True, arguments={**ARGUMENTS, "x-queue-type": "quorum"})
    # Each look is a use of the queue, so they are further apart than its lifetime is long. RabbitMQ 3.10 ends the
    # connection with 541 when a publish meets the queue while it expires, so nothing is published.
    time.sleep(2 * EXPIRES_S)
    wait_until(lambda: gone(connection, unique("q")), pause_s=4 * EXPIRES_S)


@rule("RabbitMQ: ttl#queue-ttl", "The name of an expired queue is free, with any arguments.")
def test_a_name_that_expired_can_be_declared_anew(connection, channel, unique):
    channel.queue_declare(unique("q"), durable=True, arguments=ARGUMENTS)
    wait_until(lambda: not reachable(connection, unique("q")))
    channel.queue_declare(unique("q"), durable=True)
    assert depth(channel, unique("q")) == 0
