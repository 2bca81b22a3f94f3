"""The HTTP server in this process, with an application of the test's own, on real sockets.

What comes in: an application, settings. What goes out: the server that runs, and clients of it.
Not here: a whole broker (`conftest.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from starlette.types import ASGIApp

from amqpd.audit.acts import Acts
from amqpd.audit.recorder import Recorder
from amqpd.config import Settings
from amqpd.node.cluster import Cluster
from amqpd.process.logs import recent_lines
from amqpd.setting_tables import HttpSettings
from amqpd_admin import server
from amqpd_admin.server import HttpFace

HEAD = b"PUT /api/x HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /api/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
WHOLE = HEAD + b"Content-Length: 2\r\n\r\n{}"
NOTHING: Any = SimpleNamespace(
    on=SimpleNamespace(node=SimpleNamespace(acts=Acts(Recorder(lambda: 0)), cluster=Cluster()))
)
"""behind a face of which nothing is asked"""
CHUNK = b"1\r\nx\r\n"


class Served:
    """`app` in place of the API, or the API itself, behind which there is nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, app: ASGIApp | None = None, **settings: Any) -> None:
        if app is not None:
            monkeypatch.setattr(server, "make_app", lambda *_, **__: app)
        http = HttpSettings(**{"enabled": True, "port": 0, **settings.pop("http", {})})
        self._opened: list[trio.SocketStream] = []
        self.face = HttpFace(Settings(bind=("127.0.0.1",), http=http, **settings), recent_lines())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Served]:
        self.face.bind()
        self.face.listen()
        self.port = int(self.face.addresses[0].rpartition(":")[2])
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.face.run, NOTHING)
                with trio.fail_after(20):
                    yield self
                nursery.cancel_scope.cancel()
        finally:
            self.face.close()
            for each in self._opened:
                each.socket.close()

    async def opened(self, sent: bytes = b"") -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self._opened.append(stream)
        await stream.send_all(sent)
        return stream


async def until_closed(stream: trio.SocketStream) -> bytes:
    """What it sends until it closes the connection."""
    received = b""
    try:
        async for data in stream:
            received += data
    except trio.BrokenResourceError:
        pass
    return received


async def drip(stream: trio.SocketStream, piece: bytes, *, pause_s: float = 0.0) -> bytes:
    """Send it again and again until the server closes the connection; what it sent."""
    received = b""
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            try:
                while True:
                    await stream.send_all(piece)
                    await trio.sleep(pause_s)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        nursery.start_soon(send)
        received = await until_closed(stream)
        nursery.cancel_scope.cancel()
    return received


async def answer_of(stream: trio.SocketStream, end: bytes) -> bytes:
    """What it sends up to `end`."""
    received = b""
    while not received.endswith(end):
        data = await stream.receive_some()
        assert data, received
        received += data
    return received


async def left(served: Served) -> None:
    """Until no connection is open."""
    while served.face._open:
        await trio.lowlevel.checkpoint()
