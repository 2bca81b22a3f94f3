"""Every route that changes something, for everybody who must not use it; and what each sees."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.admin.conftest import USERS, Api

ADMINISTRATORS = re.compile(
    r"/(users|permissions|topic-permissions|vhost-limits|user-limits|operator-policies|definitions)\b|^/vhosts/\{vhost\}$"
)
POLICY_MAKERS = re.compile(r"/(policies|parameters|global-parameters)\b")
# Where somebody logs in, nobody has: its refusals are in `test_sessions.py`.
OPEN = ("/api/amqpd/session",)
PARTS = {"{vhost}": "closed", "{kind}": "q", "{port}": "1"}


def changing(api: Api) -> list[tuple[str, str, str]]:
    """Method, route and a path of it, of all that change something."""
    document = api.get("/openapi.json")
    found = []
    for route, methods in document["paths"].items():
        if route in OPEN:
            continue
        path = re.sub(r"\{\w+\}", lambda part: PARTS.get(part[0], "thing"), route.removeprefix("/api"))
        found += [(each.upper(), route.removeprefix("/api"), path) for each in methods if each not in ("get", "head")]
    assert len(found) > 30
    return found


def refused(api: Api, user: str, why: str, **more: Any) -> None:
    before = api.get("/definitions")
    for method, _, path in changing(api):
        answer = api(method, path, {}, user=user, **more)
        assert answer.status_code == (403 if why == "forbidden" else 401), (method, path, answer.text)
        assert answer.json()["error"] == why, (method, path)
    assert api.get("/definitions") == before


def test_nobody_changes_anything_without_logging_in(api: Api):
    refused(api, "", "not_authorized")


def test_nobody_changes_anything_with_a_wrong_password(api: Api):
    refused(api, "unheard-of", "not_authorized")


def test_nobody_changes_anything_without_a_tag(api: Api):
    refused(api, "nobody", "not_authorised")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_nothing_is_changed_on_behalf_of_another_site(api: Api, headers: dict[str, str]):
    refused(api, "guest", "forbidden", headers=headers)


def test_the_own_site_may(api: Api):
    headers = {"origin": api.url, "sec-fetch-site": "same-origin"}
    assert api("PUT", "/queues/%2F/mine-own-site", {}, headers=headers).status_code == 201


@pytest.mark.parametrize("tag", ["monitoring", "policymaker", "management"])
def test_what_is_the_administrators(api: Api, tag: str):
    for method, route, path in changing(api):
        if ADMINISTRATORS.search(route):
            answer = api(method, path, {}, user=USERS[tag])
            assert answer.status_code == 401, (method, path, answer.text)


@pytest.mark.parametrize("tag", ["monitoring", "management"])
def test_what_is_the_policy_makers(api: Api, tag: str):
    for method, route, path in changing(api):
        if POLICY_MAKERS.search(route):
            answer = api(method, path, {}, user=USERS[tag])
            assert answer.status_code == 401, (method, path, answer.text)


@pytest.mark.parametrize("tag", ["policymaker", "management"])
def test_nobody_reaches_into_a_virtual_host_that_it_may_not_enter(api: Api, tag: str):
    for method, route, path in changing(api):
        if "{vhost}" in route:
            answer = api(method, path, {}, user=USERS[tag])
            assert answer.status_code == 401, (method, path, answer.text)


def test_permissions_count_for_whoever_it_is(api: Api):
    """An administrator, too: its tag says what it may see, its permissions what it may use."""
    for method, path in (("PUT", "/queues/%2F/bosses"), ("POST", "/exchanges/%2F/amq.fanout/publish")):
        body = {"routing_key": "", "payload": "", "payload_encoding": "string", "properties": {}}
        assert api(method, path, body, user="boss").status_code == 401


def test_what_each_sees(api: Api):
    api.do("PUT", "/queues/closed/secret", {}, status=201)
    api.do("PUT", "/queues/%2F/mine-seen", {}, status=201)

    def seen(user: str) -> set[str]:
        return {row["vhost"] for row in api.get("/queues", user=user)}

    assert seen("boss") == seen("watcher") == {"/", "closed"}
    assert seen("planner") == seen("clerk") == {"/"}
    assert [row["name"] for row in api.get("/vhosts", user="clerk")] == ["/"]
    api.do("GET", "/queues/closed", user="clerk", status=401)
    api.do("GET", "/queues/closed/secret", user="clerk", status=401)
    api.do("GET", "/queues/nowhere", user="clerk", status=404)
    for path in ("/users", "/permissions", "/definitions"):
        api.do("GET", path, user="watcher", status=401)
    api.do("GET", "/nodes", user="planner", status=401)
    assert api.get("/overview", user="clerk")["object_totals"]["queues"] == len(api.get("/queues", user="clerk"))


def test_a_wrong_password_says_nothing_and_the_log_has_it(api: Api):
    wrong = api("GET", "/overview", user="", headers={"authorization": "Basic Z3Vlc3Q6d3Jvbmc="})
    unknown = api("GET", "/overview", user="unheard-of-2")
    assert (wrong.status_code, wrong.json()) == (unknown.status_code, unknown.json())
    assert wrong.headers["www-authenticate"].startswith("Basic realm=")
    assert api.broker.wait_log("http access denied.*invalid credentials")
    assert "wrong" not in api.broker.log.partition("http access denied")[2]


@pytest.mark.parametrize("header", ["", "Basic", "Basic ===", "Basic Z3Vlc3Q=", "Bearer x", "Basic \u00fc"])
def test_what_is_no_password(api: Api, header: str):
    answer = api("GET", "/overview", user="", headers={"authorization": header.encode("latin-1")})
    assert answer.status_code == 401


def test_limits_are_the_administrators_by_any_way(api: Api):
    """They are kept as a parameter; parameters are the policy makers'."""
    path = "/parameters/vhost-limits/%2F/limits"
    api.do("PUT", path, {"value": {"max-connections": 1}}, user="planner", status=401)
    api.do("DELETE", path, user="planner", status=401)
    assert api.get("/vhost-limits/%2F") == []
