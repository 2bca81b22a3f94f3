"""Claims on classic queues that no node leads: a shared metadata store has them, and some node has to.

What comes in: the store; records of queues. What goes out: the same records with the node that leads them from now
on.
Rules: 1. A queue is claimed once: the record's revision is compared, and one that another node was faster with is
left to it. 2. A node claims what its journal has messages of when it starts, before it serves anybody; the rest waits
until every node has had its chance (`cluster/unclaimed_queues.py`). 3. Only a queue without a source is claimed:
others are led by the leader of their source. 4. Nodes without links to each other claim under names that no two of
them have (`take_name`); in a cluster its directory sees to that.
Not here: what a queue of another node is (`amqpd/remote/queue.py`).

A store of before 0.2 has such records, of which each node had a queue of its own; so has one into which a definitions
file was imported while no node of the cluster lived; and a node that is forgotten leaves its queues behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import quote

from amqpd.errors import StartupError
from amqpd.topology.metadata.codec import decode_record, encode_key, encode_record
from amqpd.topology.metadata.store import Committed, Compare, MetadataStore, MetadataTransaction, PutKey, StoreDamaged
from amqpd.vocabulary.records import QueueRecord

NAMES = "node/"
"""The keys of nodes' names begin with this; their values are nodes' ids."""
CLAIMED_AT_ONCE = 100
"""in one call of the store"""


async def claim(store: MetadataStore, records: Iterable[QueueRecord], node: str) -> list[QueueRecord]:
    """The queues of `records` that `node` leads from now on: those whose records are as they were when they were
    read. Raises MetadataStoreError; after OutcomeUnknown it may be called again."""
    claimed: list[QueueRecord] = []
    part: list[tuple[QueueRecord, MetadataTransaction]] = []
    for record in records:
        entry = await store.get(encode_key(record.key))
        if entry is None:
            continue
        try:
            found = decode_record(entry.key, entry.value)
        except StoreDamaged:
            continue  # whose record cannot be read is named by who reads it (`reading.py`)
        if found == record and not record.source:
            ours = replace(record, node=node)
            put = PutKey(entry.key, encode_record(ours))
            part.append((ours, MetadataTransaction((Compare(entry.key, entry.mod_revision),), (put,))))
        if len(part) == CLAIMED_AT_ONCE:
            claimed += await _carried_out(store, part)
            part = []
    return claimed + await _carried_out(store, part)


async def take_name(store: MetadataStore, name: str, node_id: str, lease: int) -> None:
    """The node has the name for as long as it holds `lease`. Raises StartupError when another one has it,
    MetadataStoreError."""
    key = NAMES + quote(name, safe="")
    entry = await store.get(key)
    if entry is not None and entry.value != node_id:
        raise StartupError(
            f"another node that runs with this metadata store is called {name}: set another node_name, or start this "
            "node again when that one has ended"
        )
    compare = Compare(key, 0 if entry is None else entry.mod_revision)
    if not isinstance(await store.transact([compare], [PutKey(key, node_id, lease)]), Committed):
        raise StartupError(f"another node has taken the name {name} at this moment: set another node_name")


async def _carried_out(
    store: MetadataStore, part: list[tuple[QueueRecord, MetadataTransaction]]
) -> list[QueueRecord]:
    outcomes = await store.transact_all([transaction for _, transaction in part]) if part else []
    return [record for (record, _), outcome in zip(part, outcomes, strict=True) if isinstance(outcome, Committed)]
