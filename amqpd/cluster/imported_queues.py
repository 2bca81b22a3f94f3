"""Which source a quorum queue gets that comes from a definitions file.

What comes in: the cluster as it was heard last, how many queues each source has; what a queue asks for. What goes
out: a source.
Rules: 1. Queues spread over the nodes that live and are the leader of a source with enough copies, by bounded-load
hash of their names. 2. Where there is none for a queue there is no source for it. 3. What was said of a queue is said
again: a file is compared several times.
Not here: how one is chosen (`choosing.py`), queues that clients declare (`search.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from amqpd.cluster.choosing import Heard, choose
from amqpd.cluster.records import MemberRecord
from amqpd.node.cluster import WantedSource


class ImportedQueues:
    """Chooses the sources of the quorum queues in one import of definitions."""

    def __init__(self, heard: Heard, queues: Counter[int], copies: int) -> None:
        """`queues`: of each source; it is kept and counted on. `copies`: as the cluster has it."""
        self._heard = heard
        self._queues = queues
        self._copies = copies
        self._said: dict[Hashable, int] = {}
        self._able: dict[int, dict[str, MemberRecord]] = {}
        """by the number of copies that is asked for: nodes that are the leader of such a source"""

    def source_for(self, queue: Hashable, wanted: WantedSource) -> int | None:
        """None: no node serves one that is as wanted. `queue`: what tells it from others."""
        source = self._said.get(queue)
        if source is None:
            able = self._able_for(wanted)
            if not able:
                return None
            heard = replace(self._heard, living=able)
            source = self._said[queue] = choose(wanted, heard, self._queues, (), self._copies)[0]
            self._queues[source] += 1
        return source

    def _able_for(self, wanted: WantedSource) -> dict[str, MemberRecord]:
        able = self._able.get(wanted.copies)
        if able is None:
            heard = self._heard
            able = self._able[wanted.copies] = {
                name: member
                for name, member in heard.usable().items()
                if choose(wanted, replace(heard, living={name: member}), {}, (), self._copies)[0]
            }
        return able
