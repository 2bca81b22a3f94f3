"""Quotas: who publishes faster than allowed is slowed down, and loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from amqpd.management.figures.inventory import connections
from amqpd.vocabulary.records import Delete, ParameterRecord, Put, UserRecord
from tests.harness.harness import Client, Harness, publish_bytes


@pytest.fixture
def harness() -> Harness:
    return Harness()


def limit_user(harness: Harness, **limits: int) -> None:
    harness._apply([Put(UserRecord("guest", limits={key.replace("_", "-"): limit for key, limit in limits.items()}))])


def limit_vhost(harness: Harness, **limits: int) -> None:
    value = {key.replace("_", "-"): limit for key, limit in limits.items()}
    harness._apply([Put(ParameterRecord("/", "vhost-limits", "limits", value))])


def publisher_of(harness: Harness, queue: str = "q", confirms: bool = False) -> Client:
    client = harness.client()
    client.declare(queue)
    if confirms:
        client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    return client


def ready(harness: Harness, queue: str = "q") -> int:
    return harness.node.queues["/", queue].backlog.ready


def later(harness: Harness, ms: int) -> None:
    """Time goes on by so much, with a look each tenth of a second, as the pump has it."""
    for passed in range(0, ms, 100):
        harness.node.now_ms += min(100, ms - passed)
        harness.step()


def test_a_burst_goes_at_once_and_the_rest_at_the_rate(harness: Harness) -> None:
    limit_user(harness, publish_rate=10, publish_rate_burst=30)
    client = publisher_of(harness)
    client.raw(publish_bytes(b"x") * 100)
    assert ready(harness) == 30
    assert client.connection.reading_paused
    assert [row["state"] for row in connections(harness.node, {}, 0.0)] == ["flow"]
    later(harness, 1000)
    assert ready(harness) == 40
    assert client.connection.reading_paused
    later(harness, 6000)
    assert ready(harness) == 100
    later(harness, 100)
    assert not client.connection.reading_paused
    assert not harness.node.quotas.waiting
    assert [event for event, _ in harness.logged].count("publisher_slowed") == 1


def test_messages_that_differ_are_counted_one_by_one(harness: Harness) -> None:
    limit_user(harness, publish_rate=5)
    client = publisher_of(harness)
    client.raw(b"".join(publish_bytes(b"x" * size, message_id=str(size)) for size in range(20)))
    assert ready(harness) == 5
    later(harness, 3000)
    assert ready(harness) == 20


def test_it_is_the_same_however_the_bytes_are_cut(harness: Harness) -> None:
    limit_user(harness, publish_rate=5)
    client = publisher_of(harness)
    data = publish_bytes(b"some body") * 20
    for at in range(0, len(data), 7):
        client.raw(data[at : at + 7])
    assert ready(harness) == 5
    later(harness, 2900)
    assert ready(harness) == 19
    later(harness, 100)
    assert ready(harness) == 20


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 100) | st.integers(1, 9000), min_size=2, max_size=20),
    rate=st.integers(1, 50),
    burst=st.integers(1, 20),
    rate_bytes=st.integers(3000, 50_000),
)
def test_everything_arrives_in_order_and_never_faster_than_allowed(
    sizes: list[int], cuts: list[int], rate: int, burst: int, rate_bytes: int
) -> None:
    harness = Harness()
    limit_user(harness, publish_rate=rate, publish_rate_burst=burst, publish_bytes=rate_bytes)
    client, started = publisher_of(harness), harness.node.now_ms
    frames = [publish_bytes(number.to_bytes(2, "big") + bytes(size)) for number, size in enumerate(sizes)]
    data, at = b"".join(frames), 0
    for turn in range(100_000):
        if not client.connection.reading_paused and at < len(data):
            size = cuts[turn % len(cuts)]
            client.raw(data[at : at + size])
            at += size
        count, passed_s = ready(harness), (harness.node.now_ms - started) / 1000
        assert count - 1 <= max(burst, rate // 10) + passed_s * rate
        assert sum(map(len, frames[: max(0, count - 1)])) <= rate_bytes + passed_s * rate_bytes
        if count == len(sizes):
            break
        if client.connection.reading_paused:
            later(harness, 100)
    consumer = harness.client()
    consumer.consume("q", no_ack=True)
    assert [int.from_bytes(body[:2], "big") for body in consumer.bodies()] == list(range(len(sizes)))


def test_bytes_count_with_their_frames(harness: Harness) -> None:
    one = publish_bytes(b"x" * 100)
    limit_user(harness, publish_bytes=2 * len(one), publish_bytes_burst=4 * len(one))
    client = publisher_of(harness)
    client.raw(one * 10)
    assert ready(harness) == 4
    later(harness, 3000)
    assert ready(harness) == 10


def test_a_message_larger_than_the_burst_goes_and_is_paid_for_afterwards(harness: Harness) -> None:
    limit_user(harness, publish_bytes=100_000)
    client = publisher_of(harness)
    client.publish(b"x" * 500_000)
    client.publish(b"y")
    assert ready(harness) == 1
    later(harness, 4000)
    assert ready(harness) == 1
    later(harness, 1000)
    assert ready(harness) == 2


def test_all_connections_of_a_user_and_of_a_vhost_share(harness: Harness) -> None:
    limit_vhost(harness, publish_rate=10)
    clients = [publisher_of(harness, name) for name in "abc"]
    for client, name in zip(clients, "abc", strict=True):
        client.raw(publish_bytes(b"x", name) * 30)
    assert [ready(harness, name) for name in "abc"] == [10, 0, 0]
    later(harness, 3000)
    counts = [ready(harness, name) for name in "abc"]
    assert sum(counts) == 40
    # They take turns.
    assert min(counts) >= 10
    later(harness, 5000)
    assert [ready(harness, name) for name in "abc"] == [30, 30, 30]


def test_the_tighter_of_user_and_vhost_counts(harness: Harness) -> None:
    limit_vhost(harness, publish_rate=20)
    limit_user(harness, publish_rate=5)
    client = publisher_of(harness)
    client.raw(publish_bytes(b"x") * 30)
    assert ready(harness) == 5
    limit_user(harness, publish_rate=1000)
    later(harness, 100)
    assert ready(harness) == 5 + 17  # the vhost's 20 a second are less now


def test_what_came_behind_waits_in_order(harness: Harness) -> None:
    limit_user(harness, publish_rate=2)
    client = publisher_of(harness, confirms=True)
    client.raw(publish_bytes(b"a") * 3)
    client.send(commands.Queue.Declare(queue="q", passive=True))
    assert not client.take(commands.Queue.DeclareOk)
    later(harness, 500)
    # The third message went, and with it the last token.
    assert not client.take(commands.Queue.DeclareOk)
    later(harness, 500)
    assert client.take(commands.Queue.DeclareOk)[0].message_count == 3
    acked = client.take(commands.Basic.Ack)
    assert acked[-1].delivery_tag == 3


def test_other_users_connections_and_consumers_are_not_slowed(harness: Harness) -> None:
    limit_user(harness, publish_rate=1)
    client = publisher_of(harness)
    client.raw(publish_bytes(b"x") * 2)
    assert client.connection.reading_paused
    consumer = harness.client()
    consumer.consume("q")
    assert consumer.bodies() == [b"x"]
    assert not consumer.connection.reading_paused


def test_lifting_the_limit_lets_everybody_go_on_at_once(harness: Harness) -> None:
    limit_user(harness, publish_rate=1)
    client = publisher_of(harness)
    client.raw(publish_bytes(b"x") * 50)
    assert ready(harness) == 1
    harness._apply([Put(UserRecord("guest"))])
    harness.step()
    assert ready(harness) == 50
    assert not harness.node.quotas.active
    assert not client.connection.reading_paused


def test_buckets_live_as_long_as_their_owners_limits(harness: Harness) -> None:
    quotas = harness.node.quotas
    limit_user(harness, publish_rate=1, publish_bytes=1, max_channels=3)
    limit_vhost(harness, publish_rate=1)
    assert (len(quotas._messages), len(quotas._bytes)) == (2, 1)
    limit_user(harness, publish_rate=-1, publish_bytes=1)
    harness._apply([Delete(("parameter", "/", "vhost-limits", "limits"))])
    assert (len(quotas._messages), len(quotas._bytes)) == (0, 1)
    harness._apply([Delete(("user", "guest"))])
    assert not quotas.active


def test_a_limit_that_changes_keeps_what_was_used(harness: Harness) -> None:
    limit_user(harness, publish_rate=10)
    client = publisher_of(harness)
    client.raw(publish_bytes(b"x") * 100)
    limit_user(harness, publish_rate=20)
    assert ready(harness) == 10
    later(harness, 1000)
    assert ready(harness) == 30


def test_a_throttled_connection_that_is_closed_reads_the_answer(harness: Harness) -> None:
    limit_user(harness, publish_rate=1)
    client = publisher_of(harness)
    client.raw(publish_bytes(b"x") * 5)
    client.connection.force_close("bye")
    client.expect(commands.Connection.Close)
    assert not client.connection.reading_paused
    client.send(commands.Connection.CloseOk(), 0)
    assert client.closed
    assert ready(harness) == 1
    later(harness, 1000)
    assert not harness.node.quotas.waiting


def test_a_throttled_connection_that_is_lost_is_forgotten(harness: Harness) -> None:
    limit_user(harness, publish_rate=1)
    client = publisher_of(harness)
    client.raw(publish_bytes(b"x") * 5)
    client.lose()
    later(harness, 100)
    assert not harness.node.quotas.waiting
    assert ready(harness) == 1


def test_a_transactions_publishes_are_counted_when_they_come(harness: Harness) -> None:
    limit_user(harness, publish_rate=2)
    client = publisher_of(harness)
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    client.raw(publish_bytes(b"x") * 3)
    client.send(commands.Tx.Commit())
    assert not client.take(commands.Tx.CommitOk)
    later(harness, 1000)
    client.expect(commands.Tx.CommitOk)
    assert ready(harness) == 3
