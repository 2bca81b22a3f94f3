"""What contradicts a session ends it, at the end that is told; what may be true does not.

What is verified: each sentence of `amqpd/remote/contradictions.py`, said by a peer in the middle of a session, and
that the bounds of what a leader keeps for an edge hold. Not verified: that honest ends never say it; the simulator
runs with it.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest

from amqpd.journal.operation_marks import Purged, Refused
from amqpd.remote import claims, contradictions, incarnation
from amqpd.remote.edge import Edge, EdgeState
from amqpd.remote.messages import (
    Attach,
    Attached,
    Cancel,
    CountMessages,
    Decided,
    Deliver,
    DeliveredCounts,
    DeliveryClaim,
    DeliveryRange,
    Empty,
    FromEdge,
    FromLeader,
    Lowered,
    Operations,
    Publish,
    Purge,
    Release,
    Sender,
    SessionEnded,
    Subscribe,
    SubscriptionState,
)
from tests.remote.holding import Holding
from tests.remote.simulation.queue import make_run
from tests.remote.test_lies import Leading


def live_edge() -> Edge:
    """It has published a run of two (1, decided), one of three (2) and a purge (3); subscription 1 has got two of
    five, of 2 a get is open, 3 was not sent yet; question 1 lowers the first one to 4."""
    edge = Edge("a", 1)
    first = edge.subscribe(7, Holding(), 5, 1 << 40)
    edge.get(7, lambda _: True)
    edge.publish(7, make_run([1, 2]))
    edge.attach()
    edge.take()
    edge.receive(1, Attached(1, 0, (), ()))
    edge.take()
    edge.receive(1, Decided(1, ()))
    edge.publish(7, make_run([3, 4, 5]))
    edge.purge(7, lambda _: None)
    edge.take()
    edge.receive(1, Deliver(first, 1, 10, make_run([1, 2]), 0, 2, False))
    edge.limit(first, 4, 1 << 40)
    edge.take()
    edge.subscribe(7, Holding(), 5, 1 << 40)
    return edge


LIES_OF_LEADERS: dict[str, FromLeader] = {
    "operation 4 is decided, and 3 was sent last": Decided(4, ()),
    "the outcome of operation 2 is none of its kind": Decided(2, (Purged(2, 1),)),
    "the outcome of operation 3 is none of its kind": Decided(3, (Refused(3, 0, 1),)),
    "the outcome of operation 2 is none of its kind ": Decided(2, (Refused(2, 2, 4),)),
    "delivery 2 of subscription 1 follows 2": Deliver(1, 2, 12, make_run([3]), 0, 1, False),
    "delivery 6 of subscription 1, which may get 5": Deliver(1, 3, 12, make_run([3, 4, 5, 6]), 0, 4, False),
    "delivery 2 of subscription 2, which may get 1": Deliver(2, 1, 12, make_run([3, 4]), 0, 2, False),
    "delivery 1 of subscription 3, which may get 5": Deliver(3, 1, 12, make_run([3]), 0, 1, False),
    "subscription 1 may get 6, of 5": Lowered(1, 1, 6, 1 << 40),
    "subscription 1 may get 1, of 5": Lowered(1, 1, 1, 1 << 40),
    "subscription 3 has no get that could be empty": Empty(3),
    "9 of subscription 1 were delivered, and 2 came": DeliveredCounts(((1, 9), (1, 9))),
}


@pytest.mark.parametrize("why", LIES_OF_LEADERS)
def test_an_edge_ends_the_session(why: str) -> None:
    edge = live_edge()
    edge.receive(1, LIES_OF_LEADERS[why])
    assert (edge.state, edge.differences, edge.difference) == (EdgeState.DETACHED, 1, why.strip())
    assert edge.lane.reported == 1
    edge.attach()
    edge.take()
    edge.receive(2, Attached(1, 1, (), ()))
    assert edge.state is EdgeState.ATTACHED


@pytest.mark.parametrize("mark", [0, 4])
def test_a_mark_is_of_what_is_not_decided(mark: int) -> None:
    edge = live_edge()
    edge.attach()
    edge.take()
    edge.receive(2, Attached(1, mark, (), ()))
    assert (edge.state, edge.take()) == (EdgeState.DETACHED, [])
    assert edge.difference == f"the mark {mark} is of no operation from 1 to 3"


TRUTHS_OF_LEADERS: list[FromLeader] = [
    Decided(3, (Refused(2, 1, 3), Purged(3, 4))),
    Decided(0, ()),
    Deliver(1, 3, 12, make_run([3, 4, 5]), 0, 3, False),
    Lowered(1, 1, 5, 1 << 40),
    Lowered(1, 1, 4, 0),
    Empty(2),
]


@pytest.mark.parametrize("said", TRUTHS_OF_LEADERS, ids=lambda said: type(said).__name__)
def test_an_edge_goes_on(said: FromLeader) -> None:
    edge = live_edge()
    edge.receive(1, said)
    assert (edge.state, edge.differences) == (EdgeState.ATTACHED, 0)


def test_what_was_refused_of_a_publish_that_was_given_up_is_no_contradiction() -> None:
    edge = live_edge()
    edge.give_up_publishes()
    edge.receive(1, Decided(2, (Refused(2, 1, 3),)))
    assert (edge.state, edge.lane.reported) == (EdgeState.ATTACHED, 2)


SENDER = Sender("a", 1, 1)


def state(number: int, queue: int = 1, get: bool = False) -> SubscriptionState:
    return SubscriptionState(number, queue, 0, 0, get=get)


def live_leader() -> Leading:
    """It has taken two operations of the edge, and has a subscription of it."""
    leading = Leading()
    leading.tell(SENDER, Attach(0, (state(1),)))
    leading.tell(SENDER, Operations(1, (Publish((1,), make_run([1])), Publish((1,), make_run([2]))), 0, 0))
    leading.take()
    return leading


def ended(leading: Leading) -> list[str]:
    return [each.reason for _, each in leading.take() if isinstance(each, SessionEnded)]


LIES_OF_EDGES: dict[str, FromEdge] = {
    "operation 4 follows 2": Operations(4, (Purge(1),), 0, 0),
    "operation 3 is said to be decided, and 2 is the last one": Operations(3, (Purge(1),), 0, 3),
    "subscription 1 is there": Subscribe(state(1)),
}


@pytest.mark.parametrize("why", LIES_OF_EDGES)
def test_a_leader_ends_the_session(why: str) -> None:
    leading = live_leader()
    leading.tell(SENDER, LIES_OF_EDGES[why])
    assert ended(leading) == [why]
    assert leading.leader.differences == 1
    leading.tell(SENDER, CountMessages(1, 1, 0))
    assert leading.take() == []
    leading.tell(Sender("a", 1, 2), Attach(2, (state(1),)))
    assert [type(each) for _, each in leading.take()] == [Attached, Decided]


@pytest.mark.parametrize("other", [state(1, 2), state(1, 1, True)])
def test_a_subscription_stays_what_it_was(other: SubscriptionState) -> None:
    """The session that says otherwise does not begin, and the one before it goes on."""
    leading = live_leader()
    leading.tell(Sender("a", 1, 2), Attach(2, (other,)))
    assert ended(leading) == ["subscription 1 was another one"]
    leading.tell(SENDER, Operations(3, (Cancel(1, 0), Release(1, 0)), 0, 2))
    assert Decided(4, ()) in [each for _, each in leading.take()]


def test_a_leader_keeps_some_questions_and_subscriptions() -> None:
    leading = live_leader()
    with patch.object(contradictions, "QUESTIONS_MAX", 2):
        for question in range(3):
            leading.tell(SENDER, CountMessages(question, 1, 99))
    assert ended(leading) == ["2 questions are open"]
    leading = live_leader()
    with patch.object(contradictions, "SUBSCRIPTIONS_MAX", 2):
        leading.tell(SENDER, Subscribe(state(2)))
        assert ended(leading) == []
        leading.tell(SENDER, Subscribe(state(3)))
    assert ended(leading) == ["there are 2 subscriptions"]


@pytest.mark.parametrize("bound", ["INBOX_MESSAGES_MAX", "INBOX_BYTES_MAX"])
def test_a_leader_keeps_some_of_what_waits(bound: str) -> None:
    """Behind a purge, before it may purge."""
    leading = Leading()
    leading.leader.waits_for.add("c")
    leading.tell(SENDER, Attach(0, ()))
    leading.tell(SENDER, Operations(1, (Purge(1),), 0, 0))
    run = make_run([1])
    with patch.object(incarnation, bound, 3 if bound == "INBOX_MESSAGES_MAX" else 2 * run.nbytes - 1):
        for number in (2, 3):
            leading.tell(SENDER, Operations(number, (Publish((1,), run),), 0, 0))
        assert ended(leading) == []
        leading.tell(SENDER, Operations(4, (Publish((1,), run),), 0, 0))
    assert ended(leading) == ["more waits than a leader keeps"]


def test_more_refusals_than_an_answer_names_are_refusals_of_all() -> None:
    """A claim of very many messages, of which each second one is ready."""
    leading = Leading()
    leading.tell(SENDER, Attach(0, ()))
    leading.tell(SENDER, Operations(1, (Publish((1,), make_run(list(range(20)))),), 0, 0))
    queue = leading.queues[1]
    first = queue.ready[0]
    del queue.ready[::2]
    claimed = DeliveryClaim(1, first, 20, 0, False)
    attach = Attach(0, (SubscriptionState(1, 1, 20, 0, 20, claims=(claimed,)), state(2)))
    with patch.object(claims, "CLAIMS_MAX", 10):
        leading.tell(Sender("a", 1, 2), attach)
        assert len(answer_of(leading).refused) == 10
        with patch.object(claims, "CLAIMS_MAX", 9):
            leading.tell(Sender("a", 1, 3), attach)
    assert answer_of(leading).refused == (DeliveryRange(1, 1, 20),)
    assert len(queue.ready) == 10


def answer_of(leading: Leading) -> Attached:
    return [each for _, each in leading.take() if isinstance(each, Attached)][-1]
