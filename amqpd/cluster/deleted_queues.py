"""Messages of queues that were deleted while nobody served their source: the next leader drops them, on all copies.

What comes in: a source that is served here, and has messages of queues that the topology does not know; the metadata
store. What goes out: the end of those whose deletion is recorded, in the source's log.
Rules: 1. Only a recorded deletion deletes: the record of a queue may just not have come yet. 2. A store that does not
answer is asked again, for as long as this node is the leader. 3. All sources that a node takes over at once have one
read of what is recorded, which may be much: one that was begun before a source asks does not count for it.
Not here: what is recorded (`topology/metadata/tombstones.py`), queues whose record comes later
(`node/queue_registry.py`), the local source at a start (`Node.recovery_ended`).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from amqpd.node.node import Node
from amqpd.topology.metadata.store import MetadataStore, StoreBusy, StoreUnreached

AGAIN_S = 2.0


class Deletions:
    """Reads the deleted queues that the store has recorded, with one read for all sources that ask meanwhile."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._turn = trio.Lock()
        self._begun = self._has = 0
        """reads; the one that `_found` is of"""
        self._found: frozenset[int] = frozenset()

    async def read(self) -> frozenset[int]:
        """As of a moment after the call. Raises StoreUnavailable, StoreBusy."""
        following = self._begun + 1
        async with self._turn:
            if self._has < following:
                self._begun += 1
                self._found = await self._store.dropped_queues()
                self._has = self._begun
            found = self._found
            if not self._turn.statistics().tasks_waiting:
                self._found, self._has = frozenset(), 0  # not kept for nobody
        return found


async def drop_deleted(
    deletions: Deletions, node: Node, source: int, is_leader: Callable[[], bool], run_effects: Callable[[], None]
) -> None:
    """Returns when the store has answered. `is_leader`: this node still is, in the same epoch; `run_effects`: called
    after something has changed."""
    while node.registry.has_unclaimed(source) and is_leader():
        try:
            dropped = await deletions.read()
        except (StoreUnreached, StoreBusy):
            await trio.sleep(AGAIN_S)
            continue
        if node.registry.has_unclaimed(source) and is_leader():
            node.registry.drop_deleted(source, dropped)
            run_effects()
        return
