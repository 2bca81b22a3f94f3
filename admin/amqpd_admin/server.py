"""The HTTP server in the broker's own nursery: ports, and connections with their bounds.

What comes in: settings; the running broker. What goes out: a server, as `amqpd.management.face.Face` wants it.
Rules: 1. More connections than `http.connections_max` are closed unread, before anybody has said who they are. 2. A
client that does not take 64 KiB of an answer within `SEND_S` is cut off: Hypercorn lets nobody interrupt it while it
sends. 3. What goes wrong in one connection is that one's, and in the log.
Not here: what is served (`app.py`), how a port is bound (`amqpd/transport/listeners.py`).
"""

from __future__ import annotations

import ssl
from typing import Any

import structlog
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from starlette.types import Receive, Scope, Send

from amqpd.config import Settings
from amqpd.faults import ENDS_NODE
from amqpd.management.face import Behind
from amqpd.transport.listeners import Listener, close_listeners, open_http_listeners, start_listening
from amqpd.transport.tls import server_context
from amqpd_admin.app import make_app

# What the broker grants a client of AMQP, too (send_timeout_s).
SEND_S = 30.0
PIECE_BYTES = 1 << 16
# Of each read, not of a request as a whole; and of a TLS handshake. RabbitMQ's `request_timeout` is a minute.
READ_S = 60
# A monitoring tool asks each 15 s as a rule: it keeps its connection.
KEEP_ALIVE_S = 75.0

log = structlog.get_logger(component="http")


class HttpFace:
    """See `Face`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listeners: list[Listener] = []
        self._tls: ssl.SSLContext | None = None
        self._connections = 0

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

    async def run(self, behind: Behind) -> None:
        config = _config()
        context = WorkerContext(None)
        application = make_app(behind, self._settings, self.addresses)
        ends: list[BaseException] = []
        ended = trio.Event()

        async def contained(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await application(scope, receive, send)
            except ENDS_NODE as error:
                # Hypercorn would log it, and go on.
                ends.append(error)
                ended.set()
                raise

        app = wrap_app(contained, config.wsgi_max_body_size, "asgi")  # type: ignore[arg-type]

        async def serve(stream: trio.SocketStream) -> None:
            if self._connections >= self._settings.http.connections_max:
                await trio.aclose_forcefully(stream)
                return
            self._connections += 1
            bounded: Any = BoundedStream(stream)
            if self._tls is not None:
                bounded = trio.SSLStream(bounded, self._tls, server_side=True, https_compatible=True)
            try:
                await Connection(app, config, context, ConnectionState({}), bounded)
            except ENDS_NODE:
                raise
            except Exception:
                log.exception("http connection failed")
            finally:
                self._connections -= 1

        # A copy of each socket: what serves them closes them, and after a failure it is begun again.
        listeners = [
            trio.SocketListener(trio.socket.from_stdlib_socket(each.socket.dup())) for each in self._listeners
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            await ended.wait()
            raise ends[0]


class Connection(TCPServer):
    """Ends when its client has left: Hypercorn's goes on until the client has been idle for `KEEP_ALIVE_S`."""

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()


class BoundedStream(trio.abc.HalfCloseableStream):
    """Rule 2, of one connection. Has `socket`, which Hypercorn asks for both addresses."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for at in range(0, len(view), PIECE_BYTES):
            with trio.move_on_after(SEND_S) as scope:
                await self._stream.send_all(view[at : at + PIECE_BYTES])
            if scope.cancelled_caught:
                await trio.aclose_forcefully(self._stream)
                raise trio.BrokenResourceError(f"{PIECE_BYTES} bytes were not taken within {SEND_S:g} s")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Log:
    """What Hypercorn logs, in the broker's own log. It logs an exception of the application, and little else."""

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
    config.read_timeout = READ_S
    config.ssl_handshake_timeout = READ_S
    config.keep_alive_timeout = KEEP_ALIVE_S
    return config
