"""Messages of queues that were deleted while nobody served their source: the next home drops them, on all copies.

What comes in: a source that is served here, and has messages of queues that the topology does not know; the metadata
store. What goes out: the end of those whose deletion is recorded, in the source's log.
Rules: 1. Only a recorded deletion deletes: the record of a queue may just not have come yet. 2. A store that does not
answer is asked again, for as long as this node is the home.
Not here: what is recorded (`topology/metadata/tombstones.py`), queues whose record comes later
(`node/queue_registry.py`), the local source at a start (`Node.recovery_ended`).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from amqpd.node.node import Node
from amqpd.topology.metadata.store import MetadataStore, StoreBusy, StoreUnreached

AGAIN_S = 2.0


async def drop_deleted(
    store: MetadataStore, node: Node, source: int, is_home: Callable[[], bool], settle: Callable[[], None]
) -> None:
    """Returns when the store has answered. `is_home`: this node still is, in the same epoch; `settle`: called after
    something has changed."""
    while node.registry.has_unclaimed(source) and is_home():
        try:
            dropped = await store.dropped_queues()
        except (StoreUnreached, StoreBusy):
            await trio.sleep(AGAIN_S)
            continue
        if node.registry.has_unclaimed(source) and is_home():
            node.registry.drop_deleted(source, dropped)
            settle()
        return
