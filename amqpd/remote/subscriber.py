"""A subscription at its leader: the queue sees a consumer, and does not know that its client is at another node.

What comes in: credit; deliveries of the queue. What goes out: numbered deliveries into the session.
Rules: 1. Numbers go on from what the edge has received: what was lost on the way is numbered again (rule 16 of
docs/decisions/remote-protocol.md). 2. It has credit up to two absolute limits, while its session is attached. Bytes
are compared before a delivery, so one message always fits (rule 10); what the queue gives at once may go beyond by
the last piece. 3. The leader never settles by itself, also where the client does not acknowledge (rule 12).
Not here: what settles and claims (`leader.py`, `claims.py`), what the queue does (`amqpd.queues`).
"""

from __future__ import annotations

from collections.abc import Callable

from pamqp.exceptions import AMQPSoftError

from amqpd.audit.book import Book
from amqpd.kernel import Run
from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import Got
from amqpd.remote.endings import ended_by
from amqpd.remote.held import Held, Range
from amqpd.remote.messages import Deliver, Empty, FromLeader, SubscriptionState
from amqpd.remote.source import LedQueue

BATCH_BYTES_MAX = 4 << 20
"""Of bodies for one session before they are sent: what the connection then has waiting decides about more."""

Send = Callable[[FromLeader], None]
"""puts a message into the session, as long as one is attached"""


class SessionFlow:
    """How much more a session may be sent: all of its subscriptions wait while that is nothing."""

    __slots__ = ("held_up", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        """of bodies, since the last messages were sent"""
        self.held_up = False
        """the connection has no capacity for it"""

    @property
    def is_closed(self) -> bool:
        return self.held_up or self.nbytes > BATCH_BYTES_MAX


class RemoteSubscriber(Subscriber):
    """One subscription of an edge, as the queue at its leader knows it."""

    __slots__ = (
        "after",
        "asks",
        "attached",
        "body_bytes_max",
        "cancelled_by_client",
        "consuming",
        "delivered",
        "delivered_bytes",
        "flow",
        "gives_way",
        "held",
        "is_get",
        "messages",
        "nbytes",
        "number",
        "out_of_service",
        "queue",
        "queue_id",
        "send",
        "touched",
        "waits",
    )

    def __init__(
        self,
        number: int,
        queue_id: int,
        queue: LedQueue,
        is_get: bool,
        send: Send,
        flow: SessionFlow,
        out_of_service: Callable[[RemoteSubscriber], object],
    ) -> None:
        """`out_of_service`: is told when its queue is, and has no consumers any more."""
        self.number = number
        self.queue_id = queue_id
        self.queue = queue
        self.send = send
        self.flow = flow
        self.out_of_service = out_of_service
        self.is_get = is_get
        self.no_ack = self.exclusive = self.parked = False
        self.priority = self.unacked = 0
        self.attached = self.consuming = self.cancelled_by_client = self.touched = False
        self.asks = False
        """a get that has no answer yet"""
        self.waits = False
        """its queue was asked, and has not answered"""
        self.after = 0
        """the operation in front of that"""
        self.messages = self.nbytes = 0
        self.delivered = self.delivered_bytes = 0
        self.body_bytes_max = 0
        """of what it was given so far; until there is any, one message at a time"""
        self.held = Held()
        self.gives_way = Held()
        """what it holds by claims of undecided requeues and releases"""

    def apply(self, state: SubscriptionState) -> None:
        """What an edge says of it, whole."""
        self.attached = True
        self.messages, self.nbytes = state.messages, state.nbytes
        self.delivered, self.delivered_bytes = state.received, state.received_bytes
        self.exclusive, self.priority = state.exclusive, state.priority
        self.cancelled_by_client = self.cancelled_by_client or state.cancelled
        self.asks = state.get and not state.received and not self.cancelled_by_client
        self.after = state.after

    @property
    def is_done(self) -> bool:
        """It gets nothing more and holds nothing: both ends forget it."""
        over = self.cancelled_by_client or (self.is_get and not self.asks)
        return over and not self.held and not self.gives_way

    def take(self, first: int, last: int) -> list[Range]:
        """Take these deliveries out of what it holds, by number."""
        taken = self.held.take(first, last)
        if self.gives_way:
            taken += self.gives_way.take(first, last)
        return taken

    def take_all(self) -> list[Range]:
        return [*self.held.take_all(), *self.gives_way.take_all()]

    # The queue's side

    def credit(self) -> int:
        if not self.attached or self.flow.is_closed:
            return 0
        messages, nbytes = self.messages - self.delivered, self.nbytes - self.delivered_bytes
        if messages <= 0 or nbytes <= 0:
            return 0
        return min(messages, 1 + (nbytes - 1) // self.body_bytes_max) if self.body_bytes_max else 1

    def wait_for_credit(self) -> None:
        pass  # the next word of its edge finds it

    def deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool) -> None:
        self._deliver(run, low, high, seq, redelivered, 0)

    def _deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool, ready: int) -> None:
        number, nbytes = self.delivered + 1, run.bytes_in(low, high)
        self.delivered += high - low
        self.delivered_bytes += nbytes
        self.flow.nbytes += nbytes
        self.body_bytes_max = max(self.body_bytes_max, run.body_size_max)
        self.held.add(number, seq, high - low)
        self.touched = True
        self.send(Deliver(self.number, number, seq, run, low, high, redelivered, ready))

    def pass_on(self, runs: list[Run], seq: int) -> int:
        for run in runs:
            self.deliver(run, 0, run.count, seq, False)
            seq += run.count
        return len(runs)

    def record(self, book: Book, first: int, count: int, redelivered: bool, body_bytes: int) -> None:
        pass  # the edge knows whose client it is

    def cancelled(self) -> None:
        self.consuming = False
        self.out_of_service(self)  # of one that is deleted, `Leader.queue_gone` has told the edge

    def got(self, got: Got | AMQPSoftError | None) -> bool:
        """The answer of the queue to a get; whether it is still wanted."""
        if not self.asks or not self.attached:
            return False
        self.asks = False
        if isinstance(got, Got):
            run, low, high, seq, redelivered = got.piece
            self._deliver(run, low, high, seq, redelivered, got.ready)
        elif got is None:
            self.send(Empty(self.number))
        else:
            self.send(ended_by(self.number, got))
        return True
