"""Where the queues of a definitions file go, when the command line imports it into a cluster.

What comes in: a data directory, whose settings say where the cluster meets. What goes out: a source for each quorum
queue, a node for each classic one.
Rules: 1. Both spread over the nodes that live. 2. While none lives, and where nodes keep no copies for each other, a
classic queue has no node yet: the nodes claim it (`topology/metadata/claiming.py`).
Not here: how one is chosen (`cluster/choosing.py`, `management/metadata/imported_queues.py`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from amqpd.cluster.choosing import Heard, ImportedQueues
from amqpd.cluster.placement import ranked
from amqpd.commands.cluster_store import OpenedClusterStore, in_store, queues_of
from amqpd.commands.metadata import cluster_settings
from amqpd.definitions.difference import Place, unplaced
from amqpd.management.metadata.imported_queues import placed_in_cluster
from amqpd.vocabulary.records import QueueRecord


def placing_for(data_dir: Path) -> Place:
    """What is returned raises Unavailable. Raises ClickException, StartupError."""
    settings = cluster_settings(data_dir)
    if settings is None:
        return unplaced
    copies = settings.cluster_copies

    async def read(opened: OpenedClusterStore) -> tuple[Heard, Counter[int]]:
        roster = opened.roster
        heard = Heard("", roster.members, roster.known, roster.records, roster.linkage)
        return heard, (await queues_of(opened, copies)).count

    heard, queues = in_store(settings, read)
    if not heard.living:
        return unplaced
    nodes = heard.usable() or heard.living

    def node_of(record: QueueRecord) -> str:
        return ranked(f"{record.vhost}/{record.name}", nodes)[0]

    return placed_in_cluster(ImportedQueues(heard, queues, copies).source_for, node_of)
