"""Who changed what over HTTP is in the log and in the audit log: of every route that is to change something."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog.testing

from amqpd_admin.trail import UNSAID
from tests.admin.inside import Inside, inside

pytestmark = pytest.mark.trio

SECRET = "sesame-of-the-body"
TOPIC = {"exchange": "amq.topic", "write": "", "read": ""}
POLICY = {"pattern": "^q", "definition": {"max-length": 5}}
PARTS = {"{vhost}": "%2F", "{kind}": "q", "{port}": "1"}


async def changing(api: Inside) -> list[tuple[str, str, str]]:
    """Method, route, and a path of it."""
    document = (await api.ask("GET", "/openapi.json")).json()
    found = []
    for route, methods in document["paths"].items():
        route = route.removeprefix("/api")
        if route not in UNSAID:
            path = re.sub(r"\{\w+\}", lambda part: PARTS.get(part[0], "thing"), route)
            found += [(each.upper(), route, path) for each in methods if each != "get"]
    assert len(found) > 40
    return found


def lines(logged: list[Any]) -> list[dict[str, Any]]:
    return [dict(each) for each in logged if each["event"] in ("changed over http", "change over http refused")]


async def test_every_route_that_is_to_change_something_is_told_once_and_nothing_of_its_body():
    async with inside() as api:
        for method, route, path in await changing(api):
            with structlog.testing.capture_logs() as logged:
                body = {"password": SECRET, "value": SECRET, "payload": SECRET, "tags": "", "definition": SECRET}
                answer = await api.ask(method, path, body, user="boss")
            [line] = lines(logged)
            act = f"{method} {route}"
            assert (line["user"], line["address"], line["act"]) == ("boss", "10.0.0.9", act)
            assert line["status"] == answer.status
            assert line["event"] == ("changed over http" if answer.status < 400 else "change over http refused")
            assert ("/" if "{vhost}" in route else None) == line.get("vhost")
            assert ("thing" in line["object"]) == ("thing" in path)
            assert SECRET not in str(logged)
        assert SECRET not in str(api.told.rows)


async def test_what_only_reads_is_not():
    async with inside() as api:
        with structlog.testing.capture_logs() as logged:
            assert (await api.ask("GET", "/queues")).status == 200
            assert (await api.ask("HEAD", "/queues")).status == 200
        assert not lines(logged)
        assert api.told.rows == []


def of_requests(api: Inside) -> Iterator[tuple[str, str, str, str | None, str]]:
    for event, columns in api.told.rows:
        if event in ("http_request", "permission_refused"):
            yield event, columns["user"], columns["address"], columns.get("vhost"), columns["object"]


@pytest.mark.parametrize(
    ("method", "path", "body", "vhost", "thing"),
    [
        ("PUT", "/users/anna", {"tags": "management", "password_hash": ""}, None, "user anna"),
        ("PUT", "/permissions/%2F/clerk", {"configure": "", "write": "", "read": ""}, "/", "permission of clerk"),
        ("PUT", "/topic-permissions/%2F/clerk", TOPIC, "/", "topic permission of clerk"),
        ("PUT", "/policies/%2F/p", POLICY, "/", "policy p"),
        ("PUT", "/operator-policies/%2F/p", POLICY, "/", "operator policy p"),
        ("PUT", "/parameters/unroutable/%2F/default", {"value": "drop"}, "/", "parameter unroutable default"),
        ("PUT", "/global-parameters/g", {"value": 1}, None, "global parameter g"),
        ("PUT", "/vhost-limits/%2F/max-queues", {"value": 100}, "/", "limit of vhost / max-queues"),
        ("PUT", "/user-limits/clerk/max-channels", {"value": 100}, None, "limit of user clerk max-channels"),
        ("PUT", "/vhosts/v", {}, "v", "vhost v"),
        ("POST", "/definitions", {}, None, "definitions"),
        ("PUT", "/queues/%2F/q", {}, "/", "queue q"),
        ("PUT", "/exchanges/%2F/x", {}, "/", "exchange x"),
        ("DELETE", "/connections/username/nobody", None, None, "connection nobody"),
    ],
)
async def test_what_was_changed_is_in_the_audit_log(method: str, path: str, body: object, vhost: str, thing: str):
    async with inside() as api:
        answer = await api.ask(method, path, body, user="boss")
        assert answer.status in (201, 204), answer.text
        assert list(of_requests(api)) == [("http_request", "boss", "10.0.0.9", vhost, thing)]


async def test_things_that_are_bound_purged_and_deleted_are():
    async with inside() as api:
        for method, path, body in (
            ("PUT", "/queues/%2F/q", {}),
            ("POST", "/bindings/%2F/e/amq.fanout/q/q", {}),
            ("DELETE", "/queues/%2F/q/contents", None),
            ("DELETE", "/bindings/%2F/e/amq.fanout/q/q/~", None),
            ("DELETE", "/queues/%2F/q", None),
        ):
            assert (await api.ask(method, path, body)).status in (201, 204)
        assert [each[-1] for each in of_requests(api)] == [
            *("queue q", "binding amq.fanout q q", "queue q", "binding amq.fanout q q ~", "queue q"),
        ]


async def test_what_it_changed_of_the_metadata_is_told_as_the_users_doing():
    async with inside() as api:
        await api.ask("PUT", "/users/anna", {"tags": "management", "password_hash": ""}, user="boss")
        await api.ask("PUT", "/permissions/%2F/anna", {"configure": "", "write": "", "read": ""}, user="boss")
        await api.ask("DELETE", "/users/anna", user="boss")
        own = [(event, columns) for event, columns in api.told.rows if event != "http_request"]
        assert [event for event, _ in own][:2] == ["user_put", "permission_put"]
        assert {"user_deleted", "permission_deleted"} <= {event for event, _ in own}
        assert {(columns["user"], columns["address"]) for _, columns in own} == {("boss", "10.0.0.9")}


async def test_users_that_go_together_are_named():
    async with inside() as api:
        with structlog.testing.capture_logs() as logged:
            assert (await api.ask("POST", "/users/bulk-delete", {"users": ["clerk", "planner"]})).status == 204
        assert lines(logged)[0]["users"] == ["clerk", "planner"]
        [detail] = [columns["detail"] for event, columns in api.told.rows if event == "http_request"]
        assert json.loads(detail)["users"] == ["clerk", "planner"]


async def test_one_who_may_not_is_a_refused_permission():
    async with inside() as api:
        assert (await api.ask("PUT", "/users/anna", {"tags": ""}, user="clerk")).status == 401
        assert list(of_requests(api)) == [("permission_refused", "clerk", "10.0.0.9", None, "user anna")]


async def test_the_document_of_all_routes_needs_a_log_in():
    async with inside() as api:
        assert (await api.ask("GET", "/openapi.json", user="")).status == 401
        assert "paths" in (await api.ask("GET", "/openapi.json", user="clerk")).json()
