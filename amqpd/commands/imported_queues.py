"""Which source the quorum queues of a definitions file get, when the command line imports it into a cluster.

What comes in: a data directory, whose settings say where the cluster meets. What goes out: a source for each queue.
Rules: 1. Nodes that share their metadata and keep no copies for each other are no such cluster.
Not here: how one is chosen (`cluster/imported_queues.py`, `management/metadata/imported_queues.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from amqpd.cluster.choosing import Heard
from amqpd.cluster.imported_queues import ImportedQueues
from amqpd.commands.cluster_store import Opened, in_store, queues_of
from amqpd.commands.metadata import cluster_settings
from amqpd.definitions.difference import local_source
from amqpd.management.metadata.imported_queues import sources_by
from amqpd.vocabulary.records import QueueRecord


def sources_for(data_dir: Path) -> Callable[[QueueRecord], int]:
    """What is returned raises Unavailable. Raises ClickException, StartupError."""
    settings = cluster_settings(data_dir)
    if settings is None:
        return local_source
    copies = settings.cluster_copies

    async def read(opened: Opened) -> tuple[Heard, Counter[int]]:
        roster = opened.roster
        heard = Heard("", roster.members, roster.known, roster.records, roster.linkage)
        return heard, (await queues_of(opened, copies)).count

    heard, queues = in_store(settings, read)
    return sources_by(ImportedQueues(heard, queues, copies).source_for) if heard.living else local_source
