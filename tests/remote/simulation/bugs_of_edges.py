"""Mistakes of an edge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amqpd.journal.operation_marks import Refused
from amqpd.remote.edge import Edge, EdgeState
from amqpd.remote.leader import Leader
from amqpd.remote.messages import Attach, Attached, Decided, Operations, Publish
from amqpd.remote.operations import Undecided, UndecidedOperations
from amqpd.remote.subscription import EdgeSubscription
from tests.remote.simulation.bugs import Patched

_receive, _attached, _take_operations = Edge.receive, Edge._attached, Edge._take_operations
_attach, _decided, _deliver, _next = Edge.attach, Edge._decided, Edge._deliver, Edge._next
_give_up, _at_attach = UndecidedOperations.give_up_publishes, EdgeSubscription.at_attach


class ReadsTheOlderSession(Patched):
    """What comes late of an older session is read."""

    rule, where, name = 1, Edge, "receive"

    @staticmethod
    def instead(self: Edge, session: int, message: Any) -> None:
        _receive(self, session if isinstance(message, Attached) else self.session, message)


class StateIsSentOnce(Patched):
    """A new session begins without the subscriptions of the older one."""

    rule, where, name = 1, Edge, "attach"

    @staticmethod
    def instead(self: Edge) -> None:
        _attach(self)
        if self._attach is not None:
            self._attach = Attach(self._attach.decided, ())


class ConfirmsWhatTheMarkHas(Patched):
    """What the leader has done is taken for decided, before it is committed."""

    rule, where, name = 3, Edge, "_attached"

    @staticmethod
    def instead(self: Edge, message: Attached) -> None:
        _attached(self, message)
        if self.state is EdgeState.ATTACHED:
            _decided(self, Decided(message.mark, ()))


class PublishersDoNotWait(Patched):
    """The bytes of what is undecided are not bounded."""

    rule, where, name = 4, UndecidedOperations, "resized"

    @staticmethod
    def instead(self: UndecidedOperations, more: int) -> None:
        self.nbytes += more


class SendsNothingAgain(Patched):
    """After Attached only what is new is sent: what was sent before is taken for done."""

    rule, where, name = 5, Edge, "_attached"

    @staticmethod
    def instead(self: Edge, message: Attached) -> None:
        sent = self._sent
        _attached(self, message)
        self._sent = max(sent, self._sent)


class SendsAllAgain(Patched):
    """After Attached all that is undecided is sent with new numbers, whatever the mark is."""

    rule, where, name = 5, Edge, "_take_operations"

    @staticmethod
    def instead(self: Edge, out: list[Any]) -> None:
        mark, self._sent = self._sent, min(self._sent, self._operations.decided)
        _take_operations(self, out)
        if out and isinstance(out[-1], Operations) and mark > self._operations.decided:
            out[-1] = replace(out[-1], first=mark + 1)


class SendsAgainAsNew(Patched):
    """What was first sent in another epoch is not said to be maybe a duplicate."""

    rule, where, name = 5, Edge, "_take_operations"

    @staticmethod
    def instead(self: Edge, out: list[Any]) -> None:
        _take_operations(self, out)
        if out and isinstance(out[-1], Operations):
            out[-1] = replace(out[-1], maybe_below=0)


class RefusalsAreNotHeard(Patched):
    """The lane reports what was refused like all the rest."""

    rule, where, name = 6, Edge, "_decided"

    @staticmethod
    def instead(self: Edge, message: Decided) -> None:
        _decided(self, replace(message, outcomes=tuple(o for o in message.outcomes if not isinstance(o, Refused))))


class GivenUpHasNoNumber(Patched):
    """A publish that is given up leaves its number to the next operation."""

    rule, where, name = 9, UndecidedOperations, "give_up_publishes"

    @staticmethod
    def instead(self: UndecidedOperations) -> None:
        _give_up(self)
        kept = [each for _, each in self.above(0) if not isinstance(each.operation, Publish)]
        self._waiting.clear()
        self._waiting.extend(kept)


class UnknownIsConfirmed(Patched):
    """What is undecided when the incarnation has ended is reported, and not refused."""

    rule, where, name = 9, Edge, "_end"

    @staticmethod
    def instead(self: Edge, message: Any) -> None:
        self._operations.give_up_publishes = lambda: None  # type: ignore[method-assign]
        _end(self, message)


_end = Edge._end


class LoweredIsFree(Patched):
    """What is asked back counts as free before the leader has answered."""

    rule, where, name = 10, Edge, "limits"

    @staticmethod
    def instead(self: Edge, number: int) -> tuple[int, int]:
        subscription = self._subscriptions[number]
        return subscription.wanted[0], subscription.received


class QuestionOutlivesItsSession(Patched):
    """A question to lower a limit is open in the next session, too, where nobody has heard it."""

    rule, where, name = 10, EdgeSubscription, "at_attach"

    @staticmethod
    def instead(self: EdgeSubscription, claims: list[Any]) -> Any:
        asked = self.asked
        state = _at_attach(self, claims)
        self.asked = asked
        return state


class GetIsAskedOnce(Patched):
    """A get that has no answer is not part of the next session's state."""

    rule, where, name = 14, Edge, "attach"

    @staticmethod
    def instead(self: Edge) -> None:
        _attach(self)
        if self._attach is not None:
            kept = tuple(each for each in self._attach.subscriptions if not each.get or each.received)
            self._attach = Attach(self._attach.decided, kept)


class AsksOnce(Patched):
    """A question is not asked again in a new session."""

    rule, where, name = 15, Edge, "attach"

    @staticmethod
    def instead(self: Edge) -> None:
        _attach(self)
        self._unasked = []


class ClaimsNothing(Patched):
    """What clients hold is not claimed."""

    rule, where, name = 16, EdgeSubscription, "at_attach"

    @staticmethod
    def instead(self: EdgeSubscription, claims: list[Any]) -> Any:
        return replace(_at_attach(self, claims), claims=tuple(claims))


class ClaimsOnlyWhatIsHeld(Patched):
    """What an undecided operation speaks of is not claimed."""

    rule, where, name = 16, EdgeSubscription, "at_attach"

    @staticmethod
    def instead(self: EdgeSubscription, claims: list[Any]) -> Any:
        return _at_attach(self, [])


class ClaimsWithoutTheOperation(Patched):
    """What an undecided operation speaks of is claimed as if a client held it."""

    rule, where, name = 16, EdgeSubscription, "at_attach"

    @staticmethod
    def instead(self: EdgeSubscription, claims: list[Any]) -> Any:
        return _at_attach(self, [each._replace(operation=0, gives_way=False) for each in claims])


class NeverGivesWay(Patched):
    """The claim of an undecided requeue does not give way to a client's."""

    rule, where, name, instead = 16, Undecided, "gives_way", False
    faults = {"stall": 300}
    drawn = {"weights": [6, 2, 2, 0, 0, 0, 0], "settling": [1, 4, 0], "consumers_max": 2, "drops": 0}


class HoldsWhatWasRefused(Patched):
    """What a claim was refused for counts as held on."""

    rule, where, name = 17, Edge, "_attached"

    @staticmethod
    def instead(self: Edge, message: Attached) -> None:
        _attached(self, replace(message, refused=()))


class GetOvertakes(Patched):
    """A get does not name the operation in front of it."""

    rule, where, name = 24, Edge, "_next"

    @staticmethod
    def instead(self: Edge, *args: Any, **more: Any) -> Any:
        return replace(_next(self, *args, **more), after=0)


class DeliversBehindACancel(Patched):
    """What crosses a cancel is given to the client."""

    rule, where, name = 25, Edge, "_deliver"

    @staticmethod
    def instead(self: Edge, message: Any) -> None:
        subscription = self._subscriptions.get(message.subscription)
        if subscription is not None:
            was, subscription.cancelled = subscription.cancelled, False
            try:
                _deliver(self, message)
            finally:
                subscription.cancelled = was


class NobodyCompares(Patched):
    """The edge does not compare how many were delivered with how many it received."""

    rule, where, name = 27, Edge, "_compare"
    faults = {}
    drawn = {"drops": 0.05}
    instead = staticmethod(lambda self, message: None)


class TakesAnyNumber(Patched):
    """A delivery that is not the next one is taken, and held deliveries are not compared."""

    rule, where, name = 27, Edge, "_deliver"
    faults = {}
    drawn = {"drops": 0.05}

    @staticmethod
    def instead(self: Edge, message: Any) -> None:
        subscription = self._subscriptions.get(message.subscription)
        if subscription is not None and message.number > subscription.received:
            subscription.received = message.number - 1
        _deliver(self, message)

    too = ((Leader, "_compare", lambda self, incarnation, message: None),)


class EndedIsNotHeard(Patched):
    """What Attached says has ended goes on at the edge."""

    rule, where, name = 28, Edge, "_attached"
    faults = {"break": 150, "delete": 800}

    @staticmethod
    def instead(self: Edge, message: Attached) -> None:
        _attached(self, replace(message, ended=()))
