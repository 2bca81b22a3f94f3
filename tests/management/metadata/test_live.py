"""Use cases on the metadata of a running broker: committed, applied, and never over somebody else's change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from amqpd import __version__
from amqpd.definitions.document import read_definitions
from amqpd.definitions.export import export_steps
from amqpd.management.errors import AlreadyExists, Conflict, NotFound, Unavailable
from amqpd.management.metadata import definitions, limits, permissions, policies, users, vhosts
from amqpd.management.metadata.imported_queues import placed_on
from amqpd.management.metadata.interface import Plan
from amqpd.management.metadata.live import LiveMetadata
from amqpd.management.running import Running
from amqpd.topology.metadata.store import StoreFull
from amqpd.topology.metadata.sync import transaction_of
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import BindingRecord, Delete, PermissionRecord, Put, QueueRecord, UserRecord
from tests.node.test_identity import ONE, Stored, space_with, started
from tests.topology.memory_store import MemorySpace, MemoryStore


def export_text(topology: Topology, version: str, vhost: str | None = None) -> str:
    return "".join(part for part in export_steps(topology, version, vhost) if part is not None)


pytestmark = pytest.mark.trio


@asynccontextmanager
async def live() -> AsyncIterator[tuple[LiveMetadata, Stored, MemorySpace]]:
    space = await space_with()
    async with trio.open_nursery() as nursery:
        broker = await started(space, ONE, nursery)
        on = Running(broker.node, broker.tick)
        yield LiveMetadata(on, broker.store, broker.sync), broker, space
        nursery.cancel_scope.cancel()


async def elsewhere(space: MemorySpace, *changes: Put | Delete) -> None:
    """Another process writes."""
    wanted = transaction_of(changes)
    await MemoryStore(space).transact(wanted.compares, wanted.operations)


async def test_what_is_changed_has_been_applied() -> None:
    async with live() as (metadata, broker, _):
        topology = broker.node.topology
        await users.add(metadata, "alice", None, ["monitoring"])
        await vhosts.add(metadata, "v", "for tests")
        await permissions.put(metadata, "v", "alice", ".*", "", "")
        await policies.put(metadata, False, "v", "p", "^q", {"max-length": 5})
        await limits.put(metadata, "user", "alice", {"max-channels": 3})
        assert topology.users["alice"].tags == ("monitoring",)
        assert topology.users["alice"].limits == {"max-channels": 3}
        assert (await permissions.listed(metadata, "v"))[0]["user"] == "alice"
        assert [row["name"] for row in await policies.listed(metadata, False)] == ["p"]
        with pytest.raises(AlreadyExists):
            await users.add(metadata, "alice", None)
        await vhosts.delete(metadata, "v")
        await users.delete(metadata, "alice")
        assert (set(topology.vhosts), topology.permissions, "alice" in topology.users) == ({"/"}, {}, False)


async def test_what_another_process_changes_meanwhile_is_not_written_over() -> None:
    async with live() as (metadata, broker, space):
        await users.add(metadata, "alice", None)
        known = broker.node.topology.users["alice"]
        rounds: list[UserRecord] = []

        def plan(topology: Topology) -> Plan:
            rounds.append(topology.users["alice"])
            return Plan([Put(replace(topology.users["alice"], tags=("management",)))])

        refresh = broker.sync.refresh

        async def overtaken() -> None:
            await refresh()
            if len(rounds) == 1:
                await elsewhere(space, Put(replace(known, password_hash="theirs")))

        broker.sync.refresh = overtaken  # type: ignore[method-assign]
        await metadata.change(plan)
        stored = broker.node.topology.users["alice"]
        assert (stored.password_hash, stored.tags) == ("theirs", ("management",))
        assert len(rounds) > 2


async def test_what_another_process_deletes_meanwhile_does_not_come_back() -> None:
    async with live() as (metadata, broker, space):
        await users.add(metadata, "alice", None)
        refresh = broker.sync.refresh

        async def overtaken() -> None:
            await refresh()
            await elsewhere(space, Delete(("user", "alice")))

        broker.sync.refresh = overtaken  # type: ignore[method-assign]
        with pytest.raises(NotFound, match="there is no user 'alice'"):
            await users.set_tags(metadata, "alice", ["management"])
        await refresh()
        assert "alice" not in broker.node.topology.users


async def test_somebody_who_is_always_faster_ends_it() -> None:
    async with live() as (metadata, broker, space):
        await users.add(metadata, "alice", None)
        refresh, count = broker.sync.refresh, 0

        async def overtaken() -> None:
            nonlocal count
            await refresh()
            count += 1
            await elsewhere(space, Put(UserRecord("alice", tags=(f"t{count}",))))

        broker.sync.refresh = overtaken  # type: ignore[method-assign]
        with pytest.raises(Conflict, match="all the time: try again"):
            await users.set_tags(metadata, "alice", ["management"])


async def test_a_full_disk_refuses_and_the_broker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live() as (metadata, broker, _):

        async def full(*_: object) -> None:
            raise StoreFull("the disk is full: make space")

        with monkeypatch.context() as patched:
            patched.setattr(broker.store, "transact", full)
            with pytest.raises(Unavailable, match=r"^the disk is full: make space$"):
                await users.add(metadata, "alice", None)
        await users.add(metadata, "alice", None)


async def test_what_is_left_of_a_user_is_swept() -> None:
    async with live() as (metadata, broker, space):
        await elsewhere(space, Put(PermissionRecord("ghost", "/", ".*", ".*", ".*")))
        await metadata.sweep()
        assert broker.node.topology.permissions == {}


QUEUE = QueueRecord("/", "q", 7)
BINDING = BindingRecord("/", "amq.fanout", "q", "queue", "")


async def test_a_binding_whose_queue_is_gone_is_swept() -> None:
    async with live() as (metadata, broker, space):
        await elsewhere(space, Put(QUEUE), Put(BINDING))
        await elsewhere(space, Delete(QUEUE.key))
        await metadata.sweep()
        assert list(broker.node.topology.vhosts["/"].bindings()) == []


async def test_a_binding_whose_queue_has_come_back_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the deletion."""
    async with live() as (metadata, broker, space):
        await elsewhere(space, Put(QUEUE), Put(BINDING))
        await elsewhere(space, Delete(QUEUE.key))
        transact = broker.store.transact

        async def late(*wanted: Any) -> Any:
            await elsewhere(space, Put(QUEUE))
            return await transact(*wanted)

        monkeypatch.setattr(broker.store, "transact", late)
        await metadata.sweep()
        assert list(broker.node.topology.vhosts["/"].bindings()) == [BINDING]


@pytest.mark.parametrize("with_sweep", [True, False])
async def test_what_is_bound_while_a_queue_is_planned_to_go_goes_with_it(
    with_sweep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is made of a copy, beside what clients do."""
    wanted = read_definitions(b'{"queues": []}', None)
    async with live() as (metadata, broker, space):
        await elsewhere(space, Put(QUEUE))
        await metadata.change(lambda _: Plan([]))
        aside, node = metadata.aside(), broker.node
        monkeypatch.setattr(type(metadata), "aside", lambda _: aside)
        copy = aside._copy  # type: ignore[attr-defined]

        async def copied() -> Any:
            found = await copy()
            await elsewhere(space, Put(BINDING))
            return found

        monkeypatch.setattr(aside, "_copy", copied)
        if not with_sweep:
            monkeypatch.setattr(aside, "sweep", trio.lowlevel.checkpoint)
        await definitions.import_definitions(metadata, wanted, prune=True)
        assert not node.topology.vhosts["/"].queues
        assert list(node.topology.vhosts["/"].bindings()) == []


async def test_definitions_are_imported_with_what_is_transient() -> None:
    text = b"""{"queues": [
        {"name": "kept", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}},
        {"name": "passing", "vhost": "/", "durable": false, "auto_delete": false, "arguments": {}}
    ]}"""
    async with live() as (metadata, broker, _):
        place = placed_on(lambda _: broker.node.sources.node)
        await definitions.import_definitions(metadata, read_definitions(text, None), place=place)
        assert set(broker.node.queues) == {("/", "kept"), ("/", "passing")}
        exported = await definitions.exported(metadata)
        assert exported == export_text(broker.node.topology, __version__, None)
        again = await definitions.planned(metadata, read_definitions(text, None))
        assert again.changes == []
