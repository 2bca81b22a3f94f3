"""Classic queues that no node leads: each node claims its share of them.

What comes in: queues that have no node, or one that was forgotten; what the cluster knows of its nodes. What goes
out: claims, in the metadata store, whose watch makes the queues.
Rules: 1. A node that starts claims what its journal has messages of, so while a node is known and has not started, a
queue without a node may be its own: nobody else claims that. An operator who forgets the node decides it. 2. The
queues of a node that was forgotten are claimed at once, and are empty: their messages are on its disk, and are parked
there if it is let in again. 3. Each queue goes to one member by hash of its name, so that the queues spread and no
two nodes are after the same one.
Not here: the claim itself (`topology/metadata/claiming.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog

from amqpd.cluster.placement import ranked
from amqpd.cluster.roster import Roster
from amqpd.node.node import Node
from amqpd.topology.metadata.claiming import claim
from amqpd.topology.metadata.store import MetadataStore, StoreBusy, StoreFull, StoreUnreached
from amqpd.vocabulary.records import QueueRecord

log = structlog.get_logger(component="cluster")


def share_of(me: str, roster: Roster, of_node: Callable[[str], Collection[QueueRecord]]) -> list[QueueRecord]:
    """The queues that node `me` is to claim now. `of_node`: the classic queues that name this node."""
    if me not in roster.members:
        return []
    forgotten = sorted(roster.forgotten.keys() - roster.known.keys())
    claimable = forgotten if roster.gone else ["", *forgotten]  # "": those that no node has claimed
    unclaimed = [record for name in claimable for record in of_node(name)]
    return [record for record in unclaimed if ranked(f"{record.vhost}/{record.name}", roster.members)[0] == me]


class UnclaimedQueues:
    """The claims of one node, one call of the store at a time."""

    def __init__(self) -> None:
        self._news = False
        self._busy = False

    def look(self) -> None:
        """There may be something to claim that was not: another queue of other nodes, or other nodes."""
        self._news = True

    def begins(self) -> bool:
        """At each beat: whether `claim_share` is to be called."""
        return self._news and not self._busy

    async def claim_share(self, node: Node, store: MetadataStore, roster: Roster) -> None:
        """A store that does not answer is asked again at the next beat."""
        self._news, self._busy = False, True
        try:
            share = share_of(node.identity.name, roster, node.registry.classic_of)
            claimed = await claim(store, share, node.sources.node) if share else []
            if claimed:
                log.info("queues_claimed", queues=len(claimed))
        except (StoreUnreached, StoreBusy, StoreFull) as error:
            self._news = True
            log.warning("the metadata store does not answer", reason=str(error))
        finally:
            self._busy = False
