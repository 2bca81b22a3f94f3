"""Names of queues in order, by virtual host: for lists, of which a page is wanted again and again.

What comes in: the topology. What goes out: sorted names.
Rules: 1. What was sorted is kept, and only what is new is sorted: while no queue comes or goes, a page costs nothing
that grows with their number. 2. All of it is done in steps, except a merge of two sorted lists: a millisecond for
some ten thousand names. 3. What is kept takes eight bytes a name, and goes when somebody asks after its virtual host
has gone.
Not here: what of them is wanted (`admin/amqpd_admin/queue_order.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from amqpd.management.pacing import WalkPace, in_order
from amqpd.topology.state import Topology, VhostTopology

AT_ONCE = 1000


class _Sorted(NamedTuple):
    version: int
    """of the virtual host; another one of its name never has it"""
    names: list[str]


class QueueNames:
    """The names of the queues of each virtual host, in order, kept for lists that are read by the page."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._kept: dict[str, _Sorted] = {}

    async def of(self, vhost: str) -> Sequence[str]:
        """Of one that is gone there are none. It is not to be changed."""
        found, kept = self._topology.vhosts.get(vhost), self._kept.get(vhost)
        if found is None:
            self._kept.pop(vhost, None)
            return ()
        if kept is None or kept.version != found.version:
            kept = await _sorted(found, [] if kept is None else kept.names)
            self._kept[vhost] = kept
            if not self._kept.keys() <= self._topology.vhosts.keys():
                self._kept = {name: each for name, each in self._kept.items() if name in self._topology.vhosts}
        return kept.names


async def _sorted(vhost: VhostTopology, known: list[str]) -> _Sorted:
    """As they are when it begins. `known`: most of them may be the same."""
    pace, version, there = WalkPace(), vhost.version, dict(vhost.queues)
    stay = list[str]()
    for begin in range(0, len(known), AT_ONCE):
        await pace.step()
        stay += [name for name in known[begin : begin + AT_ONCE] if name in there]
    if len(stay) == len(known) == len(there):
        return _Sorted(version, known)  # bindings or exchanges have changed
    fresh = there.copy()
    for begin in range(0, len(stay), AT_ONCE):
        await pace.step()
        for name in stay[begin : begin + AT_ONCE]:
            del fresh[name]
    return _Sorted(version, sorted(stay + await in_order(list(fresh), str)))
