"""Each event of messages, on a whole node that records everything."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.management.messages.repair import Mover, delete
from tests.audit.reading import Row, told
from tests.audit.recorded import RecordedHarness
from tests.harness.harness import Client, publish_bytes

IN_QUEUE = ("event", "reason", "queue", "first", "count")


def declare(client: Client, name: str = "q", **arguments: Any) -> None:
    named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    client.declare(name, durable=True, arguments=named)


def later(harness: RecordedHarness, ms: int) -> None:
    harness.node.now_ms += ms
    harness.step()


def get(client: Client, queue: str = "q", no_ack: bool = False) -> Any:
    client.send(commands.Basic.Get(queue=queue, no_ack=no_ack))
    (message,) = client.messages()
    return message


def test_a_publish_that_is_routed_says_who_published_what(harness: RecordedHarness, client: Client) -> None:
    declare(client)
    client.publish(b"body", "q", delivery_mode=2, message_id="m", correlation_id="c")
    published, routed = harness.log_rows()
    assert told([published, routed], *IN_QUEUE) == [("published", None, None, 0, 1), ("routed", None, "q", 0, 1)]
    for row in (published, routed):
        assert (row["exchange"], row["routing_key"], row["vhost"], row["user"]) == ("", "q", "/", "guest")
        assert (row["connection"], row["channel"], row["publication"]) == ("test", 1, 1)
        assert (row["body_bytes"], row["message_id"], row["correlation_id"]) == (4, "m", "c")
    assert (published["persistent"], routed["persistent"]) == (False, True)
    assert routed["queue_id"] == harness.node.queues["/", "q"].record.id


def test_equal_publishes_that_came_together_are_one_row(harness: RecordedHarness, client: Client) -> None:
    declare(client)
    client.raw(publish_bytes(b"x", "q") * 5)
    client.publish(b"longer", "q")
    assert told(harness.log_rows("routed"), "first", "count", "publication") == [(0, 5, 1), (5, 1, 6)]


def test_one_publication_in_three_queues_is_published_once(harness: RecordedHarness, client: Client) -> None:
    for name in "abc":
        declare(client, name)
        client.call(commands.Queue.Bind(queue=name, exchange="amq.fanout"), commands.Queue.BindOk)
    client.publish(b"x", "k", "amq.fanout")
    rows = harness.log_rows()
    assert told(rows, "event", "queue", "publication") == [
        ("published", None, 1),
        *(("routed", name, 1) for name in "abc"),
    ]


def test_what_no_queue_takes_is_returned_or_unroutable(harness: RecordedHarness, client: Client) -> None:
    client.publish(b"x", "nobody", mandatory=True)
    client.publish(b"x", "nobody")
    assert told(harness.log_rows(), "event", "publication", "routing_key") == [
        *(("published", 1, "nobody"), ("returned", 1, "nobody")),
        *(("published", 2, "nobody"), ("unroutable", 2, "nobody")),
    ]


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("consuming", [True, False], ids=["passed on", "from the backlog"])
def test_a_delivery_says_how_large_its_messages_are(
    harness: RecordedHarness, client: Client, no_ack: bool, consuming: bool
) -> None:
    """As `routed` does, and nothing else: neither an end nor what came back is counted as bytes."""
    client.declare("q")
    if consuming:
        client.consume("q", "tag", no_ack=no_ack)
    client.raw(publish_bytes(b"body", "q") * 5)
    client.publish(b"longer", "q")
    if not consuming:
        client.consume("q", "tag", no_ack=no_ack)
    assert len(client.messages()) == 6
    rows = harness.log_rows()
    assert sum(row["count"] * row["body_bytes"] for row in rows if row["event"] == "delivered") == 26
    assert sum(row["count"] * row["body_bytes"] for row in rows if row["event"] == "routed") == 26
    assert {row["body_bytes"] for row in rows if row["event"] == "acked"} == ({0} if no_ack else set())


@pytest.mark.parametrize("no_ack", [False, True])
def test_what_is_got_has_a_size_too(harness: RecordedHarness, client: Client, no_ack: bool) -> None:
    declare(client)
    client.publish(b"body", "q")
    get(client, no_ack=no_ack)
    assert told(harness.log_rows("delivered", "acked"), "event", "body_bytes") == [
        ("delivered", 4),
        *([("acked", 0)] if no_ack else []),
    ]


def test_a_delivery_names_its_consumer_and_its_end_follows(harness: RecordedHarness, client: Client) -> None:
    declare(client)
    client.consume("q", "tag")
    client.publish(b"x", "q")
    (message,) = client.messages()
    client.send(commands.Basic.Ack(message.tag))
    rows = harness.log_rows("delivered", "acked")
    assert told(rows, *IN_QUEUE, "consumer", "connection", "user", "channel", "auto") == [
        ("delivered", None, "q", 0, 1, "tag", "test", "guest", 1, False),
        ("acked", None, "q", 0, 1, None, None, None, 0, False),
    ]


@pytest.mark.parametrize("gets", [True, False])
def test_who_acknowledges_nothing_acknowledges_with_the_delivery(
    harness: RecordedHarness, client: Client, gets: bool
) -> None:
    declare(client)
    if not gets:
        client.consume("q", "t", no_ack=True)
    client.publish(b"x", "q")
    if gets:
        get(client, no_ack=True)
    assert told(harness.log_rows("delivered", "acked"), *IN_QUEUE, "consumer", "auto") == [
        ("delivered", None, "q", 0, 1, "" if gets else "t", False),
        ("acked", None, "q", 0, 1, None, True),
    ]


def test_what_comes_back_is_delivered_again(harness: RecordedHarness, client: Client) -> None:
    declare(client)
    client.publish(b"x", "q")
    client.send(commands.Basic.Nack(get(client).tag, requeue=True))
    get(client)
    assert told(harness.log_rows("delivered", "requeued"), *IN_QUEUE, "redelivered") == [
        ("delivered", None, "q", 0, 1, False),
        ("requeued", None, "q", 0, 1, False),
        ("delivered", None, "q", 0, 1, True),
    ]


def test_the_ends_without_a_dead_letter_exchange(harness: RecordedHarness, client: Client) -> None:
    declare(client, "short", max_length=1)
    declare(client, "brief", message_ttl=10)
    declare(client)
    for name in ("short", "short", "brief", "q", "q"):
        client.publish(b"x", name)
    client.send(commands.Basic.Reject(get(client).tag, requeue=False))
    client.call(commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    client.call(commands.Queue.Delete(queue="short"), commands.Queue.DeleteOk)
    later(harness, 11)
    assert told(harness.log_rows("dropped", "rejected", "purged", "expired"), *IN_QUEUE) == [
        ("dropped", None, "short", 0, 1),
        ("rejected", "rejected", "q", 0, 1),
        ("purged", "purge", "q", 1, 1),
        ("purged", "deleted", "short", 1, 1),
        ("expired", None, "brief", 0, 1),
    ]


def test_a_quorum_queues_limit_of_deliveries_is_an_end(harness: RecordedHarness, client: Client) -> None:
    declare(client, queue_type="quorum", delivery_limit=0)
    client.publish(b"x", "q")
    client.send(commands.Basic.Nack(get(client).tag, requeue=True))
    assert told(harness.log_rows("rejected"), *IN_QUEUE) == [("rejected", "delivery_limit", "q", 0, 1)]


def dead_lettered(harness: RecordedHarness) -> tuple[Row, Row, Row]:
    published, routed, dead = harness.log_rows("published", "routed", "dead_lettered")
    return published, routed, dead


@pytest.mark.parametrize("reason", ["expired", "maxlen", "rejected"])
def test_a_dead_letter_is_published_by_the_broker_and_its_end_names_it(
    harness: RecordedHarness, client: Client, reason: str
) -> None:
    declare(client, "dead")
    declare(client, dead_letter_exchange="", dead_letter_routing_key="dead", max_length=1)
    client.publish(b"x", "q", expiration="10")
    message = get(client) if reason == "rejected" else None
    harness.log_rows()
    if message is not None:
        client.send(commands.Basic.Reject(message.tag, requeue=False))
    elif reason == "expired":
        later(harness, 11)
    else:
        client.publish(b"newer", "q")
        rows = harness.log_rows("published", "routed", "dead_lettered")
        assert told(rows[2:], "event", "publication") == [
            ("published", 3),
            ("routed", 3),
            ("dead_lettered", 3),
        ]
        return
    published, routed, dead = dead_lettered(harness)
    assert (published["reason"], published["connection"], published["user"]) == ("dead_letter", None, None)
    assert (published["routing_key"], routed["queue"], routed["publication"]) == ("dead", "dead", 2)
    assert told([dead], *IN_QUEUE, "publication") == [("dead_lettered", reason, "q", 0, 1, 2)]


def test_a_dead_letter_that_nobody_takes_is_published_and_unroutable(
    harness: RecordedHarness, client: Client
) -> None:
    declare(client, dead_letter_exchange="", dead_letter_routing_key="nobody")
    client.publish(b"x", "q", expiration="10")
    harness.log_rows()
    later(harness, 11)
    assert told(harness.log_rows(), "event", "reason", "publication") == [
        ("published", "dead_letter", 2),
        ("unroutable", "dead_letter", 2),
        ("dead_lettered", "expired", 2),
    ]


def test_a_full_queue_refuses_what_was_published(harness: RecordedHarness, client: Client) -> None:
    declare(client, max_length=1, overflow="reject-publish")
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.raw(publish_bytes(b"x", "q", delivery_mode=2) * 3)
    columns = ("event", "publication", "confirm_tag", "count")
    found = told(harness.log_rows(), *columns)
    assert sorted(found, key=lambda row: row[0]) == [
        ("confirmed", 1, 1, 1),
        ("published", 1, 1, 3),
        ("refused", 2, 2, 2),
        ("routed", 1, 1, 1),
    ]


def test_each_level_of_a_priority_queue_counts_for_itself(harness: RecordedHarness, client: Client) -> None:
    declare(client, max_priority=5)
    for priority in (1, 1, 4):
        client.publish(b"x", "q", priority=priority)
    base = harness.node.queues["/", "q"].record.id
    for _ in range(3):
        client.send(commands.Basic.Ack(get(client).tag))
    rows = harness.log_rows("routed", "delivered", "acked")
    found = [(row["event"], row["queue_id"] - base, row["first"]) for row in rows]
    assert found == [
        *(("routed", 1, 0), ("routed", 1, 1), ("routed", 4, 0)),
        *((event, *which) for which in ((4, 0), (1, 0), (1, 1)) for event in ("delivered", "acked")),
    ]


def test_a_transaction_is_published_when_it_is_committed(harness: RecordedHarness, client: Client) -> None:
    declare(client)
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish(b"x", "q")
    client.call(commands.Tx.Rollback(), commands.Tx.RollbackOk)
    client.publish(b"y", "q")
    assert harness.log_rows() == []
    client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    assert told(harness.log_rows(), "event", "publication") == [("published", 1), ("routed", 1)]


def test_delayed_messages_stand_in_a_queue_of_their_own_until_they_are_released(
    harness: RecordedHarness, client: Client
) -> None:
    declare(client)
    client.publish(b"x", "q", delivery_mode=2, headers={"x-delay": 100})
    assert told(harness.log_rows(), *IN_QUEUE, "publication") == [
        ("published", None, None, 0, 1, 1),
        ("routed", None, "delayed messages", 0, 1, 1),
    ]
    later(harness, 101)
    assert told(harness.log_rows(), *IN_QUEUE, "publication") == [
        ("published", "delayed", None, 0, 1, 2),
        ("routed", "delayed", "q", 0, 1, 2),
        ("released", None, "delayed messages", 0, 1, 2),
    ]


def test_what_an_operator_deletes_or_moves_ends_there(harness: RecordedHarness, client: Client) -> None:
    declare(client)
    declare(client, "other")
    client.raw(publish_bytes(b"x", "q") * 3)
    harness.log_rows()
    queue, target = harness.node.queues["/", "q"], harness.node.queues["/", "other"]
    (level,) = queue.messages.levels()
    assert delete(harness.node, queue, level, 0, 0) == 1
    assert told(harness.log_rows(), *IN_QUEUE) == [("purged", "operator", "q", 0, 1)]
    Mover(harness.node, queue.withdrawn, target).move(level, level.store.segments[0], 1, 2)
    assert told(harness.log_rows(), *IN_QUEUE, "publication") == [
        ("published", "moved", None, 0, 2, 4),
        ("routed", "moved", "other", 0, 2, 4),
        ("moved", None, "q", 1, 2, 4),
    ]


def test_restarts_give_numbers_out_again_in_another_epoch(harness: RecordedHarness, client: Client) -> None:
    declare(client)
    client.publish(b"1", "q", delivery_mode=2)
    client.publish(b"2", "q")
    harness.log_rows()
    harness.restart()
    client = harness.client()
    client.publish(b"3", "q", delivery_mode=2)
    for _ in range(2):
        client.send(commands.Basic.Ack(get(client).tag))
    rows = harness.log_rows("standing", "routed", "acked")
    assert told(rows, "event", "reason", "epoch", "first", "count") == [
        ("standing", "recovered", 2, 1, 0),
        ("standing", None, 1, 0, 1),
        ("routed", None, 2, 1, 1),
        ("acked", None, 1, 0, 1),
        ("acked", None, 2, 1, 1),
    ]
