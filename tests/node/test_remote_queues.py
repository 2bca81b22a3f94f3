"""Queues whose leaders are other nodes: what clients and operators are told, and what a node does not do for them.

Not verified: how a leader moves (`test_source_moves.py`).
"""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from functools import partial

import pytest
import trio
from pamqp import base, commands
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.journal.records import Recovered, RecoveredQueue
from amqpd.management.errors import NotFound
from amqpd.management.messages.leader_queues import leader_queue
from amqpd.management.running import Running
from amqpd.management.why.queues import explained
from amqpd.queues.states import QueueState
from amqpd.remote.queue import RemoteQueue
from amqpd.vocabulary.records import Delete, Put, QueueRecord
from tests.harness.harness import Client
from tests.management.rig import queue_rows
from tests.node.test_source_moves import QUORUM, SOURCE, Scene, declared, scene

__all__ = ["scene"]

Basic, Channel, Confirm, Queue = commands.Basic, commands.Channel, commands.Confirm, commands.Queue
THEIRS = QueueRecord("/", "theirs", 1 << 40, durable=True, arguments=QUORUM, source=9)
CLASSIC = QueueRecord("/", "theirs", 1 << 40, durable=True, node="b")


def apply(scene: Scene, change: Put | Delete) -> None:
    """As the metadata store tells it."""
    scene.node.topology.apply([change])
    scene.node.applied([change])
    scene.harness.step()


@pytest.fixture(params=[THEIRS, CLASSIC], ids=["quorum", "classic"])
def theirs(request: pytest.FixtureRequest, scene: Scene) -> QueueRecord:
    """Node b leads it."""
    record: QueueRecord = request.param
    scene.harness.cluster.leaders = lambda source: "b"
    scene.node.sources.node = "a"
    apply(scene, Put(record))
    return record


@pytest.fixture
def client(scene: Scene, theirs: QueueRecord) -> Client:
    return scene.harness.client()


def nobody_leads(scene: Scene) -> None:
    """The source has no leader, the node is down."""
    scene.harness.cluster.leaders = lambda source: ""
    scene.harness.cluster.members = lambda name: False


@pytest.mark.parametrize(
    "method",
    [
        Queue.Declare(queue="theirs", passive=True),
        Queue.Declare(queue="theirs", durable=True),
        Queue.Purge(queue="theirs"),
        Basic.Get(queue="theirs"),
        Basic.Consume(queue="theirs"),
    ],
    ids=lambda method: f"{method.name} {getattr(method, 'passive', '')}",
)
def test_a_client_that_names_one_is_told_where_its_leader_is(
    scene: Scene, theirs: QueueRecord, client: Client, method: base.Frame
) -> None:
    if isinstance(method, Queue.Declare):
        method.arguments = dict(theirs.arguments)
    client.send(method)
    close = client.expect(Channel.Close)
    assert (close.reply_code, close.reply_text) == (
        404,
        "NOT_FOUND - home node 'b' of durable queue 'theirs' in vhost '/' is another node: connect to that one",
    )
    nobody_leads(scene)
    again = scene.harness.client()
    again.send(method)
    leader = "the leader" if theirs.source else "home node 'b'"
    assert again.expect(Channel.Close).reply_text == (
        f"NOT_FOUND - {leader} of durable queue 'theirs' in vhost '/' is down or inaccessible"
    )


def test_a_client_is_not_sent_to_a_node_that_is_gone(scene: Scene, client: Client) -> None:
    """It led the queue last, and most of the others are gone, too: nobody follows it."""
    scene.harness.cluster.members = lambda name: False
    client.send(Queue.Declare(queue="theirs", passive=True))
    assert client.expect(Channel.Close).reply_text == (
        "NOT_FOUND - home node 'b' of durable queue 'theirs' in vhost '/' is down or inaccessible"
    )


def test_what_is_published_to_one_is_refused(client: Client) -> None:
    client.call(Confirm.Select(), Confirm.SelectOk)
    client.publish(b"one", "theirs", delivery_mode=2)
    assert client.expect(Basic.Nack).delivery_tag == 1


def test_it_can_be_deleted(scene: Scene, client: Client) -> None:
    client.call(Queue.Delete(queue="theirs"), Queue.DeleteOk)
    assert len(scene.node.ports) == 0
    assert scene.node.sources.queues[9] == 0


def test_it_is_listed_and_counted_and_nothing_else_is_done_for_it(scene: Scene, theirs: QueueRecord) -> None:
    node = scene.node
    # Nobody says how many messages it has: no 0 is made up.
    assert [(row["name"], row["state"], row["messages"]) for row in queue_rows(node)] == [("theirs", "down", None)]
    assert len(node.ports) == 1
    node.client_counters._limits = replace(node.limits, node_queues_max=1)
    with pytest.raises(AMQPPreconditionFailed):
        node.client_counters.declare_queue(replace(theirs, name="more"), lambda _: None, lambda *_: None)
    # What samples, audits, shares memory and looks at policies goes through these.
    assert node.queues == {}
    assert node.audited() == []


def test_an_operator_who_asks_for_its_messages_is_sent_to_its_leader(scene: Scene, theirs: QueueRecord) -> None:
    with pytest.raises(NotFound, match="node 'b' leads the queue 'theirs'"):
        leader_queue(scene.node, "/", "theirs")
    nobody_leads(scene)
    why = "`amqpd quorum status` says why" if theirs.source else "its node 'b' is down or inaccessible"
    with pytest.raises(NotFound, match=f"no node leads the queue 'theirs' in virtual host '/' at present: {why}"):
        leader_queue(scene.node, "/", "theirs")
    with pytest.raises(NotFound, match="there is no queue"):
        leader_queue(scene.node, "/", "none")


def test_why_says_who_leads_it_or_what_keeps_it_from_being_led(scene: Scene, theirs: QueueRecord) -> None:
    on = Running(scene.node, lambda: None)

    def why() -> list[str]:
        return trio.run(partial(explained, on, "/", "theirs", names_consumers=True))

    unknown = "What is in it is not known here"
    assert why() == [f"node 'b' leads it. {unknown}"]
    nobody_leads(scene)
    reason = "`amqpd quorum status` says why" if theirs.source else "its node 'b' is down or inaccessible"
    assert why() == [f"no node leads it at present: {reason}. {unknown}"]
    if not theirs.source:
        apply(scene, Put(replace(theirs, node="")))
        reason = "it gets a node when all nodes of the cluster have been started"
        assert why() == [f"no node leads it at present: {reason}. {unknown}"]


def test_it_goes_and_comes_with_its_source(scene: Scene) -> None:
    client = declared(scene)
    client.publish(b"one", "q", delivery_mode=2)
    before = scene.node.queues["/", "q"]
    scene.end()
    there = scene.node.ports.get(("/", "q"))
    assert isinstance(there, RemoteQueue)
    assert there.subscribers() == []
    assert (scene.node.queues, before.state) == ({}, QueueState.MOVED)
    apply(scene, Put(replace(there.record, arguments={**QUORUM, "x-max-length": 5})))
    scene.begin(Recovered(0, {there.record.id: RecoveredQueue([], 7, 0)}))
    after = scene.node.queues["/", "q"]
    assert scene.node.remote == {}
    assert (after.settings.max_length, after.backlog.store.next_seq) == (5, 7)
    assert scene.node.sources.queues[SOURCE] == 1


def test_what_there_is_of_one_that_was_deleted_meanwhile_goes_if_that_is_recorded(scene: Scene) -> None:
    """Its record is gone before anybody is the leader again, so nobody else would ever end its messages."""
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


@pytest.mark.parametrize("theirs", [THEIRS, CLASSIC], ids=["quorum", "classic"])
def test_it_takes_little_memory(scene: Scene, theirs: QueueRecord) -> None:
    """Beside its record, which the topology has in any case."""
    records = [replace(theirs, name=f"q{number}", id=number << 8) for number in range(1, 1001)]
    queues = []
    tracemalloc.start()
    try:
        for record in records:
            queues.append(RemoteQueue(record, scene.node.journal.lane, scene.node.edges))
        nbytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert nbytes / len(queues) < 500
