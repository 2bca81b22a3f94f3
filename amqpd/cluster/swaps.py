"""Compare-and-swap of sources' records and desired sets in the metadata store: many at once, each with a known
outcome.

What comes in: records, each of the revision that it replaces, or that is to go. What goes out: the record as it is in
the store now, or that another one was first.
Rules: 1. An unknown outcome is settled by a second swap on the same revision: one of the two is refused, and it is
the store that says which. Reading alone proves nothing, the first may still be on its way; after a refusal it is
decided, and what is read then tells what became of it. 2. What waits while another swap is under way goes together,
in one transaction: a member that takes over takes many sources. When that is refused, one by one. 3. A caller that
gives up leaves the others' swaps to the next of them.
Not here: which records (`amqpd/replication/take_over.py`); what others swap (`directory.py` hears of it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import structlog
import trio

from amqpd.cluster.records import DesiredSetRecord, OfSource, decode, encode, key_of, source_key
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    DeleteKey,
    MetadataStore,
    Operation,
    OutcomeUnknown,
    PutKey,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    StoreUnreached,
)

# Of one transaction: less than what the store does in one step in etcd (`topology/metadata/etcd/transactions.py`).
SWAPS_AT_ONCE = 50
# What did not answer is tried again after this.
RETRY_S = 0.5
# A swap of unknown outcome is tried for so long: three times as long as the store itself waits for an answer.
SWAP_S = 30.0

log = structlog.get_logger(component="cluster")

Record = TypeVar("Record", SourceRecord, DesiredSetRecord)


class _Swap:
    """One caller's compare-and-swap, which has ended when it is `done`."""

    def __init__(self, record: OfSource, drops: bool) -> None:
        self.record = record
        self.key = key_of(record)
        self.drops = drops
        """the key is to be absent"""
        self.give_up_at = trio.current_time() + SWAP_S
        self.unknown = False
        self.done = False
        self.found: OfSource | None = None
        self.failure: StoreUnavailable | None = None

    @property
    def operation(self) -> Operation:
        return DeleteKey(self.key) if self.drops else PutKey(self.key, encode(self.record))

    def end(self, found: OfSource | None) -> None:
        """`found`: what is there now, as was desired; of what was to go, the record of before."""
        self.done, self.found = True, found

    def lost(self, error: Exception) -> None:
        """It did not come through; it ends if it certainly never will, or has been tried for long enough."""
        self.unknown = self.unknown or isinstance(error, OutcomeUnknown)
        if not self.unknown or trio.current_time() + RETRY_S >= self.give_up_at:
            sentence = f"{error}; whether the record was put is not known" if self.unknown else str(error)
            self.done, self.failure = True, StoreUnavailable(sentence)


class Swaps:
    """The compare-and-swaps of one process on records and desired sets in the metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._turn = trio.Lock()
        self._waiting: list[_Swap] = []

    async def read(self, source: int) -> SourceRecord | None:
        """The record as the store has it now, which may be newer than what was heard; None: there is none. Raises
        StoreUnavailable."""
        record = await self._read(source_key(source))
        assert record is None or isinstance(record, SourceRecord)
        return record

    async def desire(self, desired_set: DesiredSetRecord, *, drop: bool = False) -> None:
        """Put the desired set, or drop it; if the store does not answer, who wants it asks again."""
        try:
            await (self.drop(desired_set) if drop else self.swap(desired_set))
        except StoreUnreached as error:
            log.warning("the metadata store does not answer", source=desired_set.source, reason=str(error))

    async def swap(self, record: Record) -> Record | None:
        """Put the record if the store's is still of its revision (0: there is none). Returns it with its new
        revision; None if another one was put meanwhile. Raises StoreUnavailable: then, as when it is cancelled, it
        may have been carried out, and the same swap again tells."""
        found = await self._carry(_Swap(record, False))
        assert found is None or isinstance(found, type(record))
        return found

    async def drop(self, record: OfSource) -> bool:
        """It goes, if the store's is still of its revision: a desired set that is fulfilled, a source that nobody has
        ever led. False: another one was put meanwhile. Raises StoreUnavailable, as `swap`."""
        return await self._carry(_Swap(record, True)) is not None

    async def _found(self, key: str) -> OfSource | None:
        """As `_read`; a record that cannot be read is nobody's swap."""
        try:
            return await self._read(key)
        except StoreDamaged as error:
            log.warning("a swap found a record that cannot be read", reason=str(error))
            return None

    async def _read(self, key: str) -> OfSource | None:
        entry = await self._store.get(key)
        record = decode(entry.key, entry.value, entry.mod_revision) if entry is not None else None
        assert record is None or isinstance(record, SourceRecord | DesiredSetRecord)
        return record

    async def _carry(self, mine: _Swap) -> OfSource | None:
        self._waiting.append(mine)
        try:
            async with self._turn:
                while not mine.done:
                    await self._carry_out(self._take())
        finally:
            if mine in self._waiting:
                self._waiting.remove(mine)
        if mine.failure is not None:
            raise mine.failure
        return mine.found

    def _take(self) -> list[_Swap]:
        """Those that have waited longest, of each key one."""
        taken: dict[str, _Swap] = {}
        for each in self._waiting:
            if len(taken) < SWAPS_AT_ONCE:
                taken.setdefault(each.key, each)
        self._waiting = [each for each in self._waiting if taken.get(each.key) is not each]
        return list(taken.values())

    async def _carry_out(self, swaps: Sequence[_Swap]) -> None:
        """As far as it can be done now."""
        try:
            await self._try(swaps)
            if not all(each.done for each in swaps):
                await trio.sleep(RETRY_S)
        finally:
            self._waiting[:0] = [each for each in swaps if not each.done]

    async def _try(self, swaps: Sequence[_Swap]) -> None:
        try:
            outcome = await self._store.transact(
                [Compare(each.key, each.record.revision) for each in swaps], [each.operation for each in swaps]
            )
            if isinstance(outcome, Committed):
                for each in swaps:
                    each.end(each.record if each.drops else replace(each.record, revision=outcome.revision))
            elif len(swaps) == 1:
                [alone] = swaps
                if alone.drops:
                    gone = await self._store.get(alone.key) is None
                    alone.end(alone.record if gone else None)
                    return
                found = await self._found(alone.key)
                same = found is not None and replace(found, revision=alone.record.revision) == alone.record
                alone.end(found if same else None)
            else:
                for each in swaps:
                    await self._try([each])
        except (StoreUnreached, StoreBusy, StoreFull) as error:
            for each in swaps:
                if not each.done:
                    each.lost(error)
