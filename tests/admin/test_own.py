"""Whose connections, channels and consumers a user sees, by its tag: RabbitMQ's rules."""

from __future__ import annotations

from typing import Any

import pytest

from amqpd.topology import plans
from amqpd.vocabulary.records import Put, QueueRecord
from tests.admin.conftest import USERS
from tests.admin.inside import Inside, inside

pytestmark = pytest.mark.trio

OWN = ["clerk", "planner"]
ALL = ["boss", "watcher"]


def connected(api: Inside) -> None:
    """Two of `boss`, one of each other user, each with a consumer; one in a virtual host that only it may enter."""
    api.applied(*plans.create_vhost("closed"), Put(QueueRecord("/", "q", 256)), Put(QueueRecord("closed", "q", 512)))
    for user in USERS.values():
        api.client(user).consume("q")
    api.client("boss", "closed").consume("q")


async def got(api: Inside, path: str, user: str) -> Any:
    answer = await api.ask("GET", path, user=user)
    assert answer.status == 200, answer.text
    return answer.json()


def users_of(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row.get("user") or row["channel_details"]["user"] for row in rows)


EVERYBODY = sorted(USERS.values())


@pytest.mark.parametrize("path", ["/connections", "/channels", "/consumers"])
async def test_who_monitors_sees_all_and_others_their_own(path: str):
    async with inside() as api:
        connected(api)
        for user in ALL:
            assert users_of(await got(api, path, user)) == sorted([*EVERYBODY, "boss"])
        for user in OWN:
            assert users_of(await got(api, path, user)) == [user]


@pytest.mark.parametrize("path", ["/vhosts/%2F/connections", "/vhosts/%2F/channels", "/consumers/%2F"])
async def test_the_same_in_a_virtual_host(path: str):
    async with inside() as api:
        connected(api)
        for user in ALL:
            assert users_of(await got(api, path, user)) == EVERYBODY
        for user in OWN:
            assert users_of(await got(api, path, user)) == [user]
            assert (await api.ask("GET", path.replace("%2F", "closed"), user=user)).status == 401


async def test_the_consumers_of_a_queue():
    async with inside() as api:
        connected(api)
        for user in (*ALL, *OWN):
            row = await got(api, "/queues/%2F/q", user)
            assert row["consumers"] == len(EVERYBODY)
            assert users_of(row["consumer_details"]) == (EVERYBODY if user in ALL else [user])


async def test_one_of_another_user():
    async with inside() as api:
        connected(api)
        theirs = "watcher%3A1%20-%3E%20broker%3A5672"
        for path in (f"/connections/{theirs}", f"/connections/{theirs}/channels", f"/channels/{theirs}%20(1)"):
            for user, status in (("watcher", 200), ("boss", 200), ("clerk", 401), ("planner", 401)):
                assert (await api.ask("GET", path, user=user)).status == status, (path, user)
        assert await got(api, "/connections/username/watcher", "clerk") == []
        assert (await api.ask("DELETE", "/connections/username/watcher", user="clerk")).status == 401
        assert (await api.ask("DELETE", f"/connections/{theirs}", user="planner")).status == 401


async def test_the_overview_has_the_totals_of_what_a_user_may_see():
    async with inside() as api:
        connected(api)
        for user in ALL:
            row = await got(api, "/overview", user)
            count = len(EVERYBODY) + 1
            assert row["object_totals"] == {
                "connections": count, "channels": count, "consumers": count, "queues": 2, "exchanges": 14,
            }  # fmt: skip
            assert {"node", "listeners", "contexts"} <= row.keys()
        for user in OWN:
            row = await got(api, "/overview", user)
            assert row["object_totals"] == {
                "connections": 1, "channels": 1, "consumers": 1, "queues": 1, "exchanges": 7,
            }  # fmt: skip
            assert not {"node", "listeners", "contexts"} & row.keys()


async def test_nodes_and_virtual_hosts():
    async with inside() as api:
        connected(api)
        for user in ALL:
            assert len(await got(api, "/nodes", user)) == 1
            assert [row["name"] for row in await got(api, "/vhosts", user)] == ["/", "closed"]
        for user in OWN:
            assert (await api.ask("GET", "/nodes", user=user)).status == 401
            assert [row["name"] for row in await got(api, "/vhosts", user)] == ["/"]
            assert (await api.ask("GET", "/vhosts/closed", user=user)).status == 401


async def test_global_parameters_are_changed_by_administrators_and_those_of_components_by_policy_makers():
    async with inside() as api:
        for user in USERS.values():
            made = await api.ask("PUT", "/global-parameters/g", {"value": 1}, user=user)
            assert made.status == (201 if user == "boss" else 401), user
            kept = await api.ask("PUT", "/parameters/unroutable/%2F/default", {"value": "drop"}, user=user)
            assert kept.status == {"boss": 201, "planner": 204}.get(user, 401), user
            limit = await api.ask("PUT", "/vhost-limits/%2F/max-queues", {"value": 9}, user=user)
            assert limit.status == (204 if user == "boss" else 401), user
            path = "/parameters/vhost-limits/%2F/limits"
            assert (await api.ask("PUT", path, {"value": {}}, user=user)).status == (204 if user == "boss" else 401)
        for user in ("watcher", "clerk", "planner"):
            assert (await api.ask("DELETE", "/global-parameters/g", user=user)).status == 401
        assert (await got(api, "/global-parameters/g", "planner"))["value"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {"default_queue_type": "stream"},
        {"default_queue_type": 4},
        {"tags": 4},
        {"tags": ["a", ""]},
        {"tags": ["a\u0000"]},
        {"description": 4},
        {"description": "\ud800"},
        {"tracing": "perhaps"},
        {"protected_from_deletion": "perhaps"},
    ],
)
async def test_a_virtual_host_is_put_with_all_that_is_said_of_it_or_not_at_all(body: dict[str, Any]):
    async with inside() as api:
        whole = {"description": "new", "tags": ["x"], "default_queue_type": "quorum", "protected_from_deletion": True}
        before = (await api.ask("GET", "/definitions")).text
        assert (await api.ask("PUT", "/vhosts/v", {**whole, "tracing": True, **body})).status == (
            201 if body == {"tags": ["a", ""]} else 400
        )
        if body == {"tags": ["a", ""]}:
            return  # RabbitMQ leaves out what is empty, too
        assert (await api.ask("GET", "/definitions")).text == before
        assert (await api.ask("PUT", "/vhosts/%2F", {**whole, "tracing": True, **body})).status == 400
        assert (await api.ask("GET", "/definitions")).text == before
        assert not api.node.firehose.taps


async def test_a_virtual_host_that_is_put_is_whole_and_traced_at_once():
    async with inside() as api:
        whole = {"description": "new", "tags": "a,b", "default_queue_type": "quorum", "tracing": True}
        assert (await api.ask("PUT", "/vhosts/v", whole, user="boss")).status == 201
        row = await got(api, "/vhosts/v", "boss")
        assert (row["description"], row["tags"], row["default_queue_type"], row["tracing"]) == (
            *("new", ["a", "b"], "quorum", True),
        )
        assert ("v", "boss") in api.topology.permissions
        assert (await api.ask("PUT", "/vhosts/v", {"tracing": False}, user="boss")).status == 204
        row = await got(api, "/vhosts/v", "boss")
        assert (row["description"], row["tags"], row["tracing"]) == ("new", ["a", "b"], False)
