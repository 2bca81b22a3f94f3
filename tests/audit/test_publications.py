"""Publications that others come between: each record names its own one.

What is verified: a publish, or what the node itself publishes, that goes on after others were recorded, in another
file, or with other levels; what ends names what was published instead of it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest
from pamqp import commands

from amqpd.channels import Channel
from amqpd.kernel import scan_publishes
from amqpd.publishing.acceptance import COPIES_AT_ONCE, accept_slowly
from amqpd.publishing.routing import find
from amqpd.vocabulary.audit_levels import OFF
from tests.audit.reading import Row, only, told
from tests.audit.recorded import RecordedHarness
from tests.harness.harness import Client, publish_bytes


def declare_fanned(client: Client, name: str) -> None:
    client.declare(name, durable=True)
    client.call(commands.Queue.Bind(queue=name, exchange="amq.fanout"), commands.Queue.BindOk)


def wide_publish(client: Client) -> Generator[None, None, bool]:
    """The steps of a publish that reaches more queues than enter it in one step; q1 in the second one."""
    node = client.harness.node
    data = publish_bytes(b"wide", "k", "amq.fanout", message_id="m")
    run = scan_publishes(data, 0, len(data), len(data))
    assert run is not None
    q0, q1 = node.queues["/", "q0"], node.queues["/", "q1"]
    route = find(node, "/", "amq.fanout", "k")
    channel = client.connection.channels[1]
    assert isinstance(channel, Channel)
    return accept_slowly(
        node, channel, run, (q0,) * COPIES_AT_ONCE + (q1,), node.properties.read(run.properties), route
    )


def finish(steps: Generator[None, None, bool]) -> None:
    for _ in steps:
        pass


def test_a_publish_goes_on_with_another_one_between(harness: RecordedHarness, client: Client) -> None:
    declare_fanned(client, "q0")
    declare_fanned(client, "q1")
    steps = wide_publish(client)
    next(steps)
    client.publish(b"x", "q1")
    finish(steps)
    columns = ("queue", "first", "publication", "routing_key", "message_id")
    assert told(harness.log_rows("routed"), *columns)[-2:] == [("q1", 0, 2, "q1", None), ("q1", 1, 1, "k", "m")]


def test_a_publish_goes_on_in_the_next_file(harness: RecordedHarness, client: Client) -> None:
    """What it shares with others is named there again, its ids too."""
    declare_fanned(client, "q0")
    declare_fanned(client, "q1")
    steps = wide_publish(client)
    next(steps)
    (first, *_) = harness.log_rows("routed")
    finish(steps)
    (last,) = harness.log_rows("routed")
    columns = ("publication", "exchange", "routing_key", "connection", "message_id")
    assert told([first, last], *columns) == [(1, "amq.fanout", "k", "test", "m")] * 2


def test_a_queue_that_is_recorded_from_then_on_takes_a_publish_that_began_before() -> None:
    harness = RecordedHarness(OFF)
    client = harness.client()
    declare_fanned(client, "q0")
    declare_fanned(client, "q1")
    steps = wide_publish(client)
    next(steps)
    harness.policy(audit="full")
    harness.log_rows()
    finish(steps)
    assert harness.node.queues["/", "q1"].crash_reason is None
    columns = ("queue", "first", "count", "publication", "exchange", "message_id")
    assert told(harness.log_rows("routed"), *columns) == [("q1", 0, 1, 0, None, None)]
    client.publish(b"x", "q1", message_id="n")
    (row,) = harness.log_rows("routed")
    assert (row["first"], row["publication"], row["routing_key"], row["message_id"]) == (1, 1, "q1", "n")


def test_what_an_exchange_has_kept_is_published_by_the_node(harness: RecordedHarness, client: Client) -> None:
    client.call(
        commands.Exchange.Declare(exchange="kept", exchange_type="x-recent-history"), commands.Exchange.DeclareOk
    )
    client.declare("q", durable=True)
    client.publish(b"x", "k", "kept")
    client.publish(b"another's", "q")
    harness.log_rows()
    client.call(commands.Queue.Bind(queue="q", exchange="kept"), commands.Queue.BindOk)
    columns = ("event", "reason", "exchange", "queue", "first", "publication", "connection")
    assert told(harness.log_rows(), *columns) == [
        ("published", "history", "kept", None, 0, 3, None),
        ("routed", "history", "kept", "q", 1, 3, None),
    ]


def released(harness: RecordedHarness) -> list[Row]:
    """What is recorded when that which was published with a delay is due."""
    harness.log_rows()
    harness.node.now_ms += 6
    harness.step()
    return harness.log_rows("published", "routed", "unroutable", "released")


@pytest.mark.parametrize("count", [20, 100])
def test_messages_that_go_different_ways_when_they_are_released_have_their_numbers(
    harness: RecordedHarness, client: Client, count: int
) -> None:
    """At once, and in steps."""
    client.call(commands.Exchange.Declare(exchange="r", exchange_type="x-random"), commands.Exchange.DeclareOk)
    client.declare("q", durable=True)
    client.call(commands.Queue.Bind(0, "q", "r", "", False, {}), commands.Queue.BindOk)
    client.raw(publish_bytes(b"x", "k", "r", headers={"x-delay": 5}) * count)
    rows = released(harness)
    assert told(only(rows, "released"), "count", "publication") == [(count, count + 1)]
    assert told(only(rows, "routed"), "count", "publication") == [(1, count + 1 + number) for number in range(count)]


@pytest.mark.parametrize("copies", [0, 20])
def test_a_release_names_what_was_released_and_not_what_died_of_it(
    harness: RecordedHarness, client: Client, copies: int
) -> None:
    """At once, and with more routing keys than are looked up in one step."""
    client.declare("dead", durable=True)
    full = {"x-max-length": 0, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": ""}
    client.declare("full", durable=True, arguments=full | {"x-dead-letter-routing-key": "dead"})
    client.publish(b"x", "full", headers={"x-delay": 5, "CC": [f"nowhere{number}" for number in range(copies)]})
    rows = released(harness)
    assert sorted(told(rows, "event", "reason", "queue", "publication"), key=str) == [
        ("published", "dead_letter", None, 3),
        ("published", "delayed", None, 2),
        ("released", None, "delayed messages", 2),
        ("routed", "dead_letter", "dead", 3),
    ]


def test_messages_of_a_release_have_their_numbers_when_others_of_it_die(
    harness: RecordedHarness, client: Client
) -> None:
    client.call(commands.Exchange.Declare(exchange="r", exchange_type="x-random"), commands.Exchange.DeclareOk)
    client.declare("dead", durable=True)
    full = {"x-max-length": 0, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": ""}
    client.declare("full", durable=True, arguments=full | {"x-dead-letter-routing-key": "dead"})
    client.call(commands.Queue.Bind(0, "full", "r", "", False, {}), commands.Queue.BindOk)
    client.raw(publish_bytes(b"x", "k", "r", headers={"x-delay": 5}) * 3)
    rows = released(harness)
    assert told(only(rows, "released"), "publication", "count") == [(4, 3)]
    assert [row["publication"] for row in rows if row["reason"] == "delayed"] == [4, 5, 6]


def test_what_died_too_often_for_another_dead_letter_names_none(harness: RecordedHarness, client: Client) -> None:
    """Its queues and their names take more space than the headers have."""
    names = [f"{number:03d}".ljust(250, "x") for number in range(140)]
    for name, following in zip(names, [*names[1:], "end"], strict=True):
        dies = {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": following}
        client.declare(name, durable=True, arguments=dies)
    client.declare("end", durable=True)
    client.publish(b"x", names[0])
    ends = harness.log_rows("dead_lettered")
    assert len(ends) < len(names), "it reached the end: the names have to be longer"
    assert [row["publication"] for row in ends] == [*range(2, len(ends) + 1), 0]
