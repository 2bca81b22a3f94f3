"""What the parts of a session know of the whole: of their connection, their channel, and the node.

What comes in: nothing. What goes out: base classes, which `amqpd.connection`, `amqpd.channels` and `amqpd.node` fill.
Rules: 1. What is here is what parts below need, and no more. 2. Compiled base classes, because every delivery goes by
them: an attribute costs what it costs of the class itself.
Not here: what only publishing needs (`publishing/ports.py`), what everything knows (`vocabulary/client.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mypy_extensions import mypyc_attr
from pamqp import base
from pamqp.exceptions import AMQPSoftError

from amqpd.audit.acts import Acts
from amqpd.audit.recorder import Recorder
from amqpd.faults import Faults
from amqpd.flow.alarms import Alarms
from amqpd.flow.client_counters import ClientCounters
from amqpd.flow.congestion import Congestion
from amqpd.flow.leader_moves import LeaderMoves
from amqpd.flow.quotas import Quotas
from amqpd.flow.turns import Turns
from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Mixed, Pieces, Run
from amqpd.queues.dispatchable import Dispatchable
from amqpd.queues.port import QueuePort, unheard
from amqpd.queues.to_dispatch import ToDispatch
from amqpd.security.access import Access
from amqpd.session.credit import CreditQueue, Subscription, Waking
from amqpd.session.durability import ConfirmingChannel, Durability
from amqpd.session.events import SessionEvents
from amqpd.session.held_back import HeldBack
from amqpd.session.outboxes import Outboxes
from amqpd.session.services import Services
from amqpd.session.unacked import Unacked
from amqpd.topology.state import Topology
from amqpd.tracing.tracer import Deliveries, SentRange, Tracer
from amqpd.vocabulary.client import Client, ClientTurn, LoginClient
from amqpd.vocabulary.limits import Limits


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionNode(ABC):
    """The node, as sessions know it."""

    limits: Limits
    topology: Topology
    access: Access
    services: Services
    journal: JournalBuffer
    audit: Recorder
    tracer: Tracer | None
    """tells of messages whose publishers trace them; None: nobody wants to know"""
    acts: Acts
    events: SessionEvents
    faults: Faults
    turns: Turns
    quotas: Quotas
    client_counters: ClientCounters
    leader_moves: LeaderMoves
    congestion: Congestion
    durability: Durability
    waking: Waking
    outboxes: Outboxes
    alarms: Alarms
    draining: bool
    to_dispatch: ToDispatch
    touched: dict[ConnectionBase, None]
    """connections that have something to send, or have ended"""
    broken: dict[ConnectionBase, None]
    """see `ConnectionBase.contain_later`"""
    connections: dict[str, ConnectionBase]
    """by id"""
    server_properties: Mapping[str, Any]
    greetings: dict[str, bytes]
    """the frames of connection.start, by the mechanisms that they offer"""

    @abstractmethod
    def log(self, event: str, **fields: Any) -> None: ...

    @abstractmethod
    def quarantine(self, queue: Dispatchable, error: Exception) -> None:
        """The error was raised by the queue's own work: it is out of service."""

    @abstractmethod
    def owned_queues(self, connection_id: str) -> Sequence[QueuePort]:
        """Exclusive queues of the connection."""

    @abstractmethod
    def end_queue(self, queue: QueuePort, by: Client | None = None) -> None:
        """It ends by its own rules."""

    @abstractmethod
    def consumer_gone(self, queue: QueuePort, by: Client) -> None:
        """A consumer of this client left."""

    @abstractmethod
    def trace(self, channel: ChannelBase, queue: QueuePort, sent: SentRange) -> None:
        """It is delivered from the queue, on a channel that is `watched`."""


class IntakeBase(ClientTurn):
    """The turn of one connection, as the parts of its session know it; `session/intake.py` implements it."""

    __slots__ = ("blocked", "congested", "cut_off", "held_bytes", "stopped", "told_blocked")

    def __init__(self, work_left: int) -> None:
        super().__init__(work_left)
        self.blocked = False
        """it published while an alarm was on, or its node was not current; that and what came behind it is not
        taken"""
        self.told_blocked = False
        """by connection.blocked"""
        self.cut_off = False
        """it waits for queues of which no majority of the nodes answers, and was told so"""
        self.congested: dict[QueuePort, None] = {}
        """queues that it published to and that slowed their publishers then"""
        self.held_bytes = 0
        """what the suspended channels hold"""
        self.stopped: OrderedDict[ChannelBase, None] | None = None
        """channels with held frames that are not suspended: the turn ended, or an alarm is on; the one that has
        waited longest first. None: none yet"""

    @property
    @abstractmethod
    def paused(self) -> bool: ...

    @abstractmethod
    def stops(self, kind: int, number: int, method_id: bytes) -> bool:
        """An alarm is on: whether it stops the connection at this frame of that channel."""

    @abstractmethod
    def unblock(self) -> None:
        """No alarm is on any more."""

    @abstractmethod
    def set_cut_off(self, on: bool) -> None:
        """It waits for queues of which no majority of the nodes answers, or does no more."""

    @abstractmethod
    def begin_apart(self, steps: Iterator[None]) -> None:
        """As `begin`, where no turn of the connection is under way: what it does is a turn of its own."""

    @abstractmethod
    def carry_out(self, channel: ChannelBase, steps: Iterator[None], method_id: bytes) -> None:
        """As `begin`; an error that is the channel's closes it for this method."""


class ConnectionBase(LoginClient):
    """A connection, as its parts know it."""

    shared: SessionNode
    intake: IntakeBase
    channels: dict[int, ChannelBase]
    channels_closing: int
    """of these, that wait for channel.close-ok"""
    capabilities: dict[str, Any]
    client_properties: dict[str, Any]
    auth_mechanism: str
    """the one that it asked for; empty before"""
    may_impersonate: bool
    frame_max: int
    channel_max: int
    heartbeat_s: int
    """the interval that the client chose; 0 for none"""
    publishing: bool
    suspended: bool
    """a log-in is under way: what comes in waits"""
    current: bytes
    """class and method id of what is being handled, for the close that it may cause"""
    close_wanted: bool
    """connection.close came; what comes behind it is not read"""
    choked: bool
    """so much waits for the client that nothing of what it sends is taken"""
    outbox: Pieces
    outbox_bytes: int
    outbox_full: bool
    outbox_large: bool
    """there are large pieces in it: to be sent as they are, not to be joined"""
    outbox_queue: CreditQueue
    """consumers that wait for space in it"""
    transaction_bytes: int
    """of the transactions of its channels together"""
    opened_at: int
    """`LeaderMoves.count` when it was opened"""
    connected_at: float
    """seconds of the shell's clock"""
    bytes_in: int
    """through its socket, counted by the pump"""
    bytes_out: int
    counted_in: int
    """of these, what `node/totals.py` has counted when it went"""
    counted_out: int
    summed: tuple[int, int, int, int]
    """of what it has published, received, sent, and confirmed, what is in the sums of its node"""
    closed_to_confirm: int
    """publishes that its closed channels had to confirm, and did"""
    closed_confirmed: int

    @abstractmethod
    def on_timer(self, now: float, heartbeat_only: bool = False) -> None:
        """Once a second, and in between with `heartbeat_only`."""

    @property
    @abstractmethod
    def reading_paused(self) -> bool:
        """The pump must not read this connection now."""

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    @abstractmethod
    def write_all(self, pieces: Pieces, nbytes: int) -> None:
        """As `write`, of pieces that have this many bytes together."""

    @abstractmethod
    def write_pieces(self, pieces: Pieces) -> None:
        """Large ones are sent as they are."""

    @abstractmethod
    def send(self, method: base.Frame) -> None:
        """On channel 0."""

    @abstractmethod
    def frame(self, kind: int, number: int, payload: bytes) -> None:
        """One frame that a channel held. Raises AMQPHardError."""

    @abstractmethod
    def resume(self) -> None:
        """Go on with what came while it was suspended."""

    @abstractmethod
    def channel_went_on(self) -> None:
        """A channel is not suspended any more."""

    @abstractmethod
    def forget_channel(self, channel: ChannelBase) -> None: ...

    @abstractmethod
    def finish(self, step: Callable[[], object]) -> None:
        """A step of the end: the next ones are taken though this one fails."""

    @abstractmethod
    def give_back_routes(self) -> None:
        """They are void, or nobody needs them."""

    @abstractmethod
    def give_back_old_routes(self) -> None:
        """Those of an earlier version of the topology."""

    # The handshake's results

    @abstractmethod
    def handshaking(self) -> None:
        """The protocol header was right."""

    @abstractmethod
    def opened(self) -> None:
        """connection.open was accepted."""

    # The end

    @property
    @abstractmethod
    def ended(self) -> bool:
        """connection.close was sent, or the socket is gone: nothing more is told."""

    @abstractmethod
    def close_with(self, code: int, text: str, method_id: bytes = b"\x00\x00\x00\x00") -> None: ...

    @abstractmethod
    def end_broken(self) -> None:
        """The end of the tick, after `contain_later`."""

    @abstractmethod
    def removed(self, kind: str, name: str) -> None:
        """A virtual host or a user was deleted."""

    @abstractmethod
    def force_close(self, explanation: str) -> None:
        """The operator, or a shutdown, ends it: 320 CONNECTION_FORCED."""

    @abstractmethod
    def lost(self) -> None:
        """The socket is gone, or is to go now."""

    @abstractmethod
    def abort(self) -> None:
        """The client is not there any more: the socket is reset, and what is left for it thrown away."""


class ChannelBase(ConfirmingChannel):
    """A channel, as its parts and its connection know it."""

    connection: ConnectionBase
    shared: SessionNode
    id: int
    closing: bool
    """channel.close was sent; everything except its answer is thrown away"""
    released: bool
    """what it has of others' is being given back, or was: its consumers get nothing more"""
    suspended: bool
    plain: bool
    """the kernel's fast path may be used: not closing, not suspended, no content begun"""
    held: deque[tuple[int, bytes]] | None
    """(kind, payload) of frames that wait until it goes on; None for none yet"""
    held_bytes: int
    tx: HeldBack | None
    published: int
    """messages that it has published"""
    consumers: dict[str, Subscription]
    joining: Subscription | None
    """it has asked its queue to be a consumer, and there is no answer yet: it is not in `consumers`"""
    traced: bool
    """its publishes and deliveries are copied, see `publishing/firehose.py`"""
    watched: bool
    """somebody is to know of its deliveries: it is `traced`, or the node has a tracer"""
    deliveries: Deliveries | None
    """those that the tracer is to be told the end of; None for none yet"""
    next_tag: int
    unacked: Unacked
    ledger_bytes: int
    """what was charged for `unacked`"""
    consumed: int
    """unacked deliveries to consumers: what prefetch_shared limits; basic.get is not limited"""
    prefetch: int
    """of consumers to come"""
    prefetch_shared: int
    """of all consumers of the channel together"""
    shared_queue: CreditQueue
    """consumers that wait for what prefetch_shared leaves"""

    @abstractmethod
    def frame(self, kind: int, payload: bytes) -> None:
        """One frame of this channel. Soft errors end here; hard ones are the connection's."""

    @abstractmethod
    def publish(self, run: Run) -> None:
        """A run from the kernel. Only while `plain`."""

    @property
    @abstractmethod
    def takes_batches(self) -> bool:
        """Publishes may come by `publish_batch`: nothing looks at each of them."""

    @abstractmethod
    def publish_batch(self, batch: Mixed) -> bool:
        """Publishes that differ. Only while `plain`. False: nothing was done, and each has to come by `publish`."""

    @abstractmethod
    def ack(self, first: int, last: int, multiple: bool) -> None:
        """A range of basic.ack from the kernel. Only while `plain`."""

    @abstractmethod
    def send(self, method: base.Frame) -> None: ...

    @abstractmethod
    def notify(self, method: base.Frame) -> None:
        """Tell what was not asked for: not before the answer that the client waits for."""

    @abstractmethod
    def go_on(self) -> None:
        """Take the frames that were held."""

    @abstractmethod
    def fail(self, error: AMQPSoftError, method_id: bytes) -> None:
        """Close the channel for the error (section 1.5.2.5), unless it is being closed."""

    @abstractmethod
    def end_unfinished(self) -> None:
        """The channel is about to go: what is charged to it counts no more."""

    @abstractmethod
    def remove_consumer(self, consumer: Subscription, answer: Callable[[None], object] = unheard) -> None:
        """Its client cancelled it, or the channel goes; see `QueuePort.cancel`."""

    @abstractmethod
    def remove_reply_consumer(self) -> None: ...

    @abstractmethod
    def on_timer(self, now: float) -> None:
        """About once a second."""
