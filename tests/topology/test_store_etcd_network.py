"""A network between the broker and etcd that is cut, and an etcd of three members that loses some.

What is verified: another member is asked when one does not answer; a lost answer has one outcome whichever member it
was lost by; a watch goes on; without a majority calls end within their bound, and all is well when there is one
again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from amqpd.topology.metadata.etcd import feed, gateway
from amqpd.topology.metadata.etcd.gateway import EtcdAccess
from amqpd.topology.metadata.etcd.messages import encoded
from amqpd.topology.metadata.etcd.store import EtcdStore
from amqpd.topology.metadata.store import Committed, Compare, OutcomeUnknown, PutKey, StoreUnreached
from tests.harness.etcd import EtcdProcess, start_cluster
from tests.harness.relay import relay_to
from tests.harness.slow import slow
from tests.topology.etcd_stores import new_prefix
from tests.topology.etcd_stores import shared_etcd as shared_etcd
from tests.topology.test_store import put, values, watching

pytestmark = pytest.mark.trio


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "ANSWER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(gateway, "SILENCE_S", 0.5)
    monkeypatch.setattr(feed, "RETRY_S_MAX", 0.05)


async def opened(nursery: trio.Nursery, prefix: str, *endpoints: str, wait_s: float = 20.0) -> EtcdStore:
    store = EtcdStore(EtcdAccess(endpoints), prefix, "node", wait_s=wait_s)
    await nursery.start(store.run)
    return store


async def recovered(tried: EtcdStore, operation: PutKey) -> int:
    while True:
        try:
            return await put(tried, operation)
        except StoreUnreached:
            await trio.lowlevel.checkpoint()


async def test_another_endpoint_is_asked_when_one_is_cut_off(shared_etcd: EtcdProcess) -> None:
    async with relay_to(shared_etcd.port) as relay, trio.open_nursery() as nursery:
        tried = await opened(nursery, new_prefix(), f"127.0.0.1:{relay.port}", shared_etcd.endpoint)
        async with watching(tried, await tried.refresh()) as events:
            await put(tried, PutKey("a", "1"))
            relay.cut()
            outcome = await tried.transact([Compare("b")], [PutKey("b", "1")])
            assert isinstance(outcome, Committed)
            assert [(await events.receive()).operations for _ in range(2)] == [
                (PutKey("a", "1"),),
                (PutKey("b", "1"),),
            ]
        await tried.aclose()


@pytest.mark.parametrize("answers_only", [True, slow(False)])
async def test_a_transaction_in_a_cut_has_one_outcome(shared_etcd: EtcdProcess, answers_only: bool) -> None:
    async with relay_to(shared_etcd.port) as relay, trio.open_nursery() as nursery:
        tried = await opened(nursery, new_prefix(), f"127.0.0.1:{relay.port}", wait_s=1.5)
        await put(tried, PutKey("a", "1"))
        async with watching(tried, await tried.refresh()) as events:
            relay.cut(answers_only=answers_only)
            with pytest.raises(OutcomeUnknown):
                await tried.transact([], [PutKey("a", "2")])
            relay.mend()
            revision = await recovered(tried, PutKey("a", "3"))
            seen = [await events.receive()]
            while seen[-1].revision < revision:
                seen.append(await events.receive())
            # What was kept in the cut arrives after it was mended, and meets a turn that has moved on.
            assert [event.operations for event in seen] in (
                [(PutKey("a", "2"),), (PutKey("a", "3"),)],
                [(PutKey("a", "3"),)],
            )
            assert len(seen) == 2 or not answers_only
        await put(tried, PutKey("b", "1"))
        assert await values(tried) == {"a": "3", "b": "1"}
        await tried.aclose()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[EtcdProcess]]:
    processes = start_cluster(tmp_path, 3)
    yield processes
    for process in processes:
        process.stop()


async def test_one_member_of_three_may_die_and_without_two_calls_end(three: list[EtcdProcess]) -> None:
    async with trio.open_nursery() as nursery:
        tried = await opened(nursery, "amqpd/", *(each.endpoint for each in three), wait_s=3)
        async with watching(tried, await tried.refresh()) as events:
            await put(tried, PutKey("a", "1"))
            await trio.to_thread.run_sync(three[tried._gateway._at].kill)
            await recovered(tried, PutKey("a", "2"))
            left = [each for each in three if each.running]
            left[0].pause()
            with pytest.raises(StoreUnreached):
                await tried.transact([], [PutKey("b", "1")])
            with pytest.raises(StoreUnreached):
                await tried.range("")
            left[0].go_on()
            await recovered(tried, PutKey("c", "1"))
            keys = ""
            while "c" not in keys:
                keys += "".join(operation.key for operation in (await events.receive()).operations)
            assert keys.startswith("aa")
        assert {**await values(tried), "b": "1"} == {"a": "2", "b": "1", "c": "1"}
        await tried.aclose()


async def expires(process: EtcdProcess, tried: EtcdStore, key: str) -> bool:
    """Whether the key's lease ends within twice its time."""
    message = {"key": encoded(tried._layout.key(key))}
    with trio.move_on_after(4):
        while True:
            found = await trio.to_thread.run_sync(process.ask, gateway.RANGE, message)
            if "kvs" not in found:
                return True
            await trio.sleep(0.1)
    return False


@asynccontextmanager
async def kept_alive(tried: EtcdStore, lease: int) -> AsyncIterator[None]:
    async def keep() -> None:
        while True:
            await tried.keep_alive(lease)
            await trio.sleep(0.6)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep)
        yield
        nursery.cancel_scope.cancel()


async def test_a_lease_lives_while_another_call_waits_for_its_answer(
    shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "ANSWER_TIMEOUT_S", 8)
    async with trio.open_nursery() as nursery:
        tried = await opened(nursery, new_prefix(), shared_etcd.endpoint)
        lease = await tried.grant_lease(2)
        await put(tried, PutKey("a", "1", lease))
        async with kept_alive(tried, lease), tried._order:
            assert not await expires(shared_etcd, tried, "a")
        await tried.aclose()


async def test_a_lease_lives_when_the_endpoint_that_is_asked_falls_silent(
    shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "ANSWER_TIMEOUT_S", 8)
    async with relay_to(shared_etcd.port) as relay, trio.open_nursery() as nursery:
        tried = await opened(nursery, new_prefix(), f"127.0.0.1:{relay.port}", shared_etcd.endpoint)
        lease = await tried.grant_lease(2)
        await put(tried, PutKey("a", "1", lease))
        async with kept_alive(tried, lease):
            relay.cut()
            assert not await expires(shared_etcd, tried, "a")
            relay.mend()
        await tried.aclose()
