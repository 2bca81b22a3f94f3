"""Bodies: how many bytes are held at a time, who may send any, and what may stand in them."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any

import httpx2
import pytest
import trio
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from amqpd.config import Settings
from amqpd.management import errors
from amqpd.setting_tables import HttpSettings
from amqpd_admin import answers, held
from amqpd_admin.bodies import BYTES_MAX, LEVELS_MAX, body_of
from amqpd_admin.held import FREE_BYTES, Held
from amqpd_admin.hosts import Hosts
from amqpd_admin.login import _place
from amqpd_admin.shield import Shield
from tests.admin.conftest import Api
from tests.admin.served import Served, answer_of, until_closed

DEEP = "[" * 100_000


def test_small_bodies_are_not_counted_and_large_ones_give_back():
    all_held = Held(1000)
    assert all_held.take(0, FREE_BYTES) == 0
    assert all_held.take(FREE_BYTES, 600) == 600
    assert all_held.take(FREE_BYTES - 100, 600) is None
    assert all_held.take(FREE_BYTES - 200, 600) == 400
    assert all_held.take(0, FREE_BYTES) == 0
    all_held.give_back(600)
    all_held.give_back(400)
    assert all_held.bytes == 0


@pytest.mark.trio
async def test_more_bodies_than_there_is_place_for_are_refused_until_there_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(held, "BYTES_MAX", 2 * FREE_BYTES)
    monkeypatch.setattr("amqpd_admin.shield.DRAIN_S", 0.0)
    go_on, came = trio.Event(), trio.Event()

    async def holding(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await Request(scope, receive).body()
        except answers.Refusal as refusal:
            await refusal.response(scope, receive, send)
            return
        came.set()
        if scope["query_string"]:
            await go_on.wait()
        await answers.reply("held")(scope, receive, send)

    settings = Settings(http=HttpSettings(body_bytes_max=2 * FREE_BYTES))
    shield = Shield(holding, settings.http.body_bytes_max, Hosts(settings))
    body = b"Content-Length: %d\r\n\r\n" % (2 * FREE_BYTES) + bytes(2 * FREE_BYTES)
    small = b"Content-Length: 2\r\n\r\n{}"
    async with Served(monkeypatch, shield).running() as served:
        first = await served.opened(b"PUT /?wait HTTP/1.1\r\nHost: x\r\n" + body)
        await came.wait()
        second = await served.opened(b"PUT / HTTP/1.1\r\nHost: x\r\n" + body[: FREE_BYTES + FREE_BYTES // 2])
        third = await served.opened(b"PUT / HTTP/1.1\r\nHost: x\r\n" + body)
        refused = await until_closed(third)
        assert refused.startswith(b"HTTP/1.1 503"), refused
        assert b"retry-after: 5" in refused
        assert b"too large all together" in refused
        assert (await answer_of(await served.opened(b"PUT / HTTP/1.1\r\nHost: x\r\n" + small), b'"held"'))[
            9:12
        ] == b"200"
        await second.aclose()
        go_on.set()
        assert (await answer_of(first, b'"held"')).startswith(b"HTTP/1.1 200")
        again = await served.opened(b"PUT / HTTP/1.1\r\nHost: x\r\n" + body)
        assert (await answer_of(again, b'"held"')).startswith(b"HTTP/1.1 200")


def sent(port: int, head: bytes) -> bytes:
    """The answer to a request of whose body nothing comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(head)
        return client.recv(100)


@pytest.mark.parametrize("path", ["definitions", "queues/%2F/x"])
def test_a_wrong_password_is_refused_before_the_body(path: str, api: Api):
    wrong = base64.b64encode(b"guest:wrong")
    method = b"POST" if path.endswith(("s", "publish")) else b"PUT"
    head = b"%s /api/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Length: 1000000\r\n\r\n"
    assert sent(api.port, head % (method, path.encode(), wrong)).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("path", ["/login", "/amqpd/session"])
def test_a_log_in_is_short(path: str, api: Api):
    body = json.dumps({"name": "guest", "password": "x" * 20_000}).encode()
    answer = httpx2.post(f"{api.url}/api{path}", content=body, headers={"origin": api.url})
    assert answer.status_code == 400
    assert answer.json()["reason"] == "Exceeded HTTP request body size limit"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return {"value": value}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (DEEP, "not_json"),
        ('{"value": ' + DEEP + "1" + "]" * 100_000 + "}", "not_json"),
        (json.dumps(nested(LEVELS_MAX)), f"the request body is nested deeper than {LEVELS_MAX} levels"),
        ('{"value": NaN}', "not_json"),
        ('{"value": -Infinity}', "not_json"),
        ('{"value": 1e999}', "a number of the body is too large"),
        ('{"value": [{"x": -1e999}]}', "a number of the body is too large"),
        ('{"value": {"x": ["\\ud800"]}}', "half a surrogate pair"),
        ('{"value": {"\\udc80": 1}}', "half a surrogate pair"),
        ("x" * (BYTES_MAX + 1), "Exceeded HTTP request body size limit"),
    ],
)
@pytest.mark.parametrize("path", ["/global-parameters/odd", "/parameters/unroutable/%2F/odd"])
def test_values_that_nothing_could_keep(path: str, body: str, reason: str, api: Api):
    answer = httpx2.put(f"{api.url}/api{path}", content=body, auth=("guest", "guest"))
    assert answer.status_code == 400, answer.text
    assert reason in answer.json()["reason"]
    assert api("GET", path).status_code == 404


HALF = "half \ud800"
KEPT: list[tuple[str, str, Any]] = [
    ("PUT", "/vhosts/odd", {"description": HALF}),
    ("PUT", "/vhosts/odd", {"tags": [HALF]}),
    ("PUT", "/vhosts/odd", {"default_queue_type": HALF}),
    ("PUT", "/vhosts/closed", {"description": HALF}),
    ("PUT", "/users/odd", {"password": "x", "tags": [HALF]}),
    ("PUT", "/users/odd", {"password": "x", "tags": HALF}),
    ("PUT", "/policies/%2F/odd", {"pattern": "x", "definition": {"dead-letter-routing-key": HALF}}),
    ("PUT", "/policies/%2F/odd", {"pattern": HALF, "definition": {"max-length": 1}}),
    ("PUT", "/operator-policies/%2F/odd", {"pattern": "x", "definition": {"expires": HALF}}),
    ("PUT", "/permissions/closed/clerk", {"configure": HALF, "write": "", "read": ""}),
    ("PUT", "/topic-permissions/closed/clerk", {"exchange": HALF, "write": "", "read": ""}),
    ("PUT", "/topic-permissions/closed/clerk", {"exchange": "x", "write": HALF, "read": ""}),
    ("PUT", "/queues/%2F/odd", {"arguments": {"x-dead-letter-exchange": HALF}}),
    ("PUT", "/exchanges/%2F/odd", {"arguments": {"alternate-exchange": HALF}}),
    ("POST", "/bindings/%2F/e/amq.topic/q/mine", {"routing_key": HALF}),
    ("POST", "/definitions", {"vhosts": [{"name": "odd", "description": HALF}]}),
    ("POST", "/definitions", {"global_parameters": [{"name": "odd", "value": {HALF: 1}}]}),
    ("POST", "/definitions", {"global_parameters": [{"name": "odd", "value": [HALF]}]}),
    ("POST", "/definitions", {"users": [{"name": "odd", "password_hash": "", "tags": [HALF]}]}),
    (
        "POST",
        "/definitions",
        {"permissions": [{"user": "clerk", "vhost": "/", "configure": HALF, "write": "", "read": ""}]},
    ),
]


@pytest.mark.parametrize(("method", "path", "body"), KEPT)
def test_half_a_surrogate_pair_is_kept_nowhere(method: str, path: str, body: Any, api: Api):
    api("PUT", "/queues/%2F/mine", {})
    before = api.get("/definitions")
    answer = httpx2.request(method, f"{api.url}/api{path}", content=json.dumps(body), auth=("guest", "guest"))
    assert answer.status_code == 400, answer.text
    assert answer.json()["reason"]
    assert api.get("/definitions") == before


@pytest.mark.parametrize("value", ["NaN", "1e999", "[" * 300 + "]" * 300, DEEP])
def test_definitions_that_nothing_could_keep(value: str, api: Api):
    body = '{"global_parameters": [{"name": "odd", "value": ' + value + "}]}"
    answer = httpx2.post(f"{api.url}/api/definitions", content=body, auth=("guest", "guest"))
    assert answer.status_code == 400, answer.text
    assert api("GET", "/global-parameters/odd").status_code == 404


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("192.0.2.1", False),
    ],
)
def test_what_is_loopback(address: str, loopback: bool):
    request = Request({"type": "http", "client": (address, 1), "headers": []})
    assert _place(request) == (address, loopback)


@pytest.mark.trio
async def test_a_refusal_s_kind_has_kinds_of_its_own():
    class Gone(errors.NotFound):
        pass

    class Odd(errors.Unavailable):
        pass

    request = Request({"type": "http", "method": "GET", "headers": []})
    assert (await answers.of_use_case(request, Gone("it went"))).status_code == 404
    assert (await answers.of_use_case(request, Odd("it is not there"))).status_code == 503
    assert (await answers.of_use_case(request, errors.ManagementError("of no kind"))).status_code == 500


async def body_from(text: bytes) -> dict[str, Any]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": text, "more_body": False}

    return await body_of(Request({"type": "http", "headers": [], "method": "POST"}, receive), 1 << 24)


@pytest.mark.trio
async def test_a_long_body_may_be_a_message_and_is_read_in_parts(monkeypatch: pytest.MonkeyPatch):
    payload = "\N{GRINNING FACE} and \\ and \ud83d" * 100_000
    wanted = {"routing_key": "q", "properties": {"headers": {"a": [1, 2]}}, "payload": payload, "x": True}
    text = json.dumps(wanted).encode()
    monkeypatch.setattr("amqpd_admin.bodies.json.loads", None)  # which would take it in one go
    assert await body_from(text) == wanted


@pytest.mark.trio
@pytest.mark.parametrize(
    "text",
    [
        b'{"arguments": {"a": [' + b"[]," * 200_000 + b"[]]}}",
        b'{"arguments": [' + b"[]," * 200_000 + b"[]]}",
        b"{" + b",".join(b'"%d": []' % number for number in range(50_000)) + b"}",
        b'["' + b"x" * 300_000 + b'"]',
        b'{"a": "' + b"x" * 300_000,
    ],
)
async def test_a_long_body_of_anything_else_is_refused(text: bytes):
    """20 MB of brackets, from any user of the API, took a second in which no message moved."""
    with pytest.raises(answers.Refusal) as refused:
        await body_from(text)
    assert refused.value.response.status_code == 400
