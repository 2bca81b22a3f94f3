"""Takes connections in, until it is known who dialed.

What comes in: listening sockets. What goes out: streams with the Hello of their peer.
Rules: 1. A stranger has `handshake_s`, and there are at most `strangers_max` of them: the oldest one makes way. 2. No
error of accept(2) ends anything: it is tried again after a pause, since a listener stays readable while descriptors
are short. 3. What a stranger does wrong closes its connection, and is in the log, a line a second.
Not here: links of known peers (`links.py`), what a Hello has to say (`handshake.py`).
"""

from __future__ import annotations

import math
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import structlog
import trio

from amqpd.cluster.links.handshake import accept_hello, stranger
from amqpd.cluster.links.incoming import Incoming
from amqpd.cluster.links.limits import LinkLimits
from amqpd.cluster.links.sockets import prepare
from amqpd.cluster.links.stream import Broken, Stream, reason_of
from amqpd.cluster.links.tls import LinkTls
from amqpd.replication.messages import Hello

PAUSE_S = 0.1
"""After an error of accept(2)."""
QUIET_S = 1.0
"""Between two lines of the log: strangers that come again and again would fill a disk with them."""

Known = Callable[[Stream, Incoming, Hello], Awaitable[None]]
"""takes the stream over, and is there until it ends"""

log = structlog.get_logger(component="links")


class Acceptor:
    """Of all listening sockets."""

    def __init__(self, me: Hello, tls: LinkTls | None, limits: LinkLimits, known: Known) -> None:
        self._me = me
        self._tls = tls
        self._limits = limits
        self._known = known
        self._strangers: OrderedDict[socket.socket, trio.CancelScope] = OrderedDict()
        self._quiet_until_s = -math.inf
        self._unsaid = 0
        """strangers that were not let in since the log's last line"""

    async def run(self, listener: socket.socket) -> None:
        """Until it is cancelled. Raises what `known` raises."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.lowlevel.wait_readable(listener)
                try:
                    accepted, address = listener.accept()
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError as error:
                    log.warning("a forwarder is not let in", reason=reason_of(error), pause_s=PAUSE_S)
                    await trio.sleep(PAUSE_S)
                    continue
                nursery.start_soon(self._take_in, accepted, str(address[0]))

    async def _take_in(self, accepted: socket.socket, host: str) -> None:
        strangers = self._strangers
        if len(strangers) >= self._limits.strangers_max:
            strangers.popitem(last=False)[1].cancel()
        stream, incoming = Stream(accepted), stranger()
        peer: Hello | None = None
        reason = f"no Hello in {self._limits.handshake_s} s, or others came in large numbers"
        try:
            with trio.move_on_after(self._limits.handshake_s) as strangers[accepted]:
                stream = self._stream(accepted)
                await stream.handshake()
                peer = await accept_hello(stream, incoming, self._me)
        except Broken as error:
            reason = str(error)
        finally:
            strangers.pop(accepted, None)
            if peer is None:
                stream.close()
        if peer is None:
            self._is_not_let_in(host, reason)
        else:
            await self._known(stream, incoming, peer)

    def _is_not_let_in(self, host: str, reason: str) -> None:
        now_s = trio.current_time()
        if now_s < self._quiet_until_s:
            self._unsaid += 1
            return
        log.warning("a forwarder is not let in", host=host, reason=reason, others=self._unsaid)
        self._quiet_until_s, self._unsaid = now_s + QUIET_S, 0

    def _stream(self, accepted: socket.socket) -> Stream:
        try:
            prepare(accepted)
            if self._tls is None:
                return Stream(accepted)
            return Stream(self._tls.accepting.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False))
        except (OSError, ValueError) as error:
            raise Broken(reason_of(error)) from None
