"""Clients that do not read: those that have taken nothing of what waits for them for too long.

What comes in: links, and the time, about once a second. What goes out: those to be dropped.
Rules: 1. The time counts from the last octet that the socket took while something was waiting, whatever that is:
deliveries, answers, the last words of a close. 2. A client that reads slowly reads.
Not here: how much may wait (`outbox_bytes_max`), heartbeats, which a client that does not read may well send
(`session/liveness.py`).

Source: RabbitMQ's send_timeout; a peer that acknowledges with a window of zero is there as far as TCP can tell (RFC
9293 section 3.8.6.1), so nothing else would ever end it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amqpd.node.node import Node
    from amqpd.transport.link import Link


def given_up(links: Iterable[Link], node: Node, now: float) -> list[Link]:
    """Those that are to be dropped now: logged, their sockets reset when they are closed, which is the caller's."""
    found = overdue(links, node.limits.send_timeout_s, now)
    for link in found:
        node.log("send_timeout", connection=link.connection.name, pending_bytes=link.pending_bytes)
        link.reset()
    return found


def overdue(links: Iterable[Link], timeout_s: float, now: float) -> list[Link]:
    """Those that have taken nothing for this long, as far as the calls before this one saw."""
    found: list[Link] = []
    for link in links:
        if not link.pending:
            link.stalled_at = None
        elif link.stalled_at is None or link.took:
            link.stalled_at, link.took = now, False
        elif now - link.stalled_at >= timeout_s:
            found.append(link)
    return found
