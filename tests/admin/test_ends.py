"""The end: of the broker, which waits for no client; of the node, met within a request."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from fastapi import APIRouter
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from amqpd.errors import NodeFailure, StorageFailure
from amqpd_admin import app, server, shield
from amqpd_admin.guarded import API
from amqpd_admin.held import Held
from tests.admin.served import CHUNKED, GET, HEAD, NOTHING, WHOLE, Served, answer_of, until_closed

pytestmark = pytest.mark.trio

LARGE = 1 << 26
"""more than both ends of a connection hold of an answer"""


def failing(error: Exception) -> APIRouter:
    """Routes that raise it, in each way that a route has."""
    router = APIRouter(prefix=API)

    @router.get("/plain")
    async def plain() -> None:
        raise error

    @router.get("/grouped")
    async def grouped() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise error

    @router.get("/streamed")
    async def streamed() -> StreamingResponse:
        async def parts() -> Any:
            yield b"first"
            raise error

        return StreamingResponse(parts())

    return router


@pytest.mark.parametrize("error", [NodeFailure("it is broken"), StorageFailure("it is full")])
@pytest.mark.parametrize(
    ("path", "rest"),
    [
        ("plain", b"Transfer-Encoding: chunked\r\n\r\n"),
        ("grouped", b"Transfer-Encoding: chunked\r\n\r\n"),
        ("streamed", b"\r\n"),
    ],
)
async def test_what_ends_the_node_ends_it_from_a_request(
    rest: bytes, path: str, error: Exception, monkeypatch: pytest.MonkeyPatch
):
    """Without waiting for the body of the request, which an answer would do."""
    monkeypatch.setattr(app, "ROUTES", [*app.ROUTES, *failing(error).routes])
    monkeypatch.setattr("amqpd_admin.shield.DRAIN_S", 60.0)
    with pytest.RaisesGroup(type(error), flatten_subgroups=True):
        async with Served(monkeypatch).running() as served:
            await served.opened(f"GET /api/{path} HTTP/1.1\r\nHost: x\r\n".encode() + rest)
            await trio.sleep_forever()


async def test_it_ends_though_a_client_does_not_read(monkeypatch: pytest.MonkeyPatch):
    """Hypercorn lets nobody interrupt it while it sends."""
    sending = trio.Event()

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/fail":
            await sending.wait()
            raise NodeFailure("it is broken")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        sending.set()
        await send({"type": "http.response.body", "body": bytes(LARGE)})

    with pytest.RaisesGroup(NodeFailure, flatten_subgroups=True):
        async with Served(monkeypatch, answering).running() as served:
            await served.opened(GET)
            await served.opened(b"GET /fail HTTP/1.1\r\nHost: x\r\n\r\n")
            await trio.sleep_forever()


async def test_an_answer_in_pieces_does_not_wait_for_a_body_that_has_come(monkeypatch: pytest.MonkeyPatch):
    """What listens for the client to leave took the end of the body from under what waited for it."""
    asked = False

    async def receive() -> Any:
        nonlocal asked
        asked = True
        await trio.lowlevel.checkpoint()
        if body.ended:
            await trio.sleep_forever()
        return {"type": "http.request", "body": b"", "more_body": False}

    monkeypatch.setattr(shield, "DRAIN_S", 60.0)
    body = shield._Body(receive, 1000, Held(1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(body.wait_left, trio.CancelScope())
        nursery.start_soon(body.receive)
        while not asked:
            await trio.lowlevel.checkpoint()
        with trio.fail_after(5):
            await body.drain()
        nursery.cancel_scope.cancel()
    assert body.ended


async def test_other_failures_are_that_request_s(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "ROUTES", [*app.ROUTES, *failing(ValueError("a bug")).routes])
    async with Served(monkeypatch).running() as served:
        stream = await served.opened(b"GET /api/grouped HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer_of(stream, b"}")).startswith(b"HTTP/1.1 500")
        stream = await served.opened(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer_of(stream, b"}")).startswith(b"HTTP/1.1 200")


async def test_the_end_waits_for_an_answer_and_takes_no_other_request(monkeypatch: pytest.MonkeyPatch):
    asked, go_on, taken = trio.Event(), trio.Event(), 0

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal taken
        taken += 1
        asked.set()
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    monkeypatch.setattr(server, "END_S", 60.0)
    async with Served(monkeypatch, answering).running() as served, trio.open_nursery() as nursery:
        running, idle, begun = await served.opened(WHOLE + WHOLE), await served.opened(), await served.opened(HEAD)
        await asked.wait()
        nursery.start_soon(served.face.end)
        assert await until_closed(idle) == b""
        assert await until_closed(begun) == b""
        with pytest.raises(OSError, match="all attempts to connect"):
            await served.opened()
        go_on.set()
        answer = await until_closed(running)
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b"HTTP/1.1") == taken == 1


async def test_a_request_that_comes_as_the_end_begins_is_refused(monkeypatch: pytest.MonkeyPatch):
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it was answered")

    async with Served(monkeypatch, never).running() as served:
        served.face._ending.set()
        answered: list[Any] = []

        async def send(message: Any) -> None:
            answered.append(message)

        await served.face._until_the_end(never)({"type": "http", "method": "PUT"}, None, send)  # type: ignore[arg-type]
        assert answered[0]["status"] == 503


@pytest.mark.parametrize("request_", [GET, CHUNKED])
async def test_the_end_does_not_wait_for_a_client(request_: bytes, monkeypatch: pytest.MonkeyPatch):
    """Neither for one that does not read, nor for one that does not end its request."""
    began = trio.Event()

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(LARGE)})

    monkeypatch.setattr(server, "END_S", 0.05)
    async with Served(monkeypatch, answering).running() as served:
        await served.opened(request_)
        await began.wait()
        with trio.fail_after(10):
            await served.face.end()
        assert not served.face._open


async def test_after_the_end_it_does_not_begin_again(monkeypatch: pytest.MonkeyPatch):
    async with Served(monkeypatch).running() as served:
        await served.face.end()
        await served.face.run(NOTHING)
