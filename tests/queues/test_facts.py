"""What a queue says of itself: counts, rates, ages, times, utilisation; and the node of what it delays and drops."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pamqp import commands

from amqpd.management.figures import inventory, overview
from amqpd.management.figures.queue_facts import queue_facts
from amqpd.queues.backlog import Backlog
from amqpd.queues.facts import LEFT, SAMPLE_MS, Facts
from amqpd.vocabulary.records import PolicyRecord, Put
from tests.harness.harness import Client, Harness, publish_bytes


@pytest.fixture
def client() -> Client:
    harness = Harness()
    harness.node.now_ms = 1_000_000
    client = harness.client()
    client.declare("q", durable=True)
    return client


def facts_of(client: Client, name: str = "q") -> dict:
    node = client.harness.node
    return queue_facts(node.queues["/", name], node.now_ms)


def wait(client: Client, ms: int) -> None:
    """Time passes as in a broker: somebody looks once a second."""
    node = client.harness.node
    end = node.now_ms + ms
    while node.now_ms < end:
        node.now_ms = min(end, node.now_ms + 1000)
        for queue in node.queues.values():
            queue.facts.sample(node.now_ms)


def publish(client: Client, count: int, size: int = 10) -> None:
    client.raw(publish_bytes(bytes(size), "q", delivery_mode=2) * count)


def rate(client: Client, name: str) -> float:
    found: float = facts_of(client)["message_stats"][name + "_details"]["rate"]
    return found


def test_depth_bytes_and_age_are_those_of_what_is_there(client: Client) -> None:
    assert facts_of(client)["oldest_message_age_s"] is None
    publish(client, 3)
    client.harness.node.now_ms += 1500
    publish(client, 2, 100)
    client.call(commands.Basic.Qos(prefetch_count=3), commands.Basic.QosOk)
    client.harness.node.now_ms += 2000
    facts = facts_of(client)
    assert facts["oldest_message_age_s"] == 3.5
    client.send(commands.Basic.Consume(queue="q", consumer_tag="t"))
    facts = facts_of(client)
    assert (facts["messages"], facts["messages_ready"], facts["messages_unacknowledged"]) == (5, 2, 3)
    assert (facts["message_bytes"], facts["message_bytes_ready"], facts["message_bytes_unacknowledged"]) == (
        230,
        200,
        30,
    )
    assert (facts["oldest_message_age_s"], facts["consumers"]) == (2.0, 1)
    assert facts["memory"] > 230


def test_the_head_timestamp_is_that_of_the_first_message_until_it_is_settled(client: Client) -> None:
    assert facts_of(client)["head_message_timestamp"] is None
    for second in (17, 18):
        client.publish(b"dated", "q", timestamp=datetime.fromtimestamp(second, UTC), app_id="shop")
    client.publish(b"undated", "q", app_id="shop")
    assert facts_of(client)["head_message_timestamp"] == 17
    for tag, before, head in ((1, 17, 18), (2, 18, None)):
        client.send(commands.Basic.Get(queue="q"))
        assert facts_of(client)["head_message_timestamp"] == before, "it is not settled yet"
        client.send(commands.Basic.Ack(tag))
        assert facts_of(client)["head_message_timestamp"] == head


def test_the_head_timestamp_of_a_priority_queue_is_that_of_its_highest_priority(client: Client) -> None:
    client.declare("p", arguments={"x-max-priority": 5})
    for second, priority in ((17, 1), (18, 4), (19, 4)):
        client.publish(b"m", "p", priority=priority, timestamp=datetime.fromtimestamp(second, UTC))
    assert facts_of(client, "p")["head_message_timestamp"] == 18


def test_the_head_timestamp_of_a_message_on_disk_only_is_not_read(client: Client) -> None:
    client.publish(b"m", "q", delivery_mode=2, timestamp=datetime.fromtimestamp(17, UTC))
    backlog = client.harness.node.queues["/", "q"].backlog
    assert isinstance(backlog, Backlog)
    (segment,) = backlog.store.segments
    assert facts_of(client)["head_message_timestamp"] == 17
    segment.evict()
    assert facts_of(client)["head_message_timestamp"] is None


def test_stats_count_what_happened(client: Client) -> None:
    publish(client, 5)
    for _ in range(3):
        client.send(commands.Basic.Get(queue="q"))
    client.send(commands.Basic.Nack(3, False, True))
    client.send(commands.Basic.Get(queue="q"))
    client.send(commands.Basic.Ack(1))
    client.send(commands.Basic.Reject(2, False))
    stats, totals = facts_of(client)["message_stats"], facts_of(client)["totals"]
    assert {name: stats[name] for name in ("publish", "deliver_get", "redeliver", "ack")} == {
        "publish": 5,
        "deliver_get": 4,
        "redeliver": 1,
        "ack": 1,
    }
    assert (totals["acked"], totals["rejected"]) == (1, 1)
    assert totals["accepted"] == facts_of(client)["messages"] + sum(totals[name] for name in LEFT)


def test_rates_are_those_of_the_last_seconds_also_after_a_long_rest(client: Client) -> None:
    assert rate(client, "publish") == 0.0
    for _ in range(20):
        publish(client, 100)
        wait(client, 1000)
    assert 90 <= rate(client, "publish") <= 110
    assert rate(client, "deliver") == 0.0
    client.consume("q", no_ack=True)
    assert rate(client, "deliver_no_ack") >= 2000 / (2 * SAMPLE_MS / 1000)
    wait(client, 3_600_000)
    assert (rate(client, "publish"), rate(client, "deliver_get"), rate(client, "deliver_no_ack")) == (0.0, 0.0, 0.0)
    publish(client, 1000)
    wait(client, 1000)
    assert 1000 / 11 <= rate(client, "publish") <= 1000, "a burst after the rest is seen"


def test_what_was_recovered_was_not_published_now(client: Client) -> None:
    publish(client, 50)
    harness = client.harness
    now_ms = harness.node.now_ms
    harness.restart()
    harness.node.now_ms = now_ms
    again = harness.client()
    facts = facts_of(again)
    assert (facts["messages_ready"], facts["totals"]["accepted"], facts["totals"]["recovered"]) == (50, 50, 50)
    assert (facts["message_stats"]["publish"], rate(again, "publish")) == (0, 0.0)
    publish(again, 2)
    assert facts_of(again)["message_stats"]["publish"] == 2


def test_time_in_queue_is_until_the_delivery(client: Client) -> None:
    node = client.harness.node
    for age_ms in (0, 4, 15, 70, 400, 10_000):
        node.now_ms += 20
        publish(client, 2)
        node.now_ms += age_ms
        for _ in range(2):
            client.send(commands.Basic.Get(queue="q", no_ack=True))
    buckets = {bound: count for bound, count in facts_of(client)["time_in_queue_ms"].items() if count}
    assert buckets == {"1": 2, "5": 2, "20": 2, "100": 2, "500": 2, "30000": 2}


def test_a_steady_flow_that_is_taken_at_once_waited_for_nothing(client: Client) -> None:
    client.consume("q")
    client.harness.automatic = False
    for _ in range(50):
        client.harness.node.now_ms += 3
        publish(client, 1)
    assert facts_of(client)["time_in_queue_ms"]["1"] == 50


def test_utilisation_is_the_share_of_the_time_without_waiting(client: Client) -> None:
    assert facts_of(client)["consumer_utilisation"] == 0.0, "nobody is there"
    client.call(commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
    client.consume("q")
    wait(client, 10_000)
    assert facts_of(client)["consumer_utilisation"] == 1.0
    publish(client, 2)
    wait(client, 20_000)
    assert facts_of(client)["consumer_utilisation"] == 0.0
    assert facts_of(client)["consumer_capacity"] == 0.0
    client.send(commands.Basic.Ack(0, True))
    client.send(commands.Basic.Ack(0, True))
    wait(client, 3000)
    assert 0.0 < facts_of(client)["consumer_utilisation"] < 1.0
    wait(client, 10_000)
    assert facts_of(client)["consumer_utilisation"] == 1.0


def test_policies_settings_and_the_single_active_consumer_are_told(client: Client) -> None:
    arguments = {"x-max-length": 9, "x-single-active-consumer": True}
    client.declare("sac", durable=True, arguments=arguments)
    definition = {"max-length": 5, "message-ttl": 1000}
    client.harness._apply([Put(PolicyRecord("/", "p", "^sac$", "queues", definition))])
    for tag in ("first", "second"):
        client.consume("sac", tag)
    node = client.harness.node
    queue = node.ports.get(("/", "sac"))
    assert queue is not None
    row = inventory.queue_row(node, queue)
    assert (row["policy"], row["operator_policy"], row["arguments"]) == ("p", None, arguments)
    assert row["effective_policy_definition"] == definition
    assert (row["settings"]["max_length"], row["settings"]["message_ttl_ms"]) == (5, 1000)
    assert (row["single_active_consumer_tag"], row["consumers"]) == ("first", 2)
    found = list(inventory.consumers(node, {"queue": "sac"}))
    assert [(each["consumer_tag"], each["active"]) for each in found] == [("first", True), ("second", False)]
    assert list(inventory.consumers(node, {"queue": "q"})) == []


def test_the_node_says_what_is_delayed_and_what_found_no_queue(client: Client) -> None:
    node = client.harness.node
    seen = overview.overview(node)
    assert (seen["messages_delayed"], seen["delayed_next_s"], seen["queues"]) == (0, None, 1)
    for delay_ms in (30_000, 5_000, 60_000):
        client.publish(b"x", "q", headers={"x-delay": delay_ms})
    client.publish(b"x", "nowhere", "amq.direct")
    client.publish(b"x", "nowhere", mandatory=True)
    node.now_ms += 1000
    seen = overview.overview(node)
    assert (seen["messages_delayed"], seen["messages_ready"]) == (3, 0)
    assert seen["delayed_next_s"] == 4.001
    assert seen["unroutable"] == {"returned": 1, "dropped": 1, "nacked": 0, "rerouted": 0}
    [row] = overview.vhosts(node, {})
    assert (row["vhost"], row["messages_delayed"], row["unroutable"]["dropped"]) == ("/", 3, 1)
    rows = {row["name"]: row["unroutable"]["dropped"] for row in inventory.exchanges(node, {})}
    assert (rows["amq.direct"], rows["amq.fanout"]) == (1, 0)
    node.now_ms += 70_000
    client.harness.step()
    seen = overview.overview(node)
    assert (seen["messages_delayed"], seen["delayed_next_s"], seen["messages_ready"]) == (0, None, 3)


def test_a_new_queue_has_no_rate_of_a_million() -> None:
    facts = Facts(0)
    facts.accepted += 10
    assert facts.rates(1)["accepted"] == 10.0
