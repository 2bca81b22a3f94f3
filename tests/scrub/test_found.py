"""What the scrub's finds do to queues: those that would have to read the row stop, the others do not."""

from __future__ import annotations

from pamqp import commands

from amqpd.management.figures.overview import overview
from amqpd.node.node import Node
from amqpd.scrub import FENCED, IN_MEMORY, UNWANTED, DamagedRow, DamageOutcome, damage_found
from tests.harness.invariants import check_node
from tests.queues.test_queue_damage import WHY, Scene

Basic = commands.Basic


def one(node: Node, queue_id: int, first: int, last: int) -> DamageOutcome:
    [outcome] = damage_found(node, [DamagedRow(queue_id, first, last, WHY)])
    return outcome


def test_the_queue_of_a_row_on_disk_only_is_fenced_before_a_consumer_comes() -> None:
    scene = Scene(6, [])
    node, queue_id = scene.harness.node, scene.queue.record.id
    assert one(node, queue_id, 3, 3) == (FENCED, scene.queue)
    assert one(node, queue_id, 3, 3) == (FENCED, scene.queue)
    [told] = scene.told("queue_fenced")
    assert (told["queue"], told["first"], told["last"], told["reason"]) == ("q", 3, 3, WHY)
    assert [each["name"] for each in overview(node)["queues_fenced"]] == ["q"]
    scene.harness.step()
    scene.client.consume("q")
    assert scene.numbers() == [0, 1, 2]
    assert scene.client.take(Basic.Cancel)
    scene.client.consume("other")
    assert scene.client.bodies() == [b"theirs"]
    check_node(node)


def test_what_is_settled_is_no_loss() -> None:
    scene = Scene(2, [])
    scene.client.consume("q", "mine")
    assert scene.numbers() == [0, 1]
    scene.client.send(Basic.Ack(2, True))
    assert one(scene.harness.node, scene.queue.record.id, 0, 1).what == UNWANTED
    assert not scene.client.take(Basic.Cancel)
    assert not scene.told("queue_fenced")


def test_many_finds_of_a_step_are_told_one_by_one_and_in_order() -> None:
    scene = Scene(6, [])
    node, queue_id = scene.harness.node, scene.queue.record.id
    rows = [DamagedRow(queue_id, 4, 4, WHY), DamagedRow(4711, 0, 0, WHY), DamagedRow(queue_id, 1, 1, WHY)]
    assert [each.what for each in damage_found(node, rows)] == [FENCED, UNWANTED, FENCED]
    assert sorted(told["first"] for told in scene.told("queue_fenced")) == [1, 4]
    [facts] = overview(node)["queues_fenced"]
    assert (facts["rows"], facts["first"], facts["blocked"]) == (2, 1, False)
    assert damage_found(node, []) == []
    check_node(node)


def test_messages_in_memory_are_delivered_though_their_row_is_damaged() -> None:
    scene = Scene(0, [])
    scene.client.publish(b"0", delivery_mode=2)
    node = scene.harness.node
    assert one(node, scene.queue.record.id, 0, 0) == (IN_MEMORY, scene.queue)
    assert not scene.told("queue_fenced")
    scene.client.consume("q")
    assert scene.numbers() == [0]
    check_node(node)


def test_a_row_of_a_queue_that_is_gone_is_nobodys_loss() -> None:
    scene = Scene(1, [])
    assert one(scene.harness.node, 4711, 0, 0) == (UNWANTED, None)


def test_a_level_of_a_priority_queue_is_fenced_and_higher_ones_go_on() -> None:
    scene = Scene(4, [], [1, 5, 1, 5], **{"x-max-priority": 5})
    node, queue_id = scene.harness.node, scene.queue.record.id
    assert one(node, queue_id + 1, 0, 0).what == FENCED
    scene.client.consume("q")
    assert scene.numbers() == [1, 3]
    assert scene.client.take(Basic.Cancel)
    check_node(node)
