"""Deleted queues that need not be remembered any more: forgotten, when the store takes it.

What comes in: a metadata store, numbers of the journal. What goes out: nothing; what the store does not take now is
forgotten at a later start.
Rules: 1. Nothing waits for it, and nothing fails with it: a number that is remembered longer does no harm.
Not here: which numbers (`node/orphans.py`), what is remembered of a deletion (`tombstones.py`).
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from amqpd.topology.metadata.store import MetadataStore, StoreBusy, StoreFull, StoreUnreached

log = structlog.get_logger(component="metadata store")


async def forget_old(store: MetadataStore, ids: Collection[int], keep: int) -> None:
    """See `MetadataStore.forget_dropped`."""
    if not ids:
        return
    try:
        await store.forget_dropped(ids, keep)
    except (StoreBusy, StoreFull, StoreUnreached) as error:
        log.warning("old deletions are forgotten at a later start", reason=str(error))
