"""While a metadata store over a network does not answer, or one on several disks has lost most of them: declarations
are refused, deletions wait, nothing ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import structlog.testing
import trio
import trio.testing
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.topology.metadata.store import (
    MetadataTransaction,
    Outcome,
    OutcomeUnknown,
    Snapshot,
    StoreFull,
    StoreLacksDisks,
    StoreReplaced,
    StoreUnavailable,
    StoreUnreached,
)
from amqpd.topology.metadata.sync import LEASE_TTL_S
from amqpd.vocabulary.records import Delete, Put, QueueRecord
from tests.topology.memory_store import MemoryStore
from tests.topology.test_sync import HOST, QUEUE, running

pytestmark = pytest.mark.trio


class LacksDisks(MemoryStore):
    """It has too few disks while `lost`."""

    lost = ""

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        if self.lost:
            raise StoreLacksDisks(self.lost)
        return await super().transact_all(transactions)

    async def keep_alive(self, lease: int) -> None:
        if self.lost:
            raise StoreLacksDisks(self.lost)
        await super().keep_alive(lease)


class Unreached(MemoryStore):
    """It does not answer while `away`; before that it does what comes first, if `first` is how much."""

    def __init__(self) -> None:
        super().__init__()
        self.away: type[StoreUnreached] | None = None
        self.first = 0

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        if self.away is not None:
            raise self.away("it does not answer", await super().transact_all(transactions[: self.first]))
        return await super().transact_all(transactions)

    async def keep_alive(self, lease: int) -> None:
        if self.away is not None:
            raise self.away("it does not answer")
        await super().keep_alive(lease)

    async def range(self, prefix: str) -> Snapshot:
        if self.away is not None:
            raise self.away("it does not answer")
        return await super().range(prefix)


@pytest.mark.parametrize("error", [StoreUnavailable, OutcomeUnknown])
async def test_a_declaration_is_refused_once_and_then_at_once(
    error: type[StoreUnreached], autojump_clock: trio.testing.MockClock
) -> None:
    store = Unreached()
    async with running(store) as node:
        assert await node.ask(HOST)
        store.away = error
        assert await node.ask(Put(QUEUE)) is False
        with pytest.raises(AMQPPreconditionFailed, match="does not answer"):
            node.submit("again", Put(QUEUE))
        assert node.queue("q") is None
        store.away = None
        # Nobody asks: the lease that is kept alive shows that it answers again.
        await trio.sleep(LEASE_TTL_S)
        assert await node.ask(Put(QUEUE)) is True


async def test_a_declaration_is_not_told_to_try_again_where_the_store_was_replaced(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = Unreached()
    async with running(store) as node:
        store.away = StoreReplaced
        assert await node.ask(HOST) is False
        with pytest.raises(AMQPPreconditionFailed, match="was emptied, replaced or put back") as told:
            node.submit("again", HOST)
        assert "does not answer" not in str(told.value)


@pytest.mark.parametrize("noticed", ["by a declaration", "before one"])
async def test_too_few_disks_refuse_a_declaration_at_once_and_let_a_deletion_wait(
    noticed: str, autojump_clock: trio.testing.MockClock
) -> None:
    store = LacksDisks()
    async with running(store) as node:
        assert await node.ask(HOST, Put(QUEUE))
        store.lost = "1 of 3 are left"
        began = trio.current_time()
        if noticed == "before one":
            await trio.sleep(LEASE_TTL_S)
        else:
            assert await node.ask(Put(QueueRecord("/", "other", 2))) is False
            assert trio.current_time() == began
        with pytest.raises(AMQPPreconditionFailed, match="too few of the broker's data directories"):
            node.submit("again", Put(QueueRecord("/", "other", 2)))
        node.submit("deletion", Delete(QUEUE.key))
        await trio.sleep(60)
        assert "deletion" not in [each[0] for each in node.said if isinstance(each, tuple)]
        store.lost = ""
        await node.sync.flush()
        assert ("deletion", True) in node.said
        assert await node.ask(Put(QueueRecord("/", "other", 2))) is True


async def test_why_changes_wait_is_said_once(autojump_clock: trio.testing.MockClock) -> None:
    store = Full()
    async with running(store) as node:
        assert await node.ask(HOST)
        with structlog.testing.capture_logs() as said:
            for _ in range(2):
                store.full = True
                node.submit("waits", Put(QUEUE))
                await trio.sleep(60)
                store.full = False
                await node.sync.flush()
        events = [each["event"] for each in said]
        assert events == ["changes of the topology wait", "changes of the topology go on"] * 2


class Full(MemoryStore):
    """It has no space while `full`."""

    full = False

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        if self.full:
            raise StoreFull("there is no space")
        return await super().transact_all(transactions)


async def test_a_deletion_waits_and_what_was_declared_behind_it_does_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = Unreached()
    async with running(store) as node:
        assert await node.ask(HOST, Put(QUEUE))
        store.away = StoreUnavailable
        node.submit("deletion", Delete(QUEUE.key))
        node.submit("declaration", Put(QueueRecord("/", "other", 2)))
        await trio.sleep(60)
        assert [each for each in node.said if isinstance(each, tuple)] == [("declaration", False)]
        assert node.queue("q") == QUEUE
        store.away = None
        await node.sync.flush()
        assert ("deletion", True) in node.said
        assert node.queue("q") is None


async def test_what_was_done_before_the_answer_was_lost_is_done(autojump_clock: trio.testing.MockClock) -> None:
    store = Unreached()
    async with running(store) as node:
        assert await node.ask(HOST)
        store.away, store.first = OutcomeUnknown, 1
        node.submit("one", Put(QUEUE))
        assert await node.ask(Put(QueueRecord("/", "other", 2))) is False
        await node.sync.flush()
        assert ("one", True) in node.said
        assert node.queue("q") == QUEUE


async def test_reading_everything_again_waits_for_the_store(autojump_clock: trio.testing.MockClock) -> None:
    store = Unreached()
    async with running(store) as node:
        assert await node.ask(HOST)
        store.away = StoreUnavailable
        store._history.reset(store._space.revision)
        await trio.sleep(60)
        store.away = None
        await trio.sleep(LEASE_TTL_S)
        assert await node.ask(Put(QUEUE)) is True
