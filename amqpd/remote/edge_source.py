"""One source that another node leads, as this node's queues use it: its edge, and the credit of its consumers.

What comes in: what clients ask of queues of the source; the leader's messages; that a connection begins or ends; the
time. What goes out: messages of the session; a lane.
Rules: 1. The edge attaches when there is a connection to the leader, and again when the leader has not answered in
`ATTACH_AGAIN_MS`, or has given the session up. Of another node's local source nobody else can become the leader:
clients that wait for that node are told when they have waited for long. 2. An incarnation that has ended at the
source is followed by the next one, for this source alone (rule 9 of docs/decisions/remote-protocol.md). 3. What a
consumer may get is renewed before each batch of messages is sent (`consumer.py`).
Not here: which sources there are (`edges.py`), what the edge does (`edge.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from pamqp.exceptions import AMQPNotFound, AMQPSoftError

from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import Got
from amqpd.remote.consumer import EdgeConsumer
from amqpd.remote.edge import Edge, EdgeState
from amqpd.remote.links import RemoteSource
from amqpd.remote.messages import FromEdge, FromLeader, SubscriptionEnded
from amqpd.remote.subscription import Answer, EdgeGetter

ATTACH_AGAIN_MS = 1_000
"""without an answer; several times what a session takes to begin, far less than a client waits"""
AGAIN_AFTER_MS = 100
"""after a session has ended: a leader that ends each one is not asked thousands of times a second"""


class EdgeSource:
    """A source that another node leads, while clients of this node use it."""

    def __init__(self, source: RemoteSource, forwarder: str, incarnation: int) -> None:
        self.source = source
        self.edge = Edge(forwarder, incarnation)
        self.leader = ""
        """the node that the session is with; empty: there is no connection to one"""
        self.epoch = 0
        """in which that node leads the source"""
        self.away_since_ms = 0
        """when the last session ended, or the first was wanted, while none is attached"""
        self.gave_up = False
        """clients do not wait for a leader any more"""
        self.reported = 0
        """of the lane, as the node was told last"""
        self._asked_ms = 0
        self._looked_at = 0, 0
        """an operation, the newest one when this was noted, and when that was"""
        self._renewing: dict[EdgeConsumer, None] = {}

    @property
    def is_attached(self) -> bool:
        return self.edge.state is EdgeState.ATTACHED

    # What clients ask

    def consume(
        self, queue: int, consumer: Subscriber, answer: Answer, ended: Callable[[Subscriber], object]
    ) -> EdgeConsumer:
        """A new consumer of the queue with this id. `ended`: is told when its leader has ended the subscription."""
        found = EdgeConsumer(consumer, self._renewing, ended)
        found.number = self.edge.subscribe(queue, found, *found.first_limits(), answer)
        return found

    def cancel(self, consumer: EdgeConsumer, answer: Callable[[None], object]) -> None:
        consumer.is_cancelled = True
        self.edge.cancel(consumer.number, lambda _: answer(None))

    def get(self, queue: int, no_ack: bool, answer: EdgeGetter) -> None:
        edge = self.edge

        def got(found: Got | SubscriptionEnded | AMQPSoftError | None) -> bool:
            taken = answer(found)
            if taken and no_ack and isinstance(found, Got):
                at = found.piece[3]
                edge.settle(at, at)
            return taken

        edge.get(queue, got)

    def credit_given_back(self, first: int) -> None:
        """The consumer of the delivery at this place has settled something."""
        consumer = self.edge.subscriber_at(first)
        if isinstance(consumer, EdgeConsumer):
            self._renewing[consumer] = None

    # The session

    def attach(self, leader: str, epoch: int, now_ms: int) -> None:
        """With this node, which leads in this epoch; empty: there is no connection to a leader."""
        if self.leader and self.is_attached:
            self.away_since_ms = now_ms
        self.leader, self.epoch = leader, epoch
        if leader:
            self._asked_ms = now_ms
            self.edge.attach(epoch)
        else:
            self.edge.detached()

    def undecided_ms(self, now_ms: int) -> int:
        """For at least how long the oldest operation that is not decided has waited; 0: there is none."""
        decided = self.edge.operations.decided
        number, since_ms = self._looked_at
        return now_ms - since_ms if decided < number else 0

    def give_up(self) -> None:
        """No leader was reached for too long: clients are told that. Once, until there is one again."""
        if not self.gave_up:
            self.gave_up = True
            self.edge.give_up(AMQPNotFound(f"home node '{self.source.node}' is down or inaccessible"))

    def beat(self, now_ms: int) -> None:
        """Some time has passed."""
        self.edge.audit()
        if self.edge.operations.decided >= self._looked_at[0]:
            self._looked_at = self.edge.operation_count, now_ms
        waited_ms = now_ms - self._asked_ms
        state = self.edge.state
        if self.leader and (
            (state is EdgeState.ATTACHING and waited_ms >= ATTACH_AGAIN_MS)
            or (state is EdgeState.DETACHED and waited_ms >= AGAIN_AFTER_MS)
        ):
            self.attach(self.leader, self.epoch, now_ms)

    def receive(self, session: int, message: FromLeader, now_ms: int) -> None:
        """What its leader says."""
        edge, was_attached = self.edge, self.is_attached
        edge.receive(session, message)
        if was_attached and not self.is_attached:
            self.away_since_ms = now_ms
        elif self.is_attached:
            self.gave_up = False
        if edge.state is EdgeState.DETACHED and now_ms - self._asked_ms >= AGAIN_AFTER_MS and self.leader:
            self.attach(self.leader, self.epoch, now_ms)

    def begin_again(self, now_ms: int) -> None:
        """The edge's incarnation has ended at the source: the next one begins."""
        before = self.edge
        self.edge, self.reported = Edge(before.forwarder, before.incarnation + 1), 0
        self.edge.epoch = before.epoch
        self.edge.differences, self.edge.resent = before.differences, before.resent
        self.edge.claims_refused = before.claims_refused
        self._renewing = {}
        self._looked_at = 0, now_ms
        self.attach(self.leader, self.epoch, now_ms)

    def take(self) -> list[FromEdge]:
        """What the session is to send now."""
        renewing = list(self._renewing)
        self._renewing.clear()
        for consumer in renewing:
            consumer.renew(self.edge)
        return self.edge.take()
