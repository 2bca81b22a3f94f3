"""What clients have on the node, walked over in steps: for lists.

What comes in: the node, which things are wanted. What goes out: things one by one, None at each step that passes one
over; how many queues sources have.
Rules: 1. A walk goes over copies of references and names, since the broker goes on between its steps: what has gone
is passed over.
Not here: the steps themselves (`amqpd/management/pacing.py`), queues (`amqpd/management/figures/totals.py`), rows
(`rows/`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from amqpd.declarations.locating import wanted_of
from amqpd.management.pacing import WalkPace, each
from amqpd.node.node import Node
from amqpd.session.credit import Subscription
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.topology.state import Topology
from amqpd.vocabulary.states import ConnectionState
from amqpd_admin.login import Who

Wanted = Callable[[ConnectionBase], bool]


class Consuming(NamedTuple):
    """A consumer, and the channel that it is of."""

    channel: ChannelBase
    consumer: Subscription

    @property
    def here(self) -> bool:
        """Still."""
        return self.channel.consumers.get(self.consumer.tag) is self.consumer


async def seen_vhosts(who: Who) -> list[str]:
    """Those that the user may see."""
    return await each(list(who.parts.on.node.topology.vhosts), lambda name: name if who.sees(name) else None)


def connections(node: Node, wanted: Wanted) -> Iterator[ConnectionBase | None]:
    for connection in list(node.connections.values()):
        yield connection if connection.state is not ConnectionState.CLOSED and wanted(connection) else None


def channels(node: Node, wanted: Wanted) -> Iterator[ChannelBase | None]:
    for connection in connections(node, wanted):
        yield None
        if connection is not None:
            yield from list(connection.channels.values())


def consumers(node: Node, wanted: Wanted) -> Iterator[Consuming | None]:
    for channel in channels(node, wanted):
        yield None
        if channel is not None:
            yield from consumers_of(channel)


def consumers_of(channel: ChannelBase) -> Iterator[Consuming]:
    for consumer in list(channel.consumers.values()):
        yield Consuming(channel, consumer)


def is_here(channel: ChannelBase) -> bool:
    """Still."""
    return channel.connection.channels.get(channel.id) is channel


async def declared(topology: Topology, usual: int) -> tuple[Counter[int], dict[int, int]]:
    """How many queues each source has, and how many copies it is to have: as many as the queue of it that asks for
    most, or does not ask, which is for the `usual` number."""
    pace, counts, copies = WalkPace(), Counter[int](), dict[int, int]()
    for vhost in list(topology.vhosts.values()):
        for record in list(vhost.queues.values()):
            await pace.step()
            if record.source:
                counts[record.source] += 1
                asked = wanted_of(record, {}).copies or usual
                copies[record.source] = max(asked | 1, copies.get(record.source, 0))
    return counts, copies
