"""Alarms: that each way out says the same of them, at every node of a cluster, and who ends them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from amqpd.flow.alarms import OPERATOR
from amqpd.management import alarms
from amqpd.management.operators import Operator
from amqpd_admin.metrics import node as metrics
from tests.admin.inside import Inside, inside
from tests.admin.test_other_nodes import B, C, Cluster, facts

pytestmark = pytest.mark.trio

EVERYWHERE = (
    "/health/checks/alarms",
    "/health/checks/local-alarms",
    "/healthchecks/node",
    "/healthchecks/node/one%40x",
)
"""health checks of a node that has an alarm"""


async def got(api: Inside, path: str, user: str = "guest") -> Any:
    answer = await api.ask("GET", path, user=user)
    assert answer.status == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("kind", ["maintenance", "audit", "memory", "disk"])
async def test_each_way_out_says_that_an_alarm_is_on(kind: str) -> None:
    async with inside() as api:
        api.on.node.alarms.put(kind, "audit log" if kind == "audit" else OPERATOR, True, 1_800_000_000.25)
        [alarm] = (await got(api, "/overview"))["alarms"]
        assert (alarm["node"], alarm["name"], alarm["since_ms"]) == ("one@x", kind, 1_800_000_000_250)
        assert alarm["clearable"] == (kind != "audit")
        assert (await got(api, "/amqpd/alarms")) == [alarm]
        [node] = await got(api, "/nodes")
        assert node["alarms"] == [alarm]
        assert (node["mem_alarm"], node["disk_free_alarm"]) == (kind == "memory", kind == "disk")
        for path in EVERYWHERE:
            answer = await api.ask("GET", path)
            assert (answer.status, kind in answer.text.decode()) == (503, True), path
        assert (await api.ask("GET", "/readyz", root="")).json()["alarms"] == [kind]
        parts: Any = SimpleNamespace(on=api.on)
        assert (kind,) in [labels for _, rows in metrics.alarms(parts) for labels, value in rows if value]
        assert (await got(api, "/amqpd/why/alarms"))["why"][0].startswith(f"the {kind} alarm is on since")
        api.on.node.alarms.put(kind, "audit log" if kind == "audit" else OPERATOR, False, 0)
        assert (await got(api, "/overview"))["alarms"] == []
        for path in EVERYWHERE:
            assert (await api.ask("GET", path)).status == 200, path


async def test_how_many_connections_an_alarm_blocks_and_who_is_told() -> None:
    async with inside() as api:
        alarms.put(api.on, Operator(), "maintenance")
        api.client("clerk")
        api.client("boss").connection.intake.blocked = True
        [alarm] = await got(api, "/amqpd/alarms", "watcher")
        assert alarm["blocked"] == 1
        assert "an operator has set it" in alarm["says"]
        [alarm] = await got(api, "/amqpd/alarms", "clerk")
        assert {"says", "blocked"} & alarm.keys() == set()
        assert (alarm["name"], (await got(api, "/overview", "clerk"))["alarms"]) == ("maintenance", [alarm])


def there(kind: str) -> dict[str, Any]:
    return {"name": kind, "source": OPERATOR, "since": "", "since_ms": 7, "says": "because", "blocked": 3}


async def test_a_node_shows_the_alarms_of_the_others() -> None:
    cluster = Cluster()
    cluster.rows["node"] = [{**facts(B), "alarms": ["maintenance"], "alarm_rows": [there("maintenance")]}]
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type] # what of the view is asked here
        [alarm] = (await got(api, "/overview"))["alarms"]
        assert (alarm["node"], alarm["name"], alarm["blocked"]) == (B, "maintenance", 3)
        assert (await got(api, "/amqpd/alarms", "clerk"))[0]["node"] == B
        said = await api.ask("GET", "/health/checks/alarms")
        assert (said.status, said.json()["alarms"]) == (503, [{"node": B, "resource": "maintenance"}])
        assert (await api.ask("GET", "/health/checks/local-alarms")).status == 200
        alarms.put(api.on, Operator(), "maintenance")
        assert [each["node"] for each in await got(api, "/amqpd/alarms")] == ["one@x", B]


@pytest.mark.parametrize("rows", [None, [], [7], [{"name": "memory"}], 7])
async def test_of_a_node_that_tells_the_names_only_these_are_shown(rows: Any) -> None:
    cluster = Cluster()
    cluster.rows["node"] = [{**facts(B), "alarms": ["memory"], "alarm_rows": rows}]
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type]
        [alarm] = await got(api, "/amqpd/alarms")
        assert (alarm["node"], alarm["name"], alarm["since_ms"], alarm["clearable"]) == (B, "memory", None, False)


async def test_an_administrator_ends_what_an_operator_has_set() -> None:
    async with inside() as api:
        alarms.put(api.on, Operator(), "disk")
        api.on.node.alarms.put("disk", "watch", True, 1.0)
        for user in ("watcher", "clerk"):
            assert (await api.ask("DELETE", "/amqpd/alarms/one%40x/disk", user=user)).status == 401
        assert len(api.on.node.alarms.by_source) == 2
        answer = await api.ask("DELETE", "/amqpd/alarms/one%40x/disk", user="boss")
        assert answer.json() == {"was_set": True, "still_on": ["watch"]}
        assert [each.source for each in api.on.node.alarms.by_source] == ["watch"]
        assert (await api.ask("DELETE", "/amqpd/alarms/one%40x/disk")).json()["was_set"] is False
        assert (await api.ask("DELETE", "/amqpd/alarms/two%40x/disk")).status == 404


async def test_the_alarm_of_another_node_is_ended_there() -> None:
    cluster = Cluster()
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type]
        cluster.rows["clear_alarm"] = [{"was_set": True, "still_on": []}]
        answer = await api.ask("DELETE", "/amqpd/alarms/b%40x/maintenance", user="boss")
        assert answer.json() == {"was_set": True, "still_on": []}
        asked = {"of": "clear_alarm", "by": "boss", "name": "maintenance"}
        assert cluster.asked[-1] == (B, asked), json.dumps(cluster.asked)
        assert (await api.ask("DELETE", f"/amqpd/alarms/{C.replace('@', '%40')}/maintenance")).status == 503
