"""Directories on a real etcd that is killed, paused, compacted and cut off under them.

What is verified: a member whose process is gone is gone with its lease; a lease that was lost is granted again, and
the key is put again; a swap whose answer was lost has one outcome, which is told; everything recovers unaided, and
nobody is taken for gone because etcd does not answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from amqpd.cluster import directory, swaps
from amqpd.cluster.records import SOURCES, member_key
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.etcd import feed, gateway
from amqpd.topology.metadata.etcd.gateway import REVOKE, EtcdAccess
from amqpd.topology.metadata.etcd.store import EtcdStore
from amqpd.topology.metadata.store import PutKey, StoreUnavailable
from tests.cluster.directories import Member, joined, known_record, member_record, source_record
from tests.harness.etcd import EtcdProcess
from tests.harness.relay import Relay, relay_to
from tests.harness.slow import slow
from tests.topology.etcd_stores import new_prefix
from tests.topology.etcd_stores import own_etcd as own_etcd
from tests.topology.etcd_stores import shared_etcd as shared_etcd

pytestmark = pytest.mark.trio
A, B = member_record("a@x"), member_record("b@x", generation=2)
Open = Callable[..., Awaitable[EtcdStore]]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "ANSWER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(gateway, "SILENCE_S", 0.5)
    monkeypatch.setattr(feed, "RETRY_S_MAX", 0.05)
    monkeypatch.setattr(directory, "RETRY_S", 0.1)
    monkeypatch.setattr(swaps, "RETRY_S", 0.1)


@pytest.fixture
def patient(_impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is away: what takes long on a loaded machine is waited for."""
    monkeypatch.setattr(gateway, "ANSWER_TIMEOUT_S", 60)
    monkeypatch.setattr(gateway, "SILENCE_S", 60)


@asynccontextmanager
async def cluster_at(port: int) -> AsyncIterator[tuple[Open, trio.Nursery]]:
    """A function that opens one store more, over the same keys; `port`: by another way. And where members run, which
    end before the stores do."""
    prefix = new_prefix()
    opened: list[EtcdStore] = []
    async with trio.open_nursery() as stores:

        async def open_store(port: int = port, wait_s: float = 1.5) -> EtcdStore:
            store = EtcdStore(EtcdAccess((f"127.0.0.1:{port}",)), prefix, "node", wait_s=wait_s)
            await stores.start(store.run)
            opened.append(store)
            return store

        async with trio.open_nursery() as members:
            yield open_store, members
            members.cancel_scope.cancel()
        for store in opened:
            await store.aclose()


@pytest.fixture
async def relay(shared_etcd: EtcdProcess) -> AsyncIterator[Relay]:
    async with relay_to(shared_etcd.port) as relay:
        yield relay


async def pair(nursery: trio.Nursery, first: EtcdStore, second: EtcdStore) -> tuple[Member, Member]:
    one, two = await joined(nursery, first, A), await joined(nursery, second, B)
    await one.until(lambda it: len(it.roster.members) == 2)
    return one, two


async def refreshed(member: Member) -> None:
    """As soon as the store answers."""
    while True:
        try:
            return await member.directory.refresh()
        except StoreUnavailable:
            await trio.sleep(0.05)


async def test_a_member_whose_process_is_gone_is_gone_with_its_lease(shared_etcd: EtcdProcess) -> None:
    async with cluster_at(shared_etcd.port) as (open_store, nursery):
        one, two = await pair(nursery, await open_store(), await open_store())
        two.scope.cancel()
        began = trio.current_time()
        await one.until(lambda it: "b@x" not in it.roster.members)
        # etcd looks for leases that ran out twice a second.
        assert directory.LEASE_S / 2 < trio.current_time() - began < directory.LEASE_S + 3
        assert one.directory.roster.known["b@x"] == known_record(B)
        expected = replace(B, incarnation=2, nonce=3)
        again = await joined(nursery, await open_store(), replace(B, nonce=3), disk=two.disk)
        await one.until(lambda it: it.roster.members.get("b@x") == expected)
        assert again.directory.me == expected


async def test_a_lease_that_etcd_ended_is_granted_again(shared_etcd: EtcdProcess) -> None:
    async with cluster_at(shared_etcd.port) as (open_store, nursery):
        store = await open_store()
        one, two = await pair(nursery, store, await open_store())
        entry = await store.get(member_key("a@x"))
        assert entry is not None
        await trio.to_thread.run_sync(shared_etcd.ask, REVOKE, {"ID": str(entry.lease)})
        await two.until(lambda it: "a@x" not in it.roster.members)
        await two.until(lambda it: "a@x" in it.roster.members)
        assert two.directory.roster.members["a@x"] == one.directory.me == A


async def test_a_member_that_was_cut_off_is_one_again(shared_etcd: EtcdProcess, relay: Relay) -> None:
    async with cluster_at(shared_etcd.port) as (open_store, nursery):
        one, two = await pair(nursery, await open_store(relay.port), await open_store())
        relay.cut()
        await two.until(lambda it: "a@x" not in it.roster.members)
        record = await two.directory.swaps.swap(source_record())
        assert set(one.directory.roster.members) == {"a@x", "b@x"}, "what was heard last"
        relay.mend()
        await two.until(lambda it: "a@x" in it.roster.members)
        await one.until(lambda it: it.roster.records)
        assert one.directory.roster.records[1] == record
        assert dict(one.directory.roster.members) == dict(two.directory.roster.members) == {"a@x": A, "b@x": B}


@pytest.mark.parametrize(
    ("contested", "answers_only"), [slow(False, True), slow(False, False), (True, True), slow(True, False)]
)
async def test_a_swap_in_a_cut_has_one_outcome(
    shared_etcd: EtcdProcess, relay: Relay, answers_only: bool, contested: bool
) -> None:
    """What was cut in a request arrives when the relay is mended, behind the second swap or before it."""
    async with cluster_at(shared_etcd.port) as (open_store, nursery):
        one, two = await pair(nursery, await open_store(relay.port), await open_store())
        first = await one.directory.swaps.swap(source_record())
        assert first is not None
        relay.cut(answers_only=answers_only)
        outcomes: list[SourceRecord | None] = []

        async def swap() -> None:
            outcomes.append(await one.directory.swaps.swap(replace(first, leader=first.leader._replace(epoch=2))))

        async with trio.open_nursery() as swapping:
            swapping.start_soon(swap)
            await trio.sleep(2)
            assert outcomes == []
            # What one wants is there, if its requests came through, else what was there before.
            now = await two.directory.swaps.read(1)
            assert now is not None
            assert now.leader.epoch == (2 if answers_only else 1)
            if contested:
                now = await two.directory.swaps.swap(replace(now, leader=now.leader._replace(epoch=3)))
                assert now is not None
            relay.mend()
        assert outcomes == [None if contested else await two.directory.swaps.read(1)]
        await refreshed(one)
        final = one.directory.roster.records[1]
        assert final == await two.directory.swaps.read(1)
        assert final.leader.epoch == (3 if contested else 2)


async def test_a_swap_that_reaches_nobody_ends(
    relay: Relay, shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swaps, "SWAP_S", 3)
    async with cluster_at(shared_etcd.port) as (open_store, nursery):
        one = await joined(nursery, await open_store(relay.port), A)
        relay.cut()
        began = trio.current_time()
        with pytest.raises(StoreUnavailable, match="whether the record was put is not known"):
            await one.directory.swaps.swap(source_record())
        assert trio.current_time() - began < 6
        relay.mend()
        await refreshed(one)
        # The same swap again tells what became of the first.
        record = await one.directory.swaps.swap(source_record())
        assert record is not None
        assert record == await one.directory.swaps.read(1)


@pytest.mark.slow
async def test_etcd_is_killed_and_comes_back(own_etcd: EtcdProcess) -> None:
    async with cluster_at(own_etcd.port) as (open_store, nursery):
        one, two = await pair(nursery, await open_store(), await open_store())
        record = await one.directory.swaps.swap(source_record())
        assert record is not None
        await two.until(lambda it: it.roster.records)
        await trio.to_thread.run_sync(own_etcd.kill)
        await trio.sleep(2 * directory.LEASE_S)
        with pytest.raises(StoreUnavailable):
            await one.directory.swaps.read(1)
        with pytest.raises(StoreUnavailable):
            await one.directory.swaps.swap(record)
        for each in (one, two):
            assert set(each.directory.roster.members) == {"a@x", "b@x"}, "nobody is gone because etcd is"
            assert each.directory.roster.records[1] == record
        await trio.to_thread.run_sync(own_etcd.start)
        await refreshed(one)
        second = await one.directory.swaps.swap(replace(record, leader=record.leader._replace(epoch=2)))
        await two.until(lambda it: it.roster.records[1] == second)
        # Both have leases again, and go on having them.
        await trio.sleep(2 * directory.LEASE_S)
        await refreshed(one)
        await refreshed(two)
        assert dict(one.directory.roster.members) == dict(two.directory.roster.members) == {"a@x": A, "b@x": B}


async def test_what_etcd_has_compacted_is_read_again(own_etcd: EtcdProcess) -> None:
    async with relay_to(own_etcd.port) as relay, cluster_at(own_etcd.port) as (open_store, nursery):
        one, two = await pair(nursery, await open_store(relay.port), await open_store())
        relay.cut()
        await two.until(lambda it: "a@x" not in it.roster.members)
        record = await two.directory.swaps.swap(source_record())
        writer = await open_store()
        for number in range(5):
            await writer.transact([], [PutKey(f"topology/{number}", "?")])
        await trio.to_thread.run_sync(own_etcd.compact)
        relay.mend()
        await one.until(lambda it: it.roster.records)
        assert one.directory.roster.records[1] == record
        await two.until(lambda it: "a@x" in it.roster.members)
        await refreshed(one)
        assert dict(one.directory.roster.members) == dict(two.directory.roster.members) == {"a@x": A, "b@x": B}


@pytest.mark.usefixtures("patient")
async def test_the_topology_and_a_directory_share_one_watch(
    shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches: list[str] = []
    follow = gateway.Gateway.follow

    async def counted(self: gateway.Gateway, path: str, *given: object) -> None:
        watches.append(path)
        await follow(self, path, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(gateway.Gateway, "follow", counted)
    async with cluster_at(shared_etcd.port) as (open_store, nursery):
        store = await open_store()
        one = await joined(nursery, store, A)
        seen: list[str] = []
        has_seen = trio.Event()

        async def follow_as_the_topology_does() -> None:
            async for event in store.watch(one.directory.roster.revision):
                seen.extend(operation.key for operation in event.operations)
                has_seen.set()

        nursery.start_soon(follow_as_the_topology_does)
        await trio.testing.wait_all_tasks_blocked()
        record = await one.directory.swaps.swap(source_record())
        await one.until(lambda it: it.roster.records)
        assert one.directory.roster.records[1] == record
        await has_seen.wait()
        assert seen == ["cluster/source/1"]
        assert len(watches) == 1


@pytest.mark.usefixtures("patient")
async def test_two_members_that_take_over_everything_share_it(shared_etcd: EtcdProcess) -> None:
    async with cluster_at(shared_etcd.port) as (open_store, nursery):
        one, two = await pair(nursery, await open_store(wait_s=20), await open_store(wait_s=20))
        won: dict[str, list[SourceRecord]] = {"a@x": [], "b@x": []}

        async def take(member: Member, source: int) -> None:
            name = member.directory.me.name
            if (record := await member.directory.swaps.swap(source_record(source, name))) is not None:
                won[name].append(record)

        async with trio.open_nursery() as taking:
            for source in range(1, SOURCES + 1):
                for member in (one, two):
                    taking.start_soon(take, member, source)
        for member in (one, two):
            await refreshed(member)
            assert dict(member.directory.roster.records) == {each.source: each for each in (*won["a@x"], *won["b@x"])}
        assert len(one.directory.roster.records) == len(won["a@x"]) + len(won["b@x"]) == SOURCES
