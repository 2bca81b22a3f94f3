"""What a node shows of the others of its cluster, and to whom: the others are rows that the test has.

What is verified: users see of other nodes' clients what they see of this one's; lists are sorted, searched and cut
over all nodes; who is missing is said, and a queue, quorum or classic, whose leader is silent has no numbers; samples
are of this node, and of nothing that is added up. Not verified here: real nodes
(`tests/clients/test_cluster_management.py`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amqpd.management.across_nodes.rows import PeerRows
from amqpd.management.figures.sampling import OF_NODE
from amqpd.management.figures.totals import CHURN
from amqpd.vocabulary.records import Put, QueueRecord
from tests.admin.inside import Inside, inside

pytestmark = pytest.mark.trio

B, C, GONE = "b@x", "c@x", "gone@x"


def connection(user: str, number: int, vhost: str = "/") -> dict[str, Any]:
    return {
        "id": f"c{number}-x", "name": f"10.0.0.1:{number} -> 10.0.0.2:5672", "user": user, "vhost": vhost,
        "state": "running", "channels": 1, "peer": "", "tls": False, "client_properties": {}, "bytes_in": number,
        "bytes_out": 0, "frame_max": 0, "channel_max": 0, "timeout": 0, "connected_at_ms": 1,
    }  # fmt: skip


def channel(user: str, number: int) -> dict[str, Any]:
    return {
        "connection": f"10.0.0.1:{number} -> 10.0.0.2:5672", "number": 1, "user": user, "vhost": "/",
        "confirm": False, "transactional": False, "consumer_count": 1, "messages_unacknowledged": 0,
        "messages_unconfirmed": 0, "messages_uncommitted": 0, "acks_uncommitted": 0,
        "prefetch_count": 0, "global_prefetch_count": 0,
    }  # fmt: skip


def consumer(user: str, number: int, queue: str = "far") -> dict[str, Any]:
    return {
        "connection": f"10.0.0.1:{number} -> 10.0.0.2:5672", "channel": 1, "user": user, "vhost": "/", "queue": queue,
        "consumer_tag": f"tag{number}", "ack_required": True, "exclusive": False, "priority": 0, "active": True,
        "prefetch_count": 0, "single": False,
    }  # fmt: skip


def facts(name: str) -> dict[str, Any]:
    return {
        "name": name, "version": "", "pid": 7, "files": 1, "files_max": 2, "resident_bytes": 3, "context_switches": 4,
        "processors": 1, "sockets": 5, "resident_bytes_max": 6, "disk_free_bytes": 7, "disk_free_bytes_min": 8,
        "alarms": [], "uptime_s": 1.0, "data_dir": "/data", "draining": False, "amqp": [], "http": [],
        "churn": dict.fromkeys(CHURN, 1000), "gone_queues": {"publish": 100, "ack": 50},
        "rates": {**dict.fromkeys(OF_NODE, 0.5), "mem_used": 2.5},
    }  # fmt: skip


class Cluster:
    """Two other nodes: `b@x`, which answers with these rows, and `c@x`, which is silent."""

    def __init__(self) -> None:
        clients = (("clerk", 1), ("boss", 2))
        self.rows: dict[str, list[dict[str, Any]]] = {
            "connections": [connection(*each) for each in clients] + [connection("boss", 3, "closed")],
            "channels": [channel(*each) for each in clients],
            "consumers": [consumer(*each) for each in clients],
            "queues": [{"vhost": "/", "name": "far", "state": "running", "messages": 7, "messages_ready": 7}],
            "totals": [
                {"vhost": "/", "queues": 2, "messages_ready": 7, "consumers": 2, "publish": 9},
                {"vhost": "closed", "messages_ready": 100},
            ],
            "clients": [{"connections": 3, "channels": 2, "consumers": 2}],
            "node": [facts(B)],
        }
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.gone: set[str] = set()
        self.apart: dict[str, str] = {}
        """nodes that live without links, and why"""
        self.silences: dict[str, str] = {}
        self.started: dict[str, tuple[str, int]] = {}
        """nodes that were forgotten and were started again: what is said of them, since when"""
        self.peers = PeerRows(self, self.others)

    async def ask(self, peer: str, text: str, timeout_s: float) -> str | None:
        question = json.loads(text)
        self.asked.append((peer, question))
        rows, name = self.rows.get(question["of"], []), question.get("name")
        if name is not None and "after" in question:
            rows = [row for row in rows if row.get("connection", row.get("name")) == name]
        return json.dumps({"rows": rows, "next": None}) if peer == B else None

    # The view

    def others(self) -> list[str]:
        return [B, C]

    def lives(self, name: str) -> bool:
        return name in self.others() and name not in self.gone

    def is_isolated(self, name: str) -> bool:
        return name in self.apart

    def isolated(self) -> dict[str, str]:
        return self.apart

    def without_link(self, name: str) -> list[str]:
        return sorted({"one@x", B, C} - {name}) if name in self.apart else []

    def forgotten_starts(self) -> dict[str, tuple[str, int]]:
        return self.started

    def why_silent(self, name: str) -> str:
        return self.silences.get(name, "")

    def leader_of_source(self, source: int) -> str:
        return LED.get(source, "")

    def members_of(self, source: int) -> tuple[str, ...]:
        return ("one@x", B, C)


QUORUM = {"x-queue-type": "quorum"}
LED = {5: B, 6: C}
"""who leads quorum queues, by their source; a classic queue that nobody leads is of a node that is away"""
by_kind = pytest.mark.parametrize("kind", ["quorum", "classic"])


def queue(kind: str, name: str, source: int) -> Put:
    """`source`: of a classic queue the node is the one that leads that source."""
    if kind == "quorum":
        return Put(QueueRecord("/", name, source << 8, arguments=QUORUM, source=source))
    return Put(QueueRecord("/", name, source << 8, durable=True, node=LED.get(source, GONE)))


def queues(api: Inside, kind: str) -> None:
    api.applied(queue(kind, "far", 5), queue(kind, "silent", 6), queue(kind, "leaderless", 7))


@asynccontextmanager
async def joined(cluster: Cluster) -> AsyncIterator[Inside]:
    """A node of it."""
    async with inside(cluster, cluster.peers) as api:  # type: ignore[arg-type] # what of the view is asked here
        api.broker.cluster.leaders, api.broker.cluster.members = cluster.leader_of_source, cluster.lives
        yield api


async def got(api: Inside, path: str, user: str = "guest") -> Any:
    answer = await api.ask("GET", path, user=user)
    assert answer.status == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["/connections", "/channels", "/consumers"])
async def test_a_user_sees_its_own_at_other_nodes_too(path: str) -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        api.client("clerk")
        api.client("boss")

        def users(rows: list[dict[str, Any]]) -> list[str]:
            return sorted(row.get("user") or row["channel_details"]["user"] for row in rows)

        count = {"/connections": 3, "/channels": 2, "/consumers": 2}[path]
        here = 0 if path == "/consumers" else 1
        assert users(await got(api, path, "watcher")) == ["boss"] * (count - 1 + here) + ["clerk"] * (1 + here)
        assert users(await got(api, path, "clerk")) == ["clerk"] * (1 + here)
        assert await got(api, path, "planner") == []


async def test_a_list_of_all_nodes_is_searched_sorted_and_cut() -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        api.client("clerk")
        page = await got(api, "/connections?page=1&page_size=2&sort=recv_oct")
        received = [row["recv_oct"] for row in page["items"]]
        last = await got(api, "/connections?page=2&page_size=2&sort=recv_oct")
        received += [row["recv_oct"] for row in last["items"]]
        assert (received, page["total_count"]) == (sorted(received), 4)
        assert {1, 2, 3} <= set(received)
        found = await got(api, "/connections?page=1&name=10.0.0.1")
        assert (found["filtered_count"], found["total_count"]) == (3, 4)
        assert {row["node"] for row in found["items"]} == {B}
        assert found["nodes_missing"] == [C]
        there = await got(api, "/vhosts/%2F/connections?columns=node,recv_oct")
        assert [row["recv_oct"] for row in there if row["node"] == B] == [1, 2]


async def test_who_is_missing_is_said_while_it_is_a_member() -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        answer = await api.ask("GET", "/connections")
        assert answer.headers["x-amqpd-nodes-missing"] == "c%40x"
        assert (await got(api, "/overview"))["nodes_missing"] == [C]
        cluster.gone.add(C)
        answer = await api.ask("GET", "/connections")
        assert "x-amqpd-nodes-missing" not in answer.headers
        assert "nodes_missing" not in await got(api, "/overview")


@by_kind
async def test_a_queue_of_another_node_has_what_its_leader_says(kind: str) -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        queues(api, kind)
        rows = {row["name"]: row for row in await got(api, "/queues")}
        far, silent, leaderless = rows["far"], rows["silent"], rows["leaderless"]
        assert (far["messages"], far["state"], far["node"]) == (7, "running", B)
        assert [row["state"] for row in (silent, leaderless)] == ["down", "down"]
        assert not {"messages", "consumers", "memory"} & silent.keys() & leaderless.keys()
        if kind == "quorum":
            assert far["leader"] == B
            assert far["members"] == far["online"] == ["one@x", B, C]
            assert far["arguments"] == QUORUM
            assert (silent["node"], leaderless["node"], "leader" in leaderless) == (C, "one@x", False)
        else:
            assert (silent["node"], leaderless["node"]) == (C, GONE)
            assert not {"leader", "members", "online"} & far.keys()
        one = await got(api, "/queues/%2F/far", "clerk")
        assert [each["consumer_tag"] for each in one["consumer_details"]] == ["tag1"]
        page = await got(api, "/queues?page=1&sort=messages&sort_reverse=true")
        assert page["items"][0]["name"] == "far"
        cluster.gone |= {B, C}
        assert (await got(api, "/queues/%2F/silent"))["state"] == ("minority" if kind == "quorum" else "down")


@by_kind
async def test_a_page_asks_only_for_the_queues_on_it(kind: str) -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        api.applied(*(queue(kind, f"q{number:03}", 5) for number in range(300)))
        await got(api, "/queues?page=2&page_size=10&sort=name")
        names = [name for _, question in cluster.asked for _, name in question["names"]]
        assert names == [f"q{number:03}" for number in range(10, 20)]
        cluster.asked.clear()
        for path in ("", "&sort=messages", "&sort=state", "&sort=memory&page=1"):
            await got(api, f"/queues?disable_stats=true{path}")
        assert cluster.asked == []


@by_kind
async def test_a_page_in_the_order_of_a_figure_asks_for_each_queue_once_and_says_who_is_missing(kind: str) -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        queues(api, kind)
        api.applied(
            *(Put(QueueRecord("/", name, at << 8, durable=True)) for at, name in enumerate(("near", "zz"), 1))
        )
        for sort in ("memory", "messages", "state", "message_stats.publish", "messages_details.rate"):
            cluster.asked.clear()
            answer = await api.ask("GET", f"/queues?sort={sort}&page=1&page_size=2&sort_reverse=true")
            assert (answer.headers["x-amqpd-nodes-missing"], answer.json()["nodes_missing"]) == ("c%40x", [C]), sort
            names = [name for _, question in cluster.asked for _, name in question["names"]]
            assert len(names) == len(set(names)), sort


@by_kind
async def test_queues_whose_leaders_are_silent_are_in_the_order_of_their_states(kind: str) -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        queues(api, kind)
        api.applied(Put(QueueRecord("/", "near", 1 << 8, durable=True)))
        api.node.queues["/", "near"].quarantine("a bug")
        states = [(row["name"], row["state"]) for row in await got(api, "/queues?sort=state")]
        assert states == [("near", "crashed"), ("leaderless", "down"), ("silent", "down"), ("far", "running")]


@by_kind
async def test_totals_are_of_what_a_user_may_see(kind: str) -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        queues(api, kind)
        row = await got(api, "/overview", "watcher")
        # Also what queues had that are gone, of any virtual host.
        assert (row["queue_totals"]["messages"], row["message_stats"]["publish"]) == (7, 109)
        assert row["object_totals"] == {
            "connections": 3, "channels": 2, "consumers": 2, "queues": 3, "exchanges": 7,
        }  # fmt: skip
        await got(api, "/overview", "clerk")
        asked = [question.get("user") for _, question in cluster.asked if question["of"] == "clients"]
        assert {None, "clerk"} <= set(asked)
        assert (await got(api, "/vhosts/%2F"))["messages"] == 7
        assert (await got(api, "/overview", "clerk"))["message_stats"]["publish"] == 9, "of what it may see"
        assert (await got(api, "/vhosts/%2F"))["cluster_state"] == {"one@x": "running", B: "running", C: "running"}


async def test_what_nodes_count_is_added_up() -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        api.client("clerk")
        [here] = [row for row in await got(api, "/nodes") if row["name"] == "one@x"]
        came = (await got(api, "/overview"))["churn_rates"]
        assert came["connection_created"] == 1000 + here["connection_created"]
        assert came["connection_created_details"] == {"rate": 0.5}
        there = await got(api, "/nodes/b%40x")
        assert (there["queue_created"], there["mem_used_details"]) == (1000, {"rate": 2.5})


@by_kind
async def test_samples_are_those_of_this_node(kind: str) -> None:
    cluster = Cluster()
    asked = "&".join(f"{each}_age=60&{each}_incr=5" for each in ("lengths", "msg_rates", "data_rates", "node_stats"))
    async with joined(cluster) as api:
        queues(api, kind)
        api.applied(Put(QueueRecord("/", "near", 1)))
        api.client("clerk")

        def sampled(row: dict[str, Any], name: str) -> bool:
            return "samples" in row.get(f"{name}_details", {})

        listed = await got(api, f"/queues?{asked}")
        assert {row["name"] for row in listed if sampled(row, "messages")} == {"near"}
        assert not sampled(await got(api, f"/queues/%2F/far?{asked}"), "messages")
        clients = await got(api, f"/connections?{asked}")
        assert {row["node"] for row in clients if sampled(row, "recv_oct")} == {"one@x"}
        assert not sampled(await got(api, f"/connections/10.0.0.1%3A2%20-%3E%2010.0.0.2%3A5672?{asked}"), "recv_oct")
        nodes = await got(api, f"/nodes?{asked}")
        assert {row["name"] for row in nodes if sampled(row, "mem_used")} == {"one@x"}
        row = await got(api, f"/overview?{asked}")
        assert row["queue_totals"]["messages_ready_details"] == {"rate": 0.5}
        assert not sampled(row["message_stats"], "publish")
        for vhost in (await got(api, f"/vhosts?{asked}"), [await got(api, f"/vhosts/%2F?{asked}")]):
            assert not [each for each in vhost if sampled(each, "messages")]
            [root] = [each for each in vhost if each["name"] == "/"]
            assert root["message_stats"]["publish"] == 9, "what both nodes know of"
            assert not sampled(root["message_stats"], "publish")


async def test_a_node_says_which_others_it_has_a_link_to_and_which_not() -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        row = await got(api, f"/nodes/{B}")
        assert (row["partitions"], row["cluster_links"]) == ([], [{"name": C}, {"name": "one@x"}])
        cluster.apart = {B: "nobody reaches it"}
        row = await got(api, f"/nodes/{B}")
        assert (row["partitions"], row["cluster_links"]) == ([C, "one@x"], [])
        cluster.apart, cluster.gone = {}, {C}
        [here] = [each for each in await got(api, "/nodes") if each["name"] == "one@x"]
        assert (here["partitions"], here["cluster_links"]) == ([], [{"name": B}])


@by_kind
async def test_acts_are_done_where_the_thing_is(kind: str) -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        queues(api, kind)
        name = "10.0.0.1%3A2%20-%3E%2010.0.0.2%3A5672"
        assert (await api.ask("DELETE", f"/connections/{name}", user="clerk")).status == 401
        assert (await api.ask("DELETE", f"/connections/{name}", user="boss")).status == 204
        assert (await api.ask("DELETE", "/queues/%2F/far/contents", user="planner")).status == 204
        done = [(peer, each) for peer, each in cluster.asked if each["of"] in ("close", "purge")]
        assert [(peer, each["of"], each["by"]) for peer, each in done] == [
            (B, "close", "boss"),
            (B, "purge", "planner"),
        ]
        silent = await api.ask("DELETE", "/queues/%2F/silent/contents")
        assert (silent.status, C in silent.json()["reason"]) == (503, True)
        nobody = await api.ask("DELETE", "/queues/%2F/leaderless/contents")
        leader = "the leader" if kind == "quorum" else f"home node '{GONE}'"
        said = f"{leader} of durable queue 'leaderless' in vhost '/' is down or inaccessible"
        assert (nobody.status, nobody.json()["reason"]) == (404, said)
        assert B in (await api.ask("GET", f"/amqpd/why/connections/{name}")).json()["reason"]


async def test_a_users_connections_are_closed_at_all_nodes_that_live() -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        await got(api, "/connections")
        cluster.rows["connections"] = []  # what was kept does not matter
        answer = await api.ask("DELETE", "/connections/username/clerk")
        assert (answer.status, C in answer.json()["reason"]) == (503, True)
        closed = [(peer, each["user"], each["by"]) for peer, each in cluster.asked if each["of"] == "close"]
        assert sorted(closed) == [(B, "clerk", "guest"), (C, "clerk", "guest")]
        cluster.asked.clear()
        cluster.gone.add(C)
        assert (await api.ask("DELETE", "/connections/username/clerk")).status == 204
        assert [peer for peer, each in cluster.asked if each["of"] == "close"] == [B]


async def test_a_fresh_connection_of_another_node_is_found() -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        path = "/connections/10.0.0.1%3A9%20-%3E%2010.0.0.2%3A5672"
        await got(api, "/connections")
        assert (await api.ask("GET", path)).status == 404
        cluster.rows["connections"].append(connection("clerk", 9))
        assert (await got(api, path))["node"] == B


async def test_other_nodes_are_asked_for_a_users_own_rows() -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        for path in ("/connections", "/channels", "/consumers"):
            await got(api, path, "clerk")
            await got(api, path, "watcher")
        asked = [each["user"] for peer, each in cluster.asked if peer == B]
        assert asked == ["clerk", None] * 3


@by_kind
async def test_messages_are_moved_between_queues_of_one_node_and_the_other_one_is_named(kind: str) -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        queues(api, kind)
        api.applied(Put(QueueRecord("/", "near", 77)))
        for source, target in (("far", "near"), ("near", "far")):
            wanted = {"all": True, "to_queue": target, "yes": True}
            answer = await api.ask("POST", f"/amqpd/messages/%2F/{source}/move", wanted)
            assert answer.status == 404
            assert answer.json()["reason"].startswith(f"node '{B}' leads the queue 'far' in virtual host '/'")


async def test_what_passes_an_exchange_is_the_sum_over_the_nodes() -> None:
    cluster = Cluster()
    there = {"publish_in": 4, "publish_out": 8, "publish_in_rate": 0.5, "publish_out_rate": 1.0}
    cluster.rows["exchanges"] = [
        {"vhost": "/", "name": "amq.fanout", **there},
        {"vhost": "/", "name": "amq.topic", "publish_in": "many", "publish_out": None},
    ]
    async with joined(cluster) as api:
        api.node.routes.traffic.of("/", "amq.fanout").count(1, 2)
        stats = (await got(api, "/exchanges/%2F/amq.fanout"))["message_stats"]
        assert stats == {
            "publish_in": 5,
            "publish_out": 10,
            "publish_in_details": {"rate": 0.5},
            "publish_out_details": {"rate": 1.0},
        }
        rows = {row["name"]: row.get("message_stats") for row in await got(api, "/exchanges/%2F")}
        assert rows["amq.fanout"] == stats
        assert rows["amq.topic"] is None


@by_kind
async def test_a_list_of_queues_that_wait_has_those_of_other_nodes_and_none_of_which_nobody_knows(kind: str) -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        queues(api, kind)
        api.applied(Put(QueueRecord("/", "near", 77)), Put(QueueRecord("/", "filled", 78)))
        api.client("guest").publish(b"1", "filled")

        async def only(conditions: str) -> list[str]:
            return [row["name"] for row in await got(api, f"/queues?only={conditions}")]

        assert await only("backlog") == ["far", "filled"]
        assert await only("empty") == ["near"]
        assert await only("unused") == ["far", "filled", "near"], "its leader says what is not nothing"
        assert await only("backlog,unused") == ["far", "filled"]
        assert await only("used") == []
        page = await got(api, "/queues?only=backlog&page=1&page_size=1&sort=messages&sort_reverse=true")
        assert [row["name"] for row in page["items"]] == ["far"]
        assert page["filtered_count"] == 2
        assert (await api.ask("GET", "/queues?only=backlog,nonsense")).status == 400


async def test_clients_are_found_by_what_they_call_themselves() -> None:
    cluster = Cluster()
    for kind in ("connections", "channels"):
        cluster.rows[kind][1] |= {"client_name": "till 9", "client_properties": {"connection_name": "till 9"}}
    async with joined(cluster) as api:
        api.client("guest").connection.client_properties = {"connection_name": "till 7"}
        for kind in ("connections", "channels"):
            page = await got(api, f"/{kind}?page=1&name=till&sort=user_provided_name&sort_reverse=true")
            assert [row["user_provided_name"] for row in page["items"]] == ["till 9", "till 7"]
        [row] = (await got(api, "/connections?page=1&name=till+7"))["items"]
        assert row["message_stats"]["publish_details"] == row["recv_oct_details"] == {"rate": 0}


@pytest.mark.trio
async def test_a_queue_is_not_made_at_another_node_than_its_client_wants_without_a_word() -> None:
    cluster = Cluster()
    async with joined(cluster) as api:
        here = api.on.node.identity.name
        refused = await api.ask("PUT", "/queues/%2F/new", {"node": "zz@vm"})
        assert (refused.status, refused.json()["reason"]) == (400, "node 'zz@vm' is none of this cluster's")
        refused = await api.ask("PUT", "/queues/%2F/new", {"node": B})
        assert refused.status == 400
        assert f"'{here}': ask '{B}' for it" in refused.json()["reason"]
        assert (await api.ask("GET", "/queues/%2F/new")).status == 404
        assert (await api.ask("PUT", "/queues/%2F/new", {"node": here})).status == 201
