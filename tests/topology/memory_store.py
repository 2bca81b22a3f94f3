"""The metadata store of tests and of simulations: everything in this process's memory.

What comes in, what goes out: see `amqpd/topology/metadata/store.py`; it passes the same tests (`test_store.py`).
Rules: 1. Deterministic: no thread, no clock; every call is done when its first checkpoint has passed. 2.
Several `MemoryStore`s over one `MemorySpace` are what several processes are over one real store: keys
without a lease outlive any of them.
Not here: anything durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import trio

from amqpd.topology.metadata.events import EVENTS_MAX, EventWatch, WatchHistory
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    CompareFailed,
    DeleteKey,
    Event,
    LeaseGone,
    MetadataEntry,
    MetadataTransaction,
    Operation,
    Outcome,
    PutKey,
    Snapshot,
    StoreClosed,
)
from amqpd.topology.metadata.tombstones import numbers, oldest


class MemorySpace:
    """The key space that the stores share."""

    def __init__(self, identity: str = "0" * 32) -> None:
        self.entries: dict[str, MetadataEntry] = {}
        self.revision = 0
        self.leases = 0
        self.histories: list[WatchHistory] = []
        self.identity = identity
        self.journal: tuple[str, int] | None = None
        self.dropped: dict[int, int] = {}
        """with the revision of each"""
        self._history: list[Event] = []

    def open_history(self) -> WatchHistory:
        history = WatchHistory(0)
        history.publish(self._history)
        self.histories.append(history)
        return history

    def execute(self, transaction: MetadataTransaction) -> Outcome:
        if not all(compare.holds(self.entries.get(compare.key)) for compare in transaction.compares):
            return CompareFailed(self.revision)
        effective = tuple(
            operation
            for operation in transaction.operations
            if isinstance(operation, PutKey) or operation.key in self.entries
        )
        if not effective:
            return Committed(self.revision)
        self.revision += 1
        self._note_numbers(effective)
        for operation in effective:
            if isinstance(operation, PutKey):
                self.entries[operation.key] = MetadataEntry(
                    operation.key, operation.value, self.revision, operation.lease
                )
            else:
                del self.entries[operation.key]
        event = Event(self.revision, effective)
        self._history = [*self._history[1 - EVENTS_MAX :], event]
        for history in self.histories:
            history.publish([event])
        return Committed(self.revision)

    def _note_numbers(self, operations: Sequence[Operation]) -> None:
        before = [self.entries[operation.key] for operation in operations if operation.key in self.entries]
        ended = numbers((entry.key, entry.value) for entry in before if not entry.lease)
        used = numbers((each.key, each.value) for each in operations if isinstance(each, PutKey) and not each.lease)
        self.dropped.update(dict.fromkeys(ended, self.revision))
        for number in used:
            self.dropped.pop(number, None)


class MemoryStore:
    """A metadata store in the memory of this process; it has the methods of `store.MetadataStore`."""

    def __init__(self, space: MemorySpace | None = None) -> None:
        self._space = space or MemorySpace()
        self._history = self._space.open_history()
        self._leases: set[int] = set()
        self._closed = False

    async def get(self, key: str) -> MetadataEntry | None:
        await self._enter()
        return self._space.entries.get(key)

    async def range(self, prefix: str) -> Snapshot:
        await self._enter()
        entries = self._space.entries
        keys = sorted(key for key in entries if key.startswith(prefix))
        return Snapshot(self._space.revision, [entries[key] for key in keys])

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        return (await self.transact_all([MetadataTransaction(tuple(compares), tuple(operations))]))[0]

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        self._check_open()
        for transaction in transactions:
            for operation in transaction.operations:
                if isinstance(operation, PutKey) and operation.lease and operation.lease not in self._leases:
                    raise LeaseGone(f"lease {operation.lease}")
        # Before the checkpoint, so that calls take effect in the order in which they were begun.
        outcomes = [self._space.execute(transaction) for transaction in transactions]
        await trio.lowlevel.cancel_shielded_checkpoint()
        return outcomes

    def watch(self, after: int) -> EventWatch:
        return EventWatch(self._history, after)

    async def refresh(self) -> int:
        await self._enter()
        return self._space.revision

    async def grant_lease(self, ttl_s: float) -> int:
        await self._enter()
        self._space.leases += 1
        self._leases.add(self._space.leases)
        return self._space.leases

    async def keep_alive(self, lease: int) -> None:
        await self._enter()
        if lease not in self._leases:
            raise LeaseGone(f"lease {lease}")

    async def identity(self) -> str:
        await self._enter()
        return self._space.identity

    async def journal(self) -> tuple[str, int] | None:
        await self._enter()
        return self._space.journal

    async def set_journal(self, identity: str, index: int) -> None:
        await self._enter()
        self._space.journal = (identity, index)

    async def dropped_queues(self) -> frozenset[int]:
        await self._enter()
        return frozenset(self._space.dropped)

    async def forget_dropped(self, ids: Iterable[int], keep: int = 0) -> None:
        await self._enter()
        for number in oldest(self._space.dropped, ids, keep):
            del self._space.dropped[number]

    async def keep_copies(self) -> None:
        await self._enter()

    async def aclose(self) -> None:
        self._end_leases(set(self._leases))
        self._closed = True
        self._history.fail(StoreClosed("the metadata store is closed"))
        if self._history in self._space.histories:
            self._space.histories.remove(self._history)
        await trio.lowlevel.checkpoint()

    def _end_leases(self, leases: set[int]) -> None:
        self._leases -= leases
        held = [key for key, entry in self._space.entries.items() if entry.lease in leases]
        self._space.execute(MetadataTransaction((), tuple(DeleteKey(key) for key in held)))

    async def _enter(self) -> None:
        self._check_open()
        await trio.lowlevel.checkpoint()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the metadata store is closed")
