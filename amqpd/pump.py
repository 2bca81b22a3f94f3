"""The pump: the one task that moves client bytes, for all connections together.

What comes in: ready sockets, of clients and listeners. What goes out: bytes into connection machines and from their
outboxes to the sockets; work for the journal's writer and the reader.
Rules: 1. A tick takes all sockets that are ready: read each once (bounded, for fairness), feed its machine, let the
node do what became necessary, then flush each connection that was touched once. 2. No `await` from reading to the
journal's buffer: a publish is atomic by construction. 3. What a socket does not take waits in its link, with the
machine's knowledge (`Connection.sent`), so consumers slow down before memory grows.
Not here: what the bytes mean (`connection.py`), opening ports (`listeners.py`), accepting (`acceptor.py`).

Source for the shape: DESIGN 2, measured there against a task per connection.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
from collections.abc import Callable, Sequence

import trio

from amqpd.acceptor import Acceptor
from amqpd.connection import Connection
from amqpd.kernel import Pieces
from amqpd.link import Link, is_loopback
from amqpd.node import Node
from amqpd.readiness import next_events
from amqpd.states import Peer, State
from amqpd.tls_stream import TlsStream
from amqpd.world import Read

# Read at most so much of one socket in one tick: larger costs the others latency, smaller costs throughput.
RECEIVE_BYTES_MAX = 256 * 1024
# How long it goes on, while there is always something ready, before other trio tasks get their turn.
TURN_S = 0.004
# Queues are looked at no more often than this because of the time alone: what falls due in between goes together.
WAKE_S_MIN = 0.01
# A connection that is closed has so long to take what is left for it, and to close the socket.
LINGER_S = 5.0

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class Pump:
    def __init__(
        self,
        node: Node,
        connections_max: int,
        new_connection_id: Callable[[], str],
        certificate_user: Callable[[dict[str, object]], str | None],
        want_reads: Callable[[list[Read]], None],
        want_commit: Callable[[], None],
        clock_ms: Callable[[], int],
        alone: Callable[[], bool],
        busy_wait_s: float = 0.0,
        record: Callable[[], None] = lambda: None,
    ) -> None:
        """`clock_ms`: since the epoch, never going back; `alone`: nobody else has anything to do or waits for one;
        `busy_wait_s`: see `readiness.py`; `record` writes the audit log, before anything is sent or committed where
        that is urgent, else at the end of a turn."""
        self.node = node
        self._clock_ms = clock_ms
        self._earlier = trio.Event()  # a queue has to be looked at before `run_wakes` would
        self._wakes_at_ms: int | None = None
        self._new_connection_id = new_connection_id
        self._certificate_user = certificate_user
        self._want_reads = want_reads
        self._want_commit = want_commit
        self._alone = alone
        self._busy_wait_s = busy_wait_s
        self._record = record
        self._audit = node.audit.buffer
        self._epoll = select.epoll()
        self.acceptor = Acceptor(self._epoll, connections_max, self._add)
        self._links: dict[int, Link] = {}
        self._by_connection: dict[Connection, Link] = {}
        self._paused: dict[Link, None] = {}
        self._lingering: dict[Link, None] = {}
        self._emptied = trio.Event()
        self._view = memoryview(bytearray(RECEIVE_BYTES_MAX))

    @property
    def link_count(self) -> int:
        return len(self._links)

    async def wait_empty(self) -> None:
        """Return when no client is connected any more."""
        while self._links:
            self._emptied = trio.Event()
            await self._emptied.wait()

    async def run(self) -> None:
        """Move bytes until cancelled."""
        turns, ready = self.node.turns, self._epoll.fileno()
        while True:
            if turns.waiting:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(ready)
            until = trio.current_time() + TURN_S
            events = self._epoll.poll(0)
            while events or turns.waiting:
                self._tick(events)
                if trio.current_time() >= until:
                    break
                events = self._epoll.poll(0)
                if not events and not turns.waiting and self._alone():
                    events = next_events(self._epoll, self._busy_wait_s)
            if self._audit.pending:
                self._record()

    async def run_wakes(self) -> None:
        """Look at queues whose time has come though nothing came in: expired messages, delays, unused queues."""
        while True:
            next_ms = self.node.wakes.next_ms
            self._wakes_at_ms = next_ms
            wait_s = math.inf if next_ms is None else max((next_ms - self._clock_ms()) / 1000, WAKE_S_MIN)
            with trio.move_on_after(wait_s) as waiting:
                await self._earlier.wait()
            self._earlier = trio.Event()
            if waiting.cancelled_caught:
                self.settle()

    async def run_timers(self) -> None:
        """Once a second: handshake deadlines, heartbeats, lingering sockets, what the acceptor has to look at."""
        while True:
            await trio.sleep(1)
            now = trio.current_time()
            for connection in list(self.node.connections.values()):
                connection.liveness.on_timer(now)
            for link in list(self._lingering):
                if link.linger_until is not None and now > link.linger_until:
                    self._close(link)
            self.acceptor.on_timer(now)
            self.settle()

    def _tick(self, events: Sequence[tuple[int, int]]) -> None:
        now = trio.current_time()
        self.node.now_ms = self._clock_ms()
        links = self._links
        self.node.turns.next()
        for fd, mask in events:
            link = links.get(fd)
            if link is None:
                self.acceptor.accept(fd, len(links), now)
                continue
            if mask & ~_OUT:
                self._read(link, now)
            if mask & _OUT:
                self.node.touched[link.connection] = None
        self._settle(now)

    def settle(self) -> None:
        """After anything that acted on the node outside of a tick: the metadata store's answer, a commit, a timer."""
        self.node.now_ms = self._clock_ms()
        self._settle(trio.current_time())
        if self._audit.pending:
            self._record()

    def _settle(self, now: float) -> None:
        node = self.node
        self._want_reads(node.tick())
        while node.touched:
            if self._audit.urgent:
                self._record()
            touched, node.touched = node.touched, {}
            # Confirms came last, and go first: publishers that wait for them work while consumers are served.
            for connection in reversed(touched):
                link = self._by_connection.get(connection)
                if link is not None:
                    self._flush(link, now)
            if node.dirty or node.confirms_due:
                # Room in an outbox let consumers go on, or what a choked client had sent.
                self._want_reads(node.tick())
        if self._audit.urgent:
            self._record()
        elif self._audit.pending:
            node.audit.later()
        if self._paused:
            self._resume_paused()
        if node.journal.pending:
            self._want_commit()
        next_ms = node.wakes.next_ms if node.wakes.heap else None
        if next_ms is not None and (self._wakes_at_ms is None or next_ms < self._wakes_at_ms):
            self._wakes_at_ms = next_ms
            self._earlier.set()

    # Reading

    def _read(self, link: Link, now: float) -> None:
        connection = link.connection
        try:
            if connection.stride and link.tls is None:
                data: bytes | memoryview = link.receive_large()
            else:
                size = link.socket.recv_into(self._view)
                data = self._view[:size]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(link, error.strerror or str(error))
            return
        if not data:
            self._lost(link, "closed by the client")
            return
        if link.ended:
            return  # what still comes is thrown away
        connection.liveness.received_at = now
        connection.bytes_in += len(data)
        if link.tls is not None:
            plain = self._decrypt(link, link.tls, data)
            if plain is None:
                return
            data = plain
        if data:
            connection.receive(bytes(data))
        if link.tls is not None and link.tls.ended and connection.state is not State.CLOSED:
            self._lost(link, "closed by the client")
            return
        if connection.reading_paused and connection.state is not State.CLOSED:
            self._paused[link] = None
            self._watch(link)

    def _decrypt(self, link: Link, tls: TlsStream, data: bytes | memoryview) -> bytes | None:
        handshaken = tls.handshaken
        try:
            plain = tls.receive(data)
        except ssl.SSLError as error:
            self._send(link, tls.output())  # the alert that tells the client why
            self._lost(link, f"TLS: {error.reason or error}")
            return None
        self.node.touched[link.connection] = None
        if tls.handshaken and not handshaken:
            certificate = tls.certificate()
            user = self._certificate_user(certificate) if certificate else None
            peer = link.connection.peer
            link.connection.peer = Peer(peer.name, peer.loopback, True, user)
        return plain

    def _lost(self, link: Link, reason: str) -> None:
        connection = link.connection
        if connection.state not in (State.CLOSED, State.CLOSING):
            self.node.log("connection_lost", connection=connection.name, reason=reason)
        connection.lost()
        self._close(link)

    def _resume_paused(self) -> None:
        for link in list(self._paused):
            if not link.connection.reading_paused or link.connection.state is State.CLOSED:
                del self._paused[link]
                if link.socket.fileno() >= 0:
                    self._watch(link)

    # Writing

    def _flush(self, link: Link, now: float) -> None:
        connection = link.connection
        outbox = connection.outbox
        if outbox:
            connection.outbox = []
            connection.liveness.sent_at = now
            if connection.outbox_large and link.tls is None:
                connection.outbox_large = False
                connection.bytes_out += sum(map(len, outbox))
                self._send(link, outbox)
            else:
                data = outbox[0] if len(outbox) == 1 else b"".join(outbox)
                connection.bytes_out += len(data)
                if link.tls is None:
                    self._send(link, data)
                else:
                    try:
                        link.tls.send(data)
                    except ssl.SSLError as error:
                        self._lost(link, f"TLS: {error.reason or error}")
                        return
            if link.events == _IN and not (link.pending or link.tls or connection.outbox_full):
                # Nearly always: all of it is gone, and there is nothing to watch for.
                connection.outbox_bytes = 0
                if connection.state is State.RUNNING:
                    return
        if link.tls is not None:
            self._send(link, link.tls.output())
        if link.pending and not outbox:
            self._send(link, b"")
        if link.socket.fileno() < 0:
            return
        connection.sent(link.pending_bytes + sum(map(len, connection.outbox)))
        if connection.state is State.CLOSED and not connection.outbox:
            if link.linger_until is None:
                link.linger_until = now + LINGER_S
                self._lingering[link] = None
            if not link.pending and not link.end():
                self._close(link)
                return
        self._watch(link)

    def _send(self, link: Link, data: bytes | bytearray | memoryview | Pieces) -> None:
        try:
            link.send(data)
        except OSError as error:
            self._lost(link, error.strerror or str(error))

    def _watch(self, link: Link) -> None:
        events = 0 if link in self._paused else _IN
        if link.pending:
            events |= _OUT
        if events != link.events:
            link.events = events
            self._epoll.modify(link.socket.fileno(), events)

    # Coming and going

    def _add(
        self, client: socket.socket, address: tuple[str, int], context: ssl.SSLContext | None, now: float
    ) -> None:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        here = client.getsockname()
        peer = Peer(
            f"{address[0]}:{address[1]} -> {here[0]}:{here[1]}", is_loopback(address[0]), tls=context is not None
        )
        connection = Connection(self.node, peer, self._new_connection_id(), now)
        link = Link(client, connection, TlsStream(context) if context is not None else None)
        self._links[client.fileno()] = link
        self._by_connection[connection] = link
        self._epoll.register(client.fileno(), _IN)

    def _close(self, link: Link) -> None:
        fd = link.socket.fileno()
        if fd < 0:
            return
        self._epoll.unregister(fd)
        del self._links[fd]
        self._by_connection.pop(link.connection, None)
        self._paused.pop(link, None)
        self._lingering.pop(link, None)
        if not link.pending:
            link.end()
        link.pending.clear()
        link.socket.close()
        if not self._links:
            self._emptied.set()

    def close(self) -> None:
        """Everything, at once."""
        self.acceptor.stop()
        for link in list(self._links.values()):
            link.connection.lost()
            self._close(link)
        self._epoll.close()
