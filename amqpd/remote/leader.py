"""The leader's end of one source for all edges: what clients of other nodes do with its queues.

What comes in: messages of sessions; links that are lost; how far the log is committed; which forwarders live; the
time. What goes out: messages of sessions (`take`); calls of queues; records for the log.
Rules (by their numbers in docs/decisions/remote-protocol.md): 1. Of each incarnation the operation mark + 1 is taken,
and no other (1). Its effects and the mark gather in one entry of the log (2). 2. A new leader takes publishes at
once, and delivers when its first entry is committed and every living forwarder has attached, at most after the claim
wait (19); until then it purges and counts nothing (29). 3. What an incarnation holds without a session is kept for
one lease, then it is ready again (18); an incarnation that has ended never comes back (8). 4. A queue is dispatched
by who owns it, and only while `delivers`. 5. Nothing is answered without the leader lease (1). 6. A purge may take
several entries of the log; what is behind it in its session waits for the last one (24).
Not here: claims (`claims.py`), the ledger of one incarnation (`incarnation.py`), what is passed to the next leader
(`handing.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from pamqp.exceptions import AMQPSoftError

from amqpd.journal.operation_marks import (
    FORWARDERS_MAX,
    ForwarderGone,
    IncarnationEnded,
    Marks,
    Member,
    Outcome,
    Purged,
    Refused,
)
from amqpd.queues.port import Got
from amqpd.remote.claims import attach_subscriptions, give_back, join, leave
from amqpd.remote.contradictions import from_edge, in_attach
from amqpd.remote.endings import ended_by
from amqpd.remote.held import Range
from amqpd.remote.incarnation import LeaderOutbox, RemoteIncarnation
from amqpd.remote.messages import (
    Attach,
    Attached,
    Cancel,
    Counted,
    CountMessages,
    Credit,
    DeliveredCounts,
    EndReason,
    FromEdge,
    FromLeader,
    Lower,
    Lowered,
    Operation,
    Operations,
    Publish,
    Purge,
    Received,
    Release,
    Sender,
    SessionEnded,
    Settle,
    Settling,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    SubscriptionState,
    Unknown,
)
from amqpd.remote.source import LedQueue, SourceLog
from amqpd.remote.subscriber import RemoteSubscriber

# How long a new leader waits for the claims of forwarders that live, and for how long a leader keeps what an edge
# holds without a session: a membership lease.
CLAIM_WAIT_MS = 500.0
LEASE_MS = 10_000.0
ALL_MESSAGES = (1 << 63) - 1


class Leader:
    """The leader of one source in one epoch, as edges know it."""

    def __init__(
        self,
        epoch: int,
        log: SourceLog,
        marks: Marks,
        queues: Mapping[int, LedQueue],
        members: Iterable[str],
        now_ms: float,
        claim_wait_ms: float = CLAIM_WAIT_MS,
        lease_ms: float = LEASE_MS,
        first: int | None = None,
    ) -> None:
        """`marks`, `queues`: as the log has them; the queues are the caller's, who takes those out that are deleted.
        `first`: the position of the epoch's first entry; None: it gathers. `members`: the forwarders whose
        memberships live."""
        self.epoch, self.log, self.queues = epoch, log, queues
        self.members = frozenset(members)
        self.ended = dict(marks.ended)
        self.incarnations: dict[Member, RemoteIncarnation] = {}
        self.waits_for = set(self.members)
        """forwarders that may have claims"""
        self.wait_ends_ms = now_ms + claim_wait_ms
        self.holds_lease = True
        self.differences = 0
        """how often both ledgers differed (rule 27), or an edge said what cannot be true"""
        self.claims_refused = 0
        self._first = log.position if first is None else first
        self.committed_position = 0
        """of the log; what is decided rests on it"""
        self._lease_ms = lease_ms
        self._delivers = False
        self.out = LeaderOutbox()
        """what sessions are to be sent, in order"""
        self._now_ms = now_ms
        for member, mark in marks.marks.items():
            incarnation = self.incarnations[member] = RemoteIncarnation(member, self.out, now_ms)
            incarnation.begin(mark.mark, mark.outcomes, self._first)
            incarnation.committed(self.committed_position)

    @property
    def delivers(self) -> bool:
        """Its queues are dispatched."""
        return self._delivers and self.holds_lease

    def take(self) -> list[tuple[Sender, FromLeader]]:
        """What sessions are to be sent, in order."""
        return self.out.take()

    def sessions_of(self, forwarder: str) -> list[Sender]:
        """Those of its incarnations that are attached."""
        of = self.incarnations.values()
        return [each.sender for each in of if each.attached and each.member[0] == forwarder]

    def subscribers(self) -> Iterator[RemoteSubscriber]:
        for incarnation in self.incarnations.values():
            yield from incarnation.subscribers.values()

    # Time, members, the log

    def tick(self, now_ms: float) -> None:
        """The time."""
        self._now_ms = now_ms
        if now_ms >= self.wait_ends_ms:
            self.waits_for.clear()
        self._may_deliver()
        for incarnation in self.incarnations.values():
            if (
                not incarnation.attached
                and incarnation.subscribers
                and now_ms >= incarnation.detached_ms + self._lease_ms
            ):
                self._requeue_all(incarnation)

    def membership(self, members: Iterable[str]) -> None:
        """The memberships of these forwarders live now."""
        self.members = frozenset(members)
        self.waits_for &= self.members
        self._may_deliver()
        self._end_absent()

    def has_nothing(self, forwarder: str) -> None:
        """It says so: no claims of it are to be waited for (rule 19)."""
        self.waits_for.discard(forwarder)
        self._may_deliver()

    def committed(self, position: int) -> None:
        """The log is, up to there."""
        assert position > self.committed_position
        self.committed_position = position
        for incarnation in self.incarnations.values():
            incarnation.committed(position)
        self._may_deliver()

    def lease(self, holds: bool, now_ms: float) -> None:
        """Whether the leader lease is held. Without it nothing is answered or delivered, and sessions end."""
        self._now_ms = now_ms
        self.holds_lease = holds
        for incarnation in self.incarnations.values():
            if not holds and incarnation.attached:
                self._end_session(incarnation, "the leader lease has run out")

    def _may_deliver(self) -> None:
        if self._delivers or self.waits_for or self.committed_position < self._first:
            return
        self._delivers = True
        self._end_absent()
        for incarnation in list(self.incarnations.values()):
            self._work(incarnation)
            self._answer(incarnation)

    def _end_absent(self) -> None:
        """Incarnations of forwarders whose membership has ended, and which are not attached, have ended (rule 8)."""
        if self._delivers:
            for member, incarnation in list(self.incarnations.items()):
                if not incarnation.attached and member[0] not in self.members:
                    self._end(incarnation)

    def _end(self, incarnation: RemoteIncarnation) -> None:
        self._requeue_all(incarnation)
        forwarder, number = incarnation.member
        self.ended[forwarder] = max(number, self.ended.get(forwarder, 0))
        del self.incarnations[incarnation.member]
        self.log.note(IncarnationEnded(forwarder, number))

    def forget(self, forwarders: Iterable[str]) -> None:
        """These are decommissioned, and nobody links to them: nothing is kept of one that has no session any more. If
        it comes back, or another node gets its name, its incarnations may begin at any number (rule 8)."""
        if not self.delivers:
            return
        for name in forwarders:
            of = [each for each in self.incarnations.values() if each.member[0] == name]
            if (name not in self.ended and not of) or any(each.attached for each in of):
                continue
            for incarnation in of:
                self._requeue_all(incarnation)
                del self.incarnations[incarnation.member]
            self.ended.pop(name, None)
            self.log.note(ForwarderGone(name))

    def _requeue_all(self, incarnation: RemoteIncarnation) -> None:
        for subscriber in incarnation.subscribers.values():
            leave(subscriber)
            for each in subscriber.take_all():
                subscriber.queue.requeue(each.seq, each.last_seq)
        incarnation.subscribers = {}

    def queue_gone(self, queue_id: int) -> None:
        """The queue is deleted, and in `queues` no more: its subscriptions end (rule 28)."""
        for incarnation in self.incarnations.values():
            for subscriber in list(incarnation.subscribers.values()):
                if subscriber.queue_id == queue_id:
                    incarnation.end(subscriber, EndReason.QUEUE_GONE)
            self._answer(incarnation)

    def audit(self) -> None:
        """It is time for a heartbeat: tell each edge what was delivered to it (rule 27)."""
        for incarnation in self.incarnations.values():
            changed = [each for each in incarnation.subscribers.values() if each.touched]
            if incarnation.attached and changed:
                incarnation.send(DeliveredCounts(tuple([(each.number, each.delivered) for each in changed])))
                for each in changed:
                    each.touched = False

    # Sessions

    def lost(self, sender: Sender, now_ms: float) -> None:
        """The link of this session is."""
        incarnation = self.incarnations.get((sender.forwarder, sender.incarnation))
        if incarnation is not None and incarnation.session == sender.session and incarnation.attached:
            self._now_ms = now_ms
            incarnation.detach(now_ms)
            self._end_absent()

    def receive(self, sender: Sender, message: FromEdge, now_ms: float) -> None:
        """What an edge says in a session."""
        self._now_ms = now_ms
        if not self.holds_lease:
            return
        if isinstance(message, Attach):
            self._attach(sender, message)
            return
        incarnation = self.incarnations.get((sender.forwarder, sender.incarnation))
        if incarnation is None or incarnation.session != sender.session or not incarnation.attached:
            return
        if not incarnation.take_in(message):
            self._contradicted(incarnation, "more waits than a leader keeps")
        elif len(incarnation.inbox) == 1:
            self._work(incarnation)

    def _attach(self, sender: Sender, attach: Attach) -> None:
        forwarder, number, session = sender
        if number <= self.ended.get(forwarder, 0):
            self.out.add(sender, Unknown(self.epoch))
            return
        incarnation = self.incarnations.get((forwarder, number))
        if incarnation is None:
            others = [each for each in self.incarnations.values() if each.member[0] == forwarder]
            if any(each.member[1] > number for each in others):
                self.out.add(sender, Unknown(self.epoch))
                return  # it comes late: one that followed it has attached
            if not others and forwarder not in self.ended and self._forwarder_count >= FORWARDERS_MAX:
                self.out.add(sender, SessionEnded(f"{FORWARDERS_MAX} nodes have used this source"))
                return  # no copy would take its mark
            for older in others:
                self._end(older)
            incarnation = self.incarnations[forwarder, number] = RemoteIncarnation(
                (forwarder, number), self.out, self._now_ms
            )
        elif session <= incarnation.session:
            return  # it comes late
        elif why := in_attach(incarnation, attach):
            self.differences += 1
            self.out.add(sender, SessionEnded(why))
            return
        incarnation.attach(session, attach.decided)
        refused, ended = attach_subscriptions(
            incarnation, attach.subscriptions, self.queues, list(self.subscribers())
        )
        self.claims_refused += sum([part.last - part.first + 1 for part in refused])
        incarnation.send(Attached(self.epoch, incarnation.mark, tuple(refused), tuple(ended)))
        incarnation.tell()
        self.waits_for.discard(forwarder)
        self._may_deliver()
        self._answer(incarnation)

    @property
    def _forwarder_count(self) -> int:
        """Of which the log has a mark, or that an incarnation has ended."""
        return len(self.ended.keys() | {forwarder for forwarder, _ in self.incarnations})

    def give_up(self, sender: Sender, reason: str) -> None:
        """The session ends, if it is one: its edge attaches again."""
        incarnation = self.incarnations.get((sender.forwarder, sender.incarnation))
        if incarnation is not None and incarnation.attached and incarnation.session == sender.session:
            self._end_session(incarnation, reason)

    def _end_session(self, incarnation: RemoteIncarnation, reason: str) -> None:
        incarnation.send(SessionEnded(reason))
        incarnation.detach(self._now_ms)

    def _contradicted(self, incarnation: RemoteIncarnation, why: str) -> None:
        """What both ends know differs: the next Attach repairs it (rule 27)."""
        self.differences += 1
        self._end_session(incarnation, why)

    def _work(self, incarnation: RemoteIncarnation) -> None:
        """What its session has said, in order, as far as that can be done now."""
        if incarnation.works:
            return
        incarnation.works = True
        while incarnation.inbox and self._handle(incarnation, incarnation.inbox[0]):
            if incarnation.inbox:
                incarnation.inbox.popleft()
        incarnation.works = False

    def _handle(self, incarnation: RemoteIncarnation, message: FromEdge) -> bool:
        """Whether it is done; else it waits until the leader delivers, or a purge has ended."""
        why = from_edge(incarnation, message)
        if why:
            self._contradicted(incarnation, why)
            return True
        if isinstance(message, Operations):
            return self._operate(incarnation, message)
        if isinstance(message, Subscribe):
            self._subscribe(incarnation, message.subscription)
        elif isinstance(message, Credit):
            self._credit(incarnation, message)
        elif isinstance(message, Lower):
            self._lower(incarnation, message)
        elif isinstance(message, CountMessages):
            incarnation.questions.append(message)
            self._answer(incarnation)
        elif isinstance(message, Received):
            self._compare(incarnation, message)
        return True

    # Operations

    def _operate(self, incarnation: RemoteIncarnation, message: Operations) -> bool:
        incarnation.hear(message.decided)
        wrote = is_waited_for = rests_on_log = False
        mark = incarnation.mark
        is_done = True
        for number, operation in enumerate(message.operations, message.first):
            if number <= incarnation.mark:
                continue
            if number > incarnation.mark + 1:
                self._end_session(incarnation, f"operation {number} follows {incarnation.mark}")
                break
            if incarnation.is_full:
                self._end_session(incarnation, f"more is refused, before operation {number}, than it has heard of")
                break
            if isinstance(operation, Purge):
                if self._purge(incarnation, number, operation):
                    continue
                is_done = False
                break
            outcomes: list[Outcome] = []
            rests_on_log = rests_on_log or self._rests_on_log(operation)
            wrote |= self._do(incarnation, number, operation, number < message.maybe_below, outcomes)
            is_waited_for |= not isinstance(operation, Settle)
            incarnation.done(number, outcomes)
        if wrote and rests_on_log:
            self.log.note(incarnation.record(message.decided))
        if incarnation.mark > mark:
            if rests_on_log:
                # For acknowledgements nobody waits: with the next message they are one entry.
                if is_waited_for or not wrote:
                    self.log.force()
                incarnation.gathered(self.log.position)
            else:
                incarnation.gathered_beside_log()
            incarnation.committed(self.committed_position)
            self._answer(incarnation)
        return is_done

    def _rests_on_log(self, operation: Operation) -> bool:
        """Not what is published and lost with this process: its mark is in memory only, as its effect is."""
        if not isinstance(operation, Publish) or operation.run is None:
            return True
        queues = [self.queues.get(queue_id) for queue_id in operation.queues]
        return any(queue is None or queue.keeps(operation.run) for queue in queues)

    def _do(
        self,
        incarnation: RemoteIncarnation,
        number: int,
        operation: Publish | Settle | Cancel | Release,
        maybe_duplicate: bool,
        outcomes: list[Outcome],
    ) -> bool:
        """Whether it wrote something."""
        if isinstance(operation, Publish):
            return self._publish(number, operation, maybe_duplicate, outcomes)
        if isinstance(operation, Settle):
            return self._settle(incarnation, operation)
        subscriber = incarnation.subscribers.get(operation.subscription)
        if subscriber is None:
            return False
        return self._cancel(incarnation, subscriber, operation)

    def _publish(self, number: int, publish: Publish, maybe_duplicate: bool, outcomes: list[Outcome]) -> bool:
        run = publish.run
        if run is None:
            return False
        taken = run.count
        for queue_id in publish.queues:
            queue = self.queues.get(queue_id)
            if queue is not None:
                taken = min(taken, queue.publish(run, maybe_duplicate))
        if taken < run.count:
            outcomes.append(Refused(number, taken, run.count))
        return True

    def _purge(self, incarnation: RemoteIncarnation, number: int, purge: Purge) -> bool:
        """Whether it is done; else what is behind it in its session waits for its steps."""
        if not self._delivers:
            return False
        if not incarnation.purging:
            incarnation.purging = number
            queue = self.queues.get(purge.queue)
            if queue is None:
                self._purged(incarnation, number, 0, True)
            else:
                queue.purge(partial(self._purged, incarnation, number))
        return incarnation.mark >= number

    def _purged(self, incarnation: RemoteIncarnation, number: int, count: int, is_last: bool) -> None:
        """`count` have left with a step of the purge. The same entry says how many these are by now: the next leader
        may have to go on from there (rules 2, 24)."""
        if incarnation.purging != number or self.incarnations.get(incarnation.member) is not incarnation:
            return
        incarnation.purged += count
        if is_last:
            incarnation.done(number, [Purged(number, incarnation.purged)])
        if is_last or count:
            self.log.note(incarnation.record(incarnation.heard))
        if is_last:
            self.log.force()
            incarnation.gathered(self.log.position)
            incarnation.committed(self.committed_position)
            self._answer(incarnation)
            self._work(incarnation)

    def _settle(self, incarnation: RemoteIncarnation, settle: Settle) -> bool:
        wrote = False
        for part in settle.parts:
            subscriber = incarnation.subscribers.get(part.subscription)
            if subscriber is None:
                continue
            for each in subscriber.take(part.first, part.last):
                wrote = True
                self._settle_range(subscriber, settle.kind, each)
            self._forget(incarnation, subscriber)
        return wrote

    @staticmethod
    def _settle_range(subscriber: RemoteSubscriber, kind: Settling, each: Range) -> None:
        if kind is Settling.ACK:
            subscriber.queue.settle(each.seq, each.last_seq)
        elif kind is Settling.REJECT:
            subscriber.queue.reject(each.seq, each.last_seq)
        else:
            subscriber.queue.requeue(each.seq, each.last_seq)

    def _cancel(
        self, incarnation: RemoteIncarnation, subscriber: RemoteSubscriber, operation: Cancel | Release
    ) -> bool:
        subscriber.cancelled_by_client = True
        leave(subscriber)
        give_back(subscriber, subscriber.take(operation.last + 1, ALL_MESSAGES))
        released = subscriber.take_all() if isinstance(operation, Release) else []
        for each in released:
            subscriber.queue.requeue(each.seq, each.last_seq)
        self._forget(incarnation, subscriber)
        return bool(released)

    @staticmethod
    def _forget(incarnation: RemoteIncarnation, subscriber: RemoteSubscriber) -> None:
        if subscriber.is_done and incarnation.subscribers.get(subscriber.number) is subscriber:
            del incarnation.subscribers[subscriber.number]

    # State and questions

    def _subscribe(self, incarnation: RemoteIncarnation, state: SubscriptionState) -> None:
        queue, number = self.queues.get(state.queue), state.subscription
        if queue is None:
            incarnation.send(SubscriptionEnded(number, EndReason.QUEUE_GONE))
            return
        subscriber = incarnation.subscriber(number, state.queue, queue, state.get)
        subscriber.apply(state)
        refusal = join(subscriber)
        if refusal is not None:
            incarnation.send(ended_by(number, refusal))
            return
        if subscriber.is_done:
            return
        incarnation.subscribers[number] = subscriber
        incarnation.send(Subscribed(number))
        self._answer(incarnation)

    def _credit(self, incarnation: RemoteIncarnation, credit: Credit) -> None:
        subscriber = incarnation.subscribers.get(credit.subscription)
        if subscriber is not None:
            subscriber.messages = max(subscriber.messages, credit.messages)
            subscriber.nbytes = max(subscriber.nbytes, credit.nbytes)
            if subscriber.consuming:
                subscriber.queue.credited(subscriber)

    def _lower(self, incarnation: RemoteIncarnation, lower: Lower) -> None:
        subscriber = incarnation.subscribers.get(lower.subscription)
        if subscriber is not None:
            subscriber.messages = max(lower.messages, subscriber.delivered)
            subscriber.nbytes = max(lower.nbytes, subscriber.delivered_bytes)
            if subscriber.consuming:
                subscriber.queue.credited(subscriber)
            incarnation.send(Lowered(lower.subscription, lower.question, subscriber.messages, subscriber.nbytes))

    def _answer(self, incarnation: RemoteIncarnation) -> None:
        """Questions and gets that the operations in front of them, and the claim wait, let through (rules 24, 29)."""
        if not self.delivers or not incarnation.attached:
            return
        asked, incarnation.questions = incarnation.questions, []
        for question in asked:
            queue = self.queues.get(question.queue)
            if question.after > incarnation.mark:
                incarnation.questions.append(question)
            elif queue is None:
                incarnation.send(Counted(question.question, -1, 0))
            else:
                incarnation.send(Counted(question.question, queue.ready_count, queue.consumer_count))
        for subscriber in list(incarnation.subscribers.values()):
            if subscriber.asks and not subscriber.waits and subscriber.after <= incarnation.mark:
                subscriber.waits = True
                subscriber.queue.get(False, partial(self._got, incarnation, subscriber))

    def _got(
        self, incarnation: RemoteIncarnation, subscriber: RemoteSubscriber, got: Got | AMQPSoftError | None
    ) -> bool:
        """The queue answers a get, at once or when a message has been read (`queues.port.Getter`)."""
        subscriber.waits = False
        is_taken = subscriber.got(got)
        self._forget(incarnation, subscriber)
        return is_taken

    def _compare(self, incarnation: RemoteIncarnation, message: Received) -> None:
        """Rule 27: what the edge says is held is what the leader has as held, of what the edge has received."""
        for number, received, held, total in message.counts:
            subscriber = incarnation.subscribers.get(number)
            if subscriber is not None and subscriber.held.below(received) != (held, total):
                self._contradicted(incarnation, f"the ledgers of subscription {number} differ")
                return
