"""The pump: the one task that moves client bytes, for all connections together.

What comes in: ready sockets, of clients and listeners. What goes out: bytes into connection machines and from their
outboxes to the sockets; work for the journal's writer and the reader.
Rules: 1. A tick takes the sockets that are ready, as many as its budget allows: read each once (bounded, for
fairness), feed its machine, let the node do what became necessary, then flush each connection that was touched once.
2. No `await` from reading to the journal's buffer: a publish is atomic by construction. 3. What a socket does not
take waits in its link, with the machine's knowledge (`Connection.sent`), so consumers slow down before memory grows.
Not here: what the bytes mean (`connection.py`), opening ports (`transport/listeners.py`), accepting
(`transport/acceptor.py`).
"""

from __future__ import annotations

import gc
import itertools
import math
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Final

import trio

from amqpd.connection import Connection
from amqpd.faults import CONNECTION
from amqpd.flow.turns import LOST_WORK, SENT_WORK, TURN_WORK_MAX
from amqpd.journal.commit_timing import CommitTiming
from amqpd.kernel import Pieces
from amqpd.node.node import Node
from amqpd.session.liveness import LOOK_WORK
from amqpd.session.ports import ConnectionBase
from amqpd.session.services import Read
from amqpd.transport.acceptor import ClientAcceptor
from amqpd.transport.link import LITTLE_BYTES, LITTLES_MIN, Link, SocketAddress, connection_name, is_loopback
from amqpd.transport.readiness import Wakeup, awake, next_events
from amqpd.transport.tls_handshakes import STEP_BYTES_MAX, TlsHandshakes
from amqpd.transport.tls_stream import TlsStream
from amqpd.transport.waiting_links import Lingering, PausedLinks, given_up
from amqpd.vocabulary.states import ConnectionState, PeerAddress

# Read at most so much of one socket in one tick: larger costs the others latency, smaller costs throughput.
RECEIVE_BYTES_MAX: Final = 256 * 1024
# How long it goes on, while there is always something ready, before other trio tasks get their turn.
TURN_S = 0.004
# Queues are looked at no more often than this because of the time alone: what falls due in between goes together.
WAKE_S_MIN: Final = 0.01
# After so much work, in the unit of `flow/turns.py`, the objects are looked at that came with it; each third time
# those too that outlived one look.
YOUNG_WORK_MAX: Final = 10_000
YOUNG_LOOKS: Final = 3
# Of a change to the topology: a queue that is declared leaves some thirty objects, and takes about as many with it.
CHANGE_WORK: Final = 30
# By the name of its class a member is looked up through the metaclass each time: 900 instructions.
_HEADER: Final = ConnectionState.HEADER
_HANDSHAKE: Final = ConnectionState.HANDSHAKE
_RUNNING: Final = ConnectionState.RUNNING
_LINGERING: Final = ConnectionState.LINGERING
_CLOSED: Final = ConnectionState.CLOSED
# Half an interval of the shortest heartbeat there is.
TIMERS_S = 0.5
# In the log, why a connection was given up.
SILENT = "it does not read"

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class Pump:
    """Reads and writes all sockets of clients, a bounded part of each in a tick, and ends each tick of the node."""

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
        commit_now: Callable[[], bool] = lambda: False,
        record: Callable[[], None] = lambda: None,
        waits_here: bool = True,
    ) -> None:
        """`clock_ms`: since the epoch, never going back; `alone`: nobody else has anything to do or waits for one;
        `waits_here`: nothing that is urgent comes otherwise than by its sockets, so it may wait for these alone;
        `busy_wait_s`: see `transport/readiness.py`; `commit_now`: see `JournalWriter`, without it commits are only
        wanted; `record` writes the audit log, before anything is sent or committed where that is urgent, else at the
        end of a turn."""
        self.node = node
        self._clock_ms = clock_ms
        self._earlier = trio.Event()  # a queue has to be looked at before `run_wakes` would
        self._wakes_at_ms: int | None = None
        self._new_connection_id = new_connection_id
        self._certificate_user = certificate_user
        self._want_reads = want_reads
        self._want_commit = want_commit
        self._commit_now = commit_now
        self._timing = CommitTiming(node.journal, busy_wait_s, perf_counter)
        self._alone = alone
        self._waits_here = waits_here
        self._busy_wait_s = busy_wait_s
        self._record = record
        self.look_current: Callable[[], None] | None = None
        """In a cluster: called after something was read and before it is routed, so that publishes wait while the
        node is not current (`cluster/currency.py`)."""
        self._audit = node.audit.buffer
        self._epoll = select.epoll()
        self._wakeup = Wakeup(self._epoll)
        self._handshakes = TlsHandshakes(self._wakeup.set)
        self._rested = False
        """there was a moment without anything to do in this turn, or in the last one"""
        self._worked = self._looks = 0
        """since the young objects were looked at; how often that was"""
        self._unserved: dict[int, int] = {}
        """sockets that were ready when the budget of a tick was used up, and how"""
        self.acceptor = ClientAcceptor(
            self._epoll, connections_max, self._add, partial(node.faults.contain, CONNECTION, "accept")
        )
        self._links: dict[int, Link] = {}
        self._by_connection: dict[ConnectionBase, Link] = {}
        self._paused = PausedLinks()
        self._lingering = Lingering()
        self._emptied = trio.Event()
        self._view = memoryview(bytearray(RECEIVE_BYTES_MAX))

    @property
    def link_count(self) -> int:
        return len(self._links)

    async def wait_empty(self) -> None:
        """Return when no client is connected any more."""
        self._lingering.hasten(trio.current_time())
        while self._links:
            self._emptied = trio.Event()
            await self._emptied.wait()

    async def run(self) -> None:
        """Move bytes until cancelled."""
        ready = self._epoll.fileno()
        while True:
            if self._behind:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(ready)
            until, self._rested = trio.current_time() + TURN_S, False
            events = self._epoll.poll(0)
            while events or self._behind:
                self._tick(events)
                if trio.current_time() >= until:
                    break
                events = self._epoll.poll(0)
                if not events and not self._behind:
                    self._rested = True
                    if self._waits_here and self._alone():
                        events = self._at_rest()
            self._end_turn()

    def _at_rest(self) -> list[tuple[int, int]]:
        """Nobody has anything to do; what comes next. It is the moment for a commit: nobody waits longer because of
        it."""
        until = self._timing.wait_until()
        events = next_events(self._epoll, self._busy_wait_s) if until == math.inf else awake(self._epoll, until)
        if events or not self.node.journal.pending:
            return events
        self._timing.nothing_came()
        if self._audit.pending:
            self._record()
        if not self._commit_now() or self._behind:
            return []
        # The client that had its confirm now may send the next message: to wait by way of other tasks costs more.
        return next_events(self._epoll, self._busy_wait_s)

    def _end_turn(self) -> None:
        """Other tasks have their turn now. Where clients come one by one, time ends most turns: nobody waits longer
        then because of a commit, as in `_at_rest`."""
        if self._audit.pending:
            self._record()
        if self.node.journal.pending and (self._behind or not self._alone() or not self._commit_now()):
            self._want_commit()

    def takes_commit(self) -> bool:
        """Whether the next commit, of what has gathered, is the pump's: it will have a moment for it soon."""
        if self._rested:
            self._wakeup.set()
        return self._rested

    @property
    def _behind(self) -> bool:
        """There is something to do without anything new."""
        waiting = self._unserved or self._handshakes.done or self.node.turns.waiting or self._paused.unlooked
        return bool(waiting) or self.node.behind

    async def run_wakes(self) -> None:
        """Look at queues whose time has come though nothing came in: expired messages, delays, unused queues."""
        while True:
            self._wakes_at_ms = next_ms = self.node.wakes.next_ms
            wait_s = math.inf if next_ms is None else max((next_ms - self._clock_ms()) / 1000, WAKE_S_MIN)
            with trio.move_on_after(wait_s) as waiting:
                await self._earlier.wait()
            self._earlier = trio.Event()
            if waiting.cancelled_caught:
                self.run_effects()

    async def run_timers(self) -> None:
        """Twice a second: heartbeats, lingering sockets, what the acceptor has to look at; once: other deadlines."""
        for half in itertools.count():
            await trio.sleep(TIMERS_S)
            now = trio.current_time()
            work_left = TURN_WORK_MAX
            for connection in list(self.node.connections.values()):
                ended = self.node.ended
                connection.guard(partial(connection.on_timer, now, heartbeat_only=half % 2 == 0))
                work_left -= LOOK_WORK + LOST_WORK * (self.node.ended - ended) + SENT_WORK * bool(connection.outbox)
                if work_left <= 0:
                    work_left = await self._let_others_go_on()
            over = [(link, "") for link in self._lingering.due(now)]
            for link, reason in over + [(link, SILENT) for link in given_up(self._links.values(), self.node, now)]:
                link.connection.guard(partial(self._lost, link, reason) if reason else partial(self._close, link))
                work_left -= LOST_WORK
                if work_left <= 0:
                    work_left = await self._let_others_go_on()
            self.acceptor.on_timer(now)
            self.run_effects()

    async def _let_others_go_on(self) -> int:
        """In the middle of what the timers do: very many connections that came together end together. How much work
        may be done until the next call."""
        self.run_effects()
        await trio.lowlevel.checkpoint()
        return TURN_WORK_MAX

    def _tick(self, events: Sequence[tuple[int, int]]) -> None:
        now = trio.current_time()
        self.node.now_ms = self._clock_ms()
        links, turns = self._links, self.node.turns
        if self._unserved:
            events = self._with_unserved(events)
        if self._paused and (events or turns.waiting or self.node.behind):
            self._paused.changed()
        turns.begin(len(events))
        served = 0
        for fd, mask in events:
            if turns.tick_left <= 0:
                # Those first in the next tick; they would be reported again, but behind those that come meanwhile.
                self._unserved = dict(events[served:])
                break
            served += 1
            link = links.get(fd)
            if link is None:
                self._wakeup.clear(fd)
                self.acceptor.accept(fd, len(links), now)
                continue
            if mask & ~_OUT:
                try:
                    self._read(link, now)
                except Exception as error:  # noqa: BLE001 - this connection's; reported, or raised on
                    link.connection.contain(error)
            if mask & _OUT:
                self.node.touched[link.connection] = None
        if self._handshakes.done:
            self._end_steps(now)
        turns.next()
        self._end_tick(now, True)
        self._look_at_young(2 * TURN_WORK_MAX - turns.tick_left - self.node.work_left)

    def _look_at_young(self, worked: int) -> None:
        """Python looks when there are many more objects than before. Where as many go as come, it would do so after
        millions, 200 ms of them at once (`process/garbage.py`)."""
        self._worked += worked
        if self._worked <= YOUNG_WORK_MAX:
            return
        self._worked = 0
        self._looks += 1
        gc.collect(0 if self._looks % YOUNG_LOOKS else 1)

    def _with_unserved(self, events: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        ready, self._unserved = self._unserved, {}
        ready |= {fd: ready.get(fd, 0) | mask for fd, mask in events}
        return list(ready.items())

    def run_effects_of_changes(self, count: int) -> None:
        """`run_effects`, after `count` changes to the topology were applied."""
        self.run_effects()
        self._look_at_young(CHANGE_WORK * count)

    def run_effects(self) -> None:
        """Do and send what an act on the node made necessary, outside of a tick: the end of a tick without its
        reading. It has what the last tick left of its budget."""
        self.node.now_ms = self._clock_ms()
        self._paused.changed()
        self._end_tick(trio.current_time(), False)
        if self._behind:
            self._wakeup.set()
        if self._audit.pending:
            self._record()

    def _end_tick(self, now: float, fresh: bool) -> None:
        node = self.node
        self._want_reads(node.tick(fresh))
        while node.touched:
            if self._audit.urgent:
                self._record()
            touched, node.touched = node.touched, {}
            # Confirms came last, and go first: publishers that wait for them work while consumers are served.
            for connection in reversed(touched):
                link = self._by_connection.get(connection)
                if link is not None:
                    try:
                        self._flush(link, now)
                    except Exception as error:  # noqa: BLE001 - this connection's; reported, or raised on
                        self._cut(link, error)
            if ((node.to_dispatch or node.waking) and node.work_left > 0) or node.durability.due:
                # Space in an outbox let consumers go on, or what a choked client had sent.
                self._want_reads(node.tick(False))
        if self._audit.urgent:
            self._record()
        elif self._audit.pending:
            node.audit.later()
        if self._paused:
            self._resume_paused()
        if not fresh and node.journal.pending:
            self._want_commit()
        next_ms = node.wakes.next_ms if node.wakes.heap else None
        if next_ms is not None and (self._wakes_at_ms is None or next_ms < self._wakes_at_ms):
            self._wakes_at_ms = next_ms
            self._earlier.set()

    def _read(self, link: Link, now: float) -> None:
        connection = link.connection
        try:
            if connection.stride and link.tls is None:
                data: bytes | memoryview = link.receive_large()
            elif link.littles >= LITTLES_MIN:
                data = link.receive_little()
            else:
                most = 0 if link.tls is None or link.tls.handshaken else STEP_BYTES_MAX
                size = link.socket.recv_into(self._view, most)
                data = self._view[:size]
                link.littles = link.littles + 1 if size < LITTLE_BYTES and link.tls is None else 0
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(link, error.strerror or str(error))
            return
        if not data:
            self._lost(link, "closed by the client")
            return
        if link.ended or connection.state is _CLOSED:
            return  # what still comes is thrown away
        if self.look_current is not None:
            self.look_current()
        connection.liveness.received_at = now
        connection.bytes_in += len(data)
        if link.tls is not None:
            if not link.tls.handshaken:
                self._handshakes.step(link, link.tls, bytes(data))
                self._watch(link)
                return
            plain = self._decrypt(link, link.tls, data)
            if plain is None:
                return
            data = plain
        self._received(link, data)

    def _received(self, link: Link, data: bytes | memoryview) -> None:
        connection = link.connection
        if data:
            connection.receive(data if isinstance(data, bytes) else bytes(data))
        if link.tls is not None and link.tls.ended and connection.state is not _CLOSED:
            self._lost(link, "closed by the client")
            return
        behind = link.tls is not None and link.tls.behind
        if (behind or connection.reading_paused) and connection.state is not _CLOSED:
            self._paused.add(link)
            self._watch(link)

    def _decrypt(self, link: Link, tls: TlsStream, data: bytes | memoryview) -> bytes | None:
        try:
            plain = tls.receive(data)
        except ssl.SSLError as error:
            self._lost_tls(link, tls, error)
            return None
        turns = self.node.turns
        turns.tick_left -= tls.work
        if tls.behind:
            turns.end(link.connection)
        self.node.touched[link.connection] = None
        return plain

    def _decrypt_more(self, link: Link, tls: TlsStream) -> None:
        """Of what came before; in a later tick, where this one has no time for it."""
        if tls.behind and self.node.turns.tick_left <= 0:
            self.node.turns.end(link.connection)
            plain: bytes | None = b""
        else:
            plain = self._decrypt(link, tls, b"")
        if plain is not None:
            self._received(link, plain)

    def _lost_tls(self, link: Link, tls: TlsStream, error: Exception) -> None:
        self._send(link, tls.output())  # the alert that tells the client why
        self._lost(link, f"TLS: {getattr(error, 'reason', None) or error}")

    def _end_steps(self, now: float) -> None:
        """Steps of handshakes were computed."""
        for link, tls, error in self._handshakes.take():
            try:
                self._end_step(link, tls, error, now)
            except Exception as failure:  # noqa: BLE001 - this connection's; reported, or raised on
                link.connection.contain(failure)

    def _end_step(self, link: Link, tls: TlsStream, error: Exception | None, now: float) -> None:
        link.connection.liveness.received_at = now
        self.node.touched[link.connection] = None
        self._watch(link)
        if error is not None:
            self._lost_tls(link, tls, error)
        elif tls.handshaken:
            link.identify(self._certificate_user)
            self._decrypt_more(link, tls)

    def _cut(self, link: Link, error: Exception) -> None:
        """Nothing can be sent on it: the connection has ended without a close."""
        connection = link.connection
        self.node.faults.contain(CONNECTION, connection.name, error)
        connection.outbox.clear()
        connection.lost()
        self._close(link)

    def _lost(self, link: Link, reason: str) -> None:
        connection = link.connection
        if connection.state in (_HEADER, _HANDSHAKE, _RUNNING):
            self.node.log("connection_lost", connection=connection.name, reason=reason)
        self.node.turns.tick_left -= LOST_WORK
        connection.lost()
        self._close(link)

    def _resume_paused(self) -> None:
        for link in self._paused.next():
            try:
                if not link.connection.reading_paused or link.connection.state is _CLOSED:
                    self._paused.discard(link)
                    self._watch(link)
                    if link.tls is not None and link.tls.behind and link.connection.state is not _CLOSED:
                        self._decrypt_more(link, link.tls)
            except Exception as error:  # noqa: BLE001 - this connection's; reported, or raised on
                self._cut(link, error)

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
                        self._lost_tls(link, link.tls, error)
                        return
            if link.events == _IN and not (link.pending or link.tls or connection.outbox_full):
                # Nearly always: all of it is gone, and there is nothing to watch for.
                connection.outbox_bytes = 0
                if connection.state is _RUNNING:
                    return
        if link.tls is not None:
            self._send(link, link.tls.output())
        if link.pending and not outbox:
            self._send(link, b"")
        if link.socket.fileno() < 0:
            return
        connection.sent(link.pending_bytes + sum(map(len, connection.outbox)))
        over = connection.state in (_LINGERING, _CLOSED) and not connection.outbox
        if over and self._lingering.begin(link, now, self.node.draining):
            self._close(link)
            return
        self._watch(link)

    def _send(self, link: Link, data: bytes | bytearray | memoryview | Pieces) -> None:
        try:
            link.send(data)
        except OSError as error:
            self._lost(link, error.strerror or str(error))

    def _watch(self, link: Link) -> None:
        busy = link in self._paused or (link.tls is not None and link.tls.busy)
        events = (0 if busy else _IN) | (_OUT if link.pending else 0)
        if events != link.events and link.socket.fileno() >= 0:
            link.events = events
            self._epoll.modify(link.socket.fileno(), events)

    def _add(self, client: socket.socket, address: SocketAddress, context: ssl.SSLContext | None, now: float) -> None:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = connection_name(address, client.getsockname())
        peer = PeerAddress(name, is_loopback(str(address[0])), tls=context is not None)
        tls = TlsStream(context) if context is not None else None
        # What may fail comes first; a socket that is closed leaves the epoll by itself.
        self._epoll.register(client.fileno(), _IN)
        connection = Connection(self.node, peer, self._new_connection_id(), now)
        link = Link(client, connection, tls)
        self._links[client.fileno()] = link
        self._by_connection[connection] = link

    def _close(self, link: Link) -> None:
        fd = link.socket.fileno()
        if fd < 0:
            return
        del self._links[fd]
        self._by_connection.pop(link.connection, None)
        self.node.totals.socket_closed(link.connection)
        self._paused.discard(link)
        self._lingering.forget(link)
        try:
            self._epoll.unregister(fd)
            if not link.pending:
                link.end()
        except Exception as error:  # noqa: BLE001 - this connection's; reported, or raised on
            self.node.faults.contain(CONNECTION, link.connection.name, error)
        finally:
            link.pending = None
            link.socket.close()
        if not self._links:
            self._emptied.set()

    def end(self) -> None:
        """Close every connection, at once. `run` may go on, and carries out what they left."""
        self.acceptor.stop()
        for link in list(self._links.values()):
            link.connection.lost()
            self._close(link)

    def close(self) -> None:
        """As `end`, when `run` has ended."""
        self.end()
        self._handshakes.close()
        self._wakeup.close()
        self._epoll.close()
