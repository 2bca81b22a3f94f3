"""The HTTP server in the broker's own nursery: ports, how many connections, and the end.

What comes in: settings; the running broker. What goes out: a server, as `amqpd.management.face.Face` wants it.
Rules: 1. Which connections there are, when more come than `http.connections_max`, is said by `places.py`. 2. What
goes wrong in one connection is that one's, and in the log; what ends the node (`faults.ENDS_NODE`) ends it from here,
wherever in a request it was met. 3. At the end no request is taken any more, those that run have `END_S`, and a
client that does not read its answer has no more than that.
Not here: bounds of a connection (`connection.py`), what is served (`app.py`), how a port is bound
(`amqpd/transport/listeners.py`).
"""

from __future__ import annotations

import socket
import ssl
from functools import partial
from typing import Any

import structlog
import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from starlette.types import ASGIApp, Receive, Scope, Send

from amqpd.config import Settings
from amqpd.management.face import BrokerParts
from amqpd.management.figures.recent import Recent
from amqpd.transport.listeners import Listener, close_listeners, open_http_listeners, start_listening
from amqpd.transport.tls import server_context
from amqpd_admin import connection
from amqpd_admin.answers import refusal
from amqpd_admin.app import make_app
from amqpd_admin.connection import BoundedStream, Connection
from amqpd_admin.fatal import Fatal, ends_node
from amqpd_admin.hosts import Hosts
from amqpd_admin.places import STATE, Places

# A request takes milliseconds; one that takes longer is an import, which is made again when it was cut off.
END_S = 2.0

log = structlog.get_logger(component="http")


class HttpFace:
    """The HTTP server of a broker, in the broker's own nursery; it has the methods of
    `amqpd.management.face.Face`."""

    def __init__(self, settings: Settings, recent_lines: Recent[str]) -> None:
        """`recent_lines`: of the log."""
        self._settings = settings
        self._recent_lines = recent_lines
        self._listeners: list[Listener] = []
        self._tls: ssl.SSLContext | None = None
        self._open: set[BoundedStream] = set()
        self._places = Places(settings.http.connections_max)
        self._closed = trio.lowlevel.ParkingLot()
        """for those who wait until none is open"""
        self._ending = trio.Event()
        self._running = False
        self._ended = trio.lowlevel.ParkingLot()

    @property
    def addresses(self) -> list[str]:
        return [f"{'https' if each.tls else 'http'}://{each.address}" for each in self._listeners]

    def bind(self) -> None:
        if self._settings.http.tls:
            self._tls = server_context(self._settings.tls)
            self._tls.set_alpn_protocols(["http/1.1"])
        self._listeners = open_http_listeners(self._settings)

    def listen(self) -> None:
        start_listening(self._listeners)

    def close(self) -> None:
        close_listeners(self._listeners)

    async def end(self) -> None:
        self._ending.set()
        close_listeners(self._listeners)
        while self._running:
            await self._ended.park()

    async def run(self, parts: BrokerParts) -> None:
        if self._ending.is_set():
            return
        self._running = True
        try:
            await self._run(parts)
        finally:
            self._running = False
            self._ended.unpark_all()

    async def _run(self, parts: BrokerParts) -> None:
        hosts = Hosts(self._settings)
        fatal: list[BaseException] = []
        over = trio.Event()

        def failed(error: BaseException) -> None:
            fatal.append(error)
            over.set()

        async def ended() -> None:
            await self._ending.wait()
            over.set()

        context = WorkerContext(None)
        app = make_app(
            *(parts, self._settings, self.addresses),
            hosts=hosts,
            fatal=failed,
            recent_lines=self._recent_lines,
        )
        application = Fatal(app, failed)
        serve = partial(self._serve, self._until_the_end(application), _config(), context)
        # A copy of each socket: what serves them closes them, and after a failure it is begun again.
        listeners = [
            trio.SocketListener(trio.socket.from_stdlib_socket(each.socket.dup())) for each in self._listeners
        ]
        async with trio.open_nursery() as connections:
            try:
                async with trio.open_nursery() as accepting:
                    accepting.start_soon(partial(trio.serve_listeners, handler_nursery=connections), serve, listeners)
                    accepting.start_soon(_learn_name, hosts)
                    accepting.start_soon(ended)
                    await over.wait()
                    accepting.cancel_scope.cancel()
                if not fatal:
                    # Hypercorn closes those without a request, and the others after their answers.
                    await context.terminated.set()
                    with trio.move_on_after(END_S):
                        while self._open:
                            await self._closed.park()
            finally:
                # Else what sends, which nobody may interrupt, would hold the end up for `connection.SEND_S`.
                for each in self._open:
                    each.cut()
            connections.cancel_scope.cancel()
        if fatal:
            raise fatal[0]

    def _until_the_end(self, application: ASGIApp) -> ASGIApp:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and (reason := self._why_not(scope)):
                closing = {"connection": "close"}
                await refusal(503, "service_unavailable", reason, closing)(scope, receive, send)
            else:
                await application(scope, receive, send)

        return answer

    def _why_not(self, scope: Scope) -> str | None:
        if self._ending.is_set():
            return "the node is being shut down"
        place = scope.get("state", {}).get(STATE)
        if place is not None and not place.may_ask(scope.get("raw_path", b"")):
            return "all connections of http.connections_max are in use by users who have logged in: try again"
        return None

    async def _serve(
        self, application: ASGIApp, config: Config, context: WorkerContext, stream: trio.SocketStream
    ) -> None:
        bounded = BoundedStream(stream)
        through: Any = bounded
        if self._tls is not None:
            through = trio.SSLStream(bounded, self._tls, server_side=True, https_compatible=True)
        served = Connection(application, config, context, through, bounded, self._places)
        self._open.add(bounded)
        try:
            await served
        except Exception as error:
            if ends_node(error):
                raise
            log.exception("http connection failed")
        finally:
            served.place.leave()
            self._open.discard(bounded)
            if not self._open:
                self._closed.unpark_all()


async def _learn_name(hosts: Hosts) -> None:
    """It is asked of DNS, which may take seconds, and may not answer."""
    limiter = trio.CapacityLimiter(1)
    hosts.add(await trio.to_thread.run_sync(socket.getfqdn, abandon_on_cancel=True, limiter=limiter))


class _Log:
    """Writes what Hypercorn logs to the broker's own log. Hypercorn logs an exception of the application, and
    little else."""

    def __init__(self, config: Config) -> None:
        pass

    async def access(self, request: Any, response: Any, request_time: float) -> None:
        pass

    def __getattr__(self, level: str) -> Any:
        async def say(message: str, *given: Any, **_: Any) -> None:
            getattr(log, level)("http server", said=message % given if given else message)

        return say


def _config() -> Config:
    config = Config()
    config.logger_class = _Log  # type: ignore[assignment]
    config.include_server_header = False
    # Time is bounded by `connection.py`, except between two requests.
    config.read_timeout = None
    config.ssl_handshake_timeout = connection.HEAD_S
    config.keep_alive_timeout = connection.KEEP_ALIVE_S
    # What came of a body before it was asked for: one piece, and that the client has left.
    config.max_app_queue_size = 2
    return config
