"""What needs attention, over HTTP: of this node and of the others, and how much of it each user is told.

Not verified here: what is found (`tests/management/attention/test_watch.py`), sentences
(`tests/management/attention/test_needs.py`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from amqpd.management import alarms
from amqpd.management.operators import Operator
from amqpd.topology import plans
from amqpd.vocabulary.records import Put, QueueRecord
from tests.admin.inside import FIGURES, Inside, inside
from tests.admin.test_other_nodes import B, C, Cluster, facts, queues

pytestmark = pytest.mark.trio


async def needs(api: Inside, user: str = "guest") -> list[dict[str, Any]]:
    answer = await api.ask("GET", "/amqpd/attention", user=user)
    assert answer.status == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["needs"]
    return found


async def said(api: Inside, user: str = "guest") -> list[str]:
    return [need["says"] for need in await needs(api, user)]


async def rest(api: Inside) -> None:
    """Half a minute goes by."""
    for _ in range(6):
        api.node.now_ms += 5_000
        await api.samples._look()


def fact(kind: str, name: str, **numbers: int) -> dict[str, Any]:
    return {"kind": kind, "vhost": "/", "name": name, "numbers": numbers}


async def test_each_user_is_told_of_what_it_may_see() -> None:
    async with inside() as api:
        api.applied(
            *plans.create_vhost("closed"), Put(QueueRecord("/", "q", 256)), Put(QueueRecord("closed", "hidden", 512))
        )
        assert await said(api) == []
        client = api.client("boss")
        client.publish(b"x", "q")
        client.connection.vhost = "closed"
        client.publish(b"x", "hidden")
        client.connection.intake.blocked = True
        alarms.put(api.on, Operator(), "maintenance")
        await rest(api)
        everything = [
            "the maintenance alarm is on: an operator has set it, and `amqpd alarm clear maintenance` ends it",
            "1 message waits in queue 'hidden' in virtual host 'closed', the oldest for 30 s: nobody consumes",
            "1 message waits in queue 'q', the oldest for 30 s: nobody consumes",
            "1 connection is blocked: what it publishes waits",
        ]
        for user in ("guest", "watcher"):
            assert sorted(await said(api, user)) == sorted(everything)
        assert [need["kind"] for need in await needs(api)] == ["alarm", "no_consumers", "no_consumers", "blocked"]
        assert await said(api, "clerk") == ["the maintenance alarm is on: publishers wait", everything[2]]
        [row] = [row for row in (await api.ask("GET", "/queues")).json() if row["name"] == "q"]
        assert row["attention"] == ["no consumers"]
        assert (await api.ask("GET", "/amqpd/attention", user="")).status == 401


class View(Cluster):
    """Of source 5 a copy is missing, and source 6 has no majority."""

    def source_statuses(self, asked: dict[int, int]) -> Any:
        yield None
        members = ("one@x", B, C)
        yield SimpleNamespace(
            source=5, has_majority=True, under_replicated=False, living=("one@x", B), members=members
        )
        yield SimpleNamespace(source=6, has_majority=False, under_replicated=False, living=(B,), members=members)
        # It asks for one copy only, so it has enough.
        yield SimpleNamespace(
            source=7, has_majority=True, under_replicated=asked.get(7, 3) > 1, living=("one@x",), members=("one@x",)
        )


async def test_queues_and_alarms_of_other_nodes_count_too() -> None:
    cluster = View()
    cluster.gone.add(C)
    cluster.rows["node"] = [{**facts(B), "alarms": ["memory"]}]
    cluster.rows["attention"] = [
        fact("no_consumers", "far", ready=7, oldest_s=5),
        fact("blocked", "", connections=3),
        fact("of a later version", "", count=1),
    ]
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type] # what of the view is asked here
        queues(api, "quorum")
        arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}
        api.applied(Put(QueueRecord("/", "alone", 7 << 8, arguments=arguments, source=7)))
        api.node.topology.vhosts["/"].queues.pop("leaderless")
        assert await said(api) == [
            f"the memory alarm is on at node {B}: publishers wait",
            "1 quorum queue stops: 1 source has no majority of the copies",
            "7 messages wait in queue 'far', the oldest for 5.0 s: nobody consumes",
            f"3 connections are blocked at node {B}: what they publish waits",
            f"node {C} is away",
            "1 source with 1 quorum queue has fewer copies than wanted",
        ]
        await needs(api, "clerk")
        asked = [question for _, question in cluster.asked if question["of"] == "attention"]
        assert {question["user"] for question in asked} == {None, "clerk"}
        assert not [need for need in await needs(api, "clerk") if need["kind"] in ("stopped", "away", "fewer_copies")]


async def test_what_the_cluster_cannot_say_of_itself_is_said_to_who_monitors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who is isolated, why another one is silent, what cannot be read in the store, what this node leads in vain."""
    cluster = View()
    cluster.apart = {C: f"one@x refuses {C}: the shared secret differs; give it the secret"}
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type]
        api.broker.cluster.cut_off = 2
        monkeypatch.setitem(FIGURES, "cluster", {"unreadable": ["record 7 is none"]})
        found = await said(api)
        assert f"node {C} lives and takes no part: {cluster.apart[C]}" in found
        assert "record 7 is none" in found
        assert [each for each in found if each.startswith("node one@x is cut off: it leads, or gave up, 2 sources")]
        assert not [each for each in found if "does not answer" in each]
        assert not [each for each in await said(api, "clerk") if "node" in each or "record" in each]
        cluster.apart, cluster.silences = {}, {C: "there is no link to it now: timed out"}
        again = f"node {C} does not answer (there is no link to it now: timed out): what its queues need is not known"
        assert again in await said(api)


LEFT = {"state": "behind", "reason": "it failed", "unrepaired": "", "counting": 2, "listed": 3}


async def test_data_directories_and_forgotten_nodes_are_said_on_every_node_to_who_monitors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = View()
    cluster.started = {"d@x": ("node d@x was taken out of the cluster", 7)}
    odd = [{}, {**LEFT, "path": 7}, {**LEFT, "path": "/later", "state": "of a later version"}, "text"]
    cluster.rows["node"] = [{**facts(B), "directories": [*odd, {**LEFT, "path": "/far"}]}]
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type]
        monkeypatch.setitem(FIGURES, "directories", [{**LEFT, "path": "/here"}])
        found = await needs(api)
        directories = [need for need in found if need["kind"] == "data_directory"]
        assert [(need["subject"]["node"], need["subject"]["name"]) for need in directories] == [
            (B, "/far"),
            ("one@x", "/here"),
        ]
        [asks] = [need for need in found if need["kind"] == "forgotten"]
        assert (asks["says"], asks["since_ms"]) == ("node d@x was taken out of the cluster", 7)
        kinds = {need["kind"] for need in await needs(api, "clerk")}
        assert not kinds & {"data_directory", "forgotten"}


async def test_a_node_of_an_older_version_tells_of_no_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = View()
    cluster.rows["node"] = [{name: value for name, value in facts(B).items() if name != "directories"}]
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type]
        assert not [need for need in await needs(api) if need["kind"] == "data_directory"]


async def test_a_node_that_does_not_answer_is_named() -> None:
    cluster = View()
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type]
        assert f"node {C} does not answer: what its queues need is not known" in await said(api)


@pytest.mark.parametrize(
    "row", [{"kind": 1}, {}, {"kind": "blocked", "vhost": "/", "name": "", "numbers": {"a": "b"}}]
)
async def test_what_is_no_fact_is_no_answer(row: dict[str, Any]) -> None:
    cluster = View()
    cluster.rows["attention"] = [row]
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type]
        assert f"node {B} does not answer: what its queues need is not known" in await said(api)
