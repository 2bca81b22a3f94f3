"""A connection: from the protocol header to close.

What comes in: bytes, whatever their cut; the time, now and then; the answers of the log-in. What goes out: bytes, in
`outbox`; channels; effects on the node.
Rules: 1. `state` moves only along the table below. 2. A hard error closes the connection with its code; anything
else that is raised is our bug and closes it with 541 INTERNAL_ERROR. 3. Nothing is read while a log-in is under way,
and what a client may send before is bounded by one frame.
Not here: the methods (`channels.py`, `methods/`), sockets and TLS (`pump.py`), the handshake's methods
(`session/handshake.py`), heartbeats (`session/liveness.py`), why it may have to wait (`session/intake.py`).

Source: AMQP 0-9-1 sections 2.2.4, 4.2.2 and 1.4 of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Any, Final

from pamqp import base, commands
from pamqp.exceptions import (
    AMQPChannelError,
    AMQPConnectionForced,
    AMQPError,
    AMQPFrameError,
    AMQPHardError,
    AMQPInternalError,
    AMQPUnexpectedFrame,
)

from amqpd.faults import CONNECTION
from amqpd.flow.turns import FRAME_WORK, METHOD_WORK
from amqpd.kernel import (
    LARGE_BYTES_MIN,
    Mixed,
    Pieces,
    bytes_to_frame_end,
    publish_bytes_min,
    scan_acks,
    scan_batch,
    scan_publishes,
)
from amqpd.methods.channel import open_channel
from amqpd.methods.connection import closes, connection_method
from amqpd.node.node import Node
from amqpd.publishing.routes import RouteCache
from amqpd.session.credit import CreditQueue
from amqpd.session.handshake import HANDSHAKE_FRAME_BYTES_MAX, Handshake
from amqpd.session.intake import Intake
from amqpd.session.liveness import Liveness
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.session.steps import leaving
from amqpd.vocabulary.states import ConnectionState, PeerAddress
from amqpd.wire.frames import PROTOCOL_HEADER, method_frame, reply_text

_HEAD: Final = Struct(">BHI")
_PUBLISH_ID: Final = b"\x00\x3c\x00\x28"
_ACK_ID: Final = b"\x00\x3c\x00\x50"

# By the name of its class a member is looked up through the metaclass each time: 900 instructions.
_HEADER: Final = ConnectionState.HEADER
_HANDSHAKE: Final = ConnectionState.HANDSHAKE
_RUNNING: Final = ConnectionState.RUNNING
_CLOSING: Final = ConnectionState.CLOSING
_LINGERING: Final = ConnectionState.LINGERING
_CLOSED: Final = ConnectionState.CLOSED

# A publish that is not complete waits for the rest of its bytes up to this size, to go through the kernel whole: any
# whose body is in one frame. A larger one is assembled frame by frame, so that its beginning is not copied again.
WAIT_BYTES_MAX: Final = 160 * 1024
# So often the rest of a publish is waited for, then what has come is taken frame by frame: a client that sends
# an octet at a time would otherwise have all that came before looked through for each.
WAITS_MAX: Final = 8


class Connection(ConnectionBase):
    """The state machine of one connection."""

    def __init__(self, node: Node, peer: PeerAddress, connection_id: str, now: float) -> None:
        super().__init__(peer.name, connection_id, _HEADER)
        self.node = node
        self.shared = node
        self.peer = peer
        self.outbox: Pieces = []
        self.outbox_bytes = 0
        self.outbox_large = False
        self.channels: dict[int, ChannelBase] = {}
        self.channels_closing = 0
        self.capabilities: dict[str, Any] = {}
        self.client_properties: dict[str, Any] = {}
        self.routes = RouteCache()
        self.transaction_bytes = 0
        self.auth_mechanism = ""
        self.may_impersonate = False
        self.frame_max = min(node.limits.frame_max, HANDSHAKE_FRAME_BYTES_MAX)
        self.channel_max = node.limits.channel_max
        self.publishing = False
        self.suspended = False
        self.intake = Intake(self)
        self.turn = self.intake
        self.current = b"\x00\x00\x00\x00"
        self.close_wanted = False
        self._deaf = False
        """framing is lost: nothing that comes in can be understood any more"""
        self._rest = bytearray()
        self._due = 0
        """this many bytes must be in `_rest` before the frame at its beginning is whole"""
        self._waits = 0
        self.stride = 0
        """bytes of the last publish that was large, or frame of one; 0: none, or the pump saw that they have come"""
        self.choked = False
        self._handshake = Handshake(self)
        self.liveness = Liveness(self, now)
        self.heartbeat_s = 0
        self.opened_at = 0
        self.connected_at = now
        self.bytes_in = self.bytes_out = 0
        self.counted_in = self.counted_out = 0
        self.summed = (0, 0, 0, 0)
        self.closed_to_confirm = self.closed_confirmed = 0
        self.outbox_full = False
        self.outbox_queue = CreditQueue(self._outbox_takes)
        self.aborted = False
        """the client does not answer any more: nothing is to be sent, the socket is to be reset"""
        node.connections[connection_id] = self

    # Bytes in

    def receive(self, data: bytes) -> None:
        """Bytes from the client, in order, cut anywhere. What the answer is, is in `outbox` afterwards; when `state`
        is CLOSED, the caller sends what is left there and closes the socket."""
        if self.state is _CLOSED or self._deaf:
            return
        turns, intake, pos = self.node.turns, self.intake, 0
        intake.work_left = work = turns.turn_work
        if self._rest:
            data, pos = self._joined(data)
            if pos < 0:
                return
        self._due = 0
        if self.state is _HEADER:
            if not self._handshake.protocol_header(data):
                self._rest += data
                return
            pos = len(PROTOCOL_HEADER)
        self._consume(data, pos)
        turns.tick_left -= work - intake.work_left

    def _joined(self, data: bytes) -> tuple[bytes, int]:
        """What is to be read now, and from where on: with the rest before it, if that is not read yet. -1: nothing
        is."""
        pos = 0
        while self._rest:
            rest, missing = self._rest, self.missing
            if len(data) - pos < missing:
                rest += data[pos:] if pos else data
                return data, -1
            self._rest = bytearray()
            if not missing >= LARGE_BYTES_MIN <= len(data) - pos - missing:
                return b"".join((rest, memoryview(data)[pos:] if pos else data)), 0
            # Only what was cut is put together; what follows stays where it is.
            self._due, begin, pos = 0, pos, pos + missing
            self._consume(b"".join((rest, memoryview(data)[begin:pos])), 0)
            if self.state is _CLOSED or self._deaf:
                return data, -1
        return data, pos

    @property
    def missing(self) -> int:
        """This many bytes complete the frame that has begun to come; 0: it is not known how many, or none has
        begun."""
        return max(self._due - len(self._rest), 0)

    def on_timer(self, now: float, heartbeat_only: bool = False) -> None:
        self.liveness.on_timer(now, heartbeat_only)

    def guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except AMQPHardError as error:
            self.fail(error, self.current)
        except Exception as error:  # noqa: BLE001 - the promise of rule 2; faults reports it, or raises it on
            self.contain(error)

    def contain(self, error: Exception) -> None:
        """A bug was met in this connection's own work: 541, and the others go on. Raises it if it is of the node."""
        self.node.faults.contain(CONNECTION, self.name, error)
        self.fail(AMQPInternalError(), self.current)

    def contain_later(self, error: Exception) -> None:
        """As `contain`, at the end of the tick: for what is met while a queue is being dispatched. Until then it gets
        nothing more."""
        self.node.faults.contain(CONNECTION, self.name, error)
        self.outbox_full = True
        self.node.broken[self] = None

    def end_broken(self) -> None:
        if self.state not in (_CLOSING, _CLOSED):
            self.fail(AMQPInternalError(), self.current)

    def _consume(self, data: bytes, pos: int) -> None:
        end, alarms = len(data), self.node.alarms.kinds
        channels, intake, quotas, closed = self.channels, self.intake, self.node.quotas, _CLOSED
        apart_until = 0  # a batch that ends there has to go message by message
        while end - pos >= 7 and not (
            self.suspended or self.choked or intake.throttled or intake.blocked or self.state is closed
        ):
            if intake.work_left <= 0:
                self.node.turns.end(self)
                break
            intake.work_left -= FRAME_WORK
            kind, number, size = _HEAD.unpack_from(data, pos)
            stop = pos + 8 + size
            if size > self.frame_max or (stop <= end and data[stop - 1] != 0xCE):
                # The payload may be as large as the frame should be: 8 bytes of slack, as RabbitMQ allows.
                self._deaf = True
                text = "frame-end octet missing" if size <= self.frame_max else f"frame too large: {size} bytes"
                self.fail(AMQPFrameError(f"{text}, type {kind}, channel {number}"))
                return
            if stop > end:
                self._due = stop - pos
                break
            if alarms and intake.stops(kind, number, data[pos + 7 : pos + 11]):
                break
            try:
                channel = channels.get(number)
                if kind == 1 and channel is not None and channel.plain:
                    self.current = data[pos + 7 : pos + 11]
                    if self.current == _PUBLISH_ID:
                        scan = scan_batch if pos >= apart_until and channel.takes_batches else scan_publishes
                        run = scan(data, pos, end, self.frame_max)
                        if isinstance(run, Mixed):
                            apart_until = pos + run.nbytes
                            if channel.publish_batch(run):
                                pos, self._waits = apart_until, 0
                                continue
                            run = scan_publishes(data, pos, end, self.frame_max)
                        if quotas.active and run is not None and run.count:
                            run = quotas.cut(self, run, self.node.now_ms)
                            if run is None:
                                break
                        if run is not None:
                            if count := run.count:
                                stop = pos + count * (stride := run.stride)
                                if stride >= LARGE_BYTES_MIN:
                                    self.stride = stride
                                channel.publish(run)
                                pos, self._waits = stop, 0
                                continue
                            self._waits += 1
                            due = publish_bytes_min(data, pos, end)
                            if due <= WAIT_BYTES_MAX and self._waits <= WAITS_MAX:
                                self._due = bytes_to_frame_end(data, pos, end)
                                break
                        self._waits = 0
                    elif self.current == _ACK_ID and size == 13:
                        first, last, multiple, stop = scan_acks(data, pos, end)
                        channel.ack(first, last, multiple)
                        pos = stop
                        continue
                elif kind == 3 and size >= LARGE_BYTES_MIN:
                    self.stride = stop - pos
                self.frame(kind, number, data[pos + 7 : stop - 1])
            except AMQPHardError as error:
                self.fail(error, self.current)
            except Exception as error:  # noqa: BLE001 - the promise of rule 2; faults reports it, or raises it on
                self.contain(error)
            pos = stop
        if pos < end and self.state is not closed:
            self._rest += memoryview(data)[pos:] if pos else data

    def frame(self, kind: int, number: int, payload: bytes) -> None:
        """One frame, from `receive` or from a channel that held it. Raises AMQPHardError."""
        if kind == 1:
            self.current = payload[:4]
            self.node.turns.charge(self, METHOD_WORK)
        if kind == 8:
            if number != 0 or payload:
                raise AMQPUnexpectedFrame("heartbeat frame on a channel, or not empty")
        elif kind not in (1, 2, 3):
            raise AMQPFrameError(f"unknown frame type {kind}")
        elif self.state in (_CLOSING, _LINGERING):
            if closes(self, kind, number, payload):
                self._leave(_CLOSED)
        elif number == 0:
            connection_method(self, self._handshake, kind, payload)
        elif self.state is not _RUNNING:
            raise AMQPChannelError(f"frame on channel {number} before connection.open")
        else:
            channel = self.channels.get(number)
            if channel is None:
                open_channel(self.node, self, self.routes, number, kind, payload)
            else:
                channel.frame(kind, payload)

    def unfinished_channels(self) -> Iterator[ChannelBase]:
        for channel in list(self.channels.values()):
            if self.state is not _RUNNING:
                return
            if channel.unfinished_bytes:
                yield channel

    def channel_went_on(self) -> None:
        """A channel is not suspended any more. connection.close takes effect when all that was sent before it has."""
        if self.close_wanted and not any(channel.suspended or channel.held for channel in self.channels.values()):
            self.close_wanted = False
            self.intake.begin(leaving(self, self._answer_close))

    def _answer_close(self) -> None:
        if self.state in (_HANDSHAKE, _RUNNING):
            self.send(commands.Connection.CloseOk())
            self._leave(_LINGERING)
            self.resume()

    # The handshake's results

    def handshaking(self) -> None:
        self.state = _HANDSHAKE

    def authenticated(self, user: str, may_impersonate: bool = False) -> None:
        """The answer of `Services.authenticate`; `may_impersonate`: RabbitMQ's tag `impersonator`."""
        if self.state is not _HANDSHAKE:
            return
        self.user, self.may_impersonate = user, may_impersonate
        self.node.events.logged_in(self, user)
        self.guard(self._handshake.authenticated)
        self.guard(self.resume)

    def refused(self, mechanism: str, reason: str) -> None:
        self.node.log("login_refused", connection=self.name, mechanism=mechanism, reason=reason)
        self.node.acts.login_failed(self, reason)
        self.node.events.login_refused(self, reason)
        if self.state is _HANDSHAKE:
            self.guard(lambda: self._handshake.refused(mechanism))
            self.guard(self.resume)

    def opened(self) -> None:
        self.state, self.opened_at = _RUNNING, self.node.leader_moves.count
        self.node.client_counters.entered(self)
        self.node.totals.connections_opened += 1
        self.node.log("connection_open", connection=self.name, user=self.user, vhost=self.vhost)
        self.node.acts.opened(self)
        self.node.events.connection_opened(self)

    def resume(self) -> None:
        self.suspended = False
        rest, self._rest = self._rest, bytearray()
        if rest:
            self.receive(bytes(rest))

    # Bytes out

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.outbox:
            self.node.touched[self] = None
        self.outbox.append(data)
        self.outbox_bytes += len(data)
        if self.outbox_bytes > self.node.outboxes.limit:
            self._outbox_filled()

    def write_all(self, pieces: Pieces, nbytes: int) -> None:
        if not self.outbox:
            self.node.touched[self] = None
        self.outbox += pieces
        self.outbox_bytes += nbytes
        if self.outbox_bytes > self.node.outboxes.limit:
            self._outbox_filled()

    def _outbox_filled(self) -> None:
        self.outbox_full = True
        # What it asks for comes on top of deliveries, but not without end.
        self.choked = self.outbox_bytes > 2 * self.node.limits.outbox_bytes_max

    def write_pieces(self, pieces: Pieces) -> None:
        self.outbox_large = self.outbox_large or len(pieces) > 1
        for piece in pieces:
            self.write(piece)

    def send(self, method: base.Frame) -> None:
        self.write(method_frame(0, method))

    def sent(self, outbox_bytes: int) -> None:
        """The pump has sent what it could; this much is left. Deliveries go on when half of the space is free, and so
        does what the client asked for beyond what it took."""
        self.outbox_bytes = outbox_bytes
        if self.state is not _CLOSED:
            self.node.outboxes.left(self, outbox_bytes)
        if outbox_bytes > 2 * self.node.limits.outbox_bytes_max and self.state in (_HANDSHAKE, _RUNNING):
            # Not by `write`: TLS answers some of a client's records with one of its own (RFC 8446 section 4.6.3).
            self.outbox_full = self.choked = True
        if self.outbox_full and outbox_bytes * 2 < self.node.outboxes.limit:
            self.outbox_full = False
            if self.outbox_queue:
                self.node.waking.add(self.outbox_queue)
            if self.choked:
                self.choked = False
                for channel in list(self.channels.values()):
                    self.guard(channel.go_on)
                self.channel_went_on()
                if not self.suspended:
                    self.resume()

    def _outbox_takes(self) -> bool:
        return not self.outbox_full

    @property
    def reading_paused(self) -> bool:
        if self.state is _CLOSING or self.state is _LINGERING:
            # For its close-ok, or the end. All else is thrown away, in turns too: what waits for the next one is not
            # to grow with each read.
            return self.intake.throttled and len(self._rest) > self.frame_max
        if self.intake.paused:
            return True
        return len(self._rest) > self.frame_max if self.suspended else self.choked

    # The end

    def fail(self, error: AMQPError, method_id: bytes = b"\x00\x00\x00\x00") -> None:
        """Close the connection for the error (section 1.4.2.9)."""
        if self.state in (_CLOSING, _LINGERING, _CLOSED):
            self._leave(_CLOSED)
            return
        text = reply_text(error)
        self.node.log("connection_error", connection=self.name, reply=text)
        if " access to vhost " in text or text.startswith("ACCESS_REFUSED"):
            self.node.acts.refused(self, text)
        self.close_with(error.value, text, method_id)  # type: ignore[attr-defined]  # each of pamqp's classes has it

    def close_with(self, code: int, text: str, method_id: bytes = b"\x00\x00\x00\x00") -> None:
        for channel in list(self.channels.values()):
            self.finish(partial(self.node.durability.flush, channel))
            channel.plain = False  # what comes from now on is thrown away, however long it takes to leave
        self.node.quotas.waiting.pop(self, None)
        self.intake.begin_apart(leaving(self))
        if self.state in (_HEADER, _HANDSHAKE) and not self._handshake.started:
            self._leave(_CLOSED)
            return
        self.state = _CLOSING
        self.suspended = self.close_wanted = False
        self.send(
            commands.Connection.Close(
                reply_code=code,
                reply_text=text,
                class_id=int.from_bytes(method_id[:2], "big"),
                method_id=int.from_bytes(method_id[2:4], "big"),
            )
        )
        # Its close-ok is read in any case.
        self.choked = self.intake.throttled = self.intake.blocked = self.intake.cut_off = False

    @property
    def ended(self) -> bool:
        return self.state in (_CLOSING, _LINGERING, _CLOSED)

    def force_close(self, explanation: str) -> None:
        if self.state is _RUNNING:
            self.fail(AMQPConnectionForced(explanation))
        elif self.state is not _CLOSING:
            self.lost()

    def removed(self, kind: str, name: str) -> None:
        """A vhost or a user was deleted."""
        if (kind == "vhost" and name == self.vhost) or (kind == "user" and name == self.user):
            self.force_close(f"{kind} '{name}' is deleted")

    def lost(self) -> None:
        if self.state is not _CLOSED:
            self.intake.begin_apart(leaving(self))
            self._leave(_CLOSED)

    def abort(self) -> None:
        self.aborted = True
        self.lost()

    def give_back_old_routes(self) -> None:
        if self.routes.known and self.routes.version != self.node.topology.version:
            self.give_back_routes()

    def give_back_routes(self) -> None:
        self.node.routes.memory.release(self.routes)
        self.routes.forget()

    def forget_channel(self, channel: ChannelBase) -> None:
        self.node.client_counters.channel_gone(channel)
        if not channel.closed:
            self.node.totals.channel_gone(channel)
            self.node.events.channel_closed(channel)
        self.channels_closing -= channel.closing
        channel.closed = True
        self.intake.held_bytes -= channel.held_bytes
        channel.held_bytes = 0
        channel.plain = False
        if channel.deliveries and self.node.tracer is not None:
            self.node.tracer.forget(channel.deliveries)
        channel.shared_queue.end()
        self.channels.pop(channel.id, None)
        self.node.durability.forget(channel)

    def finish(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - it ends as it is; faults reports it, or raises it on
            self.node.faults.contain(CONNECTION, self.name, error)

    def _leave(self, state: ConnectionState) -> None:
        """The connection has ended for the node. While it is LINGERING the client still has to end the stream, and a
        connection.close that crossed ours, or came twice, is answered (as in RabbitMQ: a client whose stream ends
        in the middle of its own close takes that for an error)."""
        known = self.state not in (_LINGERING, _CLOSED)
        self.state = state
        self.suspended = self.close_wanted = False
        self.node.touched[self] = None
        if state is _CLOSED:
            self._rest = bytearray()
            self.outbox_queue.end()
            self.node.outboxes.left(self, 0)
        else:
            # Whatever it waited for, its further closes and the end of the stream are read.
            self.choked = self.intake.throttled = self.intake.blocked = False
        if known:
            self.node.connections.pop(self.id, None)
            self.node.ended += 1
            self.node.totals.connection_gone(self)
            self.finish(partial(self.node.client_counters.left, self))
            if not self.user:
                self.finish(partial(self.node.services.left_unauthenticated, self))
            if self.vhost:
                self.finish(partial(self.node.connection_left, self))
                self.finish(partial(self.node.events.connection_closed, self))
