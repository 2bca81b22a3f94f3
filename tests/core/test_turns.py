"""Turns: publishes that go to many queues each do not hold up the other connections."""

from __future__ import annotations

from pamqp import commands

from amqpd.limiting.turns import COPIES_MAX
from tests.core.harness import Client, Harness, publish_bytes

QUEUES = 200


def publisher_to_all(harness: Harness, queues: int = QUEUES) -> Client:
    client = harness.client()
    for number in range(queues):
        client.declare(f"q{number}")
        client.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), commands.Queue.BindOk)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    return client


def different(messages: int) -> bytes:
    """No two of them are one run."""
    return b"".join(publish_bytes(b"%d" % n, f"k{n}", "amq.fanout") for n in range(messages))


def in_all(harness: Harness, queues: int = QUEUES) -> set[int]:
    return {harness.node.queues["/", f"q{number}"].backlog.ready for number in range(queues)}


def test_a_turn_ends_and_the_others_are_served_before_the_next() -> None:
    harness = Harness()
    client, other = publisher_to_all(harness), harness.client()
    client.connection.receive(different(300))
    harness.reads += harness.node.tick()
    done = COPIES_MAX // QUEUES + 1
    assert in_all(harness) == {done}
    assert client.connection.reading_paused
    other.connection.receive(publish_bytes(b"other", "q0"))
    harness.node.turns.next()
    assert harness.node.queues["/", "q0"].backlog.ready == 2 * done + 1
    assert harness.node.queues["/", "q1"].backlog.ready == 2 * done


def test_nothing_is_lost_and_all_is_confirmed_in_the_end() -> None:
    harness = Harness()
    client = publisher_to_all(harness)
    client.raw(different(300) + publish_bytes(b"last", "q0"))
    assert not client.connection.reading_paused
    assert in_all(harness) == {300, 301}
    assert max(ack.delivery_tag for ack in client.take(commands.Basic.Ack)) == 301
    assert not harness.node.turns.waiting


def test_who_closes_while_it_waits_is_forgotten() -> None:
    harness = Harness()
    client = publisher_to_all(harness)
    client.connection.receive(different(300))
    client.connection.lost()
    harness.node.turns.next()
    assert in_all(harness) == {COPIES_MAX // QUEUES + 1}
    assert not harness.node.turns.waiting


def test_one_queue_each_needs_no_turns() -> None:
    harness = Harness()
    client = publisher_to_all(harness, 1)
    client.connection.receive(different(COPIES_MAX + 10))
    assert not harness.node.turns.waiting
    assert in_all(harness, 1) == {COPIES_MAX + 10}
