"""Who has the messages of a queue that are delivered and not settled.

What comes in: the node, a queue. What goes out: for an id, the connection, the channel and the consumer.
Rules: 1. Made for one look: what is delivered later is not in it. 2. Messages that wait to be dead-lettered, or whose
acknowledgement waits for tx.commit, belong to nobody here.
Not here: the ledger of a channel (`session/unacked.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from amqpd.management.pacing import WalkPace, in_order

if TYPE_CHECKING:
    from amqpd.node.node import Node
    from amqpd.queues.port import QueuePort

Held = tuple[int, int, dict[str, Any]]
"""first id, last id, who"""
NOBODY: dict[str, Any] = {"connection": None, "channel": None, "consumer_tag": None}


async def holders_of(node: Node, queue: QueuePort) -> Holders:
    """Walks over what is unacked in the queue's virtual host, in steps: what is settled meanwhile may be in it."""
    pace, found = WalkPace(), list[Held]()
    for connection in list(node.connections.values()):
        if connection.vhost != queue.record.vhost:
            continue
        for channel in list(connection.channels.values()):
            for entry in list(channel.unacked):
                await pace.step()
                if entry.queue is queue:
                    tag = None if entry.consumer is None else entry.consumer.tag
                    who = {"connection": connection.name, "channel": channel.id, "consumer_tag": tag}
                    found.append((entry.seq, entry.seq + entry.size - 1, who))
    return Holders(await in_order(found, itemgetter(0)))


class Holders:
    """The ledgers of all channels, as far as they have messages of one queue."""

    def __init__(self, found: list[Held]) -> None:
        """Ascending."""
        self._found = found

    def of(self, message_id: int) -> dict[str, Any]:
        """`connection`, `channel`, `consumer_tag` (None for basic.get): all None when nobody has it."""
        index = bisect_right(self._found, message_id, key=lambda each: each[0]) - 1
        if index >= 0 and self._found[index][1] >= message_id:
            return self._found[index][2]
        return NOBODY
