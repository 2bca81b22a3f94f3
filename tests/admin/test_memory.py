"""What the memory is used for: RabbitMQ's names, and sums that add up."""

from __future__ import annotations

import psutil
import pytest

from amqpd.management.figures.memory import NAMES, shares
from tests.admin.conftest import Api
from tests.admin.inside import inside
from tests.admin.test_other_nodes import B, C, Cluster, got


def test_the_figures_add_up_to_the_resident_memory_and_messages_are_in_them(api: Api):
    api.do("PUT", "/queues/%2F/bulky", {}, status=201)
    node = api.get("/overview")["node"]
    before = api.get(f"/nodes/{node}/memory")["memory"]["queue_procs"]
    body = {"routing_key": "bulky", "payload": "x" * 1_000_000, "payload_encoding": "string", "properties": {}}
    api.do("POST", "/exchanges/%2F/amq.default/publish", body, status=200)
    found = api.get(f"/nodes/{node}/memory")["memory"]
    total, strategy = found.pop("total"), found.pop("strategy")
    assert (strategy, found.keys()) == ("rss", set(NAMES))
    assert sum(found.values()) == total["rss"] == total["allocated"]
    assert total["erlang"] == total["rss"] - found["allocated_unused"]
    assert 1_000_000 <= found["queue_procs"] - before < 1_200_000
    assert found["code"] > 0
    resident = psutil.Process(api.broker.broker_pid).memory_info().rss
    assert abs(total["rss"] - resident) < 50_000_000
    relative = api.get(f"/nodes/{node}/memory/relative")["memory"]
    assert relative.pop("total") == 100
    assert relative.keys() == set(NAMES)
    assert 90 <= sum(relative.values()) <= 110
    assert all((share > 0) == (found[name] > 0) for name, share in relative.items() if name == "queue_procs")
    api.do("GET", "/nodes/none/memory", status=404)
    api.do("GET", f"/nodes/{node}/memory", user="clerk", status=401)
    api.do("DELETE", "/queues/%2F/bulky", status=204)


def test_what_is_counted_beyond_what_is_resident_is_cut() -> None:
    assert sum(shares({"queue_procs": 70, "code": 50, "metadata_store": 5}, 100).values()) == 100
    assert shares({"queue_procs": 70, "code": 50, "metadata_store": 5}, 100)["code"] == 30
    assert shares({"queue_procs": 70}, 100)["other_proc"] == 30


@pytest.mark.trio
async def test_the_memory_of_another_node_is_asked_for_there() -> None:
    cluster = Cluster()
    cluster.rows["memory"] = [{"queue_procs": 600, "other_proc": 400}]
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type] # what of the view is asked here
        found = (await got(api, f"/nodes/{B}/memory"))["memory"]
        assert (found["queue_procs"], found["total"]["rss"]) == (600, 1000)
        assert (await got(api, f"/nodes/{B}/memory/relative"))["memory"]["queue_procs"] == 60
        silent = await api.ask("GET", f"/nodes/{C}/memory")
        assert (silent.status, b"does not answer" in silent.text) == (503, True)
