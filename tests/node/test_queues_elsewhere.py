"""Queues whose homes are other nodes: what clients and operators are told, and what a node does not do for them.

Not verified: how a home moves (`test_source_moves.py`).
"""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from pamqp import base, commands
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.journal.records import Recovered, RecoveredQueue
from amqpd.management.errors import NotFound
from amqpd.management.messages.home_queues import home_queue
from amqpd.queues.elsewhere import ElsewhereQueue
from amqpd.vocabulary.records import Delete, Put, QueueRecord
from tests.harness.harness import Client
from tests.management.rig import queue_rows
from tests.node.test_source_moves import QUORUM, SOURCE, Scene, declared, scene

__all__ = ["scene"]

Basic, Channel, Confirm, Queue = commands.Basic, commands.Channel, commands.Confirm, commands.Queue
THEIRS = QueueRecord("/", "theirs", 1 << 40, durable=True, arguments=QUORUM, source=9)


def apply(scene: Scene, change: Put | Delete) -> None:
    """As the metadata store tells it."""
    scene.node.topology.apply([change])
    scene.node.applied([change])
    scene.harness.step()


@pytest.fixture
def client(scene: Scene) -> Client:
    scene.node.sources.home_of = lambda source: "b"
    apply(scene, Put(THEIRS))
    return scene.harness.client()


@pytest.mark.parametrize(
    "method",
    [
        Queue.Declare(queue="theirs", passive=True),
        Queue.Declare(queue="theirs", durable=True, arguments={**QUORUM}),
        Queue.Purge(queue="theirs"),
        Basic.Get(queue="theirs"),
        Basic.Consume(queue="theirs"),
    ],
    ids=lambda method: f"{method.name} {getattr(method, 'passive', '')}",
)
def test_a_client_that_names_one_is_told_where_its_home_is(client: Client, method: base.Frame) -> None:
    client.send(method)
    close = client.expect(Channel.Close)
    assert close.reply_code == 404
    assert "home node 'b'" in close.reply_text


def test_what_is_published_to_one_is_refused(client: Client) -> None:
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.publish(b"one", "theirs", delivery_mode=2)
    assert client.expect(Basic.Nack).delivery_tag == 1


def test_it_can_be_deleted(scene: Scene, client: Client) -> None:
    client.call(Queue.Delete(queue="theirs"), Queue.DeleteOk)
    assert len(scene.node.ports) == 0
    assert scene.node.sources.queues[9] == 0


def test_it_is_listed_and_counted_and_nothing_else_is_done_for_it(scene: Scene, client: Client) -> None:
    node = scene.node
    # Nobody says how many messages it has: no 0 is made up.
    assert [(row["name"], row["state"], row["messages"]) for row in queue_rows(node)] == [("theirs", "down", None)]
    assert len(node.ports) == 1
    node.census._limits = replace(node.limits, node_queues_max=1)
    with pytest.raises(AMQPPreconditionFailed):
        node.census.declare_queue(replace(THEIRS, name="more"), lambda _: None, lambda *_: None)
    # What samples, audits, shares memory and looks at policies goes through these.
    assert node.queues == {}
    assert node.audited() == []


def test_an_operator_who_asks_for_its_messages_is_sent_to_its_home(scene: Scene, client: Client) -> None:
    with pytest.raises(NotFound, match="node 'b' leads the queue 'theirs'"):
        home_queue(scene.node, "/", "theirs")
    scene.node.sources.home_of = lambda source: ""
    with pytest.raises(NotFound, match="no node leads the queue 'theirs'"):
        home_queue(scene.node, "/", "theirs")
    with pytest.raises(NotFound, match="there is no queue"):
        home_queue(scene.node, "/", "none")


def test_it_goes_and_comes_with_its_source(scene: Scene) -> None:
    client = declared(scene)
    client.publish(b"one", "q", delivery_mode=2)
    before = scene.node.queues["/", "q"]
    scene.end()
    there = scene.node.ports.get(("/", "q"))
    assert isinstance(there, ElsewhereQueue)
    assert there.subscribers() == []
    assert (scene.node.queues, before.elsewhere) == ({}, True)
    apply(scene, Put(replace(there.record, arguments={**QUORUM, "x-max-length": 5})))
    scene.begin(Recovered(0, {there.record.id: RecoveredQueue([], 7, 0)}))
    after = scene.node.queues["/", "q"]
    assert scene.node.elsewhere == {}
    assert (after.settings.max_length, after.backlog.store.next_seq) == (5, 7)
    assert scene.node.sources.queues[SOURCE] == 1


def test_what_there_is_of_one_that_was_deleted_meanwhile_goes_if_that_is_recorded(scene: Scene) -> None:
    """Its record is gone before anybody is the home again, so nobody else would ever end its messages."""
    declared(scene)
    scene.node.journal.take()
    record = scene.node.queues["/", "q"].record
    scene.end()
    apply(scene, Delete(record.key))
    found = {each: RecoveredQueue([], 7, 0) for each in (record.id, record.id + 3, THEIRS.id)}
    scene.begin(Recovered(0, found))
    registry = scene.node.registry
    assert registry.has_unclaimed(SOURCE)
    registry.drop_deleted(SOURCE, {record.id, 99})
    [entry] = scene.node.journal.take().entries
    assert entry.dropped == [record.id, record.id + 3], "with its levels"
    assert registry.has_unclaimed(SOURCE), "the record of the other one may come yet"
    apply(scene, Put(replace(THEIRS, source=SOURCE)))
    assert scene.node.queues["/", "theirs"].backlog.store.next_seq == 7


def test_it_takes_little_memory(scene: Scene) -> None:
    """Beside its record, which the topology has in any case."""
    records = [replace(THEIRS, name=f"q{number}", id=number << 8) for number in range(1, 1001)]
    queues = []
    tracemalloc.start()
    try:
        for record in records:
            queues.append(ElsewhereQueue(record, scene.node.journal.lane))
        nbytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert nbytes / len(queues) < 500
