"""All that is done to a cluster whose forwarders are each on a machine of its own.

What comes in: the cluster, the leader of the queues, choices of a seed. What goes out: one fault of a kind, made, and
whom it has cut off; everything healed.
Rules: 1. One fault at a time, and `heal` takes back whatever was done: processes go on or are started, links are
whole, etcd serves. 2. How long a fault lasts is drawn with it; a pause lasts three lease times, so that another
leader is there when a paused one goes on.
Not here: the faults (`link_faults.py`, `node_faults.py`, `store_faults.py`), what clients do meanwhile
(`cluster_rounds.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .cluster import Cluster
from .link_faults import LinkFaults, Make
from .node_faults import LOSES_COPIES, PAUSED, NodeFaults
from .store_faults import StoreFaults

LEASE_S = 2.0
PAUSE_S = 3 * LEASE_S
LASTS_S = (0.2, 4 * LEASE_S)
"""the shortest fault and the longest one: some end before anybody has noticed, some when the next leader serves"""


class ClusterFaults:
    """`make` one, `heal` it; `kinds` says which there are."""

    def __init__(self, cluster: Cluster) -> None:
        assert cluster.machines is not None
        self._cluster, self._machines = cluster, cluster.machines
        self._nodes, self._store = NodeFaults(cluster), StoreFaults(cluster)
        links = LinkFaults(self._machines, len(cluster.brokers))
        self.kinds: dict[str, Make] = {**self._nodes.kinds, **links.kinds, **self._store.kinds}
        self.missing = self._nodes.missing

    def lasts_s(self, kind: str, chance: random.Random) -> float:
        """From making it to healing it."""
        drawn = chance.uniform(*LASTS_S)
        return PAUSE_S if kind in PAUSED else drawn

    def make(self, kind: str, leader: str, chance: random.Random) -> frozenset[str]:
        """`leader`: of the queues. The forwarders that confirm nothing from now on until it is healed."""
        others = sorted(set(self._cluster.brokers) - {leader})
        chance.shuffle(others)
        return self.kinds[kind](leader, others)

    def heal(self, kind: str, end_load: Callable[[], None]) -> None:
        """Returns when all processes run and serve, and no copy is missing that the kind has taken away; `end_load`
        is called if that takes long. Raises AssertionError if a process has ended by itself."""
        self._machines.heal()
        self._store.heal()
        self._nodes.heal()
        if kind in LOSES_COPIES:
            self._nodes.wait_admitted(end_load)
