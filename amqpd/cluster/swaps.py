"""Compare-and-swap of sources' records in the metadata store, many at once, each with an outcome that is known.

What comes in: records, each of the revision that it replaces. What goes out: the record as it is in the store now, or
that another one was first.
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

import trio

from amqpd.cluster.records import decode, encode, source_key
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    MetadataStore,
    OutcomeUnknown,
    PutKey,
    StoreBusy,
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


class _Swap:
    """One caller's. It has ended when it is `done`."""

    def __init__(self, record: SourceRecord) -> None:
        self.record = record
        self.give_up_at = trio.current_time() + SWAP_S
        self.unknown = False
        self.done = False
        self.found: SourceRecord | None = None
        self.failure: StoreUnavailable | None = None

    def end(self, found: SourceRecord | None) -> None:
        self.done, self.found = True, found

    def lost(self, error: Exception) -> None:
        """It did not come through; it ends if it certainly never will, or has been tried for long enough."""
        self.unknown = self.unknown or isinstance(error, OutcomeUnknown)
        if not self.unknown or trio.current_time() + RETRY_S >= self.give_up_at:
            sentence = f"{error}; whether the record was put is not known" if self.unknown else str(error)
            self.done, self.failure = True, StoreUnavailable(sentence)


class Swaps:
    """Of one process."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._turn = trio.Lock()
        self._waiting: list[_Swap] = []

    async def read(self, source: int) -> SourceRecord | None:
        """See `Directory.read`."""
        entry = await self._store.get(source_key(source))
        record = decode(entry.key, entry.value, entry.mod_revision) if entry is not None else None
        assert record is None or isinstance(record, SourceRecord)
        return record

    async def swap(self, record: SourceRecord) -> SourceRecord | None:
        """See `Directory.swap`."""
        mine = _Swap(record)
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
        """Those that have waited longest, of each source one."""
        taken: dict[int, _Swap] = {}
        for each in self._waiting:
            if len(taken) < SWAPS_AT_ONCE:
                taken.setdefault(each.record.source, each)
        self._waiting = [each for each in self._waiting if taken.get(each.record.source) is not each]
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
                [Compare(source_key(each.record.source), each.record.revision) for each in swaps],
                [PutKey(source_key(each.record.source), encode(each.record)) for each in swaps],
            )
            if isinstance(outcome, Committed):
                for each in swaps:
                    each.end(replace(each.record, revision=outcome.revision))
            elif len(swaps) == 1:
                [alone] = swaps
                found = await self.read(alone.record.source)
                same = found is not None and replace(found, revision=alone.record.revision) == alone.record
                alone.end(found if same else None)
            else:
                for each in swaps:
                    await self._try([each])
        except (StoreUnreached, StoreBusy, StoreFull) as error:
            for each in swaps:
                if not each.done:
                    each.lost(error)
