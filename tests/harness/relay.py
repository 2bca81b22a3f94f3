"""A TCP relay on loopback that a test can cut: what a network does between two machines that both run on.

What comes in: the port to pass on to. What goes out: a port that behaves as that one does, as long as nothing is cut.
Rules: 1. Cut means silence: connections stay open, new ones are accepted, and nothing arrives. What was on its way is
kept, and arrives when the relay is mended. 2. Answers can be cut alone: requests arrive then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

CHUNK_BYTES = 65_536


class Relay:
    """See `relay_to`."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._requests_pass, self._answers_pass = trio.Event(), trio.Event()
        self.mend()

    def cut(self, *, answers_only: bool = False) -> None:
        self._answers_pass = trio.Event()
        if not answers_only:
            self._requests_pass = trio.Event()

    def mend(self) -> None:
        self._requests_pass.set()
        self._answers_pass.set()

    async def run(self, listener: trio.SocketListener) -> None:
        await trio.serve_listeners(self._pass_on, [listener])

    async def _pass_on(self, client: trio.SocketStream) -> None:
        try:
            async with (
                await trio.open_tcp_stream("127.0.0.1", self._target) as server,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._copy, client, server, False)
                await self._copy(server, client, True)
                nursery.cancel_scope.cancel()
        except* OSError:
            pass  # the target does not run: the client sees its connection end

    async def _copy(self, source: trio.SocketStream, target: trio.SocketStream, answers: bool) -> None:
        try:
            while chunk := await source.receive_some(CHUNK_BYTES):
                await (self._answers_pass if answers else self._requests_pass).wait()
                await target.send_all(chunk)
            await target.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


@asynccontextmanager
async def relay_to(port: int) -> AsyncIterator[Relay]:
    """A relay to this port of loopback, until the end."""
    relay = Relay(port)
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    relay.port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(relay.run, listener))
        yield relay
        nursery.cancel_scope.cancel()
