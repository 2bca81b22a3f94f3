"""Whose queue it is: two nodes with one metadata store, and classic queues that one of them leads.

What is verified: the other node neither expires, auto-deletes nor conditionally deletes such a queue, keeps nothing
of it, and says who leads it; a queue without a node is claimed once; a record that somebody changed drops no message.
Not verified here: processes and etcd (`tests/faults/test_cluster_classic.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from pamqp import base, commands

from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow
from amqpd.queues.states import QueueState
from amqpd.topology.metadata.claiming import claim
from amqpd.topology.metadata.codec import decode_record, encode_key, encode_record
from amqpd.topology.metadata.store import PutKey
from amqpd.vocabulary.records import Put, QueueRecord, UnreadableQueue
from tests.harness.harness import Client
from tests.node.test_identity import ONE, TWO, Stored, declared, space_with, started
from tests.topology.memory_store import MemorySpace

pytestmark = pytest.mark.trio

Basic, Channel, Confirm, Queue = commands.Basic, commands.Channel, commands.Confirm, commands.Queue
KEY = encode_key(("queue", "/", "mine"))
UNCLAIMED = QueueRecord("/", "mine", 7 << 8)


def record_in(space: MemorySpace) -> QueueRecord:
    record = decode_record(KEY, space.entries[KEY].value)
    assert isinstance(record, QueueRecord)
    return record


async def settled(*nodes: Stored) -> None:
    for _ in range(2):
        for node in nodes:
            node.step()
        await trio.testing.wait_all_tasks_blocked()


async def call(node: Stored, client: Client, method: base.Frame, answer: Any) -> Any:
    client.send(method)
    await settled(node)
    return client.expect(answer)


async def test_a_new_queue_names_the_node_that_leads_it() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        await declared(one, durable=True)
        assert record_in(space).node == "one@x"
        assert list(one.node.queues) == list(two.node.remote) == [("/", "mine")]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
@pytest.mark.parametrize(
    "method",
    [
        Queue.Declare(queue="mine", passive=True),
        Queue.Purge(queue="mine"),
        Queue.Delete(queue="mine", if_empty=True),
        Queue.Delete(queue="mine", if_unused=True),
        Basic.Get(queue="mine"),
        Basic.Consume(queue="mine"),
    ],
    ids=lambda method: f"{method.name} {getattr(method, 'if_empty', '')}",
)
async def test_another_node_says_who_leads_it(method: base.Frame, durable: bool) -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        await declared(one, durable=durable)
        client = two.client()
        close = await call(two, client, method, Channel.Close)
        kind = "durable queue" if durable else "queue"
        assert (close.reply_code, close.reply_text) == (
            404,
            f"NOT_FOUND - home node 'one@x' of {kind} 'mine' in vhost '/' is another node: connect to that one",
        )
        assert KEY in space.entries
        nursery.cancel_scope.cancel()


async def test_of_a_node_that_is_away_it_has_rabbitmqs_words() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        await declared(one, durable=True)
        two.cluster.members = lambda name: False
        close = await call(two, two.client(), Queue.Declare(queue="mine", durable=True), Channel.Close)
        assert close.reply_text == (
            "NOT_FOUND - home node 'one@x' of durable queue 'mine' in vhost '/' is down or inaccessible"
        )
        nursery.cancel_scope.cancel()


async def test_a_queue_that_is_in_use_does_not_expire_at_another_node() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        client = await declared(one, durable=True, arguments={"x-expires": 1_000})
        await call(one, client, Basic.Consume(queue="mine"), Basic.ConsumeOk)
        for node in (one, two):
            node.node.now_ms += 60_000
        await settled(one, two)
        assert KEY in space.entries
        client.lose()
        await settled(one)
        one.node.now_ms += 60_000
        await settled(one, two)
        assert KEY not in space.entries, "its own node ends it"
        nursery.cancel_scope.cancel()


async def test_an_auto_delete_queue_is_left_to_the_consumers_of_its_node() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        client = await declared(one, durable=True, auto_delete=True)
        await call(one, client, Basic.Consume(queue="mine"), Basic.ConsumeOk)
        other = two.client()
        close = await call(two, other, Basic.Consume(queue="mine"), Channel.Close)
        assert close.reply_code == 404
        other.lose()
        await settled(one, two)
        assert KEY in space.entries
        assert not client.closed
        nursery.cancel_scope.cancel()


async def test_what_is_published_through_another_node_is_refused_and_kept_nowhere() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        await declared(one, durable=True)
        client = two.client()
        await call(two, client, Confirm.Select(), Confirm.SelectOk)
        client.publish(b"lost?", "mine", delivery_mode=2)
        await settled(one, two)
        assert client.expect(Basic.Nack).delivery_tag == 1
        assert one.node.queues["/", "mine"].ready_count == 0
        nursery.cancel_scope.cancel()


async def test_who_publishes_without_confirms_to_another_nodes_queue_is_in_the_log_once_a_minute() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        await declared(one, durable=True)
        client = two.client()
        for _ in range(3):
            client.publish(b"lost", "mine")
        await settled(two)
        two.node.now_ms += 61_000
        client.publish(b"lost", "mine")
        await settled(two)
        told = [fields for event, fields in two.logged if event == "publish_to_another_node"]
        assert told == [{"queue": "mine", "vhost": "/"}] * 2
        nursery.cancel_scope.cancel()


async def test_a_queue_that_was_deleted_and_declared_again_is_another_one_and_of_another_node() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        client = await declared(one, durable=True)
        client.publish(b"old", "mine", delivery_mode=2)
        before = record_in(space)
        await call(two, two.client(), Queue.Delete(queue="mine"), Queue.DeleteOk)
        await declared(two, durable=True)
        await settled(one, two)
        after = record_in(space)
        assert (before.node, after.node) == ("one@x", "two@x")
        assert before.id != after.id
        assert list(two.node.queues) == list(one.node.remote) == [("/", "mine")]
        assert two.node.queues["/", "mine"].ready_count == 0
        nursery.cancel_scope.cancel()


async def test_a_queue_without_a_node_is_claimed_once() -> None:
    space = await space_with(UNCLAIMED)
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        assert [node.node.registry.classic_of("") for node in (one, two)] == [[UNCLAIMED], [UNCLAIMED]]
        close = await call(one, one.client(), Queue.Declare(queue="mine", durable=True), Channel.Close)
        assert "has no node yet" in close.reply_text
        ours = replace(UNCLAIMED, node="two@x")
        assert await claim(two.store, [UNCLAIMED], "two@x") == [ours]
        assert await claim(one.store, [UNCLAIMED], "one@x") == []
        await settled(one, two)
        assert list(two.node.queues) == list(one.node.remote) == [("/", "mine")]
        assert [node.node.registry.classic_of("") for node in (one, two)] == [[], []]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "there",
    [
        replace(UNCLAIMED, node="one@x"),
        replace(UNCLAIMED, id=8 << 8),
        replace(UNCLAIMED, source=3, arguments={"x-queue-type": "quorum"}),
    ],
    ids=["another_nodes", "declared_again", "of_a_source"],
)
async def test_only_what_was_looked_at_is_claimed(there: QueueRecord) -> None:
    space = await space_with(there)
    async with trio.open_nursery() as nursery:
        node = await started(space, TWO, nursery)
        assert await claim(node.store, [UNCLAIMED], "two@x") == []
        assert record_in(space) == there
        nursery.cancel_scope.cancel()


async def test_a_claim_takes_many_and_leaves_out_what_is_gone() -> None:
    records = [replace(UNCLAIMED, name=f"q{number}", id=number << 8) for number in range(1, 251)]
    space = await space_with(*records)
    async with trio.open_nursery() as nursery:
        node = await started(space, TWO, nursery)
        claimed = await claim(node.store, [*records, replace(UNCLAIMED, name="gone")], "two@x")
        assert [each.name for each in claimed] == [each.name for each in records]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("level", "arguments"), [(0, {}), (5, {"x-max-priority": 9})], ids=["plain", "a_level"])
async def test_a_start_claims_what_its_journal_has_messages_of(level: int, arguments: dict[str, Any]) -> None:
    record = replace(UNCLAIMED, arguments=arguments)
    idle = replace(UNCLAIMED, name="idle", id=8 << 8)
    space = await space_with(record, idle)
    node = Stored(space, ONE)
    found = RecoveredQueue([RecoveredRow(0, 2, 60)], 3, 0)
    node.node.recover(Recovered(0, {record.id + level: found, idle.id: RecoveredQueue([], 7, 0)}))
    await node.sync.start()
    assert node.node.registry.to_claim() == [record]
    [ours] = await claim(node.store, node.node.registry.to_claim(), "one@x")
    node.topology.apply([Put(ours)])
    node.node.applied([Put(ours)])
    node.node.recovery_ended()
    assert node.node.queues["/", "mine"].ready_count == 3
    assert node.node.registry.classic_of("") == [idle]


async def test_a_record_that_names_another_node_all_of_a_sudden_drops_no_message() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one = await started(space, ONE, nursery)
        client = await declared(one, durable=True)
        client.publish(b"kept", "mine", delivery_mode=2)
        await settled(one)
        queue, record = one.node.queues["/", "mine"], record_in(space)
        one.node.journal.take()
        one.sync._topology.apply([Put(replace(record, node="two@x"))])
        one.node.applied([Put(replace(record, node="two@x"))])
        await settled(one)
        assert queue.state is QueueState.MOVED
        assert list(one.node.remote) == [("/", "mine")]
        assert not any(entry.dropped for entry in one.node.journal.take().entries)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("field", "at_two"), [('"node":"one@x"', False), ('"note":0', True)])
async def test_one_whose_record_cannot_be_read_is_out_of_service_where_it_may_be(field: str, at_two: bool) -> None:
    """A record that still says whose it is keeps the name at the other nodes; of one that does not, nobody knows."""
    readable = encode_record(replace(UNCLAIMED, node="one@x"))
    broken = readable.replace('"durable":true', '"durable":"?"').replace('"node":"one@x"', field)
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        await one.store.transact((), [PutKey(KEY, broken)])
        await settled(one, two)
        for node, is_there in ((one, True), (two, at_two)):
            assert (("/", "mine") in node.node.queues) == is_there
            assert isinstance(node.topology.vhosts["/"].queues["mine"], UnreadableQueue)
        nursery.cancel_scope.cancel()
