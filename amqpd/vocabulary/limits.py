"""The bounds that the protocol modules keep, as plain numbers.

What comes in: the settings. What goes out: `Limits`.
Not here: where the numbers come from and why they are what they are (`config.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a node; the settings of the same names say why (`config.py`)."""

    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat_s: int = 60
    handshake_timeout_s: float = 10.0
    send_timeout_s: float = 30.0
    consumer_timeout_s: float = 1800.0
    """0: none"""
    message_bytes_max: int = 128 * 1024 * 1024
    outbox_bytes_max: int = 4 * 1024 * 1024
    outboxes_bytes_max: int = 256 * 1024 * 1024
    """of all connections together"""
    queue_memory_bytes: int = 16 * 1024 * 1024
    backlog_memory_bytes: int = 128 * 1024 * 1024
    unfinished_bytes_max: int = 512 * 1024 * 1024
    """of all transactions that are not committed and all messages that have not come whole, on the node"""
    vhost_topology_bytes_max: int = 1024 * 1024 * 1024
    """of the queues, exchanges and bindings of one virtual host, without messages"""
    small_queue_bytes: int = 64 * 1024
    """queues with less than this in memory are no cause of a shortage, and are left alone"""
    node_connections_max: int = -1
    """of the whole node, like the next ones; -1: no limit"""
    node_channels_max: int = -1
    node_queues_max: int = -1
    node_exchanges_max: int = -1
    published_deaths: bool = False
    """what a client publishes in x-death counts"""
