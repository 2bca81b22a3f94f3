"""A sample for each connection and each channel.

What comes in: the node, which groups of families are wanted. What goes out: families with a row for each.
Rules: 1. The groups have the names of RabbitMQ's tables. 2. The label `channel` is the channel's name in the API,
`connection` that of the connection: there are no Erlang processes. 3. What each channel published, got and
acknowledged is counted by queue and for the node, not for channels.
Not here: which endpoint has which (`endpoints.py`).

Source: prometheus_rabbitmq_core_metrics_collector.erl of RabbitMQ (groups and names).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import trio

from amqpd.flow.client_counters import CHANNELS as OPEN
from amqpd.node.node import Node
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd_admin.metrics.families import COUNTER, GAUGE, Family, Part, one
from amqpd_admin.metrics.node_sums import AT_ONCE, NodeSums

CONNECTION, CHANNEL = ("connection",), ("channel",)
BYTES, SHAPE, CHANNELS = "connection_coarse_metrics", "connection_metrics", "channel_metrics"

OfConnection = tuple[Family, Callable[[ConnectionBase], float]]
OfChannel = tuple[Family, Callable[[ChannelBase], float]]


def unconfirmed(channel: ChannelBase) -> int:
    confirms = channel.confirms
    return 0 if confirms is None else confirms.published - confirms.told - confirms.refusals


OF_CONNECTIONS: dict[str, tuple[OfConnection, ...]] = {
    BYTES: (
        (
            Family("connection_incoming_bytes", COUNTER, "Bytes received from the client", CONNECTION),
            lambda connection: connection.bytes_in,
        ),
        (
            Family("connection_outgoing_bytes", COUNTER, "Bytes sent to the client", CONNECTION),
            lambda connection: connection.bytes_out,
        ),
    ),
    SHAPE: (
        (
            Family("connection_channels", GAUGE, "Channels of the connection", CONNECTION),
            lambda connection: len(connection.channels),
        ),
    ),
}
OF_CHANNELS: tuple[OfChannel, ...] = (
    (Family("channel_consumers", GAUGE, "Consumers of the channel", CHANNEL), lambda channel: len(channel.consumers)),
    (
        Family("channel_messages_unacked", GAUGE, "Deliveries that are not acknowledged", CHANNEL),
        lambda channel: channel.unacked.count,
    ),
    (
        Family("channel_messages_unconfirmed", GAUGE, "Publishes that are not confirmed yet", CHANNEL),
        unconfirmed,
    ),
    (
        Family("consumer_prefetch", GAUGE, "Prefetch of each consumer to come", CHANNEL),
        lambda channel: channel.prefetch,
    ),
    (
        Family("channel_prefetch", GAUGE, "Prefetch that the channel's consumers share", CHANNEL),
        lambda channel: channel.prefetch_shared,
    ),
)


def totals(node: Node, sums: NodeSums) -> Iterator[Part]:
    """Of all of them together."""
    gauges = (
        ("connection_channels", "Channels of all connections", node.client_counters.count(OPEN)),
        ("channel_consumers", "Consumers of all channels", sums.consumers),
        ("channel_messages_unacked", "Deliveries that are not acknowledged", sums.channels["unacked"]),
        ("channel_messages_unconfirmed", "Publishes that are not confirmed yet", sums.channels["unconfirmed"]),
    )
    for name, says, value in gauges:
        yield one(f"rabbitmq_{name}", GAUGE, says, value)


async def each_of_them(node: Node, groups: Sequence[str], prefix: str) -> list[Part]:
    """Of those that have opened a virtual host."""
    of_connections = [each for group, families in OF_CONNECTIONS.items() if group in groups for each in families]
    of_channels = OF_CHANNELS if CHANNELS in groups else ()
    rows: list[tuple[str, tuple[float, ...]]] = []
    inner: list[tuple[str, tuple[float, ...]]] = []
    for at, connection in enumerate(list(node.connections.values()) if of_connections or of_channels else (), 1):
        if connection.vhost:
            rows.append((connection.name, tuple(value(connection) for _, value in of_connections)))
            for channel in connection.channels.values() if of_channels else ():
                name = f"{connection.name} ({channel.id})"
                inner.append((name, tuple(value(channel) for _, value in of_channels)))
        if at % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    outer: list[Part] = [
        (replace(family, name=prefix + family.name), _column(rows, number))
        for number, (family, _) in enumerate(of_connections)
    ]
    return outer + [
        (replace(family, name=prefix + family.name), _column(inner, number))
        for number, (family, _) in enumerate(of_channels)
    ]


def _column(rows: list[tuple[str, tuple[float, ...]]], number: int) -> Iterator[tuple[tuple[str], float]]:
    for name, values in rows:
        yield (name,), values[number]
