"""How long a connection and a request may take: what comes slowly, never, or after the answer."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from starlette.types import Receive, Scope, Send

from amqpd_admin import connection
from tests.admin.served import (
    CHUNK,
    CHUNKED,
    GET,
    HEAD,
    WHOLE,
    Served,
    answer_of,
    drip,
    left,
    until_closed,
)

# A busy machine has to read a whole request within it.
REQUEST_S = 0.5
DRIP_S = 0.01

pytestmark = pytest.mark.trio


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What ends the time of requests that begin from now on: before that, a busy machine has as much as it needs."""
    monkeypatch.setattr(connection, "CLOSE_S", REQUEST_S)
    return lambda: monkeypatch.setattr(connection, "REQUEST_S", REQUEST_S)


async def accepted(served: Served) -> trio.SocketStream:
    stream = await served.opened()
    while not served.face._open:
        await trio.lowlevel.checkpoint()
    return stream


async def at_once(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers, and reads nothing."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers when all has come."""
    while (await receive()).get("more_body"):
        pass
    await at_once(scope, receive, send)


async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
    """Takes longer than a request may, before its answer and within."""
    await trio.sleep(1.5 * REQUEST_S)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"1", "more_body": True})
    await trio.sleep(1.5 * REQUEST_S)
    await send({"type": "http.response.body", "body": b"2"})


async def test_a_body_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch, short: Callable[[], None]):
    short()
    async with Served(monkeypatch, reading).running() as served:
        assert await drip(await served.opened(CHUNKED), CHUNK, pause_s=DRIP_S) == b""
        await left(served)


async def test_a_head_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch, short: Callable[[], None]):
    short()
    async with Served(monkeypatch, reading).running() as served:
        await drip(await served.opened(HEAD), b"x: y\r\n", pause_s=DRIP_S)
        await left(served)


async def test_the_second_request_of_a_connection_has_the_same_bound(
    monkeypatch: pytest.MonkeyPatch, short: Callable[[], None]
):
    async with Served(monkeypatch, reading).running() as served:
        stream = await served.opened(WHOLE)
        assert (await answer_of(stream, b"ok")).startswith(b"HTTP/1.1 200")
        short()
        await stream.send_all(CHUNKED)
        assert await drip(stream, CHUNK, pause_s=DRIP_S) == b""
        await left(served)


async def test_a_second_request_that_came_with_the_first_has_the_same_bound(
    monkeypatch: pytest.MonkeyPatch, short: Callable[[], None]
):
    async with Served(monkeypatch, reading).running() as served:
        stream = await accepted(served)
        short()
        await stream.send_all(WHOLE + HEAD)
        assert (await answer_of(stream, b"ok")).startswith(b"HTTP/1.1 200")
        await drip(stream, b"x: y\r\n", pause_s=DRIP_S)
        await left(served)


@pytest.mark.parametrize("application", [at_once, reading])
async def test_a_body_without_end_keeps_no_connection(
    application: Any, monkeypatch: pytest.MonkeyPatch, short: Callable[[], None]
):
    """What came of it after the answer stood in Hypercorn's queue, and nothing was closed until somebody took it."""
    if application is reading:
        short()
    async with Served(monkeypatch, application).running() as served:
        await drip(await served.opened(CHUNKED + 100 * CHUNK), 100 * CHUNK)
        await left(served)


async def test_a_body_that_never_ends_after_the_answer_keeps_no_connection(monkeypatch: pytest.MonkeyPatch):
    async with Served(monkeypatch, at_once).running() as served:
        stream = await served.opened(CHUNKED + 100 * CHUNK)
        assert (await until_closed(stream)).startswith(b"HTTP/1.1 200")
        await left(served)


@pytest.mark.parametrize("fails_after", ["http.response.start", ""])
async def test_an_application_that_fails_before_the_body_has_come_keeps_no_connection(
    fails_after: str, monkeypatch: pytest.MonkeyPatch
):
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        if fails_after:
            await send({"type": fails_after, "status": 200, "headers": []})
        raise ValueError

    async with Served(monkeypatch, failing).running() as served:
        stream = await served.opened(CHUNKED + 100 * CHUNK)
        await until_closed(stream)
        await left(served)


@pytest.mark.parametrize("sent", [b"", GET[:10]])
async def test_a_client_that_says_nothing_more_is_cut_off(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, short: Callable[[], None]
):
    short()
    async with Served(monkeypatch, reading).running() as served:
        assert await until_closed(await served.opened(sent)) == b""
        await left(served)


async def test_a_connection_may_wait_for_its_first_request_as_long_as_a_request_may_take(
    monkeypatch: pytest.MonkeyPatch,
):
    """Browsers connect before they ask: what they ask then was lost where a head's time had passed."""
    monkeypatch.setattr(connection, "HEAD_S", REQUEST_S)
    async with Served(monkeypatch, reading).running() as served:
        stream = await accepted(served)
        await trio.sleep(1.5 * REQUEST_S)
        monkeypatch.setattr(connection, "HEAD_S", connection.REQUEST_S)
        await stream.send_all(WHOLE)
        assert (await answer_of(stream, b"ok")).startswith(b"HTTP/1.1 200")


async def test_a_tls_handshake_that_never_ends_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, short: Callable[[], None], tmp_path: Path
):
    short()
    authority = trustme.CA()
    pem = tmp_path / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(pem))
    settings: dict[str, Any] = {"http": {"tls": True}, "tls": {"certificate": pem, "port": 0}}
    async with Served(monkeypatch, reading, **settings).running() as served:
        assert await until_closed(await served.opened(b"\x16\x03\x01")) == b""
        await left(served)


async def test_over_tls_a_body_that_drips_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, short: Callable[[], None], tmp_path: Path
):
    authority = trustme.CA()
    pem = tmp_path / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(pem))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    settings: dict[str, Any] = {"http": {"tls": True}, "tls": {"certificate": pem, "port": 0}}
    async with Served(monkeypatch, reading, **settings).running() as served:
        raw = await served.opened()
        stream = trio.SSLStream(raw, trusting, server_hostname="localhost", https_compatible=True)
        await stream.do_handshake()
        short()
        await stream.send_all(CHUNKED)
        assert await drip(stream, CHUNK, pause_s=DRIP_S) == b""  # type: ignore[arg-type]
        await left(served)


@pytest.mark.parametrize("sent", [GET, WHOLE, WHOLE + HEAD])
async def test_an_answer_that_takes_long_is_not_cut(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, short: Callable[[], None]
):
    """Also when another request waits behind it."""
    async with Served(monkeypatch, streaming).running() as served:
        stream = await accepted(served)
        short()
        await stream.send_all(sent)
        assert (await answer_of(stream, b"12")).startswith(b"HTTP/1.1 200")


async def test_between_requests_a_connection_is_kept_for_longer(
    monkeypatch: pytest.MonkeyPatch, short: Callable[[], None]
):
    assert connection.KEEP_ALIVE_S > connection.REQUEST_S
    async with Served(monkeypatch, reading).running() as served:
        stream = await accepted(served)
        short()
        for _ in range(2):
            await stream.send_all(WHOLE)
            assert (await answer_of(stream, b"ok")).startswith(b"HTTP/1.1 200")
            await trio.sleep(1.5 * REQUEST_S)


async def test_a_connection_without_another_request_is_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "KEEP_ALIVE_S", REQUEST_S)
    async with Served(monkeypatch, reading).running() as served:
        await until_closed(await served.opened(WHOLE))
        await left(served)


async def test_a_client_that_leaves_while_its_body_is_not_read_leaves_its_place(monkeypatch: pytest.MonkeyPatch):
    go_on = trio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        await go_on.wait()
        await at_once(scope, receive, send)

    async with Served(monkeypatch, waiting).running() as served:
        stream = await served.opened(CHUNKED + 100 * CHUNK + b"0\r\n\r\n")
        await stream.aclose()
        go_on.set()
        await left(served)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_http_2_is_not_spoken(sent: bytes, monkeypatch: pytest.MonkeyPatch):
    """Its streams would not have these bounds."""
    monkeypatch.setattr(connection, "KEEP_ALIVE_S", 0.0)
    async with Served(monkeypatch, reading).running() as served:
        answer = await until_closed(await served.opened(sent))
        assert b"HTTP/1.1 101" not in answer
        assert not answer or answer.startswith(b"HTTP/1.1 "), answer
        await left(served)


@pytest.mark.parametrize(("status", "line"), [(200, b"200 OK"), (404, b"404 Not Found"), (299, b"299 ")])
async def test_a_status_line_has_its_reason_phrase(monkeypatch: pytest.MonkeyPatch, status: int, line: bytes):
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with Served(monkeypatch, answer).running() as served:
        stream = await served.opened(GET)
        assert (await answer_of(stream, b"ok")).startswith(b"HTTP/1.1 " + line + b"\r\n")
