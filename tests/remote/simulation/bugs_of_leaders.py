"""Mistakes of a leader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from amqpd.journal.operation_marks import IncarnationEnded, Marks, Refused
from amqpd.remote import claims as claims_module
from amqpd.remote import handing
from amqpd.remote.incarnation import RemoteIncarnation
from amqpd.remote.leader import Leader
from amqpd.remote.messages import (
    Attach,
    Cancel,
    Lower,
    Lowered,
    Operations,
    Publish,
    Sender,
    Settle,
    Settling,
)
from amqpd.remote.subscriber import RemoteSubscriber
from tests.remote.simulation import led as led_module
from tests.remote.simulation import world as world_module
from tests.remote.simulation.bugs import NoBug, Patched

if TYPE_CHECKING:
    from tests.remote.simulation.led import Led

_attach_leader, _receive, _operate, _publish = Leader._attach, Leader.receive, Leader._operate, Leader._publish
_cancel, _may_deliver, _settle, _answer = Leader._cancel, Leader._may_deliver, Leader._settle, Leader._answer
_tick, _lost, _end, _purged = Leader.tick, Leader.lost, Leader._end, Leader._purged
_attach, _record = RemoteIncarnation.attach, RemoteIncarnation.record
_gathered, _tell, _begin = RemoteIncarnation.gathered, RemoteIncarnation.tell, RemoteIncarnation.begin
_keep, _apply = claims_module._keep, Marks.apply
_deliver, _apply_state = RemoteSubscriber._deliver, RemoteSubscriber.apply


def _in_any_session(self: Leader, sender: Sender, message: Any, now_ms: float) -> None:
    found = self.incarnations.get((sender.forwarder, sender.incarnation))
    if found is not None and not isinstance(message, Attach) and found.attached:
        sender = found.sender
    _receive(self, sender, message, now_ms)


class ReadsTheOlderSession(Patched):
    """What comes late of an older session is read by the leader."""

    rule, where, name = 1, Leader, "receive"
    faults = {"slow": 200}
    drawn = {"drops": 0}
    instead = staticmethod(_in_any_session)


class TakesAnyOperation(Patched):
    """Operations are done whatever the mark is, also those that come late of an older session."""

    rule, where, name = 1, Leader, "_operate"

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation, message: Operations) -> bool:
        incarnation.mark = message.first - 1
        return _operate(self, incarnation, message)

    too = ((Leader, "receive", _in_any_session),)


class TakesALateAttach(Patched):
    """An Attach of an older session takes the place of the newer one."""

    rule, where, name = 1, Leader, "_attach"
    faults = {"break": 400}
    drawn = {"slow_starts": 0.3}

    @staticmethod
    def instead(self: Leader, sender: Sender, attach: Attach) -> None:
        incarnation = self.incarnations.get((sender.forwarder, sender.incarnation))
        if incarnation is not None and sender.session < incarnation.session:
            incarnation.session = sender.session - 1
        _attach_leader(self, sender, attach)


class MarkIsNotRaised(Patched):
    """An Attach does not raise the mark to what its edge knows to be decided."""

    rule, where, name = 1, RemoteIncarnation, "attach"

    @staticmethod
    def instead(self: RemoteIncarnation, session: int, decided: int) -> None:
        mark = self.mark
        _attach(self, session, decided)
        self.mark = mark


class AnswersWithoutItsLease(Patched):
    """A leader that another one has followed, and that does not know it, goes on delivering."""

    rule, where, name = 1, Leader, "lease"
    faults = {"lose": 400}
    drawn = {"learn_ms": 900}
    instead = staticmethod(lambda self, holds, now_ms: None)


class MarkBehindItsEffects(Patched):
    """The log has the effects, and the mark an entry later."""

    rule, where, name = 2, RemoteIncarnation, "record"

    @staticmethod
    def instead(self: RemoteIncarnation, heard: int) -> Any:
        record = _record(self, heard)
        before = getattr(self, "mark_before", 0)
        self.mark_before = record.mark  # type: ignore[attr-defined]
        return record._replace(mark=before)


class MarkInFrontOfItsEffects(Patched):
    """The log has a mark whose effects are not there yet."""

    rule, where, name = 2, RemoteIncarnation, "record"

    @staticmethod
    def instead(self: RemoteIncarnation, heard: int) -> Any:
        record = _record(self, heard)
        return record._replace(mark=record.mark + 1)


class RefusalsAreNotLogged(Patched):
    """What was refused is in the leader's memory only."""

    rule, where, name = 2, RemoteIncarnation, "record"

    @staticmethod
    def instead(self: RemoteIncarnation, heard: int) -> Any:
        return _record(self, heard)._replace(outcomes=())


class DecidedBeforeItIsCommitted(Patched):
    """Operations are decided when they are done."""

    rule, where, name = 3, RemoteIncarnation, "gathered"

    @staticmethod
    def instead(self: RemoteIncarnation, position: int) -> None:
        _gathered(self, 0)


class SaysDecidedOnce(Patched):
    """What is decided is not said again in a new session."""

    rule, where, name = 3, RemoteIncarnation, "tell"

    @staticmethod
    def instead(self: RemoteIncarnation) -> None:
        if getattr(self, "decided_told", 0) < self.decided:
            self.decided_told = self.decided  # type: ignore[attr-defined]
            _tell(self)


class OutcomesAreToldOnce(Patched):
    """A refusal that was told in an older session is not told again."""

    rule, where, name = 3, RemoteIncarnation, "attach"

    @staticmethod
    def instead(self: RemoteIncarnation, session: int, decided: int) -> None:
        told = self._told
        _attach(self, session, decided)
        self._told = max(told, self._told)


class GoneRefuses(Patched):
    """A queue that is gone refuses what was routed to it."""

    rule, where, name = 7, Leader, "_publish"
    faults = {"break": 150, "delete": 800}

    @staticmethod
    def instead(self: Leader, number: int, publish: Publish, maybe: bool, outcomes: list[Any]) -> bool:
        wrote = _publish(self, number, publish, maybe, outcomes)
        if publish.run is not None and any(each not in self.queues for each in publish.queues):
            outcomes[:] = [Refused(number, 0, publish.run.count)]
        return wrote


class EndedComesBack(Patched):
    """An incarnation that has ended attaches again."""

    rule, where, name = 8, Leader, "_attach"

    @staticmethod
    def instead(self: Leader, sender: Sender, attach: Attach) -> None:
        self.ended.clear()
        _attach_leader(self, sender, attach)


class EndedIsNotLogged(Patched):
    """That an incarnation has ended is not in the log."""

    rule, where, name = 8, Marks, "apply"

    @staticmethod
    def instead(self: Marks, record: Any) -> None:
        _apply(self, record)
        if isinstance(record, IncarnationEnded):
            self.ended.clear()


class EndedHoldsOn(Patched):
    """What an incarnation held that has ended is nobody's, and not ready."""

    rule, where, name = 8, Leader, "_requeue_all"

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation) -> None:
        for subscriber in incarnation.subscribers.values():
            claims_module.leave(subscriber)
        incarnation.subscribers = {}


class OlderIncarnationGoesOn(Patched):
    """A newer incarnation of a forwarder does not end the older one."""

    rule, where, name = 8, Leader, "_end"

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation) -> None:
        if incarnation.member[0] not in self.members:
            _end(self, incarnation)


class KeepsItsOwnCount(Patched):
    """An Attach does not set what was delivered to what was received."""

    rule, where, name = 10, RemoteSubscriber, "apply"

    @staticmethod
    def instead(self: RemoteSubscriber, state: Any) -> None:
        delivered = self.delivered
        _apply_state(self, state)
        self.delivered = max(delivered, self.delivered)


class AnswersWithoutLowering(Patched):
    """A question to lower a limit is answered, and the limit stays."""

    rule, where, name = 10, Leader, "_lower"

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation, lower: Lower) -> None:
        incarnation.send(Lowered(lower.subscription, lower.question, lower.messages, lower.nbytes))


class BytesAreNotCompared(Patched):
    """A subscription has credit for as many messages as it may get, of any size."""

    rule, where, name = 10, RemoteSubscriber, "credit"

    @staticmethod
    def instead(self: RemoteSubscriber) -> int:
        return max(self.messages - self.delivered, 0) if self.attached else 0


class AcknowledgesByItself(Patched):
    """What is sent to a client that does not acknowledge is settled by the leader."""

    rule, where, name = 12, RemoteSubscriber, "_deliver"

    @staticmethod
    def instead(
        self: RemoteSubscriber, run: Any, low: int, high: int, seq: int, redelivered: bool, ready: int
    ) -> None:
        _deliver(self, run, low, high, seq, redelivered, ready)
        if self.messages > 1 << 39:
            for each in self.take(self.delivered - (high - low) + 1, self.delivered):
                self.queue.settle(each.seq, each.last_seq)


class NothingGoesBack(Patched):
    """What was delivered in an older session and is not claimed stays held."""

    rule, where, name = 16, claims_module, "_keep"

    @staticmethod
    def instead(subscriber: RemoteSubscriber, state: Any, mark: int) -> Any:
        before = list(subscriber.held)
        found = _keep(subscriber, state, mark)
        for each in before:
            for first, last in subscriber.queue.hold(each.seq, each.last_seq):
                subscriber.held.add(each.number + first - each.seq, first, last - first + 1)
        return found


class DoneIsClaimed(Patched):
    """A claim of an operation that is done is given, and holds the message for ever."""

    rule, where, name = 16, claims_module, "_keep"

    @staticmethod
    def instead(subscriber: RemoteSubscriber, state: Any, mark: int) -> Any:
        return _keep(subscriber, state, 0)


class UnclaimedIsNotRedelivered(NoBug):
    """What goes back unclaimed is sent as for the first time, though what stood behind it may have gone out."""

    rule = 16

    def led(self, led: Led) -> None:
        for queue in led.queues.values():
            _instead_of_give_back(queue, queue.delivered.difference_update)


class UnclaimedIsCounted(NoBug):
    """What goes back unclaimed is counted as delivered."""

    rule = 26

    def led(self, led: Led) -> None:
        for queue in led.queues.values():
            _instead_of_give_back(queue, None)


def _instead_of_give_back(queue: Any, behind: Any) -> None:
    """Those that go back, except by a requeue, are counted (`behind` None), or `behind` is done with them."""
    give_back, requeue = queue.give_back, queue.requeue

    def requeued(first: int, last: int) -> None:
        queue.give_back = give_back
        requeue(first, last)
        queue.give_back = given_back

    def given_back(first: int, last: int) -> None:
        if behind is None:
            requeued(first, last)
        else:
            give_back(first, last)
            behind(range(first, last + 1))

    queue.requeue, queue.give_back = requeued, given_back


class KeepsForNoLease(Patched):
    """What an edge holds is ready as soon as its link is lost."""

    rule, where, name = 18, Leader, "lost"

    @staticmethod
    def instead(self: Leader, sender: Sender, now_ms: float) -> None:
        _lost(self, sender, now_ms)
        incarnation = self.incarnations.get((sender.forwarder, sender.incarnation))
        if incarnation is not None and not incarnation.attached:
            self._requeue_all(incarnation)


class KeepsForEver(Patched):
    """What an edge holds without a session is kept without a bound."""

    rule, where, name = 18, Leader, "tick"

    @staticmethod
    def instead(self: Leader, now_ms: float) -> None:
        for incarnation in self.incarnations.values():
            incarnation.detached_ms = now_ms
        _tick(self, now_ms)


class WaitsForNobody(NoBug):
    """A new leader delivers when its first entry is committed, whoever has attached."""

    rule = 19

    def led(self, led: Led) -> None:
        led.leader.waits_for.clear()


class WaitsForEver(Patched):
    """A new leader waits for those that live, and never come, without a bound."""

    rule, where, name = 19, Leader, "tick"
    faults = {"lose": 600, "apart": 800}
    drawn = {"lease_ms": 1500, "commit_ms": 3}

    @staticmethod
    def instead(self: Leader, now_ms: float) -> None:
        self.wait_ends_ms = now_ms + 1
        _tick(self, now_ms)


class DeliversAtOnce(Patched):
    """A new leader delivers before its first entry is committed."""

    rule, where, name = 19, Leader, "_may_deliver"

    @staticmethod
    def instead(self: Leader) -> None:
        committed = self.committed_position
        self.committed_position = max(committed, self._first)
        _may_deliver(self)
        self.committed_position = committed


class NothingIsRedelivered(NoBug):
    """What an older epoch may have delivered is sent as for the first time."""

    rule = 19

    def led(self, led: Led) -> None:
        for queue in led.queues.values():
            queue.delivered.clear()


class HandsOverNobody(Patched):
    """A hand-over does not pass who holds what, and the next leader does not wait."""

    rule, where, name = 19, handing, "_take"
    instead = staticmethod(lambda leader, handed, now_ms: None)


class HandsOverWithoutTheWait(Patched):
    """A hand-over does not pass for whom the old leader still waited."""

    rule, where, name = 19, world_module, "hand_over"
    faults = {"lose": 600, "move": 120}
    drawn = {"learn_ms": 400, "weights": [6, 1, 2, 0, 0, 0, 0], "commit_ms": 3}

    @staticmethod
    def instead(leader: Leader, position: int) -> Any:
        handed, ended = handing.hand_over(leader, position)
        return replace(handed, waits_for=frozenset()), ended


class HandOverOfAnyLog(Patched):
    """A hand-over counts, whatever the log has lost since."""

    rule, where, name = 19, led_module, "taken_over"

    @staticmethod
    def instead(*args: Any, **more: Any) -> Leader:
        handed = args[6]
        if handed is not None:
            args = (*args[:7], handed.position)
        return handing.taken_over(*args, **more)


class ActsOnWhatItOnceSent(Patched):
    """A requeue acts on what was ever sent under that number in this epoch, held or not."""

    rule, where, name = 21, Leader, "_settle"
    sent: dict[Any, int] = {}

    @contextmanager
    def planted(self) -> Iterator[None]:
        self.sent.clear()
        with super().planted(), patch.object(RemoteSubscriber, "_deliver", _remembered):
            yield

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation, settle: Settle) -> bool:
        for part in settle.parts:
            subscriber = incarnation.subscribers.get(part.subscription)
            if subscriber is not None and settle.kind is Settling.REQUEUE:
                held = {each.number + i for each in subscriber.held for i in range(each.size)}
                for number in {*range(part.first, part.last + 1)} - held:
                    seq = ActsOnWhatItOnceSent.sent.get((incarnation.member, part.subscription, number), 0)
                    if seq in subscriber.queue.runs and seq not in subscriber.queue.ready:  # type: ignore[attr-defined]
                        subscriber.queue.requeue(seq, seq)
        return _settle(self, incarnation, settle)


def _remembered(
    self: RemoteSubscriber, run: Any, low: int, high: int, seq: int, redelivered: bool, ready: int
) -> None:
    for i in range(high - low):
        member = self.send.__self__.member  # type: ignore[attr-defined]
        ActsOnWhatItOnceSent.sent[member, self.number, self.delivered + 1 + i] = seq + i
    _deliver(self, run, low, high, seq, redelivered, ready)


class PartsOfAPurgeAreNotCounted(Patched):
    """A new leader counts what it purges itself, and not what the older one had purged of the same operation."""

    rule, where, name = 24, RemoteIncarnation, "begin"
    faults = {"lose": 400}
    drawn = {"weights": [6, 1, 2, 0, 0, 8, 0]}

    @staticmethod
    def instead(self: RemoteIncarnation, mark: int, outcomes: Any, position: int) -> None:
        _begin(self, mark, outcomes, position)
        self.purged = 0


class PurgeIsDoneWithItsFirstStep(Patched):
    """A purge is decided when its first step is done."""

    rule, where, name = 24, Leader, "_purged"
    drawn = {"weights": [6, 1, 2, 0, 0, 8, 0]}

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation, number: int, count: int, is_last: bool) -> None:
        _purged(self, incarnation, number, count, True)


class CancelKeepsWhatCrosses(Patched):
    """A cancel leaves as held what its client never got."""

    rule, where, name = 25, Leader, "_cancel"

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation, subscriber: RemoteSubscriber, operation: Any) -> bool:
        return _cancel(self, incarnation, subscriber, replace(operation, last=1 << 40))


class ReleaseKeeps(Patched):
    """A release gives nothing back."""

    rule, where, name = 25, Leader, "_cancel"

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation, subscriber: RemoteSubscriber, operation: Any) -> bool:
        return _cancel(self, incarnation, subscriber, Cancel(operation.subscription, operation.last))


class GoneSaysNothing(Patched):
    """A queue that is deleted ends its subscriptions, and their edges do not hear it."""

    rule, where, name = 28, Leader, "queue_gone"
    faults = {"delete": 1000}

    @staticmethod
    def instead(self: Leader, queue_id: int) -> None:
        for incarnation in self.incarnations.values():
            for number, subscriber in list(incarnation.subscribers.items()):
                if subscriber.queue_id == queue_id:
                    del incarnation.subscribers[number]


class PurgesAtOnce(Patched):
    """A purge does not wait for the end of the claim wait."""

    rule, where, name = 29, Leader, "_operate"
    faults = {"lose": 400}
    drawn = {"learn_ms": 400, "weights": [6, 1, 2, 0, 0, 8, 0], "commit_ms": 3}

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation, message: Operations) -> bool:
        delivers, self._delivers = self._delivers, True
        self._answer = lambda incarnation: None  # type: ignore[method-assign]
        try:
            return _operate(self, incarnation, message)
        finally:
            self._delivers = delivers
            del self._answer
            self._answer(incarnation)


class CountsAtOnce(Patched):
    """A question is answered in the claim wait, while what clients hold seems to be ready."""

    rule, where, name = 29, Leader, "_answer"
    faults = {"lose": 400}
    drawn = {"learn_ms": 400, "weights": [2, 1, 1, 0, 0, 8, 0], "commit_ms": 3}

    @staticmethod
    def instead(self: Leader, incarnation: RemoteIncarnation) -> None:
        delivers, subscribers = self._delivers, incarnation.subscribers
        self._delivers, incarnation.subscribers = True, {}
        try:
            _answer(self, incarnation)
        finally:
            self._delivers, incarnation.subscribers = delivers, subscribers
        _answer(self, incarnation)


class OutcomesAreKept(Patched):
    """Outcomes that the edge has heard are kept."""

    rule, where, name = 31, RemoteIncarnation, "hear"
    instead = staticmethod(lambda self, decided: None)
