"""Two nodes with one metadata store: each ends its own exclusive queues, and has its own numbers of what is delayed.

`Stored` is a harness whose topology is kept by a real `TopologySync`; the stores of both share a key space, where a
record outlives the process that put it, as it does in etcd.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from pamqp import commands

from amqpd.management.control.commands import handlers
from amqpd.management.errors import Conflict
from amqpd.management.running import Running
from amqpd.session.services import Resume
from amqpd.topology import plans
from amqpd.topology.metadata.codec import encode_key, encode_record
from amqpd.topology.metadata.sync import TopologySync, transaction_of
from amqpd.vocabulary.identity import Identity
from amqpd.vocabulary.journal_numbers import delayed_id, vhost_number
from amqpd.vocabulary.records import Change, Key, Put, QueueRecord
from tests.harness.harness import Client, Harness
from tests.topology.memory_store import MemorySpace, MemoryStore

pytestmark = pytest.mark.trio

Exchange, Queue = commands.Exchange, commands.Queue
ONE, TWO = Identity("one@x", "11" * 16), Identity("two@x", "22" * 16)
KEY = encode_key(("queue", "/", "mine"))


class Stored(Harness):
    """A node of a store that others have too."""

    def __init__(self, space: MemorySpace, identity: Identity) -> None:
        self.identity = identity
        self.store = MemoryStore(space)
        self.cluster_node = identity.name
        super().__init__()
        self.sync = TopologySync(self.store, self.topology, self.node.applied, strict=False)

    def submit(
        self, changes: Sequence[Change], resume: Resume, requires: Iterable[Key] = (), owner: str = ""
    ) -> None:
        def done(made: bool) -> None:
            resume(made)
            self.tick()

        self.sync.submit_nowait(changes, done, requires, owner)


async def space_with(*records: QueueRecord) -> MemorySpace:
    """A key space with the usual virtual host, and these records of nodes that may be gone."""
    space = MemorySpace()
    async with aclosing(MemoryStore(space)) as store:
        made = transaction_of([*plans.create_vhost("/"), *(Put(record) for record in records)])
        await store.transact(
            (), [operation for operation in made.operations if operation.key.startswith("topology/")]
        )
    return space


async def started(space: MemorySpace, identity: Identity, nursery: trio.Nursery) -> Stored:
    node = Stored(space, identity)
    await node.sync.start()
    nursery.start_soon(node.sync.run)
    await trio.testing.wait_all_tasks_blocked()
    return node


async def declared(node: Stored, queue: str = "mine", **options: Any) -> Client:
    client = node.client()
    client.send(Queue.Declare(queue=queue, **options))
    await trio.testing.wait_all_tasks_blocked()
    client.expect(Queue.DeclareOk)
    return client


def exclusive(node: str, owner: str = "c9-gone", **more: Any) -> QueueRecord:
    """As a node left it: in a shared store a lease may last longer than the process."""
    return QueueRecord("/", "mine", 7 << 8, durable=True, exclusive=True, owner=owner, node=node, **more)


async def test_a_start_ends_the_exclusive_queues_that_its_own_earlier_incarnation_left() -> None:
    space = await space_with(exclusive(ONE.name))
    async with trio.open_nursery() as nursery:
        node = await started(space, ONE, nursery)
        assert KEY not in space.entries
        assert ("/", "mine") not in node.node.queues
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("more", [{}, {"auto_delete": True}, {"arguments": {"x-expires": 10}}])
async def test_a_start_leaves_another_nodes_exclusive_queue(more: dict[str, Any]) -> None:
    space = await space_with(exclusive(ONE.name, **more))
    async with trio.open_nursery() as nursery:
        node = await started(space, TWO, nursery)
        node.node.now_ms += 60_000
        node.step()
        await trio.testing.wait_all_tasks_blocked()
        assert KEY in space.entries
        nursery.cancel_scope.cancel()


async def test_a_connection_that_ends_takes_its_own_queues_along_and_no_other_nodes() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        owner = await declared(one, exclusive=True)
        other = await declared(two, "other", exclusive=True)
        assert owner.connection.id == other.connection.id, "an id is that of one node's connection"
        other.lose()
        await trio.testing.wait_all_tasks_blocked()
        assert encode_key(("queue", "/", "other")) not in space.entries
        assert KEY in space.entries
        assert ("/", "mine") in one.node.queues
        owner.lose()
        await trio.testing.wait_all_tasks_blocked()
        assert KEY not in space.entries
        nursery.cancel_scope.cancel()


async def test_the_same_connection_id_on_another_node_does_not_open_an_exclusive_queue() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        owner, other = await declared(one, exclusive=True), two.client()
        assert owner.connection.id == other.connection.id
        for method in (
            Queue.Declare(queue="mine", exclusive=True),
            Queue.Purge(queue="mine"),
            Queue.Delete(queue="mine"),
        ):
            other.send(method)
            await trio.testing.wait_all_tasks_blocked()
            assert other.expect(commands.Channel.Close).reply_code == 405
            other.send(commands.Channel.CloseOk())
            other.channel(1)
        assert KEY in space.entries
        nursery.cancel_scope.cancel()


async def test_a_deleted_virtual_host_is_cleared_of_what_is_the_nodes_own() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        await declared(one, exclusive=True)
        assert KEY in space.entries
        two.node.changes.submit([plans.delete_vhost(two.topology, "/")[-1]], lambda _: None)
        asked: list[Key] = []
        submit = two.submit

        def noted(changes: Sequence[Change], *rest: Any) -> None:
            asked.extend(getattr(change, "key", ()) for change in changes)
            submit(changes, *rest)

        two.submit = noted  # type: ignore[method-assign,assignment]
        await trio.testing.wait_all_tasks_blocked()
        assert asked, "the exchanges of the virtual host"
        assert ("queue", "/", "mine") not in asked
        assert KEY not in space.entries, "its own node has done it"
        nursery.cancel_scope.cancel()


async def test_transients_are_changed_by_the_node_that_has_them() -> None:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        one, two = [await started(space, identity, nursery) for identity in (ONE, TWO)]
        owner = await declared(one, exclusive=True)
        change_one, change_two = [
            handlers(Running(each.node, lambda: None))["transients change"] for each in (one, two)
        ]
        for asked in (
            {"delete": [KEY]},
            {"put": [{"key": KEY, "record": encode_record(one.topology.vhosts["/"].queues["mine"])}]},
        ):
            with pytest.raises(Conflict, match="exclusive to a connection of another node"):
                await change_two(asked)
        assert KEY in space.entries
        assert await change_one({"delete": [KEY]}) == {"changed": 1}
        assert KEY not in space.entries
        assert not owner.closed
        nursery.cancel_scope.cancel()


async def test_an_auto_delete_queue_without_consumers_outlives_the_start_of_any_node() -> None:
    record = QueueRecord("/", "mine", 7 << 8, auto_delete=True, node=ONE.name)
    space = await space_with(record)
    async with trio.open_nursery() as nursery:
        for identity in (ONE, TWO):
            node = await started(space, identity, nursery)
            assert node.topology.vhosts["/"].queues == {"mine": record}
        nursery.cancel_scope.cancel()


# -- delayed messages


def delaying(harness: Harness) -> Client:
    client = harness.client()
    later = Exchange.Declare(
        exchange="later", exchange_type="x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    client.call(later, Exchange.DeclareOk)
    client.declare("q", durable=True)
    client.call(Queue.Bind(queue="q", exchange="later", routing_key="q"), Queue.BindOk)
    return client


def delay(client: Client, data: bytes, delay_ms: int = 1_000) -> None:
    client.publish(data, exchange="later", headers={"x-delay": delay_ms}, delivery_mode=2)


def of_the_version_before(harness: Harness, vhost: str = "/") -> None:
    """What is on the disk, as it was when nodes had no ids."""
    harness.rows[vhost_number(vhost)] = {
        first: replace(row, queue_id=vhost_number(vhost))
        for first, row in harness.rows.pop(delayed_id(harness.identity.id, vhost)).items()
    }
    harness.next_seqs[vhost_number(vhost)] = harness.next_seqs.pop(delayed_id(harness.identity.id, vhost))


def bodies(harness: Harness, now_ms: int) -> list[bytes]:
    client = harness.client()
    client.consume("q")
    harness.node.now_ms = now_ms
    harness.step()
    return client.bodies()


async def test_two_nodes_keep_what_is_delayed_under_different_numbers() -> None:
    numbers = []
    for identity in (ONE, TWO):
        harness = Harness()
        harness.identity = identity
        harness.restart()
        delay(delaying(harness), b"x")
        numbers += harness.rows
    assert numbers == [delayed_id(ONE.id, "/"), delayed_id(TWO.id, "/")]


async def test_what_the_version_before_delayed_comes_and_then_its_number_is_left() -> None:
    harness = Harness()
    delay(delaying(harness), b"old")
    of_the_version_before(harness)
    harness.restart()
    assert not harness.node.orphans
    delay(harness.client(), b"new", 2_000)
    assert set(harness.rows) == {vhost_number("/")}, "one number at a time"
    harness.restart()
    assert bodies(harness, 5_000) == [b"old", b"new"]
    harness.commit()
    harness.restart()
    delay(harness.client(), b"newest")
    assert harness.node.delayed["/"].record.id == delayed_id(harness.identity.id, "/")
    harness.restart()
    assert not harness.node.orphans
    assert b"newest" in bodies(harness, 10_000)


async def test_a_virtual_host_that_is_deleted_and_made_again_has_nothing_of_the_version_before() -> None:
    harness = Harness()
    delay(delaying(harness), b"old")
    of_the_version_before(harness)
    harness.restart()
    harness._apply(plans.delete_vhost(harness.topology, "/"))
    harness._apply(plans.create_vhost("/"))
    harness.step()
    delay(delaying(harness), b"new")
    assert bodies(harness, 5_000) == [b"new"]


@pytest.mark.parametrize("before", [True, False])
async def test_what_a_deleted_virtual_host_delayed_is_no_orphan(before: bool) -> None:
    harness = Harness()
    delay(delaying(harness), b"x")
    if before:
        of_the_version_before(harness)
    (number,) = harness.rows
    # Its end is in the metadata store, and did not get into the journal.
    harness.tombstones.add(vhost_number("/"))
    harness.loses = lambda record: True
    harness.restart()
    assert not harness.node.orphans
    harness.commit()
    assert number not in harness.rows


async def test_an_orphan_of_the_version_before_is_given_back() -> None:
    harness = Harness()
    delay(delaying(harness), b"old")
    of_the_version_before(harness)
    harness.loses = lambda record: True
    harness.restart()
    (orphan,) = harness.node.orphans
    harness._apply(plans.create_vhost("/"))
    client = delaying(harness)
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    delay(client, b"refused")
    assert client.take(commands.Basic.Nack)
    harness.node.registry.give_back("/", orphan)
    delay(client, b"new", 2_000)
    assert bodies(harness, 5_000) == [b"old", b"new"]
