"""What is connected, in numbers; and what would be one too many.

What comes in: connections, channels and consumers as they come and go, queues and exchanges that are to be declared.
What goes out: RabbitMQ's refusals.
Rules: 1. Limits are looked up at the moment of asking: one that was lowered refuses the next, and closes nothing. 2.
What is on its way to the metadata store counts already, so that declarations on many channels at once do not get past
a limit together. 3. A process counts what it alone has, so that censuses of several add up; queues that exist are in
the topology, which all of them know.
Not here: the limits' names and values (`topology/limit_keys.py`), how fast somebody publishes (`quotas.py`), sockets
(`pump.py`: `connections_max`).

Source: rabbit_reader.erl, rabbit_queue_type.erl, rabbit_exchange.erl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from pamqp.exceptions import AMQPNotAllowed, AMQPPreconditionFailed

from amqpd.flow.unfinished import UnfinishedBytes
from amqpd.topology.limit_keys import MAX_CHANNELS, MAX_CONNECTIONS, MAX_QUEUES, limit_of
from amqpd.topology.sizes import arguments_bytes, record_bytes
from amqpd.topology.state import Topology
from amqpd.vocabulary.client import Client, UnfinishedChannel
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import BindingRecord, Change, ExchangeRecord, Put, QueueRecord

# What the arguments of one declaration or binding may take in memory: half of what a frame of the usual size holds,
# and a thousand times what applications need.
ARGUMENTS_BYTES_MAX = 64 * 1024

Resume = Callable[[bool], None]

CONNECTIONS, CHANNELS, CONSUMERS, DECLARING = "connections", "channels", "consumers", "declaring"
"""connections that have opened a virtual host, and are not closed; new queues on their way to the metadata store"""
VHOST, USER, NODE = "vhost", "user", "node"
Subject = tuple[str, str, str]
"""what is counted, the kind of its owner, and the owner's name"""


@dataclass(frozen=True, slots=True)
class Census:
    """Counts by subject, of one process or of several: the census of all is the sum of theirs."""

    counts: Mapping[Subject, int]
    """without zeros, so that equal counts are equal values"""

    def __add__(self, other: Census) -> Census:
        return Census(MappingProxyType(Counter(self.counts) + Counter(other.counts)))


NOBODY: Final = Census(MappingProxyType({}))


class LimitReached(AMQPPreconditionFailed):
    """A limit of connections, channels, consumers, queues or exchanges is reached: one more would be too many."""


class KnownQueues(Protocol):
    """The names of all queues of a node, as (virtual host, name)."""

    def __len__(self) -> int: ...

    def __contains__(self, key: object) -> bool: ...


class ClientCounters:
    """Counts of what clients have, held against the limits."""

    def __init__(self, limits: Limits, topology: Topology, queues: KnownQueues, node_name: str) -> None:
        self._node_name = node_name
        self._limits = limits
        self._topology = topology
        self._queues = queues
        self._own: Counter[Subject] = Counter()
        """of this process, without zeros"""
        self.others = NOBODY
        """of the other processes that count towards the same limits"""
        self.unfinished = UnfinishedBytes(limits)
        self._coming_bytes: Counter[str] = Counter()
        """of all that is on its way there, by virtual host"""

    def census(self) -> Census:
        """Of this process, now."""
        return Census(MappingProxyType(dict(self._own)))

    def count(self, what: str, of: str = NODE, name: str | None = None) -> int:
        """What limits and operators hold for the count, of all processes. Without a name of this node."""
        subject = what, of, self._node_name if name is None else name
        return self._own[subject] + self.others.counts.get(subject, 0)

    def _add(self, what: str, change: int, *owners: tuple[str, str]) -> None:
        """To the counts of these owners, and of the node."""
        for of, name in (*owners, (NODE, self._node_name)):
            self._own[what, of, name] += change
            if not self._own[what, of, name]:
                del self._own[what, of, name]  # names come and go

    def require_entry(self, user: str, vhost: str) -> None:
        """connection.open of a virtual host that exists. Raises AMQPNotAllowed."""
        topology = self._topology
        limit = limit_of(topology, "vhost", vhost, MAX_CONNECTIONS)
        if _reached(limit, self.count(CONNECTIONS, VHOST, vhost)):
            raise AMQPNotAllowed(
                f"access to vhost '{vhost}' refused for user '{user}': connection limit ({limit}) is reached"
            )
        limit = limit_of(topology, "user", user, MAX_CONNECTIONS)
        if _reached(limit, self.count(CONNECTIONS, USER, user)):
            raise AMQPNotAllowed(f"connection refused for user '{user}': user connection limit ({limit}) is reached")

    def require_node(self) -> None:
        """connection.open, before the virtual host is looked at. Raises AMQPNotAllowed."""
        limit = self._limits.node_connections_max
        if 0 <= limit <= self.count(CONNECTIONS):
            raise AMQPNotAllowed(f"connection refused: node connection limit ({limit}) is reached")

    def entered(self, connection: Client) -> None:
        self._add(CONNECTIONS, 1, (VHOST, connection.vhost), (USER, connection.user))

    def left(self, connection: Client) -> None:
        """The connection is closed; maybe it never entered a virtual host."""
        if connection.vhost:
            self._add(CONNECTIONS, -1, (VHOST, connection.vhost), (USER, connection.user))

    def open_channel(self, user: str) -> None:
        """Raises AMQPNotAllowed."""
        limit = limit_of(self._topology, "user", user, MAX_CHANNELS)
        if _reached(limit, self.count(CHANNELS, USER, user)):
            raise AMQPNotAllowed(
                f"number of channels opened for user '{user}' has reached the maximum allowed user limit of {limit}"
            )
        most = self._limits.node_channels_max
        if 0 <= most <= self.count(CHANNELS):
            raise AMQPNotAllowed(
                f"number of channels opened on node '{self._node_name}' has reached the maximum allowed "
                f"limit of {most}"
            )
        self._add(CHANNELS, 1, (USER, user))

    def channel_gone(self, channel: UnfinishedChannel) -> None:
        """Called once or more before the channel is marked as closed."""
        if not channel.closed:
            self._add(CHANNELS, -1, (USER, channel.client.user))

    def consumer_added(self, vhost: str) -> None:
        self._add(CONSUMERS, 1, (VHOST, vhost))

    def consumer_gone(self, vhost: str) -> None:
        self._add(CONSUMERS, -1, (VHOST, vhost))

    def declare_queue(
        self, record: QueueRecord, resume: Resume, submit: Callable[[Sequence[Change], Resume], None]
    ) -> None:
        """Submit a new queue. Raises AMQPPreconditionFailed, and what `submit` raises."""
        vhost = record.vhost
        limit = limit_of(self._topology, "vhost", vhost, MAX_QUEUES)
        if limit is not None and _reached(limit, self._queues_in(vhost, limit)):
            raise LimitReached(
                f"cannot declare queue '{record.name}': queue limit in vhost '{vhost}' ({limit}) is reached"
            )
        most = self._limits.node_queues_max
        if 0 <= most <= len(self._queues) + self.count(DECLARING):
            raise LimitReached(f"cannot declare queue '{record.name}': queue limit in cluster ({most}) is reached")

        def done(created: bool) -> None:
            self._add(DECLARING, -1, (VHOST, vhost))
            resume(created)

        submit([Put(record, create=True)], done)
        self._add(DECLARING, 1, (VHOST, vhost))

    def submit(self, changes: Sequence[Change], resume: Resume, submit: Callable[[Resume], None]) -> None:
        """Submit the changes (which is what `submit` does), if their virtual host has space for them. Raises
        AMQPPreconditionFailed, and what `submit` raises."""
        coming: Counter[str] = Counter()
        for change in changes:
            if isinstance(change, Put) and isinstance(change.record, QueueRecord | ExchangeRecord | BindingRecord):
                coming[change.record.vhost] += self._require_capacity(change.record, coming[change.record.vhost])

        def done(made: bool) -> None:
            for vhost, nbytes in coming.items():
                self._coming_bytes[vhost] -= nbytes
                if not self._coming_bytes[vhost]:
                    del self._coming_bytes[vhost]  # of these alone: there may be very many virtual hosts
            resume(made)

        submit(done if coming else resume)
        self._coming_bytes.update(coming)

    def _require_capacity(self, record: QueueRecord | ExchangeRecord | BindingRecord, coming: int) -> int:
        """What the record takes. Raises AMQPPreconditionFailed when that is too much, alone or with what is there."""
        arguments = arguments_bytes(record.arguments)
        if arguments > ARGUMENTS_BYTES_MAX:
            raise AMQPPreconditionFailed(
                f"arguments of {described(record)} take {arguments} bytes, more than {ARGUMENTS_BYTES_MAX}"
            )
        nbytes, vhost = record_bytes(record), self._topology.vhosts.get(record.vhost)
        limit = self._limits.vhost_topology_bytes_max
        there = 0 if vhost is None else vhost.nbytes + self._coming_bytes[record.vhost]
        if there + coming + nbytes > limit:
            raise LimitReached(
                f"cannot declare {described(record)}: what queues, exchanges and bindings of the vhost may take "
                f"({limit} bytes) is reached"
            )
        return nbytes

    def _queues_in(self, vhost: str, limit: int) -> int:
        """Queues that ended by themselves are gone at once, and their records follow."""
        names = self._topology.vhosts[vhost].queues
        coming = self.count(DECLARING, VHOST, vhost)
        if len(names) + coming < limit:
            return len(names) + coming
        return sum((vhost, name) in self._queues for name in names) + coming

    def require_exchange(self, record: ExchangeRecord) -> None:
        """For an exchange that is not there. Raises AMQPPreconditionFailed. (Those on their way do not count: an
        exchange costs little, and this bound is of the whole node.)"""
        most = self._limits.node_exchanges_max
        # The default exchange is one too.
        if most >= 0 and sum(1 + len(vhost.exchanges) for vhost in self._topology.vhosts.values()) >= most:
            raise LimitReached(
                f"cannot declare exchange '{record.name}' in vhost '{record.vhost}': exchange limit of {most} is "
                "reached"
            )


def described(record: QueueRecord | ExchangeRecord | BindingRecord) -> str:
    """As RabbitMQ's texts name it."""
    if isinstance(record, BindingRecord):
        ends = f"exchange '{record.source}' to {record.destination_type} '{record.destination}'"
        return f"binding from {ends} in vhost '{record.vhost}'"
    kind = "queue" if isinstance(record, QueueRecord) else "exchange"
    return f"{kind} '{record.name}' in vhost '{record.vhost}'"


def _reached(limit: int | None, count: int) -> bool:
    return limit is not None and count >= limit
