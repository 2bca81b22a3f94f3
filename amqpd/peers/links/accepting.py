"""Takes connections in, until it is known who dialed.

What comes in: listening sockets. What goes out: streams with the Hello of their peer.
Rules: 1. A stranger has `handshake_s`, and there are at most `strangers_max` of them: for one more the oldest one of
the address that has most makes way, so nobody at one address keeps nodes at others from each other. 2. No
error of accept(2) ends anything: it is tried again after a pause, since a listener stays readable while descriptors
are short. 3. What a stranger does wrong closes its connection, and is in the log, a line a second, with
where it is and what it calls itself, or which nodes are at its address: once for each stranger and reason, then once
in ten minutes with how often it came.
Not here: links of known peers (`links.py`), what a Hello has to say (`handshake.py`).
"""

from __future__ import annotations

import math
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import structlog
import trio

from amqpd.peers.links.framing import Incoming
from amqpd.peers.links.handshake import Proven, Refuses, accept_hello
from amqpd.peers.links.link import LinkLimits
from amqpd.peers.links.sockets import prepare
from amqpd.peers.links.stream import Broken, Stream
from amqpd.peers.links.tls import reason_of
from amqpd.peers.links.trust import Trust
from amqpd.peers.messages import Hello
from amqpd.vocabulary.endpoint import Endpoint

ACCEPTED_AT_ONCE = 32
"""connections, in one turn of the event loop"""
PAUSE_S = 0.1
"""After an error of accept(2)."""
QUIET_S = 1.0
"""Between two lines of the log: strangers that come again and again would fill a disk with them."""
AGAIN_S = 600.0
"""Between two lines about the same stranger for the same reason."""
SAID_MAX = 64
"""Strangers and reasons that are remembered for that; of more the oldest are said again."""

Known = Callable[[Stream, Incoming, Proven], Awaitable[None]]
"""takes the stream over, and is there until it ends"""

log = structlog.get_logger(component="links")


class _Stranger(NamedTuple):
    host: str
    scope: trio.CancelScope


@dataclass(slots=True)
class _Said:
    """A line of the log about one stranger and one reason."""

    at_s: float
    times: int = 0
    """how often it came since then"""


class LinkAcceptor:
    """Takes in the connections of all listening sockets of a node, until each peer has said who it is."""

    def __init__(
        self,
        me: Hello,
        trust: Trust,
        limits: LinkLimits,
        refuses: Refuses,
        known: Known,
        nodes_at: Callable[[str], Iterable[str]],
    ) -> None:
        """`nodes_at`: which peers are reached at that host."""
        self._nodes_at = nodes_at
        self._me = me
        self._trust = trust
        self._refuses = refuses
        self._limits = limits
        self._known = known
        self._strangers: dict[socket.socket, _Stranger] = {}
        """the oldest first"""
        self._quiet_until_s = -math.inf
        self._unsaid = 0
        """strangers that were not let in since the log's last line"""
        self._said: dict[tuple[str, str], _Said] = {}
        """by who it is, or where, and the reason; the oldest first"""

    async def run(self, listener: socket.socket) -> None:
        """Until it is cancelled. Raises what `known` raises."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.lowlevel.wait_readable(listener)
                try:
                    # The turns of a busy loop are long, and a node would wait one for each stranger in front of it.
                    for _ in range(ACCEPTED_AT_ONCE):
                        accepted, address = listener.accept()
                        nursery.start_soon(self._take_in, accepted, str(address[0]), int(address[1]))
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError as error:
                    log.warning("no node is let in", reason=reason_of(error), pause_s=PAUSE_S)
                    await trio.sleep(PAUSE_S)

    async def _take_in(self, accepted: socket.socket, host: str, port: int) -> None:
        strangers = self._strangers
        if len(strangers) >= self._limits.strangers_max:
            self._makes_way()
        stream, incoming = Stream(accepted), Incoming()
        peer: Proven | None = None
        failure = Broken(
            f"it did not say who it is in {self._limits.handshake_s:g} s, or others came in large numbers"
        )
        try:
            with trio.move_on_after(self._limits.handshake_s) as scope:
                strangers[accepted] = _Stranger(host, scope)
                stream = self._stream(accepted, host)
                await stream.handshake()
                peer = await accept_hello(stream, incoming, self._me, self._trust, self._refuses)
        except Broken as error:
            failure = error
        finally:
            strangers.pop(accepted, None)
            if peer is None:
                stream.close()
        if peer is None:
            self._is_not_let_in(Endpoint(host, port), failure)
        else:
            await self._known(stream, incoming, peer)

    def _makes_way(self) -> None:
        """One of those that are there, for one more."""
        [(host, _)] = Counter(each.host for each in self._strangers.values()).most_common(1)
        accepted = next(accepted for accepted, each in self._strangers.items() if each.host == host)
        self._strangers.pop(accepted).scope.cancel()

    def _is_not_let_in(self, where: Endpoint, failure: Broken) -> None:
        now_s = trio.current_time()
        which = failure.node or where.host, str(failure)
        said = self._said.get(which, _Said(-math.inf))
        if now_s < said.at_s + AGAIN_S:
            said.times += 1
            return
        if now_s < self._quiet_until_s:
            self._unsaid += 1
            return
        at_host = ", ".join(sorted(self._nodes_at(where.host)))
        node = failure.node or (f"maybe {at_host}, by its address" if at_host else "unknown")
        log.warning(
            "a node is not let in",
            node=node,
            address=str(where),
            reason=str(failure),
            times_since_said=said.times,
            others=self._unsaid,
        )
        self._quiet_until_s, self._unsaid = now_s + QUIET_S, 0
        self._said.pop(which, None)
        self._said[which] = _Said(now_s)
        if len(self._said) > SAID_MAX:
            del self._said[next(iter(self._said))]

    def _stream(self, accepted: socket.socket, host: str) -> Stream:
        try:
            prepare(accepted)
            if self._trust.tls is None:
                return Stream(accepted)
            tls = self._trust.tls.accepting
            return Stream(tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False), host)
        except (OSError, ValueError) as error:
            raise Broken(reason_of(error)) from None
