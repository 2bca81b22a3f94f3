"""The end of a node in order: it is no leader any more, and its peers know it.

What comes in: the forwarder, the links to its peers. What goes out: nothing; what is under way is committed first.
Rules: 1. First the queues stop and what is under way is committed, then peers and the store are told: others serve
the queues again while this process still closes its connections. 2. What does not answer within `HAND_OVER_S` is not
waited for: the next leaders wait for this one's leader lease to end then, as after a loss.
Not here: what a forwarder that leaves says (`forwarder.py`), the end of its membership (`incarnations.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from amqpd.cluster.forwarder import Forwarder
from amqpd.peers.links.link import PeerLink

HAND_OVER_S = 1.0


async def hand_over(
    forwarder: Forwarder,
    links: Mapping[str, PeerLink],
    settle: Callable[[], None],
    something: Callable[[], Awaitable[None]],
) -> None:
    """`something`: returns when anything has happened to the forwarder."""
    forwarder.stop_sources()
    settle()
    with trio.move_on_after(HAND_OVER_S):
        while not forwarder.is_settled:
            await something()
    forwarder.leave()
    settle()
    with trio.move_on_after(HAND_OVER_S):
        while not forwarder.has_left or any(link.out_bytes for link in links.values()):
            await something()
