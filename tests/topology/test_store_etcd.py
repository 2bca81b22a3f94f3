"""The store on a real etcd that is killed, paused, restarted, compacted and emptied under it.

What is verified: a transaction whose answer was lost has one outcome; a call ends within its bound, and says whether
something may have happened; everything recovers unaided; nothing is deleted because etcd went back.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

httpx2 = pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from amqpd.topology.metadata.etcd import feed, gateway, opening, reading  # noqa: E402
from amqpd.topology.metadata.etcd.gateway import EtcdAccess, Gateway  # noqa: E402
from amqpd.topology.metadata.etcd.messages import Message  # noqa: E402
from amqpd.topology.metadata.etcd.store import EtcdStore  # noqa: E402
from amqpd.topology.metadata.events import EventWatch  # noqa: E402
from amqpd.topology.metadata.store import (  # noqa: E402
    Committed,
    Compacted,
    Compare,
    CompareFailed,
    DeleteKey,
    Event,
    MetadataStoreError,
    MetadataTransaction,
    OutcomeUnknown,
    PutKey,
    StoreReplaced,
    StoreUnavailable,
)
from tests.harness.etcd import EtcdProcess, free_ports  # noqa: E402
from tests.topology.etcd_stores import etcd_stores, new_prefix  # noqa: E402
from tests.topology.etcd_stores import own_etcd as own_etcd  # noqa: E402
from tests.topology.etcd_stores import shared_etcd as shared_etcd  # noqa: E402
from tests.topology.test_store import put, values, watching  # noqa: E402

pytestmark = pytest.mark.trio


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests wait for what a paused etcd does not say."""
    monkeypatch.setattr(gateway, "ANSWER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(gateway, "SILENCE_S", 0.5)
    monkeypatch.setattr(feed, "RETRY_S_MAX", 0.05)


@asynccontextmanager
async def one_store(process: EtcdProcess, wait_s: float = 20.0) -> AsyncIterator[EtcdStore]:
    async with etcd_stores(process.endpoint, wait_s=wait_s) as open_one:
        yield await open_one()


def after_each(monkeypatch: pytest.MonkeyPatch, what: object, path: str = gateway.TXN) -> list[str]:
    """The next request of this kind reaches etcd, then `what` happens, and its answer is lost."""
    post, done = Gateway._post, list[str]()

    async def lose(self: Gateway, asked: str, message: Message, headers: object) -> Message:
        answer = await post(self, asked, message, headers)  # type: ignore[arg-type]
        if asked == path and not done and "request_put" in str(message):
            done.append(asked)
            if callable(what):
                await trio.to_thread.run_sync(what)
            raise httpx2.ReadError("the connection was lost")
        return answer

    monkeypatch.setattr(Gateway, "_post", lose)
    return done


# Answers that are lost


async def test_a_lost_answer_is_settled_by_the_same_swap_again(
    own_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_store(own_etcd) as tried:
        async with watching(tried, await tried.refresh()) as events:
            lost = after_each(monkeypatch, None)
            outcome = await tried.transact([Compare("a")], [PutKey("a", "1")])
            assert lost
            assert isinstance(outcome, Committed), "it is the transaction's own key that it met"
            assert await events.receive() == Event(outcome.revision, (PutKey("a", "1"),))
        entry = await tried.get("a")
        assert entry is not None
        assert entry.mod_revision == outcome.revision
        assert await tried.transact([Compare("a")], [PutKey("a", "2")]) == CompareFailed(outcome.revision)


async def test_etcd_is_killed_with_a_transaction_whose_answer_was_not_sent(
    own_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_and_restart() -> None:
        own_etcd.kill()
        own_etcd.start()

    async with one_store(own_etcd) as tried:
        first = await put(tried, PutKey("a", "1"))
        lost = after_each(monkeypatch, kill_and_restart)
        outcome = await tried.transact([Compare("a", first)], [PutKey("a", "2")])
        assert lost
        assert isinstance(outcome, Committed)
        assert await values(tried) == {"a": "2"}


async def test_a_caller_that_gave_up_is_followed_by_one_that_settles(
    own_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_store(own_etcd, wait_s=1.5) as tried:
        await put(tried, PutKey("a", "1"))
        async with watching(tried, await tried.refresh()) as events:
            after_each(monkeypatch, own_etcd.pause)
            with pytest.raises(OutcomeUnknown):
                await tried.transact([], [PutKey("a", "2")])
            with pytest.raises(StoreUnavailable):
                await tried.transact([], [PutKey("a", "3")])
            own_etcd.go_on()
            fourth = await recovered(tried, PutKey("a", "4"))
            seen = [await events.receive() for _ in range(2)]
    assert [event.operations for event in seen] == [(PutKey("a", "2"),), (PutKey("a", "4"),)]
    assert seen[-1].revision == fourth


async def test_a_settling_request_whose_answer_was_lost_is_known_again(
    own_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_store(own_etcd, wait_s=1) as tried:
        await put(tried, PutKey("a", "1"))
        tried._turn._open.add("never answered")
        after_each(monkeypatch, own_etcd.pause)
        with pytest.raises(StoreUnavailable):
            await tried.transact([], [PutKey("a", "2")])
        own_etcd.go_on()
        await recovered(tried, PutKey("a", "3"))
        assert await values(tried) == {"a": "3"}


async def test_a_request_that_was_on_its_way_does_not_happen_after_it_was_settled(own_etcd: EtcdProcess) -> None:
    async with one_store(own_etcd) as tried:
        await put(tried, PutKey("a", "1"))
        turn = tried._turn
        held = {"compare": turn._compares(), "success": [{"request_put": {"key": "bGF0ZQ=="}}]}
        turn._open.add("never answered")
        await put(tried, PutKey("a", "2"))
        answer = await tried._gateway.ask(gateway.TXN, held)
        assert not answer.get("succeeded")


async def recovered(tried: EtcdStore, operation: PutKey) -> int:
    """The revision of the operation, once etcd answers again."""
    while True:
        try:
            return await put(tried, operation)
        except StoreUnavailable:
            await trio.lowlevel.checkpoint()


# etcd that is not there


async def test_nothing_is_sent_to_a_port_that_refuses(own_etcd: EtcdProcess) -> None:
    async with one_store(own_etcd, wait_s=0.3) as tried:
        await put(tried, PutKey("a", "1"))
        await trio.to_thread.run_sync(own_etcd.kill)
        for call in (tried.transact([], [PutKey("a", "2")]), tried.range(""), tried.refresh()):
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await call
        await trio.to_thread.run_sync(own_etcd.start)
        await recovered(tried, PutKey("b", "1"))
        assert await values(tried) == {"a": "1", "b": "1"}


async def test_a_store_that_cannot_be_reached_does_not_open() -> None:
    [port] = free_ports(1)
    async with etcd_stores(f"127.0.0.1:{port}", wait_s=0.2) as open_one:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await open_one()


async def test_the_next_endpoint_is_asked(own_etcd: EtcdProcess) -> None:
    [port] = free_ports(1)
    asked = Gateway(EtcdAccess((f"127.0.0.1:{port}", own_etcd.endpoint)))
    assert "header" in await asked.change(gateway.TXN, {})
    assert asked._at == 1
    await asked.aclose()


async def test_a_watch_goes_on_when_etcd_was_paused_and_restarted(own_etcd: EtcdProcess) -> None:
    async with one_store(own_etcd) as tried, etcd_stores(own_etcd.endpoint) as open_one:
        other = await open_one()
        async with watching(tried, await tried.refresh()) as events:
            await put(other, PutKey("a", "1"))
            own_etcd.pause()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(put, other, PutKey("a", "2"))
                assert (await events.receive()).operations == (PutKey("a", "1"),)
                own_etcd.go_on()
            await trio.to_thread.run_sync(own_etcd.kill)
            await trio.to_thread.run_sync(own_etcd.start)
            await put(other, PutKey("a", "3"))
            assert (await events.receive()).operations == (PutKey("a", "2"),)
            assert (await events.receive()).operations == (PutKey("a", "3"),)


# What etcd forgets


async def test_a_watch_that_is_behind_a_compaction_says_so(own_etcd: EtcdProcess) -> None:
    async with one_store(own_etcd) as before:
        start = await put(before, PutKey("a", "1"))
        await put(before, PutKey("a", "2"))
        await put(before, PutKey("a", "3"))
    await trio.to_thread.run_sync(own_etcd.compact)
    async with one_store(own_etcd) as after:
        with pytest.raises(Compacted):
            await anext(after.watch(start))
        async with watching(after, (await after.range("")).revision) as events:
            revision = await put(after, PutKey("a", "4"))
            assert (await events.receive()).revision == revision


async def test_a_feed_that_missed_what_was_compacted_makes_its_readers_start_over(own_etcd: EtcdProcess) -> None:
    async with one_store(own_etcd) as tried:
        watch = tried.watch(await put(tried, PutKey("a", "1")))
        tried._history.publish([Event(await tried.refresh() + 1, ())])
        await anext(watch)
        following = feed.Feed(tried._gateway, tried._turn, tried._leases, tried._history)
        following.seen = 1
        await put(tried, PutKey("a", "2"))
        await trio.to_thread.run_sync(own_etcd.compact)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(following.run)
            with pytest.raises(Compacted):
                await read_on(watch)
            nursery.cancel_scope.cancel()


async def read_on(watch: EventWatch) -> None:
    while True:
        await anext(watch)


# Leases


async def test_a_lease_that_ran_out_comes_back_with_its_keys(own_etcd: EtcdProcess) -> None:
    async with one_store(own_etcd) as tried, etcd_stores(own_etcd.endpoint) as open_one:
        other = await open_one()
        lease = await tried.grant_lease(10)
        await put(tried, PutKey("mine", "1", lease), PutKey("taken", "1", lease), PutKey("kept", "1"))
        start = await tried.refresh()
        async with watching(tried, start) as events, watching(other, start) as seen_by_other:
            await trio.to_thread.run_sync(own_etcd.ask, "/v3/lease/revoke", {"ID": str(lease)})
            assert {each.key for each in (await seen_by_other.receive()).operations} == {"mine", "taken"}
            assert (await events.receive()).operations == (), "it was no transaction that deleted them"
            await put(other, PutKey("taken", "2"))
            assert (await events.receive()).operations == (PutKey("taken", "2"),)
            await tried.keep_alive(lease)
            assert (await events.receive()).operations == (PutKey("mine", "1", lease),)
        assert await values(other) == {"mine": "1", "taken": "2", "kept": "1"}
        # And in the middle of a transaction that names it.
        await trio.to_thread.run_sync(own_etcd.ask, "/v3/lease/revoke", {"ID": str(lease)})
        await put(tried, PutKey("more", "1", lease))
        assert await values(other) == {"mine": "1", "more": "1", "taken": "2", "kept": "1"}


async def test_many_keys_of_a_lease_come_back_and_a_lost_answer_loses_none(
    own_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_store(own_etcd, wait_s=1.5) as tried:
        lease = await tried.grant_lease(10)
        keys = [f"topology/queue/{number:03}" for number in range(100)]
        await put(tried, *(PutKey(key, "1", lease) for key in keys))
        for _ in range(2):
            await trio.to_thread.run_sync(own_etcd.ask, "/v3/lease/revoke", {"ID": str(lease)})
            with monkeypatch.context() as patched:
                after_each(patched, own_etcd.pause)
                with pytest.raises(OutcomeUnknown):
                    await tried.keep_alive(lease)
            own_etcd.go_on()
            await kept_alive(tried, lease)
            found = (await tried.range("")).entries
            assert {(entry.key, entry.value, entry.lease) for entry in found} == {(key, "1", lease) for key in keys}


async def kept_alive(tried: EtcdStore, lease: int) -> None:
    while True:
        try:
            return await tried.keep_alive(lease)
        except StoreUnavailable:
            await trio.lowlevel.checkpoint()


# Another store, or an older one


async def test_an_emptied_etcd_deletes_nothing_and_is_reported(own_etcd: EtcdProcess) -> None:
    def empty() -> None:
        own_etcd.kill()
        shutil.rmtree(own_etcd.directory)
        own_etcd.start()

    async with one_store(own_etcd, wait_s=5) as tried:
        await put(tried, PutKey("a", "1"))
        async with watching(tried, await tried.refresh()) as events:
            await trio.to_thread.run_sync(empty)
            with pytest.raises(StoreReplaced, match="it was emptied, or its prefix deleted"):
                await tried.transact([], [PutKey("a", "2")])
            with pytest.raises(StoreReplaced, match="nothing is deleted because of that"):
                await tried.range("")
            with pytest.raises(trio.WouldBlock):
                events.receive_nowait()


async def test_an_older_state_of_etcd_is_not_believed(own_etcd: EtcdProcess, tmp_path: Path) -> None:
    async with one_store(own_etcd, wait_s=5) as tried:
        await put(tried, PutKey("a", "1"))
        await trio.to_thread.run_sync(own_etcd.stop)
        shutil.copytree(own_etcd.directory, tmp_path / "backup")
        await trio.to_thread.run_sync(own_etcd.start)
        await put(tried, PutKey("a", "2"))
        await trio.to_thread.run_sync(own_etcd.kill)
        shutil.rmtree(own_etcd.directory)
        shutil.copytree(tmp_path / "backup", own_etcd.directory)
        await trio.to_thread.run_sync(own_etcd.start)
        with pytest.raises(StoreUnavailable, match="restored from an older backup"):
            await tried.transact([], [PutKey("a", "3")])


def identity_in(process: EtcdProcess, prefix: str) -> str:
    """Of the store as it is written, whoever opened it."""
    key = base64.b64encode(f"{prefix}store/identity".encode()).decode()
    [found] = process.ask("/v3/kv/range", {"key": key})["kvs"]
    return base64.b64decode(found["value"]).decode()


async def test_an_older_state_is_told_to_those_who_had_not_seen_more(own_etcd: EtcdProcess, tmp_path: Path) -> None:
    prefix = new_prefix()
    async with etcd_stores(own_etcd.endpoint, prefix) as open_one:
        tried, other = await open_one(), await open_one()
        before = await tried.identity()
        await trio.to_thread.run_sync(own_etcd.stop)
        shutil.copytree(own_etcd.directory, tmp_path / "backup")
        await trio.to_thread.run_sync(own_etcd.start)
        await put(tried, PutKey("a", "1"))
        await trio.to_thread.run_sync(own_etcd.kill)
        shutil.rmtree(own_etcd.directory)
        shutil.copytree(tmp_path / "backup", own_etcd.directory)
        await trio.to_thread.run_sync(own_etcd.start)
        with pytest.raises(StoreUnavailable, match="restored from an older backup"):
            await tried.refresh()
        # Its revisions look whole from here on, and it has another name.
        with trio.fail_after(60):
            while (after := await trio.to_thread.run_sync(identity_in, own_etcd, prefix)) == before:  # noqa: ASYNC110
                await trio.sleep(0.02)
        assert after.startswith(f"{before}-2-")
        with pytest.raises(StoreUnavailable):
            await other.transact([], [PutKey("b", "1")])
        assert await (await open_one()).identity() == after


async def test_whoever_knows_more_than_an_older_copy_begins_a_generation(shared_etcd: EtcdProcess) -> None:
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        tried, other = await open_one(), await open_one()
        before = await tried.identity()
        await tried.begin_generation(before, await tried.refresh() + 1)
        after = await tried.identity()
        assert after.startswith(f"{before}-2-")
        await put(tried, PutKey("a", "1"))
        with pytest.raises(StoreUnavailable, match="another metadata store is there now"):
            await other.refresh()
        # Who knows a later generation than there is begins one after that.
        another = await open_one()
        await another.begin_generation(f"{before}-5-x", 1)
        assert (await another.identity()).startswith(f"{before}-6-")


@pytest.mark.parametrize("known", ["{}", "{}-2-x", "another"])
async def test_a_store_that_has_everything_stays_the_same_generation(shared_etcd: EtcdProcess, known: str) -> None:
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        tried = await open_one()
        before = await tried.identity()
        if known == "{}-2-x":
            await tried.begin_generation(f"{before}-2-y", 1)
        there = await tried.identity()
        with pytest.raises(StoreUnavailable):
            await (await open_one()).begin_generation(known.format(before), await tried.refresh())
        assert await (await open_one()).identity() == there


async def test_a_generation_whose_answer_was_lost_is_begun(
    shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        tried = await open_one()
        before, revision = await tried.identity(), await tried.refresh()
        done = after_each(monkeypatch, None)
        await tried.begin_generation(before, revision + 1)
        assert done
        assert await (await open_one()).identity() == await tried.identity() != before


async def test_opening_and_leaving_an_older_copy_does_not_make_it_look_whole(shared_etcd: EtcdProcess) -> None:
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        await put(await open_one(), PutKey("a", "1"))
        found = [(await open_one()).found_revision for _ in range(3)]
        assert len(set(found)) == 1


# Bounds of etcd


async def test_a_large_transaction_is_done_in_parts_in_its_order(shared_etcd: EtcdProcess) -> None:
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        tried = await open_one()
        keys = [f"k{number:03}" for number in range(300)]
        async with watching(tried, await tried.refresh()) as events:
            await put(tried, *(PutKey(key, "x" * 5_000) for key in keys))
            await put(tried, *map(DeleteKey, keys))
            seen: list[str] = []
            while len(seen) < 2 * len(keys):
                seen += [operation.key for operation in (await events.receive()).operations]
        assert seen == [*keys, *keys]
        assert await values(tried) == {}
        refused = MetadataTransaction((Compare("absent", None),), tuple(PutKey(key, "") for key in keys))
        assert isinstance((await tried.transact_all([refused]))[0], CompareFailed)
        assert await values(tried) == {}


async def test_what_is_read_in_pages_is_of_one_moment(
    shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE_ENTRIES", 3)
    monkeypatch.setattr(reading, "PAGE_ENTRIES_MAX", 4)
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        tried = await open_one()
        await put(tried, *(PutKey(f"k{number}", "") for number in range(10)))
        assert list(await values(tried)) == [f"k{number}" for number in range(10)]
        assert replace((await tried.range("k9")).entries[0], mod_revision=0).key == "k9"


async def test_others_have_their_turns_while_recorded_deletions_are_read(
    shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    """There may be many pages of them, and swaps that waited behind these were given up."""
    begun, goes_on, read_pages = trio.Event(), trio.Event(), reading._read_pages

    async def held(*arguments: Any) -> Any:
        begun.set()
        await goes_on.wait()
        return await read_pages(*arguments)

    found: list[frozenset[int]] = []
    async with one_store(shared_etcd, wait_s=5) as store:

        async def ask() -> None:
            found.append(await store.dropped_queues())

        monkeypatch.setattr(reading, "_read_pages", held)
        nursery.start_soon(ask)
        await begun.wait()
        await put(store, PutKey("a", "1"))
        assert found == []
        goes_on.set()
        while not found:
            await trio.lowlevel.checkpoint()
    assert found == [frozenset()]


# A copy of the node elsewhere


@asynccontextmanager
async def node_on(process: EtcdProcess, machine: str) -> AsyncIterator[EtcdStore]:
    """The same node's store, opened there."""
    store = EtcdStore(EtcdAccess((process.endpoint,)), "amqpd/", "one-identity", alone=True, machine=machine)
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(store.run)
            yield store
        finally:
            with trio.CancelScope(shield=True):
                await store.aclose()


async def test_a_node_that_renews_its_lease_elsewhere_is_left_alone(
    own_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of its data directory ended its lease, and with that the node."""
    monkeypatch.setattr(opening, "LEASES_WAITED", 1)
    async with node_on(own_etcd, "here") as original, trio.open_nursery() as nursery:
        lease = await original.grant_lease(2)
        await original.transact([], [PutKey("mine", "held", lease)])

        async def renew() -> None:
            while True:
                await original.keep_alive(lease)
                await trio.sleep(0.3)

        nursery.start_soon(renew)
        before = own_etcd.ask("/v3/kv/range", {"key": b64("amqpd/"), "range_end": b64("amqpd0")})["kvs"]
        for machine in ("there", ""):
            with pytest.raises(BaseExceptionGroup) as caught:
                async with node_on(own_etcd, machine):
                    pass
            assert caught.group_contains(
                MetadataStoreError, match="this data directory is a copy of its own", depth=None
            )
        after = own_etcd.ask("/v3/kv/range", {"key": b64("amqpd/"), "range_end": b64("amqpd0")})["kvs"]
        assert after == before
        nursery.cancel_scope.cancel()


async def test_what_has_died_elsewhere_is_ended_when_its_lease_is_gone(
    own_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "GONE_S", 0.1)
    async with node_on(own_etcd, "here") as original:
        lease = await original.grant_lease(2)
        other = await original.grant_lease(600)
        await original.transact([], [PutKey("mine", "held", lease), PutKey("queue", "held", other)])
        async with node_on(own_etcd, "there") as next_one:
            assert await next_one.get("mine") is None
            assert await next_one.get("queue") is None


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
