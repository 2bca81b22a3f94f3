"""Where the quorum queues of a definitions file belong in a cluster.

What comes in: how the cluster chooses. What goes out: a source for each queue.
Rules: 1. Wherever the file was written, queues spread over the nodes. 2. Where there is no source for a queue the
import is refused: a quorum queue that is copied nowhere is not what the file says.
Not here: how one is chosen (`cluster/imported_queues.py`), what is imported (`definitions.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from amqpd.declarations.locating import wanted_of
from amqpd.definitions.difference import local_source
from amqpd.management.errors import Unavailable
from amqpd.node.sources import Wanted
from amqpd.queues.settings import QUORUM, type_of
from amqpd.vocabulary.records import Key, QueueRecord

Choose = Callable[[Key, Wanted], int | None]


def sources_by(choose: Choose) -> Callable[[QueueRecord], int]:
    """What is returned raises Unavailable."""

    def source_of(record: QueueRecord) -> int:
        if type_of(record.arguments) != QUORUM:
            return local_source(record)
        wanted = wanted_of(record, {})._replace(balanced=f"{record.vhost}/{record.name}")
        source = choose(record.key, wanted)
        if source is None:
            raise Unavailable(
                f"'{record.name}' in '{record.vhost}' is a quorum queue, and no node serves a source for it yet: "
                "declare a quorum queue like it on each node first"
            )
        return source

    return source_of
