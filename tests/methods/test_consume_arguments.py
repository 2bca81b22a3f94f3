"""Arguments of basic.consume, and what quorum and single active consumer queues do not take."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.harness.harness import Client, Harness

Basic, Channel, Connection, Queue = commands.Basic, commands.Channel, commands.Connection, commands.Queue
Q = "queue 'q' in vhost '/'"
CLASSIC, QUORUM = {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def refusal(client: Client, **options: Any) -> tuple[int, str]:
    client.send(Basic.Consume(queue="q", consumer_tag="t", **options))
    close = client.expect(Channel.Close)
    assert (close.class_id, close.method_id) == (60, 20)
    assert not client.connection.channels[1].consumers
    return close.reply_code, close.reply_text


@pytest.mark.parametrize("kind", [CLASSIC, QUORUM], ids=str)
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x-priority": "5"}, "invalid arg 'x-priority' for {}: \"expected integer, got longstr\""),
        ({"x-priority": True}, "invalid arg 'x-priority' for {}: \"expected integer, got bool\""),
        ({"x-consumer-timeout": "5"}, "invalid arg 'x-consumer-timeout' for {}: \"expected integer, got longstr\""),
        ({"x-consumer-timeout": -1}, "invalid arg 'x-consumer-timeout' for {}: {{value_negative,-1}}"),
        ({"x-stream-offset": "first"}, "invalid arg 'x-stream-offset' for {} of queue type rabbit_{}_queue"),
        ({"x-stream-filter": "a"}, "invalid arg 'x-stream-filter' for {} of queue type rabbit_{}_queue"),
    ],
    ids=str,
)
def test_a_wrong_argument(client: Client, kind: dict[str, str], arguments: dict[str, Any], reason: str) -> None:
    client.declare("q", durable=True, arguments=kind)
    words = reason.format(Q, kind["x-queue-type"])
    assert refusal(client, arguments=arguments) == (406, f"PRECONDITION_FAILED - {words}")


@pytest.mark.parametrize(
    ("arguments", "priority", "timeout_ms"),
    [
        ({}, 0, None),
        ({"x-priority": -7}, -7, None),
        ({"x-priority": 2**40, "x-consumer-timeout": 9}, 2**40, 9),
        ({"x-unknown": "x", "x-cancel-on-ha-failover": True}, 0, None),
    ],
    ids=str,
)
def test_what_a_consumer_asks_for(
    client: Client, arguments: dict[str, Any], priority: int, timeout_ms: int | None
) -> None:
    client.declare("q")
    client.consume("q", arguments=arguments)
    consumer = client.connection.channels[1].consumers["t"]
    assert (consumer.priority, consumer.ack_timeout_ms) == (priority, timeout_ms)


def test_nobody_is_alone_on_a_queue_with_a_single_active_consumer(client: Client) -> None:
    client.declare("q", arguments={"x-single-active-consumer": True})
    assert refusal(client, exclusive=True) == (403, f"ACCESS_REFUSED - {Q} in exclusive use")


def test_arguments_are_looked_at_before_who_else_consumes(harness: Harness, client: Client) -> None:
    client.declare("q")
    harness.client().consume("q", exclusive=True)
    assert refusal(client, arguments={"x-priority": "5"})[0] == 406


def test_a_quorum_queue_ignores_that_a_consumer_wants_to_be_alone(client: Client) -> None:
    client.declare("q", durable=True, arguments=QUORUM)
    client.consume("q", "one", exclusive=True)
    client.consume("q", "two")
    client.consume("q", "three", exclusive=True)


def test_a_quorum_queue_has_no_prefetch_that_consumers_share(client: Client) -> None:
    client.declare("q", durable=True, arguments=QUORUM)
    client.call(Basic.Qos(prefetch_count=5, global_=True), Basic.QosOk)
    client.send(Basic.Consume(queue="q", consumer_tag="t"))
    close = client.expect(Connection.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (540, 60, 20)
    assert close.reply_text == f"NOT_IMPLEMENTED - {Q} does not support global qos"


def test_a_shared_prefetch_that_comes_later_is_not_for_consumers_of_quorum_queues(client: Client) -> None:
    client.declare("q", durable=True, arguments=QUORUM)
    client.consume("q")
    client.call(Basic.Qos(prefetch_count=1, global_=True), Basic.QosOk)
    for _ in range(3):
        client.publish()
    assert len(client.messages()) == 3


def test_no_shared_prefetch_is_one_of_zero(client: Client) -> None:
    client.declare("q", durable=True, arguments=QUORUM)
    client.call(Basic.Qos(prefetch_count=5, global_=True), Basic.QosOk)
    client.call(Basic.Qos(prefetch_count=0, global_=True), Basic.QosOk)
    client.consume("q")
