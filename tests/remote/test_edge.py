"""The edge's end by itself: what it hands to a leader for what channels ask of it."""

from __future__ import annotations

from unittest.mock import patch

from amqpd.journal.operation_marks import Refused
from amqpd.queues.receipt import Receipt
from amqpd.remote import edge as edge_module
from amqpd.remote.edge import Edge, EdgeState
from amqpd.remote.formats import OPERATIONS_MAX, PARTS_MAX
from amqpd.remote.messages import (
    Attach,
    Attached,
    Decided,
    Deliver,
    Lower,
    Lowered,
    Operations,
    Publish,
    Settle,
    Settling,
    Unknown,
)
from amqpd.remote.subscription import place
from tests.remote.holding import Holding
from tests.remote.simulation.queue import make_run


class Refusals(Receipt):
    """Remembers what was refused, and what the lane had reported then."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.refused: list[tuple[int, int, int]] = []

    def refuse(self, low: int, high: int) -> None:
        self.refused.append((low, high, self.edge.lane.reported))


def attached(edge: Edge, mark: int = 0, epoch: int = 1) -> list[object]:
    edge.attach()
    edge.take()
    edge.receive(edge.session, Attached(epoch, mark, (), ()))
    return list(edge.take())


def test_a_run_for_several_queues_is_one_operation() -> None:
    edge, run = Edge("a", 1), make_run([1, 2])
    assert [edge.publish(queue, run) for queue in (7, 8)] == [1, 1]
    assert edge.publish(7, make_run([3])) == 2
    [sent] = attached(edge)
    assert isinstance(sent, Operations)
    assert [each.queues for each in sent.operations if isinstance(each, Publish)] == [(7, 8), (7,)]


def test_operations_wait_for_attached_and_go_from_the_mark_on() -> None:
    edge = Edge("a", 1)
    edge.publish(7, make_run([1]))
    edge.publish(7, make_run([2]))
    edge.attach()
    assert edge.take() == [Attach(0, ())]
    edge.receive(edge.session, Attached(1, 1, (), ()))
    [sent] = edge.take()
    assert isinstance(sent, Operations)
    assert (sent.first, len(sent.operations), sent.maybe_below) == (2, 1, 0)


def test_what_was_sent_in_an_older_epoch_is_maybe_a_duplicate() -> None:
    edge = Edge("a", 1)
    edge.publish(7, make_run([1]))
    attached(edge, epoch=1)
    edge.publish(7, make_run([2]))
    [sent] = attached(edge, epoch=2)
    assert isinstance(sent, Operations)
    assert (sent.first, len(sent.operations), sent.maybe_below) == (1, 2, 2)


def test_refusals_are_told_before_the_lane_reports() -> None:
    edge = Edge("a", 1)
    receipt = Refusals(edge)
    edge.publish(7, make_run([1, 2, 3]), receipt)
    attached(edge)
    edge.receive(edge.session, Decided(1, (Refused(1, 2, 3),)))
    assert receipt.refused == [(2, 3, 0)]
    assert edge.lane.reported == 1


def test_the_lane_lags_while_too_much_is_undecided() -> None:
    edge = Edge("a", 1, bytes_max=1000)
    for name in range(5):
        edge.publish(7, make_run([name]))
    assert edge.lane.lagging
    attached(edge)
    edge.receive(edge.session, Decided(5, ()))
    assert not edge.lane.lagging


def test_an_incarnation_that_has_ended_refuses_what_is_undecided() -> None:
    edge = Edge("a", 1)
    receipt = Refusals(edge)
    edge.publish(7, make_run([1, 2]), receipt)
    edge.attach()
    edge.receive(edge.session, Unknown(1))
    assert edge.state is EdgeState.ENDED
    assert receipt.refused == [(0, 2, 0)]
    assert edge.lane.reported == edge.lane.gathering == 1


def test_a_publish_that_is_given_up_keeps_its_number() -> None:
    edge = Edge("a", 1)
    receipt = Refusals(edge)
    edge.publish(7, make_run([1]), receipt)
    edge.give_up_publishes()
    assert receipt.refused == [(0, 1, 0)]
    [sent] = attached(edge)
    assert isinstance(sent, Operations)
    assert sent.operations == (Publish((), None),)


def test_a_limit_below_what_was_delivered_is_asked_for_once() -> None:
    """The leader lowers as far as that goes, and would answer the same again and again."""
    edge = Edge("a", 1)
    number = edge.get(7, lambda _: True)
    attached(edge)
    edge.limit(number, 0, 1 << 60)
    [asked] = edge.take()
    assert isinstance(asked, Lower)
    edge.receive(edge.session, Lowered(number, asked.question, 1, 1 << 60))
    assert (edge.state, edge.take()) == (EdgeState.ATTACHED, [])


def test_what_one_message_may_have_is_said_in_several() -> None:
    edge = Edge("a", 1)
    for name in range(OPERATIONS_MAX + 2):
        edge.purge(name, lambda _: None)
    sent = attached(edge)
    found = [(each.first, len(each.operations)) for each in sent if isinstance(each, Operations)]
    assert found == [(1, OPERATIONS_MAX), (OPERATIONS_MAX + 1, 2)]
    run = make_run([1])
    numbers = {edge.publish(queue, run) for queue in range(PARTS_MAX + 1)}
    assert len(numbers) == 2


def test_settles_of_very_many_ranges_are_several_operations() -> None:
    edge = Edge("a", 1)
    number = edge.subscribe(7, Holding(), 1 << 30, 1 << 60)
    attached(edge)
    count = 2 * (PARTS_MAX + 2)
    for i in range(count):
        edge.receive(edge.session, Deliver(number, i + 1, 2 * i, make_run([i]), 0, 1, False))
    for odd in range(1, count, 2):
        edge.settle(place(number, odd), place(number, odd))
    edge.reject(place(number, 1), place(number, count))
    found = [each.operations for each in edge.take() if isinstance(each, Operations)]
    settles = [each for operations in found for each in operations if isinstance(each, Settle)]
    assert [len(each.parts) for each in settles if each.kind is Settling.ACK] == [512] * 8 + [2]
    assert [len(each.parts) for each in settles if each.kind is Settling.REJECT] == [PARTS_MAX, 2]
    edge.receive(edge.session, Decided(11, ()))
    assert (edge.state, edge.lane.reported) == (EdgeState.ATTACHED, 11)


def test_the_leader_of_another_epoch_than_its_owner_knows_is_not_heard() -> None:
    """After a later one, which may be a lie, no honest leader would be heard; an earlier one has ended."""
    edge = Edge("a", 1)
    for said in (Attached(6, 0, (), ()), Unknown(6), Attached(4, 0, (), ()), Unknown(4)):
        edge.attach(5)
        edge.receive(edge.session, said)
        assert edge.state is EdgeState.ATTACHING
    edge.receive(edge.session, Attached(5, 0, (), ()))
    assert edge.state is EdgeState.ATTACHED


def test_claims_that_no_message_can_have_are_as_if_refused() -> None:
    edge = Edge("a", 1)
    few, many = [edge.subscribe(7, Holding(), 1 << 30, 1 << 60) for _ in range(2)]
    attached(edge)
    for number, count in ((few, 3), (many, 5)):
        for i in range(count):
            edge.receive(edge.session, Deliver(number, i + 1, 2 * i, make_run([i]), 0, 1, False))
    edge.settle(place(many, 1), place(many, 1))
    with patch.object(edge_module, "CLAIMS_MAX", 4):
        edge.attach()
    [said] = edge.take()
    assert isinstance(said, Attach)
    assert [len(each.claims) for each in said.subscriptions] == [3, 0]
    assert edge.claims_refused == 4
    edge.settle(place(many, 2), place(many, 5))
    assert edge.operation_count == 1
