"""A directory: on every store what all of them do, then on a store in memory what only that can be made to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from amqpd.cluster import directory
from amqpd.cluster.records import KnownRecord, WishRecord, encode, known_key, member_key, source_key
from amqpd.cluster.roster import Changed
from amqpd.errors import NodeFailure, StartupError, find_failure
from amqpd.topology.metadata.memory import MemorySpace, MemoryStore
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import (
    DeleteKey,
    Entry,
    MetadataStore,
    Operation,
    Outcome,
    PutKey,
    StoreUnavailable,
    Transaction,
)
from tests.cluster.directories import Unsure, drawing, joined, member_record, source_record
from tests.topology.etcd_stores import shared_etcd as shared_etcd
from tests.topology.test_store import Stores
from tests.topology.test_store import stores as stores

pytestmark = pytest.mark.trio
A, B = member_record("a@x"), member_record("b@x", generation=2)


@pytest.fixture
async def store(stores: Stores) -> MetadataStore:
    return await stores()


@pytest.fixture
def space() -> MemorySpace:
    return MemorySpace()


async def test_a_member_hears_of_itself_before_it_has_started(store: MetadataStore, nursery: trio.Nursery) -> None:
    await store.transact([], [PutKey("topology/x", "?"), PutKey("cluster/newer", "?")])
    member = await joined(nursery, store, A)
    assert member.told == [Changed(frozenset({"a@x"}), frozenset({"a@x"}))]
    assert dict(member.directory.members) == {"a@x": A}
    assert dict(member.directory.known) == {"a@x": KnownRecord("a@x", 1, 1)}
    assert member.directory.me == A


async def test_a_swap_is_carried_out_once(store: MetadataStore, nursery: trio.Nursery) -> None:
    member = await joined(nursery, store, A)
    first = await member.directory.swap(source_record())
    assert first is not None
    assert first == replace(source_record(), revision=first.revision)
    assert await member.directory.read(1) == first
    assert await member.directory.read(2) is None
    assert await member.directory.swap(source_record(epoch=2)) is None, "the key is there"
    assert await member.directory.swap(replace(first, revision=first.revision + 1)) == first, "it is there as wished"
    second = await member.directory.swap(replace(source_record(epoch=2), revision=first.revision))
    assert second is not None
    assert second.revision > first.revision
    assert await member.directory.swap(replace(source_record(epoch=3), revision=first.revision)) is None
    await member.directory.refresh()
    assert dict(member.directory.records) == {1: second}
    assert [change.sources for change in member.told[1:]] == [{1}, {1}]


async def test_several_swaps_at_once_have_one_winner(store: MetadataStore, nursery: trio.Nursery) -> None:
    member = await joined(nursery, store, A)
    won = []

    async def swap(epoch: int) -> None:
        if (record := await member.directory.swap(source_record(epoch=epoch))) is not None:
            won.append(record)

    async with trio.open_nursery() as swapping:
        for epoch in range(1, 6):
            swapping.start_soon(swap, epoch)
    [record] = won
    assert await member.directory.read(1) == record


async def test_a_key_that_somebody_deleted_is_put_again(store: MetadataStore, nursery: trio.Nursery) -> None:
    member = await joined(nursery, store, A)
    await store.transact([], [DeleteKey(member_key("a@x")), DeleteKey(known_key("a@x"))])
    await member.until(lambda _: len(member.told) == 3)
    assert [bool(change.members) for change in member.told] == [True, True, True]
    assert dict(member.directory.members) == {"a@x": A}
    assert dict(member.directory.known) == {"a@x": KnownRecord("a@x", 1, 1)}


# What an embedded store does not show to other processes

BETWEEN = pytest.mark.parametrize("stores", ["memory", "etcd"], indirect=True)


@BETWEEN
async def test_two_directories_see_each_other(stores: Stores, nursery: trio.Nursery) -> None:
    first = await joined(nursery, await stores(), A)
    second = await joined(nursery, await stores(), B)
    await first.until(lambda it: len(it.members) == 2)
    assert dict(first.directory.members) == dict(second.directory.members) == {"a@x": A, "b@x": B}
    record = await second.directory.swap(source_record(home="b@x"))
    await first.until(lambda it: it.records)
    await second.until(lambda it: it.records)
    assert first.directory.records[1] == second.directory.records[1] == record
    assert await first.directory.swap(source_record()) is None


@BETWEEN
async def test_a_member_that_ends_in_order_is_gone_at_once(stores: Stores, nursery: trio.Nursery) -> None:
    ending = await stores()
    first, second = await joined(nursery, await stores(), A), await joined(nursery, ending, B)
    await first.until(lambda it: len(it.members) == 2)
    second.scope.cancel()
    await ending.aclose()
    await first.until(lambda it: len(it.members) == 1)
    assert dict(first.directory.known) == {"a@x": KnownRecord("a@x", 1, 1), "b@x": KnownRecord("b@x", 1, 2)}


@BETWEEN
async def test_one_name_is_one_process(
    stores: Stores, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "LEASES_WAITED", 0.2)
    await joined(nursery, await stores(), A)
    with pytest.raises(StartupError, match=r"has a member a@x that lives, at 127.0.0.1:5673, life 1: give this"):
        await joined(nursery, await stores(), replace(A, generation=9))


@BETWEEN
async def test_the_name_of_one_that_ends_meanwhile_is_waited_for(stores: Stores, nursery: trio.Nursery) -> None:
    ending = await stores()
    first = await joined(nursery, ending, A)

    async def end() -> None:
        first.scope.cancel()
        await trio.sleep(0.1)
        await ending.aclose()

    nursery.start_soon(end)
    second = await joined(nursery, await stores(), replace(A, life=2))
    assert second.directory.me == replace(A, life=2)


@BETWEEN
@pytest.mark.parametrize("key", [member_key("a@x"), known_key("a@x")])
async def test_who_finds_another_process_under_its_name_ends(stores: Stores, key: str) -> None:
    other = replace(A, life=7)
    value = encode(other if key == member_key("a@x") else KnownRecord("a@x", 7, 1))

    async def live() -> None:
        async with trio.open_nursery() as nursery:
            await joined(nursery, await stores(), A)
            await (await stores()).transact([], [PutKey(key, value)])
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    failure = find_failure(caught.value)
    assert isinstance(failure, NodeFailure)
    assert "another process is a@x in this cluster now" in failure.sentence


# Generations


@pytest.mark.parametrize(
    ("life", "generation", "drawn"),
    [
        (6, 1, False),  # it goes on
        (5, 1, True),  # a copy, which was started when the original was
        (4, 1, True),  # an older state of the disk
        (9, 2, True),  # emptied, or one that was replaced once
    ],
)
async def test_a_disk_that_is_not_what_it_was_gets_a_new_generation(
    space: MemorySpace, nursery: trio.Nursery, life: int, generation: int, drawn: bool
) -> None:
    ended = MemoryStore(space)
    before = await joined(nursery, ended, replace(A, life=5))
    before.scope.cancel()
    await ended.aclose()
    now = await joined(nursery, MemoryStore(space), replace(A, life=life, generation=generation))
    expected = replace(A, life=max(life, 6) if drawn else life, generation=100 if drawn else generation)
    assert now.directory.me == now.directory.members["a@x"] == expected
    assert now.directory.known["a@x"] == KnownRecord("a@x", expected.life, expected.generation)


@pytest.mark.parametrize(
    ("life", "drawn"), [(7, False), (6, True)], ids=["the disk itself", "a copy of its last life"]
)
async def test_a_copy_of_a_disk_from_before_its_node_was_stopped_gets_a_new_generation(
    space: MemorySpace, nursery: trio.Nursery, life: int, drawn: bool
) -> None:
    ended = MemoryStore(space)
    before = await joined(nursery, ended, replace(A, life=5))
    await before.directory.end_life()
    await before.until(lambda directory: directory.known["a@x"].life == 6)
    before.scope.cancel()
    await ended.aclose()
    now = await joined(nursery, MemoryStore(space), replace(A, life=life))
    assert now.directory.me.generation == (100 if drawn else 1)
    assert now.directory.me.life == 7


class Overtaken(MemoryStore):
    """A read of one key takes long, and finds what there is then."""

    def __init__(self, space: MemorySpace) -> None:
        super().__init__(space)
        self.key = ""
        self.reads, self.goes_on = trio.Event(), trio.Event()

    async def get(self, key: str) -> Entry | None:
        if key == self.key:
            self.key = ""
            self.reads.set()
            await self.goes_on.wait()
        return await super().get(key)


async def test_a_process_that_ends_while_its_lost_key_is_put_again_finds_nobody_in_its_place(
    space: MemorySpace, nursery: trio.Nursery
) -> None:
    store = Overtaken(space)
    member = await joined(nursery, store, A)
    store.key = known_key("a@x")
    await MemoryStore(space).transact([], [DeleteKey(member_key("a@x"))])
    await store.reads.wait()
    await member.directory.end_life()
    store.goes_on.set()
    await trio.testing.wait_all_tasks_blocked()
    assert member.directory.known["a@x"].life == A.life + 1


async def test_the_end_of_a_life_is_put_also_when_another_record_got_ahead(
    space: MemorySpace, nursery: trio.Nursery
) -> None:
    class Ahead(MemoryStore):
        async def transact_all(self, transactions: Sequence[Transaction]) -> list[Outcome]:
            if ahead:
                await MemoryStore(space).transact([], [PutKey(*ahead.pop())])
            return await super().transact_all(transactions)

    ahead: list[tuple[str, str]] = []
    member = await joined(nursery, Ahead(space), A)
    ahead.append((known_key("a@x"), encode(KnownRecord("a@x", A.life, A.generation))))
    await member.directory.end_life()
    assert member.directory.known["a@x"].life == A.life + 1


async def test_a_generation_that_was_not_kept_is_drawn_again(space: MemorySpace, nursery: trio.Nursery) -> None:
    """The node died after the store had the new one, and before its journal had it."""
    ended = MemoryStore(space)
    await ended.transact([], [PutKey(known_key("a@x"), encode(KnownRecord("a@x", 6, 99)))])
    now = await joined(nursery, ended, replace(A, life=7))
    assert now.directory.me.generation == 100


async def test_generations_are_positive_and_differ() -> None:
    drawn = {directory.drawn_generation() for _ in range(100)}
    assert len(drawn) == 100
    assert min(drawn) > 0
    assert max(drawn) < 1 << 63


# A store that does not answer, or loses a lease


@pytest.mark.parametrize("fate", ["answer lost", "lost"])
async def test_to_become_a_member_may_take_two_tries(space: MemorySpace, nursery: trio.Nursery, fate: str) -> None:
    store = Unsure(space)
    await store.transact([], [PutKey(known_key("a@x"), encode(KnownRecord("a@x", 5, 1)))])
    store.fates = [fate]
    member = await joined(nursery, store, A)
    assert member.directory.me.generation in (100, 101)
    assert member.directory.members["a@x"] == member.directory.me


async def test_a_member_does_not_begin_without_its_store(space: MemorySpace, nursery: trio.Nursery) -> None:
    store = Unsure(space)
    store.away = True
    with pytest.raises(StoreUnavailable):
        await joined(nursery, store, A)


async def test_a_lost_lease_is_granted_again(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    store = Unsure(space)
    first = await joined(nursery, store, A)
    second = await joined(nursery, MemoryStore(space), B)
    await first.until(lambda it: len(it.members) == 2)
    store.away = True
    entry = await store.get(member_key("a@x"))
    assert entry is not None
    store._end_leases({entry.lease})
    await second.until(lambda it: "a@x" not in it.members)
    await trio.sleep(60)
    assert "a@x" not in second.directory.members
    store.away = False
    await second.until(lambda it: "a@x" in it.members)
    assert first.directory.me == A
    assert second.directory.members["a@x"] == A


async def test_a_key_that_is_put_again_with_a_lost_answer_is_there(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    store = Unsure(space)
    member = await joined(nursery, store, A)
    store.fates = ["done", "answer lost", "unavailable"]
    await store.transact([], [DeleteKey(member_key("a@x"))])
    await member.until(lambda it: len(member.told) == 3)
    await trio.sleep(10)
    assert dict(member.directory.members) == {"a@x": A}


async def test_a_reader_that_is_too_far_behind_reads_again(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    store = Unsure(space)
    member = await joined(nursery, store, A)
    other = MemoryStore(space)
    gone = await joined(nursery, other, B)
    await member.until(lambda it: len(it.members) == 2)
    record = await member.directory.swap(source_record(2))
    await member.until(lambda it: it.records)
    operations: list[Operation] = [DeleteKey(source_key(2)), PutKey(source_key(1), encode(source_record()))]
    gone.scope.cancel()
    # What the log of this store has not told, it does not tell.
    space.logs.remove(store._log)
    await other.transact([], operations)
    await other.aclose()
    store.away = True
    store._log.reset(space.revision)
    await trio.sleep(5)
    assert (len(member.directory.members), member.directory.records[2]) == (2, record), "what was heard last"
    store.away = False
    await member.until(lambda it: len(it.members) == 1)
    assert list(member.directory.records) == [1]
    assert member.told[-1] == Changed(frozenset({"b@x"}), frozenset(), frozenset({1, 2}))


async def test_an_exception_of_the_callback_ends_it(space: MemorySpace) -> None:
    def fail(changed: Changed) -> None:
        if changed.sources:
            raise ZeroDivisionError

    tried = directory.Directory(MemoryStore(space), A, fail, draw=drawing())

    async def live() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(tried.run)
            await tried.swap(source_record())
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert caught.group_contains(ZeroDivisionError)


async def test_the_embedded_store_serves_one_process_alone(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Its members do not see each other: keys with a lease are in the process."""
    first, second = [await SqliteStore.open(tmp_path / "metadata.db", poll_s=0.01) for _ in range(2)]
    one, two = await joined(nursery, first, A), await joined(nursery, second, B)
    record = await one.directory.swap(source_record())
    await two.until(lambda it: it.records)
    assert two.directory.records[1] == record
    assert list(two.directory.members) == ["b@x"]
    assert set(two.directory.known) == {"a@x", "b@x"}
    nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        await first.aclose()
        await second.aclose()


async def test_a_wish_is_heard_of_by_all_and_goes_when_it_is_fulfilled(stores: Stores, nursery: trio.Nursery) -> None:
    member = await joined(nursery, await stores(), A)
    wish = await member.directory.put_wish(WishRecord(3, ("a@x", "b@x"), "b@x"))
    assert wish is not None
    await member.until(lambda it: it.wishes)
    assert dict(member.directory.wishes) == {3: wish}
    assert await member.directory.put_wish(WishRecord(3)) is None, "another one is there"
    waiting = await member.directory.put_wish(replace(wish, reason="b@x does not live"))
    assert waiting is not None
    assert not await member.directory.drop_wish(wish), "it is another one by now"
    assert await member.directory.drop_wish(waiting)
    await member.until(lambda it: not it.wishes)
    assert [change.wishes for change in member.told[1:]] == [{3}, {3}, {3}]
    assert await member.directory.drop_wish(waiting), "it is gone, as was asked for"
