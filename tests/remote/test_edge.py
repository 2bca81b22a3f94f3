"""The edge's end by itself: what it hands to a leader for what channels ask of it."""

from __future__ import annotations

from amqpd.journal.operation_marks import Refused
from amqpd.queues.port import Receipt
from amqpd.remote.edge import Edge, EdgeState
from amqpd.remote.messages import Attach, Attached, Decided, Operations, Publish, Unknown
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
