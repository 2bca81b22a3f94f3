"""One subscription at the edge: what its client may get, has got, and holds.

What comes in: limits that its client's prefetch and outbox leave; deliveries. What goes out: its state, whole, for
each new session; changes of it.
Rules: 1. Credit is two absolute limits, of messages and of bytes ever received (rule 10 of
docs/decisions/remote-protocol.md). Raising is a message; lowering is a question, and until its answer the old limit
counts as used and nothing is raised. A new session ends the question. 2. Deliveries are numbered as they are
received: what was lost on the way is not counted. 3. A *place* is how the node's channels name a delivery, as they
name the position in a queue that is led here: subscription and number in one integer.
Not here: operations that speak of deliveries (`operations.py`), what a client's prefetch is (`session/consumers.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from pamqp.exceptions import AMQPSoftError

from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import DeclareCounts, Got
from amqpd.remote.held import Held
from amqpd.remote.messages import DeliveryClaim, SubscriptionEnded, SubscriptionState

# Of a place, for the number: a million deliveries a second for twelve days, and 23 bits for subscriptions.
NUMBER_BITS = 40
NUMBER_MASK = (1 << NUMBER_BITS) - 1

Answer = Callable[[SubscriptionEnded | AMQPSoftError | None], object]
CountAnswer = Callable[[DeclareCounts | AMQPSoftError | None], object]
EdgeGetter = Callable[[Got | SubscriptionEnded | AMQPSoftError | None], bool]
"""as `Getter`; its leader says why there is no answer to a get"""


def place(subscription: int, number: int) -> int:
    """The position of a delivery, as the node's channels know it."""
    return subscription << NUMBER_BITS | number


class EdgeSubscription:
    """A subscription as its edge has it: of a consumer, or of one basic.get."""

    __slots__ = (
        "answer",
        "asked",
        "cancelled",
        "held",
        "lowering",
        "messages",
        "nbytes",
        "number",
        "received",
        "received_bytes",
        "spoken",
        "state",
        "subscriber",
        "waits",
        "wanted",
    )

    def __init__(self, state: SubscriptionState, subscriber: Subscriber | None, waits: EdgeGetter | None) -> None:
        """`state`: as it begins; of it the queue and its flags stay."""
        self.state = state
        self.number = state.subscription
        self.subscriber = subscriber
        self.waits = waits
        """of a get that has no answer yet"""
        self.answer: Answer | None = None
        """of basic.consume, until it is answered"""
        self.messages, self.nbytes = state.messages, state.nbytes
        """the limits that the leader may use"""
        self.wanted = self.messages, self.nbytes
        """the limits that the client leaves"""
        self.asked = 0
        """the question by which they are lowered; 0: none is open"""
        self.lowering = 0, 0
        """the limits that it asks for: as one of them goes down, the other may go up"""
        self.received = self.received_bytes = 0
        self.held = Held()
        """what clients have of it and no operation speaks of"""
        self.spoken = 0
        """how many undecided operations speak of it"""
        self.cancelled = False

    @property
    def is_done(self) -> bool:
        """It gets nothing more, and nothing of it is left: both ends forget it (rules 14, 25)."""
        over = self.cancelled or (self.state.get and self.received > 0)
        return over and not self.held and not self.spoken

    def refuse(self, why: AMQPSoftError) -> bool:
        """Whether its client waited for an answer, and has this one."""
        answer, self.answer = self.answer, None
        waits, self.waits = self.waits, None
        if answer is not None:
            answer(why)
        if waits is not None:
            waits(why)
        return answer is not None or waits is not None

    def tell_cancelled(self) -> None:
        """Its client gets nothing more, and has not asked for that."""
        if self.subscriber is not None and not self.cancelled:
            self.subscriber.cancelled()

    @property
    def allowed(self) -> int:
        """How many messages the leader may ever deliver, for all that it can have been told in this session."""
        return max(self.messages, self.lowering[0]) if self.asked else self.messages

    def at_attach(self, claims: list[DeliveryClaim]) -> SubscriptionState:
        """Its state for a new session: the limits are those that the client leaves, and no question is open."""
        self.asked = 0
        self.messages, self.nbytes = max(self.wanted[0], self.received), self.wanted[1]
        state = self.state
        held = [DeliveryClaim(each.number, each.seq, each.size, 0, False) for each in self.held]
        return SubscriptionState(
            self.number,
            state.queue,
            self.messages,
            self.nbytes,
            self.received,
            self.received_bytes,
            state.exclusive,
            state.priority,
            self.cancelled,
            state.get,
            state.after,
            (*held, *claims),
        )

    def want(self, messages: int, nbytes: int) -> bool:
        """The client leaves these limits. Whether the leader has to be asked, for some limit goes down."""
        self.wanted = messages, nbytes
        return messages < self.messages or nbytes < self.nbytes

    def raise_limits(self) -> bool:
        """To what is wanted, if that is more and no question is open: whether it was."""
        messages, nbytes = max(self.messages, self.wanted[0]), max(self.nbytes, self.wanted[1])
        if self.asked or (messages, nbytes) == (self.messages, self.nbytes):
            return False
        self.messages, self.nbytes = messages, nbytes
        return True
