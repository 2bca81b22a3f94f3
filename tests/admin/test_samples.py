"""Samples in answers: who gets which, in RabbitMQ's form, and what is refused.

Not verified: which are kept (`tests/management/figures/test_samples.py`), and of what
(`tests/management/figures/test_sampling.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from amqpd.management.figures import sampling
from amqpd.topology import plans
from amqpd.vocabulary.records import Put, QueueRecord
from amqpd_admin import samples
from tests.admin.inside import MACHINE, Inside, inside

pytestmark = pytest.mark.trio

MINUTE = "lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5"
ALL = MINUTE + "&data_rates_age=60&data_rates_incr=5&node_stats_age=60&node_stats_incr=5"
RANGED = (
    *("/overview", "/nodes", "/queues", "/queues/%2F", "/queues/%2F/q", "/connections", "/channels"),
    *("/exchanges", "/exchanges/%2F/amq.topic", "/vhosts", "/vhosts/%2F"),
)
HALVES = (
    *("lengths_age=60", "lengths_incr=5", "lengths_age=x&lengths_incr=5"),
    *("lengths_age=2.5&lengths_incr=1", "lengths_age=&lengths_incr="),
)
BEGAN_MS = 1_795_809_000_000


async def got(api: Inside, path: str, user: str = "guest") -> Any:
    answer = await api.ask("GET", path, user=user)
    assert answer.status == 200, answer.text
    return answer.json()


async def rest(api: Inside, seconds: int) -> None:
    for _ in range(seconds):
        api.node.now_ms += 1000
        await trio.sleep(1)


async def begun(api: Inside, nursery: trio.Nursery) -> Any:
    """A queue with two messages, and its publisher."""
    api.node.now_ms = BEGAN_MS
    api.applied(Put(QueueRecord("/", "q", 256)), Put(QueueRecord("/", "idle", 512)))
    nursery.start_soon(api.samples.run)
    # Half a second beside the looks: which of two that wake at one time comes first is chance.
    await trio.sleep(0.5)
    client = api.client("guest")
    client.publish(b"1", "q")
    client.publish(b"2", "q")
    await rest(api, 6)
    return client


def of(row: dict[str, Any], name: str) -> list[tuple[int, int]]:
    """Value and age in seconds, the newest first."""
    now = BEGAN_MS
    return [(each["sample"], (each["timestamp"] - now) // 1000) for each in row[f"{name}_details"]["samples"]]


async def test_a_queue_s_samples_begin_with_the_first_ask(
    nursery: trio.Nursery, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
):
    """Of those that are not among the largest."""
    monkeypatch.setattr(sampling, "LARGEST", 0)
    async with inside() as api:
        client = await begun(api, nursery)
        first = await got(api, f"/queues/%2F/q?{MINUTE}")
        assert of(first, "messages") == [(2, 10), (2, 5)]
        assert of(first["message_stats"], "publish") == [(2, 5)]
        assert "avg" not in first["message_stats"]["publish_details"], "one sample has no average"
        await rest(api, 4)
        client.publish(b"3", "q")
        await rest(api, 6)
        row = await got(api, f"/queues/%2F/q?{MINUTE}")
        assert of(row, "messages_ready") == [(3, 20), (3, 15), (2, 10), (2, 5)]
        assert of(row, "messages_unacknowledged") == [(0, 20), (0, 15), (0, 10), (0, 5)]
        published = row["message_stats"]["publish_details"]
        assert of(row["message_stats"], "publish") == [(3, 15), (2, 10), (2, 5)]
        assert published["avg_rate"] == 0.1
        assert published["avg"] == pytest.approx(7 / 3)
        assert published["rate"] == (await got(api, "/queues/%2F/q"))["message_stats"]["publish_details"]["rate"]
        assert "messages_ready_details" not in await got(api, "/queues/%2F/q")
        assert of(row["message_stats"], "ack") == [(0, 15), (0, 10), (0, 5)]


async def test_a_list_has_them_for_the_rows_that_are_on_the_page(nursery: trio.Nursery, autojump_clock: object):
    async with inside() as api:
        await begun(api, nursery)
        for path in (f"/queues?{MINUTE}", f"/queues/%2F?{MINUTE}&sort=messages&sort_reverse=true"):
            rows = {row["name"]: row for row in await got(api, path)}
            assert of(rows["q"], "messages")[0] == (2, 10)
            assert of(rows["idle"], "messages")[0] == (0, 10)
        page = await got(api, f"/queues?page=1&page_size=1&sort=messages&sort_reverse=true&{MINUTE}")
        assert of(page["items"][0], "messages")[0] == (2, 10)
        assert "messages_ready_details" not in (await got(api, f"/queues?disable_stats=true&{MINUTE}"))[0]


async def test_a_list_has_a_bound(nursery: trio.Nursery, autojump_clock: object, monkeypatch: pytest.MonkeyPatch):
    async with inside() as api:
        await begun(api, nursery)
        monkeypatch.setattr(samples, "SAMPLES_MAX", 6)
        idle, q = await got(api, f"/queues?sort=name&{MINUTE}")
        assert idle["name"] == "idle"
        assert len(of(idle, "messages")) == len(of(idle, "messages_unacknowledged")) == 2
        assert q["messages_details"].keys() == {"rate"}


async def test_connections_have_those_of_their_bytes(nursery: trio.Nursery, autojump_clock: object):
    async with inside() as api:
        client = await begun(api, nursery)
        [listed] = await got(api, f"/connections?{ALL}")
        received = client.connection.bytes_in
        assert of(listed, "recv_oct") == [(received, 5)]
        client.connection.bytes_in += 1000
        await rest(api, 5)
        row = await got(api, f"/connections/guest%3A1%20-%3E%20broker%3A5672?{ALL}")
        assert of(row, "recv_oct") == [(received + 1000, 10), (received, 5)]
        assert row["recv_oct_details"]["rate"] == row["recv_oct_details"]["avg_rate"] == 200
        assert "send_oct_details" in row
        [listed] = await got(api, f"/connections?{MINUTE}")
        assert listed["recv_oct_details"] == {"rate": 200}, "a rate is always there, as in RabbitMQ"


async def test_a_virtual_host_has_what_its_queues_count_together(nursery: trio.Nursery, autojump_clock: object):
    async with inside() as api:
        await begun(api, nursery)
        row = await got(api, f"/vhosts/%2F?{MINUTE}")
        assert of(row, "messages") == [(2, 10), (2, 5)]
        assert row["message_stats"]["publish"] == 2
        assert of(row["message_stats"], "publish") == [(2, 5)]
        bare = (await got(api, "/vhosts/%2F"))["message_stats"]
        assert (bare["publish"], bare["publish_details"].keys()) == (2, {"rate"})
        [listed] = await got(api, f"/vhosts?{MINUTE}")
        assert of(listed, "messages_ready")[0] == (2, 10)


async def test_the_overview_and_the_node_have_them_without_a_first_ask(nursery: trio.Nursery, autojump_clock: object):
    async with inside() as api:
        await begun(api, nursery)
        await rest(api, 10)
        found = await got(api, f"/overview?{MINUTE}")
        assert of(found["queue_totals"], "messages") == [(2, 15), (2, 10), (2, 5), (2, 0)]
        assert of(found["message_stats"], "publish") == [(2, 15), (2, 10), (2, 5), (2, 0)]
        assert of(found["churn_rates"], "queue_created")[0] == (2, 15)
        bare = await got(api, "/overview")
        assert bare["queue_totals"]["messages_ready_details"].keys() == {"rate"}
        assert bare["sample_retention_policies"]["global"][-1] == 86_400
        [node] = await got(api, f"/nodes?{ALL}")
        assert [value for value, _ in of(node, "mem_used")] == [MACHINE[0]] * 4
        assert [value for value, _ in of(node, "disk_free")] == [MACHINE[1]] * 4
        assert node["sockets_used_details"]["avg"] == 1
        assert (await got(api, f"/nodes/{node['name']}"))["mem_used_details"].keys() == {"rate"}


async def test_who_does_not_monitor_has_none_of_the_node(nursery: trio.Nursery, autojump_clock: object):
    """They would tell of virtual hosts that it may not see."""
    async with inside() as api:
        api.applied(*plans.create_vhost("closed"))
        await begun(api, nursery)
        found = await got(api, f"/overview?{MINUTE}", "clerk")
        assert "samples" not in found["queue_totals"]["messages_details"]
        assert "churn_rates" not in found
        assert of(await got(api, f"/queues/%2F/q?{MINUTE}", "clerk"), "messages")
        assert (await api.ask("GET", f"/vhosts/closed?{MINUTE}", user="clerk")).status == 401


async def test_what_was_counted_stays_when_a_queue_goes(nursery: trio.Nursery, autojump_clock: object):
    async with inside() as api:
        await begun(api, nursery)
        api.node.registry.remove(api.node.queues["/", "q"].record.key)
        await rest(api, 6)
        found = await got(api, f"/overview?{MINUTE}")
        assert found["message_stats"]["publish"] == of(found["message_stats"], "publish")[0][0] == 2
        assert found["queue_totals"]["messages"] == of(found["queue_totals"], "messages")[0][0] == 0


@pytest.mark.parametrize("path", RANGED)
async def test_what_is_no_range_is_refused_as_in_rabbitmq(path: str):
    async with inside() as api:
        api.applied(Put(QueueRecord("/", "q", 256)))
        for age, incr in ((-1, 5), (0, 5), (30, 0), (30, -5), (3_600, 5)):
            answer = await api.ask("GET", f"{path}?data_rates_age={age}&data_rates_incr={incr}")
            assert (answer.status, answer.json()) == (
                400,
                {"error": "bad_request", "reason": f"Invalid range parameters: age {age}, incr {incr}"},
            )


@pytest.mark.parametrize("query", HALVES)
async def test_half_a_pair_or_no_number_asks_for_none(query: str):
    async with inside() as api:
        api.applied(Put(QueueRecord("/", "q", 256)))
        assert (await got(api, f"/queues/%2F/q?{query}"))["messages_details"].keys() == {"rate"}


async def test_of_a_fan_out_the_publish_counts_once(nursery: trio.Nursery, autojump_clock: object):
    async with inside() as api:
        await begun(api, nursery)
        client = api.client("boss")
        for number in range(10):
            assert (await api.ask("PUT", f"/queues/%2F/fan-{number}", {})).status == 201
            assert (await api.ask("POST", f"/bindings/%2F/e/amq.fanout/q/fan-{number}", {})).status == 201
        await rest(api, 6)
        before = (await got(api, "/overview"))["message_stats"]["publish"]
        for _ in range(5):
            client.publish(b"x", "", "amq.fanout")
        body = {"routing_key": "", "payload": "x", "payload_encoding": "string", "properties": {}}
        assert (await api.ask("POST", "/exchanges/%2F/amq.fanout/publish", body)).status == 200
        stats = (await got(api, "/overview"))["message_stats"]
        assert (before, stats["publish"]) == (2, 8)
        await rest(api, 6)
        stats = (await got(api, "/overview"))["message_stats"]
        assert stats["publish"] == 8
        assert 0 < stats["publish_details"]["rate"] <= 6 / 5
        row = await got(api, f"/vhosts/%2F?{MINUTE}")
        assert row["message_stats"]["publish"] == 8
        assert (await got(api, "/queues/%2F/fan-3"))["message_stats"]["publish"] == 6
