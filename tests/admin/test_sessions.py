"""Sessions: their bounds and their end; the cookie; what is only taken from the broker's own pages."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx2
import pytest
import trustme

from amqpd_admin.sessions import LIFETIME_S, Sessions
from amqpd_admin.shield import is_own
from tests.admin.conftest import Api
from tests.admin.test_server import broker_with
from tests.clients.broker_process import free_port

OWN = {"sec-fetch-site": "same-origin"}
PAGES = {"x-amqpd-pages": "1"}


def test_a_session_is_found_until_it_ends():
    sessions = Sessions()
    sessions.begin("token", "anna", "hash", 100.0)
    found = sessions.find("token", 100.0 + LIFETIME_S - 1)
    assert found is not None
    assert (found.user, found.stored) == ("anna", "hash")
    assert sessions.find("token", 100.0 + LIFETIME_S) is None
    assert len(sessions) == 0


def test_a_session_that_is_ended_is_gone_and_a_token_of_none_harms_nobody():
    sessions = Sessions()
    sessions.begin("one", "anna", "", 0.0)
    sessions.end("other")
    sessions.end("")
    assert sessions.find("one", 1.0) is not None
    sessions.end("one")
    assert sessions.find("one", 1.0) is None
    assert sessions.find("", 1.0) is None


def test_one_more_of_a_user_ends_that_user_s_oldest():
    sessions = Sessions(at_most=10, of_a_user=2)
    sessions.begin("berta", "berta", "", 0.0)
    for at, token in enumerate(("a1", "a2", "a3")):
        sessions.begin(token, "anna", "", float(at))
    assert [token for token in ("berta", "a1", "a2", "a3") if sessions.find(token, 3.0)] == ["berta", "a2", "a3"]


def test_one_more_of_all_ends_the_oldest_of_all():
    sessions = Sessions(at_most=3, of_a_user=3)
    for at in range(5):
        sessions.begin(f"token {at}", f"user {at}", "", float(at))
    assert len(sessions) == 3
    assert sessions.find("token 1", 5.0) is None
    assert sessions.find("token 2", 5.0) is not None


def test_those_that_have_ended_make_place_before_any_other_does():
    sessions = Sessions(at_most=2, of_a_user=2)
    sessions.begin("old", "anna", "", 0.0)
    sessions.begin("new", "anna", "", LIFETIME_S - 1)
    sessions.begin("newest", "anna", "", LIFETIME_S)
    assert sessions.find("new", LIFETIME_S) is not None


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://b:1", "host": "b:1"}, True),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"origin": "http://b:1", "host": "b:1"}, True),
        ({"origin": "http://b:2", "host": "b:1"}, False),
        ({"origin": "http://b:2", "host": "b:1", "sec-fetch-site": "same-origin"}, False),
        ({"origin": "null", "host": "b:1"}, False),
    ],
)
def test_what_comes_from_the_broker_s_own_pages(headers: Mapping[str, str], own: bool):
    assert is_own(headers) is own


@contextlib.contextmanager
def begun(api: Api, user: str, password: str | None = None) -> Iterator[httpx2.Client]:
    """A browser with a session, as far as its cookie and its headers go."""
    with httpx2.Client(base_url=f"{api.url}/api", headers={**OWN, **PAGES}, timeout=60) as browser:
        answer = browser.post("/amqpd/session", json={"name": user, "password": password or user})
        assert answer.status_code == 201, answer.text
        yield browser


def test_the_cookie_and_what_it_is_good_for(api: Api):
    with begun(api, "guest") as browser:
        [cookie] = browser.cookies.jar
        assert cookie.name == f"amqpd-session-{api.port}"
        assert browser.get("/amqpd/session").json() == {"name": "guest", "tags": ["administrator"]}
        assert browser.get("/whoami").json()["name"] == "guest"
        assert browser.put("/queues/%2F/mine-of-a-session", json={}).status_code == 201
        assert browser.delete("/queues/%2F/mine-of-a-session").status_code == 204


def test_what_the_cookie_says_of_itself(api: Api):
    answer = httpx2.post(f"{api.url}/api/amqpd/session", json={"name": "guest", "password": "guest"})
    said = answer.headers["set-cookie"]
    assert re.fullmatch(rf"amqpd-session-{api.port}=[\w-]{{43}}; HttpOnly; Path=/; SameSite=strict", said)
    assert "password" not in answer.text
    assert answer.json() == {"name": "guest", "tags": ["administrator"]}


def test_under_tls_the_cookie_does_not_go_without(tmp_path: Path):
    pem = tmp_path / "server.pem"
    trustme.CA().issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
    broker, port = broker_with(tmp_path, http_tls="true", tls_certificate=pem, tls_port=free_port())
    try:
        with httpx2.Client(
            verify=False, base_url=f"https://127.0.0.1:{port}/api", headers={**OWN, **PAGES}
        ) as browser:
            said = browser.post("/amqpd/session", json={"name": "guest", "password": "guest"}).headers["set-cookie"]
            assert said.startswith(f"__Host-amqpd-session-{port}=")
            assert said.endswith("; HttpOnly; Path=/; SameSite=strict; Secure")
            assert browser.get("/whoami").status_code == 200
    finally:
        broker.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": ""},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    ],
)
def test_a_change_with_the_cookie_alone_is_refused(api: Api, headers: dict[str, str]):
    with begun(api, "guest") as browser:
        for method, path in (
            ("PUT", "/queues/%2F/foreign"),
            ("DELETE", "/queues/%2F/foreign"),
            ("DELETE", "/amqpd/session"),
        ):
            answer = browser.request(method, path, json={}, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (403, "forbidden"), (method, path)
        assert browser.get("/whoami").status_code == 200, "the session goes on"
    api.do("GET", "/queues/%2F/foreign", status=404)


def test_no_other_site_logs_somebody_in(api: Api):
    body = {"name": "guest", "password": "guest"}
    answer = httpx2.post(f"{api.url}/api/amqpd/session", json=body, headers={"origin": "http://evil.example"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_logged_out(api: Api):
    with begun(api, "guest") as browser:
        token = browser.cookies[f"amqpd-session-{api.port}"]
        answer = browser.delete("/amqpd/session")
        assert answer.status_code == 204
        assert "Max-Age=0" in answer.headers["set-cookie"]
        browser.cookies.set(f"amqpd-session-{api.port}", token)
        assert browser.get("/whoami").status_code == 401
        assert browser.get("/amqpd/session").json() == {"name": None, "tags": []}


def test_a_session_ends_with_the_password_that_began_it_and_with_its_user(api: Api):
    api.do("PUT", "/users/passing", {"password": "one", "tags": "management"}, status=201)
    with begun(api, "passing", "one") as browser:
        kept = {name: api.get("/users/passing")[name] for name in ("password_hash", "hashing_algorithm")}
        api.do("PUT", "/users/passing", {"tags": "monitoring", **kept}, status=204)
        assert browser.get("/amqpd/session").json()["tags"] == ["monitoring"], "tags are those of now"
        api.do("PUT", "/users/passing", {"password": "two", "tags": "monitoring"}, status=204)
        assert browser.get("/whoami").status_code == 401
    with begun(api, "passing", "two") as browser:
        api.do("DELETE", "/users/passing", status=204)
        assert browser.get("/whoami").status_code == 401


def test_a_session_has_the_rights_of_its_user_and_no_more(api: Api):
    with begun(api, "watcher") as browser:
        assert browser.get("/connections").status_code == 200
        answer = browser.put("/users/made-by-a-watcher", json={"password": "x", "tags": ""})
        assert (answer.status_code, answer.json()["error"]) == (401, "not_authorised")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"name": "guest", "password": "wrong"}, 401, "not_authorized"),
        ({"name": "unheard-of", "password": "wrong"}, 401, "not_authorized"),
        ({"name": "guest", "password": ""}, 401, "not_authorized"),
        ({"name": "nobody", "password": "nobody"}, 401, "not_authorised"),
        ({"name": "guest"}, 400, "bad_request"),
        ({"name": "guest", "password": ["guest"]}, 400, "bad_request"),
        ({}, 400, "bad_request"),
    ],
)
def test_who_gets_no_session(api: Api, body: dict[str, object], status: int, error: str):
    answer = api("POST", "/amqpd/session", body, user="")
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert "set-cookie" not in answer.headers
    assert not answer.headers.get("www-authenticate", "").startswith("Basic")


def test_the_pages_requests_never_make_the_browser_ask_for_a_password(api: Api):
    """And are not answered with one that the browser remembers."""
    with httpx2.Client(base_url=f"{api.url}/api", auth=("guest", "guest")) as browser:
        answer = browser.get("/overview", headers=PAGES)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("amqpd-session ")
        assert browser.get("/overview").status_code == 200
    assert api("GET", "/overview", user="").headers["www-authenticate"].startswith("Basic ")


def test_a_password_goes_before_a_cookie_where_no_page_asks(api: Api):
    with begun(api, "watcher") as browser:
        del browser.headers["x-amqpd-pages"]
        assert browser.get("/whoami", auth=("boss", "boss")).json()["name"] == "boss"
        assert browser.get("/whoami").json()["name"] == "watcher"


@pytest.mark.parametrize("token", ["", "x", "\u00fc", "x" * 5000])
def test_a_token_that_is_none(api: Api, token: str):
    cookie = f"amqpd-session-{api.port}={token}".encode("latin-1")
    answer = httpx2.get(f"{api.url}/api/whoami", headers=[(b"cookie", cookie), (b"x-amqpd-pages", b"1")])
    assert answer.status_code == 401
