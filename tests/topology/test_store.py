"""The metadata store's contract: the same tests on every store. Each test gets two stores over one key
space, as two processes have them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from amqpd.topology.metadata import events as event_log
from amqpd.topology.metadata.codec import encode_key, encode_record
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    CompareFailed,
    DeleteKey,
    Event,
    LeaseGone,
    MetadataStore,
    MetadataTransaction,
    Operation,
    PutKey,
    StoreClosed,
)
from amqpd.vocabulary.journal_numbers import vhost_number
from amqpd.vocabulary.records import QueueRecord, VhostRecord
from tests.topology.etcd_stores import etcd_stores, new_prefix
from tests.topology.etcd_stores import shared_etcd as shared_etcd
from tests.topology.memory_store import MemorySpace, MemoryStore

Stores = Callable[[], Awaitable[MetadataStore]]
pytestmark = pytest.mark.trio


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    if request.param == "etcd":
        async with etcd_stores(request.getfixturevalue("shared_etcd").endpoint, new_prefix()) as open_one:
            yield open_one
        return
    space = MemorySpace()

    async def open_store() -> MetadataStore:
        if request.param == "memory":
            store: MetadataStore = MemoryStore(space)
        else:
            # A poll that would never come: tests call `refresh` where another store wrote.
            store = await SqliteStore.open(tmp_path / "metadata.db", poll_s=3600)
        opened.push_async_callback(store.aclose)
        return store

    async with AsyncExitStack() as opened:
        yield open_store


@asynccontextmanager
async def watching(store: MetadataStore, after: int) -> AsyncIterator[trio.MemoryReceiveChannel[Event]]:
    send, receive = trio.open_memory_channel[Event](1000)

    async def watch() -> None:
        async for event in store.watch(after):
            send.send_nowait(event)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        yield receive
        nursery.cancel_scope.cancel()


async def put(store: MetadataStore, *operations: Operation) -> int:
    outcome = await store.transact([], operations)
    assert isinstance(outcome, Committed)
    return outcome.revision


async def values(store: MetadataStore, prefix: str = "") -> dict[str, str]:
    return {entry.key: entry.value for entry in (await store.range(prefix)).entries}


async def test_get_returns_what_was_put_last(stores: Stores) -> None:
    store = await stores()
    assert await store.get("a") is None
    await put(store, PutKey("a", "1"))
    revision = await put(store, PutKey("a", "2"))
    entry = await store.get("a")
    assert entry is not None
    assert (entry.value, entry.mod_revision, entry.lease) == ("2", revision, 0)


async def test_range_is_ordered_and_ends_with_the_prefix(stores: Stores) -> None:
    store = await stores()
    keys = ["a/2", "a/10", "a", "b", "a0", "a/é", "a/\U0010ffff", "a/😀"]
    await put(store, *(PutKey(key, "") for key in keys))
    snapshot = await store.range("a/")
    assert [entry.key for entry in snapshot.entries] == sorted(key for key in keys if key.startswith("a/"))
    assert [entry.key for entry in (await store.range("")).entries] == sorted(keys)


async def test_compare_on_absence_and_revision(stores: Stores) -> None:
    store = await stores()
    created = await store.transact([Compare("a")], [PutKey("a", "1")])
    assert isinstance(created, Committed)
    refused = await store.transact([Compare("a")], [PutKey("a", "2"), PutKey("b", "2")])
    assert refused == CompareFailed(created.revision)
    assert await values(store) == {"a": "1"}
    assert isinstance(await store.transact([Compare("a", created.revision)], [DeleteKey("a")]), Committed)
    assert isinstance(await store.transact([Compare("a", created.revision)], []), CompareFailed)
    assert isinstance(await store.transact([Compare("a", 0)], []), Committed)
    assert isinstance(await store.transact([Compare("a", None)], []), CompareFailed)
    await put(store, PutKey("a", "3"))
    assert isinstance(await store.transact([Compare("a", None)], []), Committed)


async def test_transact_all_sees_earlier_effects_and_judges_each_alone(stores: Stores) -> None:
    store = await stores()
    first, second, third, fourth = await store.transact_all(
        [
            MetadataTransaction((Compare("a"),), (PutKey("a", "1"),)),
            MetadataTransaction((Compare("a"),), (PutKey("a", "2"),)),
            MetadataTransaction((), (DeleteKey("a"),)),
            MetadataTransaction((Compare("a"),), (PutKey("a", "4"),)),
        ]
    )
    assert isinstance(first, Committed)
    assert second == CompareFailed(first.revision)
    assert isinstance(third, Committed)
    assert isinstance(fourth, Committed)
    assert first.revision < third.revision < fourth.revision
    assert await values(store) == {"a": "4"}
    assert await store.transact_all([]) == []


async def test_a_transaction_without_effect_has_no_revision_of_its_own(stores: Stores) -> None:
    store = await stores()
    revision = await put(store, PutKey("a", "1"))
    assert await put(store, DeleteKey("none")) == revision
    assert await store.refresh() == revision


async def test_concurrent_transactions_each_get_an_outcome(stores: Stores) -> None:
    store = await stores()
    outcomes: list[object] = []

    async def create() -> None:
        outcomes.append(await store.transact([Compare("a")], [PutKey("a", "")]))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(create)
    assert sum(isinstance(outcome, Committed) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, CompareFailed) for outcome in outcomes) == 19


async def test_watch_reports_every_revision_after_a_snapshot(stores: Stores) -> None:
    store = await stores()
    await put(store, PutKey("a", "1"))
    lease = await store.grant_lease(10)
    snapshot = await store.range("")
    async with watching(store, snapshot.revision) as events:
        one = await put(store, PutKey("a", "2"), PutKey("b", "1"))
        two = await put(store, PutKey("c", "1", lease))
        three = await put(store, DeleteKey("a"), DeleteKey("none"))
        assert await events.receive() == Event(one, (PutKey("a", "2"), PutKey("b", "1")))
        assert await events.receive() == Event(two, (PutKey("c", "1", lease),))
        assert await events.receive() == Event(three, (DeleteKey("a"),))
    async with watching(store, one) as events:
        assert (await events.receive()).revision == two


async def test_a_watch_gives_some_events_before_others_have_a_turn(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each turn of whoever declares thousands: what another one declared came after all of them."""
    monkeypatch.setattr(event_log, "OPERATIONS_AT_ONCE", 5)
    store = await stores()
    revision = await store.refresh()
    for number in range(11):
        await store.transact([], [PutKey(f"key {number}", "x")])
    # What etcd says comes in as many parts as it likes: only what this process has already is given without waiting.
    earlier = store.watch(revision)
    for _ in range(11):
        await anext(earlier)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    watch = store.watch(revision)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await anext(watch)
        before = turns
        for _ in range(10):
            await anext(watch)
        # Two pauses; who is first in the rounds of trio's scheduler around them is drawn.
        assert 1 <= turns - before <= 3
        nursery.cancel_scope.cancel()


async def test_watch_reports_what_another_store_committed_in_order(stores: Stores) -> None:
    here, there = await stores(), await stores()
    start = (await here.range("")).revision
    async with watching(here, start) as events:
        await put(there, PutKey("a", "there"))
        await put(here, PutKey("b", "here"))
        await put(there, PutKey("a", "there again"))
        assert await values(here) == {"a": "there again", "b": "here"}
        seen = [await events.receive() for _ in range(3)]
    assert [event.operations for event in seen] == [
        (PutKey("a", "there"),),
        (PutKey("b", "here"),),
        (PutKey("a", "there again"),),
    ]
    assert [event.revision for event in seen] == sorted({event.revision for event in seen})


async def test_watch_from_before_the_store_was_opened(stores: Stores) -> None:
    before = await stores()
    start = await put(before, PutKey("a", "1"))
    two = await put(before, PutKey("b", "1"), PutKey("a", "2"))
    three = await put(before, DeleteKey("a"))
    after = await stores()
    async with watching(after, start) as events:
        assert await events.receive() == Event(two, (PutKey("b", "1"), PutKey("a", "2")))
        assert await events.receive() == Event(three, (DeleteKey("a"),))
        four = await put(after, PutKey("c", ""))
        assert (await events.receive()).revision == four


async def test_refresh_makes_the_watch_see_another_store_s_change(stores: Stores) -> None:
    here, there = await stores(), await stores()
    async with watching(here, await here.refresh()) as events:
        revision = await put(there, PutKey("a", "1"))
        assert await here.refresh() >= revision
        assert (await events.receive()).revision == revision


async def test_compare_sees_another_store_s_change(stores: Stores) -> None:
    here, there = await stores(), await stores()
    revision = await put(there, PutKey("a", "1"))
    outcome = await here.transact([Compare("a")], [PutKey("a", "2")])
    assert isinstance(outcome, CompareFailed)
    assert outcome.revision >= revision
    assert isinstance(await here.transact([Compare("a", revision)], [PutKey("a", "3")]), Committed)
    assert await values(there) == {"a": "3"}


async def test_a_lease_that_was_not_granted_holds_nothing(stores: Stores) -> None:
    store = await stores()
    lease, other = await store.grant_lease(10), await store.grant_lease(10)
    assert lease != other
    await put(store, PutKey("a", "", lease), PutKey("b", ""))
    await store.keep_alive(lease)
    none = lease + other
    with pytest.raises(LeaseGone):
        await store.keep_alive(none)
    with pytest.raises(LeaseGone):
        await store.transact([], [PutKey("b", "no"), PutKey("c", "no", none)])
    assert await values(store) == {"a": "", "b": ""}


async def test_keys_of_a_lease_end_with_their_store(stores: Stores) -> None:
    store = await stores()
    await put(store, PutKey("kept", ""), PutKey("gone", "", await store.grant_lease(10)))
    await store.aclose()
    await store.aclose()
    assert await values(await stores()) == {"kept": ""}


async def test_a_key_changes_between_leased_and_kept(stores: Stores) -> None:
    store = await stores()
    lease = await store.grant_lease(10)
    await put(store, PutKey("a", "leased", lease), PutKey("b", "kept"))
    first = await store.get("a")
    assert first is not None
    assert first.lease == lease
    swapped = await store.transact(
        [Compare("a", first.mod_revision)], [PutKey("a", "kept"), PutKey("b", "leased", lease)]
    )
    assert isinstance(swapped, Committed)
    assert {(entry.key, entry.value, entry.lease) for entry in (await store.range("")).entries} == {
        ("a", "kept", 0),
        ("b", "leased", lease),
    }
    other = await stores()
    assert "a" in await values(other)
    await store.aclose()
    assert await values(other) == {"a": "kept"}


async def test_a_kept_key_of_another_store_covers_a_leased_one(stores: Stores) -> None:
    here, there = await stores(), await stores()
    await put(here, PutKey("a", "leased", await here.grant_lease(10)))
    await put(there, PutKey("a", "kept"))
    assert await values(here) == {"a": "kept"}
    await here.aclose()
    assert await values(there) == {"a": "kept"}


async def test_a_closed_store_says_so(stores: Stores) -> None:
    store = await stores()
    watch = store.watch(await put(store, PutKey("a", "1")))
    await put(store, PutKey("a", "2"))
    await store.aclose()
    assert isinstance(await anext(watch), Event)
    with pytest.raises(StoreClosed):
        await anext(watch)
    for call in (store.get("a"), store.range(""), store.transact([], []), store.refresh()):
        with pytest.raises(StoreClosed):
            await call


async def test_closing_wakes_a_watch_that_waits(stores: Stores) -> None:
    store = await stores()

    async def wait() -> None:
        with pytest.raises(StoreClosed):
            await anext(store.watch(await store.refresh()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await store.aclose()


async def test_a_cancelled_transaction_leaves_the_store_usable(stores: Stores) -> None:
    store = await stores()
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(store.transact, [], [PutKey(f"key {number}", "")])
        nursery.cancel_scope.cancel()
    await put(store, PutKey("a", ""))
    assert (await values(store))["a"] == ""


# What belongs to the journal


def queue_put(name: str, queue_id: int, vhost: str = "/") -> PutKey:
    record = QueueRecord(vhost, name, queue_id)
    return PutKey(encode_key(record.key), encode_record(record))


def queue_deleted(name: str, vhost: str = "/") -> DeleteKey:
    return DeleteKey(encode_key(("queue", vhost, name)))


async def test_a_store_has_one_identity(stores: Stores) -> None:
    here, there = await stores(), await stores()
    assert len(bytes.fromhex(await here.identity())) == 16
    assert await there.identity() == await here.identity()


async def test_the_journal_is_remembered(stores: Stores) -> None:
    here, there = await stores(), await stores()
    assert await here.journal() is None
    revision = await here.refresh()
    await here.set_journal("ab" * 16, 7)
    await here.set_journal("cd" * 16, 1 << 62)
    assert await there.journal() == ("cd" * 16, 1 << 62)
    assert await there.refresh() == revision


async def test_deleted_queues_are_remembered_until_they_are_forgotten(stores: Stores) -> None:
    here, there = await stores(), await stores()
    await put(here, queue_put("a", 5), queue_put("b", 600), queue_put("c", 1 << 62), PutKey("topology/queue/x", "{"))
    assert await here.dropped_queues() == frozenset()
    await put(there, queue_deleted("a"), queue_deleted("c"), queue_deleted("none"), DeleteKey("topology/queue/x"))
    assert await here.dropped_queues() == {5, 1 << 62}
    await here.forget_dropped([5, 7])
    assert await here.dropped_queues() == {1 << 62}
    await put(here, queue_deleted("b"))
    assert await there.dropped_queues() == {600, 1 << 62}


async def test_the_oldest_deletions_are_forgotten_so_that_some_are_left(stores: Stores) -> None:
    store = await stores()
    ids = {"a": 70, "b": 600, "c": 5, "d": 1 << 62, "e": 40}
    await put(store, *(queue_put(name, number) for name, number in ids.items()))
    for name in "dbeac":
        await put(store, queue_deleted(name))
    await store.forget_dropped(ids.values(), keep=3)
    assert await store.dropped_queues() == {40, 70, 5}
    await store.forget_dropped([70, 5], keep=2)
    assert await store.dropped_queues() == {40, 5}, "only of those that were named"
    await store.forget_dropped([40, 5], keep=2)
    assert await store.dropped_queues() == {40, 5}
    await put(store, queue_put("f", 40))
    await put(store, queue_deleted("f"))
    await store.forget_dropped([40, 5], keep=1)
    assert await store.dropped_queues() == {40}, "it was deleted again"


async def test_a_queue_that_takes_another_s_place_deletes_it(stores: Stores) -> None:
    store = await stores()
    await put(store, queue_put("a", 5))
    await put(store, queue_put("a", 6))
    assert await store.dropped_queues() == {5}
    await put(store, queue_put("b", 6), queue_deleted("a"))
    assert await store.dropped_queues() == {5}, "queue 6 has another name now"


async def test_a_queue_of_one_commit_is_remembered_too(stores: Stores) -> None:
    store = await stores()
    await store.transact_all(
        [
            MetadataTransaction((), (queue_put("a", 5),)),
            MetadataTransaction((), (queue_deleted("a"),)),
            MetadataTransaction((), (queue_put("a", 6),)),
        ]
    )
    assert await store.dropped_queues() == {5}


async def test_a_refused_deletion_and_one_of_a_lease_drop_nothing(stores: Stores) -> None:
    store = await stores()
    await put(store, queue_put("a", 5))
    await store.transact([Compare("absent", 7)], [queue_deleted("a")])
    lease = await store.grant_lease(10)
    await put(store, replace(queue_put("b", 6), lease=lease))
    await put(store, queue_deleted("b"))
    assert await store.dropped_queues() == frozenset()
    await put(store, replace(queue_put("a", 5), lease=lease))
    assert await store.dropped_queues() == {5}, "it is no durable queue any more"


async def test_a_virtual_host_has_delayed_messages(stores: Stores) -> None:
    store = await stores()
    record = VhostRecord("ü / x")
    vhost = PutKey(encode_key(record.key), encode_record(record))
    await put(store, vhost)
    await put(store, DeleteKey(vhost.key))
    assert await store.dropped_queues() == {vhost_number("ü / x")}
    await put(store, vhost)
    assert await store.dropped_queues() == frozenset(), "it is in use again"
    await put(store, PutKey(vhost.key, encode_record(replace(record, description="other"))))
    assert await store.dropped_queues() == frozenset()
