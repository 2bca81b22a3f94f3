"""A delivery that is not acknowledged in time closes its channel."""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.session.delivery_ages import CHECKPOINTS_MAX, CHECKPOINTS_PER_TIMEOUT, DeliveryAges
from amqpd.session.unacked import Delivered
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness

Basic, Channel, Queue = commands.Basic, commands.Channel, commands.Queue


@pytest.fixture
def harness() -> Harness:
    return Harness(Limits(consumer_timeout_s=30.0))


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    client.declare("q")
    return client


def look(client: Client, now: float) -> None:
    client.connection.liveness.on_timer(now)
    client.harness.step()
    client.collect()


def look_each_second(client: Client, first: int, last: int) -> None:
    for now in range(first, last + 1):
        look(client, float(now))


def closed(client: Client) -> str:
    close = client.expect(Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 0, 0)
    return str(close.reply_text)


def text(timeout_ms: int, channel: int = 1) -> str:
    return (
        f"PRECONDITION_FAILED - delivery acknowledgement on channel {channel} timed out. Timeout value used: "
        f"{timeout_ms} ms. This timeout value can be configured, see consumers doc guide to learn more"
    )


def test_an_unacknowledged_delivery_closes_the_channel_and_goes_to_another_one(client: Client) -> None:
    client.consume("q")
    client.publish(b"1")
    assert client.bodies() == [b"1"]
    look_each_second(client, 100, 130)
    assert not client.inbox
    look(client, 131.0)
    assert closed(client) == text(30_000)
    client.send(Channel.CloseOk())
    client.channel(1)
    client.consume("q")
    (message,) = client.messages()
    assert message.redelivered


def test_what_basic_get_delivered_counts_too(client: Client) -> None:
    client.publish(b"1")
    client.send(Basic.Get(queue="q"))
    assert client.bodies() == [b"1"]
    look(client, 1.0)
    look(client, 32.0)
    assert closed(client) == text(30_000)


def test_who_acknowledges_in_time_may_go_on_for_ever(client: Client) -> None:
    client.consume("q")
    tag = 0
    for now in range(0, 300, 20):
        client.publish()
        look(client, float(now))
        if tag:
            client.send(Basic.Ack(tag))
        tag = client.messages()[0].tag
        look(client, now + 1.0)
    assert not client.inbox


def test_it_is_the_oldest_that_counts_whatever_comes_behind_it(client: Client) -> None:
    client.consume("q")
    client.publish()
    for now in range(31):
        look(client, float(now))
        client.publish()
        message = client.messages()[-1]
        assert message.tag == now + 2
        client.send(Basic.Ack(message.tag))
    look(client, 31.0)
    assert closed(client) == text(30_000)


def test_a_delivery_behind_an_old_one_has_its_own_age(client: Client) -> None:
    client.consume("q")
    client.publish()
    look(client, 0.0)
    look(client, 10.0)
    client.publish()
    look(client, 11.0)
    client.send(Basic.Ack(1))
    look_each_second(client, 12, 41)
    client.messages()
    assert not client.inbox
    look(client, 42.0)
    assert closed(client) == text(30_000)


def test_a_settled_channel_begins_anew(client: Client) -> None:
    client.consume("q")
    client.publish()
    look(client, 0.0)
    client.send(Basic.Ack(1))
    client.publish()
    look(client, 29.0)
    client.messages()
    look(client, 58.0)
    assert not client.inbox
    look(client, 60.0)
    assert closed(client) == text(30_000)


def test_only_the_channel_of_the_delivery_is_closed(client: Client) -> None:
    client.channel(2)
    client.consume("q", channel=2)
    client.publish()
    client.messages()
    look(client, 0.0)
    look(client, 31.0)
    assert closed(client) == text(30_000, channel=2)
    client.declare("other")
    look(client, 62.0)
    assert not client.inbox


@pytest.mark.parametrize(("of_queue", "used"), [(5_000, 5_000), (100_000, 100_000), (0, 0)])
def test_a_queue_may_have_its_own(client: Client, of_queue: int, used: int) -> None:
    client.declare("own", arguments={"x-consumer-timeout": of_queue})
    client.consume("own")
    client.publish(key="own")
    client.messages()
    look(client, 0.0)
    look(client, used / 1000)
    assert not client.inbox
    look(client, used / 1000 + 1)
    assert closed(client) == text(used)


@pytest.mark.parametrize(("argument", "used"), [({}, 4_000), ({"x-consumer-timeout": 2_000}, 2_000)])
def test_a_policy_counts_from_when_it_is_there(client: Client, argument: dict[str, int], used: int) -> None:
    client.declare("own", arguments=argument)
    client.consume("own")
    client.publish(key="own")
    client.messages()
    look(client, 0.0)
    queue = client.harness.node.queues["/", "own"]
    queue.apply(queue.record, {"consumer-timeout": 4_000})
    look(client, used / 1000)
    assert not client.inbox
    look(client, used / 1000 + 1)
    assert closed(client) == text(used)


def test_a_consumer_may_have_its_own(client: Client) -> None:
    client.declare("own", arguments={"x-consumer-timeout": 100_000})
    client.consume("own", arguments={"x-consumer-timeout": 3_000})
    client.publish(key="own")
    client.messages()
    look(client, 0.0)
    look(client, 4.0)
    assert closed(client) == text(3_000)


def test_zero_turns_it_off_for_queues_that_have_none() -> None:
    harness = Harness(Limits(consumer_timeout_s=0))
    client = harness.client()
    client.declare("q")
    client.consume("q")
    client.publish()
    client.messages()
    for hour in range(1000):
        look(client, hour * 3600.0)
    assert not client.inbox
    # One behind it that has a timeout is as old as it is, once it is the oldest.
    client.declare("own", arguments={"x-consumer-timeout": 5_000})
    client.consume("own", "own")
    client.publish(key="own")
    client.messages()
    look(client, 3_600_000.0)
    client.send(Basic.Ack(1))
    look(client, 3_600_006.0)
    assert closed(client) == text(5_000)


def test_while_the_broker_does_not_read_nobody_can_acknowledge(harness: Harness, client: Client) -> None:
    client.consume("q")
    client.publish()
    client.messages()
    look(client, 0.0)
    harness.node.alarms.put("memory", "watch", True, 0)
    client.publish()
    assert client.connection.reading_paused
    look(client, 40.0)
    assert not client.take(Channel.Close)
    harness.node.alarms.put("memory", "watch", False, 0)
    harness.step()
    look(client, 41.0)
    assert client.take(Channel.Close)


def test_a_channel_that_waits_for_the_store_is_closed_when_it_goes_on() -> None:
    harness = Harness(Limits(consumer_timeout_s=30.0))
    client = harness.client()
    client.declare("q")
    client.consume("q")
    client.publish()
    client.messages()
    look(client, 0.0)
    harness.automatic = False
    client.send(Queue.Declare(queue="new"))
    look(client, 40.0)
    assert not client.inbox
    harness.automatic = True
    harness.step()
    client.expect(Queue.DeclareOk)
    look(client, 41.0)
    assert closed(client) == text(30_000)
    assert not harness.bugs


def test_ages_are_never_too_large_and_not_much_too_small(client: Client) -> None:
    ages, queue = DeliveryAges(), client.harness.node.queues["/", "q"]
    for second in (1, 2_500, 2_501):
        # In each second come two deliveries; only the first of this one is never acknowledged.
        stuck, delivered_s = 2 * second - 1, second - 0.75
        for now in range(max(1, second - 200), second + 3_000):
            oldest = Delivered(stuck if now >= second else 2 * now, 1, 0, queue, None)
            if ages.overdue_ms(oldest, 2 * now + 1, 1800.0, float(now)) is not None:
                break
        assert 1800 < now - delivered_s <= 1800 + 1800 / CHECKPOINTS_PER_TIMEOUT + 2
        assert len(ages._checkpoints) <= CHECKPOINTS_PER_TIMEOUT + 1
        ages = DeliveryAges()


def test_checkpoints_are_bounded_even_where_nothing_is_closed(client: Client) -> None:
    ages, queue = DeliveryAges(), client.harness.node.queues["/", "q"]
    for now in range(10_000):
        ages.overdue_ms(Delivered(1, 1, 0, queue, None), now + 2, 1.0, float(now))
    assert len(ages._checkpoints) == CHECKPOINTS_MAX
    assert ages.overdue_ms(Delivered(1, 1, 0, queue, None), 10_002, 60.0, 10_000.0) == 60_000
