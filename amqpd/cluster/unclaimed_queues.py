"""Classic queues that no node has claimed: this node claims its share when every node has had its chance.

What comes in: queues without a node; which nodes the cluster knows, and which are members. What goes out: claims, in
the metadata store, whose watch makes the queues.
Rules: 1. A node that starts claims what its journal has messages of, so while a node is known and has not started, a
queue may be its own: nobody else claims it. An operator who forgets the node decides that. 2. Each queue goes to one
member by hash of its name, so that the queues spread and no two nodes are after the same one.
Not here: the claim itself (`topology/metadata/claiming.py`).
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from amqpd.cluster.placement import ranked
from amqpd.cluster.roster import Roster
from amqpd.node.node import Node
from amqpd.topology.metadata.claiming import claim
from amqpd.topology.metadata.store import MetadataStore, StoreBusy, StoreFull, StoreUnreached
from amqpd.vocabulary.records import QueueRecord

log = structlog.get_logger(component="cluster")


def share_of(me: str, roster: Roster, unclaimed: Collection[QueueRecord]) -> list[QueueRecord]:
    """The queues that node `me` is to claim now."""
    if roster.gone or me not in roster.members:
        return []
    return [record for record in unclaimed if ranked(f"{record.vhost}/{record.name}", roster.members)[0] == me]


class UnclaimedQueues:
    """The claims of one node, one call of the store at a time."""

    def __init__(self, node: Node, store: MetadataStore) -> None:
        self._node = node
        self._store = store
        self._busy = False

    async def look(self, roster: Roster) -> None:
        """Claims what is this node's share. A store that does not answer is asked again at the next look."""
        unclaimed = self._node.registry.unclaimed_queues
        if not unclaimed or self._busy:
            return
        self._busy = True
        try:
            share = share_of(self._node.identity.name, roster, unclaimed)
            claimed = await claim(self._store, share, self._node.sources.node) if share else []
            if claimed:
                log.info("queues_claimed", queues=len(claimed))
        except (StoreUnreached, StoreBusy, StoreFull) as error:
            log.warning("the metadata store does not answer", reason=str(error))
        finally:
            self._busy = False
