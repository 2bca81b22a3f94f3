"""What a leader has of one incarnation of an edge: its mark, what is decided of it, its session and subscriptions.

What comes in: how far its operations are done, and in which entry of the log; how far the log is committed. What goes
out: what to tell it as decided; what the log has to have of it.
Rules (of docs/decisions/remote-protocol.md): 1. One mark; it only grows (rule 1). 2. An operation is decided when the
entry that has its effect is committed; one that wrote nothing, when all that is in front of it is (rule 3). 3.
Outcomes are kept until the edge has heard them, and told with Decided, never before (rule 2). 4. A purge may take
several entries, each of which says how many have left by now: the next leader goes on from there (rule 24).
Not here: what operations do (`leader.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable

from amqpd.journal.operation_marks import (
    OUTCOME_RANGES_MAX,
    OUTCOMES_MAX,
    Marked,
    Member,
    Outcome,
    Purged,
    range_of,
    ranges_of,
)
from amqpd.remote.messages import (
    CountMessages,
    Decided,
    EndReason,
    FromEdge,
    FromLeader,
    Operations,
    Publish,
    Sender,
    SubscriptionEnded,
)
from amqpd.remote.operations import UNDECIDED_BYTES_MAX
from amqpd.remote.source import LedQueue
from amqpd.remote.subscriber import RemoteSubscriber, SessionFlow

# Of one session, while the first of it has to wait: an edge keeps less of publishes undecided.
INBOX_BYTES_MAX = 8 * UNDECIDED_BYTES_MAX
INBOX_MESSAGES_MAX = 1 << 16


class LeaderOutbox:
    """What the sessions of one leader are to be sent, in order."""

    def __init__(self) -> None:
        self._messages: list[tuple[Sender, FromLeader]] = []
        self.filled: Callable[[], object] | None = None
        """called when there is something, after there was nothing: queues deliver when they are dispatched"""

    def add(self, sender: Sender, message: FromLeader) -> None:
        if not self._messages and self.filled is not None:
            self.filled()
        self._messages.append((sender, message))

    def take(self) -> list[tuple[Sender, FromLeader]]:
        """All of it."""
        messages, self._messages = self._messages, []
        return messages


class RemoteIncarnation:
    """The ledger of one incarnation of an edge at its leader."""

    def __init__(self, member: Member, out: LeaderOutbox, now_ms: float) -> None:
        """`out`: where messages to all edges gather."""
        self.member = member
        self.session = 0
        """the highest that has attached; one that comes late is ignored (rule 1)"""
        self.attached = False
        self.detached_ms = now_ms
        """since when, while it is not attached"""
        self.mark = self.decided = 0
        self.subscribers: dict[int, RemoteSubscriber] = {}
        self.inbox: deque[FromEdge] = deque()
        """of the session: more than one only while the first has to wait for the end of a claim wait"""
        self.works = False
        """what the session has said is being done"""
        self.questions: list[CountMessages] = []
        self.purging = 0
        """the operation that is under way; 0: none is"""
        self.purged = 0
        """what the purge with the number `mark` + 1 has taken out so far"""
        self.heard = 0
        """the edge has heard the outcomes of operations up to this one"""
        self.flow = SessionFlow()
        self._out = out
        self._undecided: deque[tuple[int, int]] = deque()
        """(position in the log, mark): when that is committed, this mark is decided"""
        self._outcomes: list[Outcome] = []
        """not heard by the edge, in the order of their numbers: with each message those are found that it is about,
        without a look at the others, of which there may be a hundred thousand"""
        self._ranges = 0
        """of them, as the log has them"""
        self._noted = 0
        """those of operations up to this one are in the log, or in the entry that gathers"""
        self._told = 0
        """those of operations up to this one were told in this session"""
        self._waiting_bytes = 0
        """of what came since the inbox was empty, about"""

    def take_in(self, message: FromEdge) -> bool:
        """The next one of the session. False: too much waits."""
        if not self.inbox:
            self._waiting_bytes = 0
        elif len(self.inbox) >= INBOX_MESSAGES_MAX or self._waiting_bytes > INBOX_BYTES_MAX:
            return False
        elif isinstance(message, Operations):
            of = [each.run for each in message.operations if isinstance(each, Publish)]
            self._waiting_bytes += sum([run.nbytes for run in of if run is not None])
        self.inbox.append(message)
        return True

    @property
    def sender(self) -> Sender:
        return Sender(*self.member, self.session)

    def send(self, message: FromLeader) -> None:
        """Into its session; without one it is told what matters with the next Attached."""
        if self.attached:
            self._out.add(self.sender, message)

    def subscriber(self, number: int, queue_id: int, queue: LedQueue, is_get: bool) -> RemoteSubscriber:
        """A new one, which is not among `subscribers` yet."""
        return RemoteSubscriber(number, queue_id, queue, is_get, self.send, self.flow, self._out_of_service)

    def end(self, subscriber: RemoteSubscriber, reason: EndReason) -> None:
        """It is none any more, if it still was one; what its edge holds of it is swallowed when that is settled."""
        if self.subscribers.get(subscriber.number) is subscriber:
            del self.subscribers[subscriber.number]
            self.send(SubscriptionEnded(subscriber.number, reason))

    def _out_of_service(self, subscriber: RemoteSubscriber) -> None:
        self.end(subscriber, EndReason.OUT_OF_SERVICE)

    def begin(self, mark: int, outcomes: Iterable[Outcome], position: int) -> None:
        """What a new leader has of it: decided when this position of the log is committed."""
        self.mark = self._noted = mark
        self._outcomes = [each for each in outcomes if each.number <= mark]
        self.purged = sum([each.messages for each in outcomes if each.number > mark and isinstance(each, Purged)])
        self._ranges = len(ranges_of(self._outcomes))
        self._undecided.append((position, mark))

    def attach(self, session: int, decided: int) -> None:
        """A session begins. What the edge knows to be decided wrote nothing, if it is above the mark (rule 1)."""
        self.session, self.attached = session, True
        self.flow.nbytes, self.flow.held_up = 0, False
        self.inbox.clear()
        self.questions = []
        self._told = decided
        self.hear(decided)
        if decided > self.mark:
            self.mark = decided
        self.decided = max(self.decided, decided)

    def detach(self, now_ms: float) -> None:
        self.attached, self.detached_ms = False, now_ms
        self.inbox.clear()
        self.questions = []
        for subscriber in self.subscribers.values():
            subscriber.attached = False

    def sent(self, has_capacity: bool) -> None:
        """What the session was to be sent, has been. `has_capacity`: it may be sent more."""
        was_closed = self.flow.is_closed
        self.flow.nbytes, self.flow.held_up = 0, not has_capacity
        if was_closed and has_capacity:
            for subscriber in self.subscribers.values():
                if subscriber.consuming:
                    subscriber.queue.credited(subscriber)

    def hear(self, decided: int) -> None:
        """The edge has heard of all outcomes up to this operation."""
        self.heard = max(self.heard, decided)
        outcomes = self._outcomes
        heard = bisect_right(outcomes, decided, key=_number)
        if heard:
            self._ranges -= len(ranges_of(outcomes[:heard]))
            if heard < len(outcomes) and range_of(outcomes[heard]).follows(range_of(outcomes[heard - 1])):
                self._ranges += 1  # what is left of a range
            del outcomes[:heard]

    def done(self, number: int, outcomes: list[Outcome]) -> None:
        """Its next operation is done; what is to be told of it."""
        self.mark = number
        self.purging = self.purged = 0
        for each in outcomes:
            if not (self._outcomes and range_of(each).follows(range_of(self._outcomes[-1]))):
                self._ranges += 1
            self._outcomes.append(each)

    @property
    def is_full(self) -> bool:
        """The log keeps no more outcomes of it, until the edge has heard some (rule 31)."""
        return self._ranges >= OUTCOME_RANGES_MAX or len(self._outcomes) >= OUTCOMES_MAX // 2

    def gathered(self, position: int) -> None:
        """What was done up to the mark is committed when this position of the log is."""
        if self._undecided and self._undecided[-1][0] == position:
            self._undecided.pop()
        self._undecided.append((position, self.mark))

    def gathered_beside_log(self) -> None:
        """The same without an entry: committed when what was done before is."""
        position = self._undecided.pop()[0] if self._undecided else 0
        self._undecided.append((position, self.mark))

    def record(self, heard: int) -> Marked:
        """What the entry has that has the effects up to the mark."""
        fresh = self._outcomes[bisect_right(self._outcomes, self._noted, key=_number) :]
        self._noted = self.mark
        if self.purged:
            fresh.append(Purged(self.mark + 1, self.purged))
        return Marked(*self.member, self.mark, heard, tuple(fresh))

    def committed(self, position: int) -> None:
        """The log is, up to there."""
        before = self.decided
        while self._undecided and self._undecided[0][0] <= position:
            self.decided = max(self.decided, self._undecided.popleft()[1])
        if self.decided > before:
            self.tell()

    def tell(self) -> None:
        """What is decided, with the outcomes that the session has not heard."""
        first = bisect_right(self._outcomes, self._told, key=_number)
        outcomes = self._outcomes[first : bisect_right(self._outcomes, self.decided, key=_number)]
        self._told = max(self._told, self.decided)
        self.send(Decided(self.decided, tuple(outcomes)))


def _number(outcome: Outcome) -> int:
    return outcome.number
