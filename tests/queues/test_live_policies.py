"""Policies that come, change and go while queues and exchanges are in use."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.vocabulary.records import Delete, PolicyRecord, Put
from tests.harness.harness import Client, Harness, Message


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def set_policy(
    harness: Harness, name: str = "p", pattern: str = "", operator: bool = False, **definition: Any
) -> None:
    given = {key.replace("_", "-"): value for key, value in definition.items()}
    harness._apply([Put(PolicyRecord("/", name, pattern, "all", given, operator=operator))])
    harness.step()


def clear_policy(harness: Harness, name: str = "p", operator: bool = False) -> None:
    harness._apply([Delete(("operator-policy" if operator else "policy", "/", name))])
    harness.step()


def ready(harness: Harness, queue: str = "q") -> int:
    return harness.node.queues["/", queue].backlog.ready


def fill(client: Client, count: int, queue: str = "q") -> None:
    for number in range(count):
        client.publish(b"%d" % number, queue)


def test_a_maximum_length_counts_at_once_and_as_long_as_the_policy_is_there(harness: Harness, client: Client) -> None:
    client.declare("q")
    fill(client, 10)
    set_policy(harness, max_length=3)
    assert ready(harness) == 3
    fill(client, 5)
    assert ready(harness) == 3
    clear_policy(harness)
    fill(client, 5)
    assert ready(harness) == 8
    client.consume("q", no_ack=True)
    assert client.bodies() == [b"2", b"3", b"4", b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("argument", "policy", "operator", "length"),
    [(5, 3, None, 3), (3, 5, None, 3), (None, 5, 3, 3), (None, 3, 5, 3), (2, 3, 4, 2), (4, None, 3, 3)],
)
def test_of_argument_policy_and_operator_policy_the_tightest_limit_counts(
    harness: Harness, client: Client, argument: int | None, policy: int | None, operator: int | None, length: int
) -> None:
    client.declare("q", arguments={} if argument is None else {"x-max-length": argument})
    for limit, by_operator in ((policy, False), (operator, True)):
        if limit is not None:
            set_policy(harness, operator=by_operator, max_length=limit)
    fill(client, 10)
    assert ready(harness) == length


def test_a_queue_declared_under_a_policy_has_it_from_its_first_message(harness: Harness, client: Client) -> None:
    set_policy(harness, pattern="^short", max_length=1)
    client.declare("short.q")
    client.declare("q")
    for queue in ("short.q", "q"):
        fill(client, 3, queue)
    assert (ready(harness, "short.q"), ready(harness)) == (1, 3)


def test_when_a_policy_goes_the_next_one_applies(harness: Harness, client: Client) -> None:
    client.declare("q")
    set_policy(harness, "a", max_length=2)
    set_policy(harness, "b", max_length=4)
    fill(client, 10)
    assert ready(harness) == 2
    clear_policy(harness, "a")
    fill(client, 10)
    assert ready(harness) == 4


def test_a_dead_letter_exchange_by_policy_takes_what_is_rejected_from_then_on(
    harness: Harness, client: Client
) -> None:
    client.declare("q")
    client.declare("dead")
    fill(client, 2)
    for dead in (0, 1):
        tag = client.call(commands.Basic.Get(queue="q"), Message).tag
        client.send(commands.Basic.Reject(delivery_tag=tag, requeue=False))
        assert ready(harness, "dead") == dead
        set_policy(harness, dead_letter_exchange="", dead_letter_routing_key="dead")


def test_a_ttl_by_policy_counts_for_what_comes_from_then_on(harness: Harness, client: Client) -> None:
    """As in RabbitMQ 3.10, where each message has its deadline from the moment it comes."""
    client.declare("q")
    fill(client, 3)
    set_policy(harness, message_ttl=1000)
    fill(client, 2)
    set_policy(harness, message_ttl=10)
    for passed, left in ((1000, 5), (1, 3), (100_000, 3)):
        harness.node.now_ms += passed
        harness.step()
        assert ready(harness) == left


def test_a_policy_of_another_vhost_or_for_exchanges_changes_no_queue(harness: Harness, client: Client) -> None:
    client.declare("q")
    fill(client, 3)
    harness._apply([Put(PolicyRecord("other", "p", "", "all", {"max-length": 1}))])
    harness._apply([Put(PolicyRecord("/", "p", "", "exchanges", {"max-length": 1}))])
    harness.step()
    assert ready(harness) == 3


def stands_after(harness: Harness, ms: int) -> bool:
    harness.node.now_ms += ms
    harness.step()
    return ("/", "q") in harness.node.queues


@pytest.mark.parametrize("by_policy", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        {"pattern": "^none$", "max_length": 9},
        {"pattern": "^none$", "max_length": 9, "operator": True},
        {"pattern": "^q$", "max_length": 9},
        {"pattern": "^q$", "max_length": 9, "operator": True},
        {"pattern": "^q$", "expires": 500, "operator": True},
    ],
)
def test_no_policy_begins_the_time_of_an_unused_queue_again(
    harness: Harness, client: Client, other: dict[str, Any], by_policy: bool
) -> None:
    if by_policy:
        set_policy(harness, "a", "^q$", expires=100)
    client.declare("q", arguments={} if by_policy else {"x-expires": 100})
    for _ in range(9):
        assert stands_after(harness, 10)
        set_policy(harness, "other", **other)
        if by_policy:
            set_policy(harness, "a", "^q$", expires=100)  # as it is
    assert not stands_after(harness, 10)


def test_another_time_for_unused_queues_begins_when_it_is_set(harness: Harness, client: Client) -> None:
    client.declare("q")
    assert stands_after(harness, 500)
    set_policy(harness, expires=100)
    assert stands_after(harness, 90)
    set_policy(harness, expires=50)
    assert stands_after(harness, 40)
    clear_policy(harness)
    assert stands_after(harness, 500)


def test_a_policy_begins_no_other_time_again(harness: Harness, client: Client) -> None:
    """Of a message, of a delivery."""
    client.declare("q", arguments={"x-message-ttl": 100})
    fill(client, 1)
    for _ in range(9):
        assert stands_after(harness, 10)
        set_policy(harness, "other", "^q$", max_length=9)
    assert ready(harness) == 1
    assert stands_after(harness, 11)
    assert ready(harness) == 0
