"""The edge's end of a source that another node leads: for one incarnation of this node at that source.

What comes in: what this node's channels ask of the queues there; the leader's messages, each with the session that it
came in; that the link is lost. What goes out: messages of the session (`take`); deliveries to subscribers; refusals
to receipts; a lane.
Rules (by their numbers in docs/decisions/remote-protocol.md): 1. Nothing of an older session is read from the moment
that a new one attaches, and no epoch is taken but the one that its owner knows (1). 2. Operations wait for Attached;
then what follows the leader's mark is sent, in order, before anything new (5). 3. What waits for the lane is told its
refusals before the lane reports (6). 4. What a client holds, and what an undecided operation speaks of, is claimed in
each session (16). 5. After Unknown everything of this incarnation has ended: its owner makes another one (9).
Not here: links, when to attach again (its owner: at once after `detached`, and again after a while without an
answer), what a client's prefetch leaves (`limit` is told).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from pamqp.exceptions import AMQPSoftError

from amqpd.journal.operation_marks import Outcome, Purged, Refused
from amqpd.kernel import Run
from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import DeclareCounts, Got
from amqpd.queues.receipt import Receipt
from amqpd.remote.contradictions import in_attached, in_decided, in_deliver, in_lowered
from amqpd.remote.formats import CLAIMS_MAX
from amqpd.remote.held import NO_RANGE
from amqpd.remote.messages import (
    Attach,
    Attached,
    Cancel,
    Counted,
    CountMessages,
    Credit,
    Decided,
    Deliver,
    DeliveredCounts,
    DeliveryClaim,
    Empty,
    FromEdge,
    FromLeader,
    Lower,
    Lowered,
    Purge,
    Received,
    ReceivedCount,
    Release,
    SessionEnded,
    Settling,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    SubscriptionState,
    Unknown,
)
from amqpd.remote.operations import UNDECIDED_BYTES_MAX, EdgeLane, Undecided, UndecidedOperations
from amqpd.remote.subscription import (
    NUMBER_BITS,
    NUMBER_MASK,
    Answer,
    CountAnswer,
    EdgeGetter,
    EdgeSubscription,
    place,
)


class EdgeState(Enum):
    """Where the edge stands with its leader."""

    DETACHED = auto()
    ATTACHING = auto()
    ATTACHED = auto()
    ENDED = auto()
    """its incarnation has: nothing of it is left"""


class Edge:
    """One incarnation of this node at one source that another node leads."""

    def __init__(self, forwarder: str, incarnation: int, bytes_max: int = UNDECIDED_BYTES_MAX) -> None:
        """`bytes_max`: of undecided operations, see `UndecidedOperations`."""
        self.forwarder, self.incarnation = forwarder, incarnation
        self.state = EdgeState.DETACHED
        self.session = self.epoch = 0
        self.lane = EdgeLane()
        self.differences = 0
        """how often both ledgers differed (rule 27), or the leader said what cannot be true"""
        self.difference = ""
        """the last one, for the log"""
        self.claims_refused = 0
        """deliveries that a client held and the leader gave to others, or lost"""
        self.resent = 0
        """operations that were sent again, in a later session"""
        self._operations = UndecidedOperations(self.lane, bytes_max)
        self._subscriptions: dict[int, EdgeSubscription] = {}
        self._newest_subscription = self._newest_question = 0
        self._questions: dict[int, tuple[CountMessages, CountAnswer]] = {}
        # What the session has not said yet.
        self._attach: Attach | None = None
        self._epoch_led: int | None = None
        self._unanswered: list[int] = []
        """subscriptions of the Attach whose clients wait: who subscribes behind it has an answer of its own"""
        self._new: dict[int, EdgeSubscription] = {}
        self._credited: dict[int, EdgeSubscription] = {}
        self._lowered: list[Lower] = []
        self._sent = 0
        self._unasked: list[CountMessages] = []
        self._touched: dict[int, None] = {}
        """subscriptions of which something changed since the last audit"""
        self._audit = False

    # What channels ask

    @property
    def operation_count(self) -> int:
        """The number of the newest operation."""
        return self._operations.last

    @property
    def operations(self) -> UndecidedOperations:
        """Those that are not decided; to look at."""
        return self._operations

    @property
    def subscription_count(self) -> int:
        """Of consumers, and of gets that are not over."""
        return len(self._subscriptions)

    def publish(self, queue: int, run: Run, receipt: Receipt | None = None, *, is_transient: bool = False) -> int:
        """The number that the lane reports when the run is decided. Several queues that are given the same run, one
        after the other, are one operation (rule 7). `is_transient`: it is lost with the leader's process."""
        assert self.state is not EdgeState.ENDED
        return self._operations.publish(queue, run, receipt, is_transient)

    def give_up_publishes(self) -> None:
        """Clients have waited too long: undecided publishes are refused to them (rule 9)."""
        self._operations.give_up_publishes()

    def give_up(self, why: AMQPSoftError) -> None:
        """The same, and what waits has this answer; consumers are cancelled, what is held or settled is kept."""
        self.give_up_publishes()
        self._operations.refuse_answers(why)
        questions, self._questions, self._unasked = self._questions, {}, []
        for _, answered in questions.values():
            answered(why)
        for subscription in list(self._subscriptions.values()):
            was_refused = subscription.refuse(why)
            if not was_refused:
                subscription.tell_cancelled()
            if subscription.subscriber is not None:
                self.cancel(subscription.number)
            elif was_refused:
                self.release(subscription.number)

    def settle(self, first: int, last: int) -> None:
        """Acknowledged: places first..last, of one subscription."""
        self._settle(Settling.ACK, first, last)

    def reject(self, first: int, last: int) -> None:
        self._settle(Settling.REJECT, first, last)

    def requeue(self, first: int, last: int) -> None:
        self._settle(Settling.REQUEUE, first, last)

    def _settle(self, kind: Settling, first: int, last: int) -> None:
        number = first >> NUMBER_BITS
        subscription = self._subscriptions.get(number)
        if subscription is None:
            return  # it has ended: swallowed (rule 28)
        # What is not held any more was claimed in vain, and is swallowed too (rule 17).
        taken = subscription.held.take(first & NUMBER_MASK, last & NUMBER_MASK)
        if not taken:
            return
        self._touched[number] = None
        subscription.spoken += self._operations.settle(kind, number, taken)

    def subscribe(
        self,
        queue: int,
        subscriber: Subscriber,
        messages: int,
        nbytes: int,
        answer: Answer | None = None,
    ) -> int:
        """A consumer's subscription: its number. `messages`, `nbytes`: the first limits. `answer`: None, and it gets
        messages from then on; or why not."""
        state = self._next(queue, messages, nbytes, subscriber.exclusive, subscriber.priority)
        subscription = self._subscriptions[state.subscription] = EdgeSubscription(state, subscriber, None)
        subscription.answer = answer
        self._new[state.subscription] = subscription
        return state.subscription

    def get(self, queue: int, answer: EdgeGetter) -> int:
        """basic.get: its subscription (rule 14)."""
        state = self._next(queue, 1, 1 << 62, False, 0, get=True)
        self._new[state.subscription] = self._subscriptions[state.subscription] = EdgeSubscription(
            state, None, answer
        )
        return state.subscription

    def _next(
        self, queue: int, messages: int, nbytes: int, exclusive: bool, priority: int, get: bool = False
    ) -> SubscriptionState:
        self._newest_subscription += 1
        return SubscriptionState(
            self._newest_subscription,
            queue,
            messages,
            nbytes,
            exclusive=exclusive,
            priority=priority,
            get=get,
            after=self._operations.last,
        )

    def subscriber_at(self, at: int) -> Subscriber | None:
        """Whose delivery has this place, while there is such a subscription."""
        found = self._subscriptions.get(at >> NUMBER_BITS)
        return None if found is None else found.subscriber

    def limit(self, number: int, messages: int, nbytes: int) -> None:
        """What the client leaves of the subscription now, as absolute limits (rule 10)."""
        subscription = self._subscriptions.get(number)
        if subscription is None or subscription.cancelled:
            return
        lower = subscription.want(messages, nbytes)
        if subscription.asked or number in self._new:
            return  # its answer, or its first word, has what is wanted then
        if not lower:
            if subscription.raise_limits():
                self._credited[number] = subscription
        elif self.state in (EdgeState.ATTACHING, EdgeState.ATTACHED):
            self._newest_question += 1
            subscription.asked, subscription.lowering = self._newest_question, (messages, nbytes)
            self._lowered.append(Lower(number, subscription.asked, messages, nbytes))

    def limits(self, number: int) -> tuple[int, int]:
        """Up to how many messages the leader may deliver to the subscription by now, or in a next session, and how
        many were received: the difference is not to be given to others."""
        subscription = self._subscriptions[number]
        return max(subscription.messages, subscription.wanted[0]), subscription.received

    def cancel(self, number: int, answer: Callable[[object], object] | None = None) -> None:
        """Nothing more for it; `answer` when that is decided (rule 25)."""
        subscription = self._subscriptions.get(number)
        if subscription is None or subscription.cancelled:
            if answer is not None:
                answer(0)
            return
        subscription.cancelled = True
        self._speaks(subscription, Undecided(Cancel(number, subscription.received), answer=answer))

    def release(self, number: int) -> None:
        """Its channel has ended: nothing more for it, and what it holds is ready again (rule 25)."""
        subscription = self._subscriptions.get(number)
        if subscription is None:
            return
        subscription.cancelled, subscription.waits = True, None
        spoken = [(number, each) for each in subscription.held.take_all()]
        self._speaks(subscription, Undecided(Release(number, subscription.received), spoken=spoken))

    def _speaks(self, subscription: EdgeSubscription, operation: Undecided) -> None:
        # In `spoken` also without deliveries: the subscription is there until the operation is decided.
        subscription.spoken += 1
        if not operation.spoken:
            operation.spoken = [(subscription.number, NO_RANGE)]
        self._operations.add(operation)

    def purge(self, queue: int, answer: Callable[[int | AMQPSoftError], object]) -> None:
        """`answer`: how many messages left, when that is decided (rule 24), or why nobody knows."""
        self._operations.add(Undecided(Purge(queue), answer=answer))

    def count(self, queue: int, answer: CountAnswer) -> None:
        """`answer`: what is ready there; None: there is no such queue (rule 15); or why nobody knows."""
        self._newest_question += 1
        question = CountMessages(self._newest_question, queue, self._operations.last)
        self._questions[question.question] = question, answer
        self._unasked.append(question)

    # The session

    def attach(self, epoch: int | None = None) -> None:
        """A new session begins: over a new link, or after one that was given up. `epoch`: that in which the leader
        leads, as its owner knows it: no answer of another one is taken. After a later one none of an honest leader
        would be; an earlier one has ended."""
        if self.state is EdgeState.ENDED:
            return
        self._epoch_led = epoch
        self.session += 1
        self.state = EdgeState.ATTACHING
        claims: dict[int, list[DeliveryClaim]] = {}
        for number, each in self._operations.above(0):
            for subscription, held in each.spoken:
                if held.size:
                    claim = DeliveryClaim(held.number, held.seq, held.size, number, each.gives_way)
                    claims.setdefault(subscription, []).append(claim)
        subscriptions, left = [], CLAIMS_MAX
        for number, of in self._subscriptions.items():
            spoken = claims.get(number, [])
            if len(of.held) + len(spoken) > left:
                # More than one message names: as if these claims had been refused.
                self.claims_refused += of.held.count
                of.held.take_all()
                spoken = []
            left -= len(of.held) + len(spoken)
            subscriptions.append(of.at_attach(spoken))
        self._attach = Attach(self._operations.decided, tuple(subscriptions))
        self._unanswered = [number for number, of in self._subscriptions.items() if of.answer is not None]
        self._new, self._credited, self._lowered = {}, {}, []
        self._unasked = [question for question, _ in self._questions.values()]
        self._audit = False

    def detached(self) -> None:
        """The link is lost, or the leader: what was on its way is void."""
        if self.state is not EdgeState.ENDED:
            self.state = EdgeState.DETACHED

    def audit(self) -> None:
        """It is time for a heartbeat: tell the leader what is received and held (rule 27)."""
        self._audit = True

    def take(self) -> list[FromEdge]:
        """What the session is to send now, in order."""
        if self.state not in (EdgeState.ATTACHING, EdgeState.ATTACHED):
            return []
        out: list[FromEdge] = []
        if self._attach is not None:
            out.append(self._attach)
            self._attach = None
        for number, each in self._new.items():
            out.append(Subscribe(each.at_attach([])))
            self._credited.pop(number, None)
        out += [Credit(number, each.messages, each.nbytes) for number, each in self._credited.items()]
        out += self._lowered
        self._new, self._credited, self._lowered = {}, {}, []
        if self.state is EdgeState.ATTACHED:
            self._take_operations(out)
            out += self._unasked
            self._unasked = []
            if self._audit:
                self._audit = False
                out.append(self._received())
        return out

    def _take_operations(self, out: list[FromEdge]) -> None:
        out += self._operations.messages(self._sent, self.epoch)
        self._sent = self._operations.last

    def _received(self) -> Received:
        counts = []
        for number in self._touched:
            each = self._subscriptions.get(number)
            if each is not None and not each.cancelled:
                counts.append(ReceivedCount(number, each.received, each.held.count, each.held.sum))
        self._touched = {}
        return Received(tuple(counts))

    def receive(self, session: int, message: FromLeader) -> None:
        """What the leader says in a session."""
        if session != self.session or self.state not in (EdgeState.ATTACHING, EdgeState.ATTACHED):
            return
        if isinstance(message, Attached):
            self._attached(message)
        elif isinstance(message, Unknown):
            self._end(message)
        elif self.state is not EdgeState.ATTACHED:
            self._differs("no answer to Attach")
        elif isinstance(message, Deliver):
            self._deliver(message)
        elif isinstance(message, Decided):
            self._decided(message)
        elif isinstance(message, Lowered):
            self._lower(message)
        elif isinstance(message, Subscribed):
            self._subscribed(message.subscription)
        elif isinstance(message, Empty):
            self._empty(message.subscription)
        elif isinstance(message, SubscriptionEnded):
            self._end_subscription(message)
        elif isinstance(message, Counted):
            self._counted(message)
        elif isinstance(message, DeliveredCounts):
            self._compare(message)
        elif isinstance(message, SessionEnded):
            self.state = EdgeState.DETACHED

    def _attached(self, message: Attached) -> None:
        if self.state is not EdgeState.ATTACHING or not self._is_led_in(message.epoch):
            return
        if self._contradicts(in_attached(message, self._operations)):
            return
        self.resent += max(self._sent - message.mark, 0)
        if message.epoch != self.epoch:
            self._operations.give_up_lost(message.mark)
        self.state, self.epoch, self._sent = EdgeState.ATTACHED, message.epoch, message.mark
        for part in message.refused:
            subscription = self._subscriptions.get(part.subscription)
            if subscription is not None:
                lost = subscription.held.take(part.first, part.last)
                self.claims_refused += sum([each.size for each in lost])
                self._forget(subscription)
        for ended in message.ended:
            self._end_subscription(ended)
        for number in self._unanswered:
            self._subscribed(number)
        for number, subscription in list(self._subscriptions.items()):
            self._touched[number] = None
            if subscription.state.get and subscription.received:
                self._forget(subscription)

    def _is_led_in(self, epoch: int) -> bool:
        return self.epoch <= epoch and self._epoch_led in (None, epoch)

    def _decided(self, message: Decided) -> None:
        if self._contradicts(in_decided(message, self._operations, self._sent)):
            return
        before = self._operations.decided
        outcomes: dict[int, list[Outcome]] = {}
        for each in message.outcomes:
            outcomes.setdefault(each.number, []).append(each)
        for number, operation in self._operations.decide(max(message.number, before)):
            answered = 0
            for outcome in outcomes.get(number, ()):
                if isinstance(outcome, Refused):
                    if operation.receipt is not None:
                        operation.receipt.refuse(outcome.low, outcome.high)
                elif isinstance(outcome, Purged):
                    answered = outcome.messages
            for spoken_of in {subscription: None for subscription, _ in operation.spoken}:
                if (subscription := self._subscriptions.get(spoken_of)) is not None:
                    subscription.spoken -= 1
                    self._forget(subscription)
            if operation.answer is not None:
                operation.answer(answered)
        self.lane.reported = self._operations.decided

    def _deliver(self, message: Deliver) -> None:
        subscription = self._subscriptions.get(message.subscription)
        if subscription is None or subscription.cancelled:
            return  # it crosses a cancel, whose number is before it (rule 25)
        if self._contradicts(in_deliver(message, subscription, subscription.number in self._new)):
            return
        run, low, high = message.run, message.low, message.high
        subscription.received += high - low
        subscription.received_bytes += run.bytes_in(low, high)
        subscription.held.add(message.number, message.seq, high - low)
        self._touched[subscription.number] = None
        at = place(subscription.number, message.number)
        if subscription.waits is not None:
            waits, subscription.waits = subscription.waits, None
            if not waits(Got((run, low, high, at, message.redelivered), message.ready, None)):
                self.release(subscription.number)
        elif subscription.subscriber is not None:
            subscription.subscriber.deliver(run, low, high, at, message.redelivered)
            if subscription.subscriber.no_ack:
                self.settle(at, at + high - low - 1)  # the link decides nothing about it (rule 12)

    def _lower(self, message: Lowered) -> None:
        subscription = self._subscriptions.get(message.subscription)
        if subscription is None or subscription.asked != message.question:
            return
        if self._contradicts(in_lowered(message, subscription)):
            return
        subscription.asked = 0
        subscription.messages, subscription.nbytes = message.messages, message.nbytes
        # What was asked for and is not so was delivered: to ask again would get the same answer, for ever.
        if subscription.wanted != subscription.lowering:
            self.limit(subscription.number, *subscription.wanted)

    def _subscribed(self, number: int) -> None:
        subscription = self._subscriptions.get(number)
        if subscription is not None and subscription.answer is not None:
            answer, subscription.answer = subscription.answer, None
            answer(None)

    def _empty(self, number: int) -> None:
        subscription = self._subscriptions.get(number)
        if subscription is None or subscription.received:
            return
        if not subscription.state.get or number in self._new:
            self._differs(f"subscription {number} has no get that could be empty")
            return
        if not subscription.cancelled:
            del self._subscriptions[number]
        if subscription.waits is not None:
            waits, subscription.waits = subscription.waits, None
            waits(None)

    def _end_subscription(self, ended: SubscriptionEnded) -> None:
        """What clients hold of it is swallowed when they settle it (rule 28)."""
        subscription = self._subscriptions.pop(ended.subscription, None)
        self._new.pop(ended.subscription, None)
        self._credited.pop(ended.subscription, None)
        if subscription is None:
            return
        if subscription.answer is not None:
            answer, subscription.answer = subscription.answer, None
            answer(ended)
        elif subscription.waits is not None:
            subscription.waits(ended)
        else:
            subscription.tell_cancelled()

    def _counted(self, message: Counted) -> None:
        found = self._questions.pop(message.question, None)
        if found is not None:
            found[1](None if message.ready < 0 else DeclareCounts(message.ready, message.consumers))

    def _compare(self, message: DeliveredCounts) -> None:
        for number, delivered in message.counts:
            subscription = self._subscriptions.get(number)
            if subscription is not None and not subscription.cancelled and subscription.received != delivered:
                self._differs(
                    f"{delivered} of subscription {number} were delivered, and {subscription.received} came"
                )
                return

    def _differs(self, why: str) -> None:
        """What both ends know differs: the next Attach repairs it (rule 27)."""
        self.differences += 1
        self.difference = why
        self.state = EdgeState.DETACHED

    def _contradicts(self, why: str) -> bool:
        if why:
            self._differs(why)
        return bool(why)

    def _forget(self, subscription: EdgeSubscription) -> None:
        if subscription.is_done:
            self._subscriptions.pop(subscription.number, None)

    def _end(self, message: Unknown) -> None:
        """This incarnation has ended at the source (rule 9)."""
        if not self._is_led_in(message.epoch):
            return
        self.state = EdgeState.ENDED
        self._operations.give_up_publishes()
        for _, operation in self._operations.decide(self._operations.last):
            if operation.answer is not None:
                operation.answer(0)
        subscriptions, self._subscriptions = self._subscriptions, {}
        for subscription in subscriptions.values():
            if subscription.answer is not None:
                subscription.answer(None)
            if subscription.waits is not None:
                subscription.waits(None)
            else:
                subscription.tell_cancelled()
        questions, self._questions = self._questions, {}
        for _, answer in questions.values():
            answer(None)
        self.lane.reported = self._operations.decided
