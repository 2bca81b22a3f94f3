"""Names of queues in order, by virtual host: for lists, of which a page is wanted again and again.

What comes in: the topology. What goes out: sorted names.
Rules: 1. What was sorted is kept, and only what is new is sorted: while no queue comes or goes, a page costs nothing
that grows with their number. 2. All of it is done in steps, except a merge of two sorted lists: a
millisecond for some ten thousand names. 3. What is kept takes eight bytes a name, and goes with its virtual host.
Not here: what of them is wanted (`admin/amqpd_admin/queue_order.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from amqpd.management.pacing import Pace, in_order
from amqpd.topology.state import Topology, VhostTopology

AT_ONCE = 1000


class _Sorted(NamedTuple):
    vhost: VhostTopology
    version: int
    names: list[str]


class QueueNames:
    """Of all virtual hosts."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._kept: dict[str, _Sorted] = {}

    async def of(self, vhost: str) -> Sequence[str]:
        """Of one that is gone there are none. It is not to be changed."""
        found, kept = self._topology.vhosts.get(vhost), self._kept.get(vhost)
        if found is None:
            return ()
        if kept is None or kept.vhost is not found or kept.version != found.version:
            known = kept.names if kept is not None and kept.vhost is found else []
            kept = await _sorted(found, known)
            self._kept[vhost] = kept
            if len(self._kept) > len(self._topology.vhosts):
                self._kept = {name: each for name, each in self._kept.items() if name in self._topology.vhosts}
        return kept.names


async def _sorted(vhost: VhostTopology, known: list[str]) -> _Sorted:
    """As they are when it begins."""
    pace, version, fresh, stay = Pace(), vhost.version, dict(vhost.queues), list[str]()
    for begin in range(0, len(known), AT_ONCE):
        await pace.step()
        there = [name for name in known[begin : begin + AT_ONCE] if name in fresh]
        stay += there
        for name in there:
            del fresh[name]
    return _Sorted(vhost, version, sorted(stay + await in_order(list(fresh), str)))
