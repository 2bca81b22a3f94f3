"""Where a request ends: requests that two readers may see differently are refused, and their connection is closed."""

from __future__ import annotations

import pytest
import trio
from starlette.types import Receive, Scope, Send

from amqpd_admin import framing
from tests.admin.served import GET, Served, answer_of, until_closed

pytestmark = pytest.mark.trio

START = b"POST /api/x HTTP/1.1\r\nHost: localhost\r\n"
SMUGGLED = b"GET /api/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body when all has come."""
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    text = b"%d." % length
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


@pytest.mark.parametrize(
    "lying",
    [
        START + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        START + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
        START + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        START + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        START + b"Content-Length: 2, 2\r\n\r\n{}",
        START + b"Content-Length: +2\r\n\r\n{}",
        START + b"Content-Length: -2\r\n\r\n{}",
        START + b"Content-Length: 0x2\r\n\r\n{}",
        START + b"Content-Length:\r\n\r\n{}",
        START + b"Content-Length: 2 \x0b\r\n\r\n{}",
        START + b"Content-Length : 2\r\n\r\n{}",
        START + b" Content-Length: 2\r\n\r\n{}",
        START + b"X: y\r\n Content-Length: 2\r\n\r\n{}",
        START + b"X: y\r\n\tz\r\n\r\n",
        START + b"X: y\nContent-Length: 2\r\n\r\n{}",
        START + b"Content-Length: 2\n\n{}",
        START + b"Content-Length: 2\r\n\n{}",
        b"\n" + GET,
        b"POST /api/x HTTP/1.1\nHost: localhost\r\n\r\n",
        b"POST /api/x HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        START + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        START + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        START + b"Host: other\r\n\r\n",
        START + b"X: a\x00b\r\n\r\n",
    ],
)
async def test_a_head_that_leaves_open_where_the_request_ends(lying: bytes, monkeypatch: pytest.MonkeyPatch):
    async with Served(monkeypatch, reading).running() as served:
        answer = await until_closed(await served.opened(lying + SMUGGLED))
        assert answer.startswith(b"HTTP/1.1 400"), answer
        assert answer.count(b"\r\n\r\n") == 1
        assert b"connection: close" in answer.lower()
        assert b'"reason": "' in answer


@pytest.mark.parametrize("encoding", [b"chunked, identity", b"identity", b"gzip, chunked", b"xchunked"])
async def test_an_encoding_that_is_not_known(encoding: bytes, monkeypatch: pytest.MonkeyPatch):
    async with Served(monkeypatch, reading).running() as served:
        request = START + b"Transfer-Encoding: " + encoding + b"\r\n\r\n0\r\n\r\n" + SMUGGLED
        answer = await until_closed(await served.opened(request))
        assert answer.startswith(b"HTTP/1.1 501")
        assert answer.count(b"\r\n\r\n") == 1
        assert b"no Transfer-Encoding but chunked is understood" in answer


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /api/x HTTP/2.0", b"505"),
        (b"GET /api/x HTTP/9.9", b"505"),
        (b"GET /api/x HTTP/0.9", b"505"),
        (b"put /api/x HTTP/1.1", b"501"),
        (b"Delete /api/x HTTP/1.1", b"501"),
    ],
)
async def test_another_http_and_a_method_that_is_not_in_capitals_are_refused(
    line: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
):
    async with Served(monkeypatch, reading).running() as served:
        answer = await until_closed(await served.opened(line + b"\r\nHost: localhost\r\n\r\n" + SMUGGLED))
        assert answer.startswith(b"HTTP/1.1 " + status), answer
        assert answer.count(b"\r\n\r\n") == 1
        assert b"Transfer-Encoding" not in answer


async def test_a_head_that_is_too_long_is_told_how_long_it_may_be(monkeypatch: pytest.MonkeyPatch):
    async with Served(monkeypatch, reading).running() as served:
        answer = await until_closed(await served.opened(b"GET /api/queues/%2F/" + b"%61" * 30_000))
        assert answer.startswith(b"HTTP/1.1 431"), answer
        assert b'"reason": "the request line and the headers together may have 16,384 bytes"' in answer


@pytest.mark.parametrize(
    "chunks",
    [
        b"0\r\n\n",
        b"0\n\r\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\nX: y\r\n z\r\n\r\n",
        b"1\nx\r\n0\r\n\r\n",
        b"1\r\nx\n0\r\n\r\n",
        b"1\r\nxy\r\n0\r\n\r\n",
        b"+1\r\nx\r\n0\r\n\r\n",
        b"0x1\r\nx\r\n0\r\n\r\n",
        b" 1\r\nx\r\n0\r\n\r\n",
        b"1;a\nb\r\nx\r\n0\r\n\r\n",
        b"\r\n",
        b"g\r\n",
    ],
)
async def test_chunks_that_leave_open_where_the_body_ends(chunks: bytes, monkeypatch: pytest.MonkeyPatch):
    async with Served(monkeypatch, reading).running() as served:
        request = START + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + SMUGGLED
        answer = await until_closed(await served.opened(request))
        assert b"HTTP/1.1 200" not in answer
        assert answer.count(b"\r\n\r\n") <= 1


@pytest.mark.parametrize("whole", [True, False])
async def test_chunks_as_they_are_meant_to_be(whole: bool, monkeypatch: pytest.MonkeyPatch):
    """Also with extensions and trailers, and whatever way they come."""
    chunks = b"2\r\n{}\r\na;name=value\r\n0123456789\r\n0\r\nX: y\r\n\r\n"
    request = START + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
    async with Served(monkeypatch, reading).running() as served:
        stream = await served.opened()
        for each in [request] if whole else [request[at : at + 1] for at in range(len(request))]:
            await stream.send_all(each)
            await trio.lowlevel.checkpoint()
        assert (await answer_of(stream, b"12.")).startswith(b"HTTP/1.1 200")
        await stream.send_all(START + b"Content-Length: 3\r\n\r\nabc")
        assert (await answer_of(stream, b"3.")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("more", [b"1;" + b"x" * 10_000 + b"\r\ny\r\n", b"1" + b" " * 10_000 + b"\r\ny\r\n"])
async def test_extensions_of_chunks_have_a_bound(more: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(framing, "FRAMING_BYTES_FREE", 50_000)
    async with Served(monkeypatch, reading).running() as served:
        stream = await served.opened(START + b"Transfer-Encoding: chunked\r\n\r\n" + more * 10 + b"0\r\n\r\n")
        assert b"HTTP/1.1 200" not in await until_closed(stream)


async def test_a_body_in_chunks_of_one_byte_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(framing, "FRAMING_BYTES_FREE", 0)
    body = b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n"
    async with Served(monkeypatch, reading).running() as served:
        stream = await served.opened(START + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        assert (await answer_of(stream, b"1000.")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_connection_that_is_to_be_closed_is_closed_with_its_answer(
    version: bytes, monkeypatch: pytest.MonkeyPatch
):
    """The request's end took its own task away before it had closed it."""
    monkeypatch.setattr("amqpd_admin.connection.CLOSE_S", 15.0)
    request = b"GET /healthz HTTP/" + version + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with Served(monkeypatch).running() as served:
        with trio.fail_after(10):
            answer = await until_closed(await served.opened(request))
        assert answer.endswith(b'{"status":"ok"}')
