"""One connection of the HTTP server, with its bounds in time.

What comes in: an accepted stream, the application. What goes out: requests for the application, until the connection
is closed.
Rules: 1. A request must have come as a whole, head and body, within `REQUEST_S` of its first byte, and its head
within `HEAD_S`; the first byte within `REQUEST_S` of the connection, since browsers connect before they ask; with
TLS its handshake within as much as a head. What is late is cut off without an answer. 2. How long an answer takes is
not bounded, but each piece of it is: a client that does not take `PIECE_BYTES` within `SEND_S` is cut off. Hypercorn
lets nobody interrupt it while it sends. 3. Between two requests a connection is kept for `KEEP_ALIVE_S`. 4. What
comes of a body after its answer is read by nobody, and does not keep the connection. 5. HTTP/1.1 is all that is
spoken: HTTP/2 would have other bounds. 6. A connection that is to be closed after an answer is closed whatever
becomes of the request's task, which its own end cancels.
Not here: how many connections there may be (`places.py`), where a request ends (`framing.py`), how long a body may be
(`shield.py`).
"""

from __future__ import annotations

from http import HTTPStatus
from math import inf
from typing import Any

import h11
import structlog
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, H11SendableEvent
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amqpd_admin.framing import StrictConnection, refused
from amqpd_admin.places import STATE, Places

# RabbitMQ's `request_timeout` is a minute, too. The largest body that is taken by default passes in it at 2.7 Mbit/s.
REQUEST_S = 60.0
# A head is sent in one go, and has at most 16 KiB.
HEAD_S = 10.0
# A monitoring tool asks each 15 s as a rule, some each minute: they keep their connections.
KEEP_ALIVE_S = 75.0
# What the broker grants a client of AMQP, too (send_timeout_s).
SEND_S = 30.0
PIECE_BYTES = 1 << 16
# Of a connection that is to be closed, or read from again, after an answer: Hypercorn has nothing to wait for then.
CLOSE_S = 1.0
# Before the application has asked for them, a connection has a few of these: 500 connections some 25 MB.
READ_BYTES = 1 << 14

PHRASED = frozenset(HTTPStatus)
# None: of a web socket, which is refused.
_COMING = (h11.IDLE, h11.SEND_BODY, h11.ERROR, None)

log = structlog.get_logger(component="http")


class Connection(TCPServer):
    """One connection of the HTTP server, with its bounds in time; to be awaited."""

    def __init__(
        self,
        application: ASGIApp,
        config: Config,
        context: WorkerContext,
        stream: Any,
        bounded: BoundedStream,
        places: Places,
    ) -> None:
        """`stream`: `bounded`, or TLS on it."""
        self._scope = trio.CancelScope()
        self.place = places.enter(self._cut)
        state = ConnectionState({STATE: self.place})
        super().__init__(self._answer, config, context, state, stream)  # type: ignore[arg-type]
        self._application = application
        self._bounded = bounded
        self._until = trio.current_time() + REQUEST_S
        self._until_changed = trio.Event()
        self._begun: float | None = None
        """when a request had its first byte"""
        self._requests = 0
        self._answering = self._answered = False

    async def run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                await super().run()
                nursery.cancel_scope.cancel()

    def _cut(self) -> None:
        self._bounded.cut()
        self._scope.cancel()

    def _bound(self, until: float) -> None:
        self._until = until
        self._until_changed.set()

    async def _watch(self) -> None:
        """Rule 1."""
        while True:
            self._until_changed = trio.Event()
            with trio.move_on_at(self._until) as waiting:
                await self._until_changed.wait()
            if not waiting.cancelled_caught:
                continue
            if self._answering and self._is_whole():
                self._until = inf
                continue
            if not self._answered:
                log.info("http connection cut off", reason="no whole request in time")
            self._cut()
            return

    def _is_whole(self) -> bool:
        """The request has come."""
        protocol = self.protocol.protocol
        return isinstance(protocol, H11Protocol) and protocol.connection.their_state not in _COMING

    async def _read_data(self) -> None:
        """In place of Hypercorn's, which bounds each read, and waits for a client that has left."""
        _speak_only_http_1(self.protocol)
        while True:
            try:
                data = await self.stream.receive_some(READ_BYTES)
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                break
            if self._begun is None:
                self._begin()
            await self.protocol.handle(RawData(bytes(data)))
            if not data:
                break
        await self.protocol.handle(Closed())
        await self.idle_task.stop()

    def _begin(self) -> None:
        """A request has its first byte."""
        self._begun = trio.current_time()
        self._bound(self._begun + _head_s())

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self.place.waits(event.idle)
            protocol = self.protocol.protocol
            if not event.idle:
                self._bound((self._begun or 0.0) + REQUEST_S)
            else:
                self._requests += 1
                self._answering = False
                # Of a request that was sent before the answer to the last one, there may be bytes already.
                if isinstance(protocol, H11Protocol) and protocol.connection.trailing_data[0]:
                    self._begin()
                else:
                    self._begun = None
                    self._bound(inf)
        await super().protocol_send(event)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, *_: Any) -> None:
        async def answer(message: Message) -> None:
            if message["type"] != "http.response.body" or message.get("more_body", False):
                await send(message)
                return
            # Rule 6. What takes long in there is bounded by rule 2.
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    # Hypercorn waits here for place behind what came of the body, and closes nothing until
                    # there is some.
                    nursery.start_soon(_discard, receive)
                    await send(message)
                    nursery.cancel_scope.cancel()

        request, self._answering = self._requests, True
        try:
            await self._application(scope, receive, answer)
        finally:
            if self._requests == request:
                self._answering, self._answered = False, True
                self._bound(trio.current_time() + CLOSE_S)


def _head_s() -> float:
    return min(HEAD_S, REQUEST_S)


async def _discard(receive: Receive) -> None:
    while True:
        await receive()


class _Http1(H11Protocol):
    """The HTTP/1 half of a connection. Rule 5: an upgrade to HTTP/2 is passed over, which RFC 9110 section 7.8
    allows. Hypercorn leaves out reason phrases; programs show them, and some fail without."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._strict = StrictConnection(self.config.h11_max_incomplete_size)
        self.connection = self._strict
        self._refused = False

    async def _check_protocol(self, event: h11.Request) -> None:
        pass

    async def _send_error_response(self, status_code: int) -> None:
        for event in (*refused(self._strict, status_code), h11.EndOfMessage()):
            await self._send_h11_event(event)
        self._refused = True

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        if self._refused:
            # An answer of the application, to the beginning of what was refused, comes too late.
            return
        if isinstance(event, h11.Response | h11.InformationalResponse) and not event.reason:
            code = event.status_code
            reason = HTTPStatus(code).phrase if code in PHRASED else b""
            event = type(event)(status_code=code, headers=event.headers, reason=reason)
        await super()._send_h11_event(event)


def _speak_only_http_1(chosen: ProtocolWrapper) -> None:
    """Before anything was read. Hypercorn makes the protocol itself, of these."""
    parts = (chosen.app, chosen.config, chosen.context, chosen.task_group, chosen.state)
    chosen.protocol = _Http1(*parts, chosen.ssl, chosen.client, chosen.server, chosen.send)


class BoundedStream(trio.abc.HalfCloseableStream):
    """A stream whose sends are bounded in time (rule 2). Has `socket`, which Hypercorn asks for both addresses."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket

    def cut(self) -> None:
        """At once, whoever waits for it."""
        self.socket.close()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for at in range(0, len(view), PIECE_BYTES):
            with trio.move_on_after(SEND_S) as scope:
                await self._stream.send_all(view[at : at + PIECE_BYTES])
            if scope.cancelled_caught:
                self.cut()
                raise trio.BrokenResourceError(f"{PIECE_BYTES} bytes were not taken within {SEND_S:g} s")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()
