"""Where the queues of a definitions file belong in a cluster.

What comes in: how the cluster chooses. What goes out: a source for each quorum queue, a node for each classic one.
Rules: 1. Wherever the file was written, quorum queues spread over the nodes. 2. Where there is no source for a queue
a running node has some made first, as for a queue that a client declares: for the first queues of the file, each at
the node where it would be. 3. Where there is none even so the import is refused: a quorum queue that is copied
nowhere is not what the file says.
Not here: how one is chosen (`cluster/choosing.py`), what is imported (`definitions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import trio

from amqpd.declarations.locating import wanted_of
from amqpd.definitions.difference import Place
from amqpd.management.errors import Unavailable
from amqpd.node.cluster import Cluster, WantedSource
from amqpd.queues.settings import QUORUM, type_of
from amqpd.vocabulary.records import Key, QueueRecord

Choose = Callable[[Key, WantedSource], int | None]
# Queues of a file for which sources are made, at once: a cluster of some nodes has one at each of them then.
MADE_FOR_MAX = 32


def placed_on(node_of: Callable[[QueueRecord], str]) -> Place:
    """All queues are classic ones of the node that `node_of` names."""
    return lambda record: replace(record, node=node_of(record))


def placed_in_cluster(choose: Choose, node_of: Callable[[QueueRecord], str]) -> Place:
    """What is returned raises Unavailable. `node_of`: the node of a classic queue."""
    on_a_node = placed_on(node_of)

    def place(record: QueueRecord) -> QueueRecord:
        if type_of(record.arguments) != QUORUM:
            return on_a_node(record)
        source = choose(record.key, _wanted(record))
        if source is None:
            raise Unavailable(
                f"'{record.name}' in '{record.vhost}' is a quorum queue, and no node leads a source with as many "
                "copies as it asks for: import at a running node (POST /api/definitions), which makes one while a "
                "majority of the nodes lives"
            )
        return replace(record, source=source)

    return place


def sourceless(records: Iterable[QueueRecord], choose: Choose) -> list[WantedSource]:
    """What the first of the quorum queues ask of a source that there is none of yet. `choose` counts what it says."""
    found: list[WantedSource] = []
    for record in records:
        if type_of(record.arguments) == QUORUM and len(found) < MADE_FOR_MAX:
            wanted = _wanted(record)
            if choose(record.key, wanted) is None:
                found.append(wanted)
    return found


async def make_sources(cluster: Cluster, wanted: Sequence[WantedSource]) -> None:
    """Until each was answered, which takes ten seconds at most: there is one, or there can be none now."""
    left, answered = len(wanted), trio.Event()

    def answer(_: bool) -> None:
        nonlocal left
        left -= 1
        if not left:
            answered.set()

    for each in wanted:
        cluster.want_source(each, answer)
    if wanted:
        await answered.wait()


def _wanted(record: QueueRecord) -> WantedSource:
    return wanted_of(record, {})._replace(balanced=f"{record.vhost}/{record.name}")
