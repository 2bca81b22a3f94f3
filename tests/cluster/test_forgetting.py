"""Who may be forgotten, and who not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from amqpd.cluster.claims import Claim
from amqpd.cluster.forgetting import MemberKept, forget
from amqpd.cluster.records import (
    FORGOTTEN_MAX,
    ClusterRecord,
    DesiredSetRecord,
    ForgottenRecord,
    KnownRecord,
    encode,
    forgotten_key,
    key_of,
    known_key,
)
from amqpd.errors import StartupError
from amqpd.topology.metadata.store import Compare, Operation, Outcome, PutKey
from tests.cluster.directories import Disk, end_lease, joined, member_record, source_record
from tests.topology.memory_store import MemorySpace, MemoryStore

pytestmark = pytest.mark.trio

KNOWN = KnownRecord("c@x", 3, 9)


async def a_store(*records: ClusterRecord) -> MemoryStore:
    store = MemoryStore(MemorySpace())
    await store.transact([], [PutKey(key_of(each), encode(each)) for each in records])
    return store


async def test_who_is_in_no_set_and_does_not_live_is_forgotten() -> None:
    store = await a_store(KNOWN, KnownRecord("a@x", 1, 1), member_record("a@x"))
    await forget(store, "c@x")
    assert await store.get(known_key("c@x")) is None
    assert await store.get(known_key("a@x")) is not None


async def test_of_the_disks_that_were_forgotten_the_last_ones_are_noted() -> None:
    record = ForgottenRecord("c@x", ())
    for generation in (*range(1, FORGOTTEN_MAX + 2), 5):
        record = record.with_one(generation)
    assert record.generations == (2, 3, 4, *range(6, FORGOTTEN_MAX + 2), 5)
    store = await a_store(KNOWN, ForgottenRecord("c@x", (1, KNOWN.generation, 2)))
    await forget(store, "c@x")
    noted = await store.get(forgotten_key("c@x"))
    assert noted is not None
    assert noted.value == encode(ForgottenRecord("c@x", (1, 2, KNOWN.generation)))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (member_record("c@x"), "lives"),
        (source_record(7), "in the set of source 7: take it out of that first"),
        (DesiredSetRecord(7, ("a@x", "c@x")), "desired for source 7"),
        (DesiredSetRecord(7, (), "c@x"), "desired for source 7"),
    ],
)
async def test_who_is_needed_is_kept(more: ClusterRecord, words: str) -> None:
    store = await a_store(KNOWN, more)
    with pytest.raises(MemberKept, match=words):
        await forget(store, "c@x")
    assert await store.get(known_key("c@x")) is not None


async def test_a_name_that_nobody_knows_cannot_be_forgotten() -> None:
    with pytest.raises(MemberKept, match="knows no member"):
        await forget(await a_store(), "c@x")


async def test_who_comes_back_meanwhile_is_kept() -> None:
    class Late(MemoryStore):
        async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
            if compares:
                back = member_record("c@x")
                await super().transact([], [PutKey(key_of(back), encode(back))])
            return await super().transact(compares, operations)

    store = Late(MemorySpace())
    await store.transact([], [PutKey(key_of(KNOWN), encode(KNOWN))])
    with pytest.raises(MemberKept, match="come back"):
        await forget(store, "c@x")


async def test_a_forgotten_disk_does_not_come_back_in_the_place_of_the_new_one_of_its_name(
    nursery: trio.Nursery,
) -> None:
    store, record = await a_store(), member_record("c@x")

    async def once(disk: Disk) -> int:
        member = await joined(nursery, store, record, disk=disk)
        member.scope.cancel()
        await end_lease(store, member.directory._lease)
        return member.directory.me.generation

    old, new = Disk(Claim(3, 1)), Disk(Claim(7, 1))
    await once(old)
    await forget(store, "c@x")
    generation = await once(new)
    with pytest.raises(StartupError, match="amqpd cluster readmit"):
        await once(old)
    assert await once(new) == generation
