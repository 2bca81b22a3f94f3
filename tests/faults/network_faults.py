"""What is done to forwarders that are each on a machine of its own, to the links between them and to etcd.

What comes in: a cluster on machines, the name of the home of the queues, choices of a seed. What goes out: one fault
of a kind, made; everything healed.
Rules: 1. One fault at a time, and `heal` takes back whatever was done: processes go on or are started, links are
whole, etcd serves. 2. A process that ends though no fault ended it fails `heal`. 3. How long a fault lasts is drawn
with it; a pause of the home lasts three lease times, so that another home is there when it goes on.
Not here: what clients do meanwhile (`cluster_rounds.py`), how links are cut (`tests/harness/namespaces.py`).
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

from ..harness.namespaces import HERE, Machines
from .cluster import Cluster

LEASE_S = 2.0
PAUSE_S = 3 * LEASE_S
LASTS_S = (0.2, 4 * LEASE_S)
"""the shortest fault and the longest one: some end before anybody has noticed, some when the next home serves"""
READY_DEADLINE_S = 120.0


class NetworkFaults:
    """`make` one, `heal` it; `kinds` says which there are."""

    def __init__(self, cluster: Cluster) -> None:
        assert cluster.machines is not None
        self._cluster = cluster
        self._machines: Machines = cluster.machines
        self._killed: set[str] = set()
        self._paused: set[str] = set()
        self._etcd_paused = False
        self.kinds: dict[str, Callable[[str, list[str]], None]] = {
            "home killed": self._kill_home,
            "replica killed": self._kill_replica,
            "all killed": self._kill_all,
            "home paused": self._pause_home,
            "home alone": self._home_alone,
            "replica alone": self._replica_alone,
            "home hears, is not heard": self._home_not_heard,
            "home is heard, hears nothing": self._home_hears_nothing,
            "home without etcd": self._home_without_etcd,
            "home without replicas": self._home_without_replicas,
            "all from each other": self._all_apart,
            "etcd paused": self._pause_etcd,
            "etcd killed": self._kill_etcd,
        }

    def lasts_s(self, kind: str, chance: random.Random) -> float:
        """From making it to healing it."""
        drawn = chance.uniform(*LASTS_S)
        return PAUSE_S if kind == "home paused" else drawn

    def make(self, kind: str, home: str, chance: random.Random) -> None:
        """`home`: of the queues."""
        others = sorted(set(self._cluster.brokers) - {home})
        chance.shuffle(others)
        self.kinds[kind](home, others)

    def heal(self) -> None:
        """Returns when all processes run and serve. Raises AssertionError if one has ended by itself."""
        cluster = self._cluster
        self._machines.heal()
        if self._etcd_paused:
            cluster.etcd.go_on()
        elif not cluster.etcd.running:
            cluster.etcd.start()
        for name in self._paused:
            cluster.brokers[name].send_signal(signal.SIGCONT)
        self._etcd_paused = False
        self._paused.clear()
        ended = [name for name, each in cluster.brokers.items() if not each.running and name not in self._killed]
        assert not ended, f"ended by themselves: {ended}"
        for name in self._killed:
            cluster.brokers[name].spawn()
        for name in self._killed:
            cluster.brokers[name].wait_ready(READY_DEADLINE_S)
        self._killed.clear()

    # Processes

    def _kill(self, *names: str) -> None:
        for name in names:
            self._killed.add(name)
            self._cluster.brokers[name].kill()

    def _kill_home(self, home: str, others: list[str]) -> None:
        self._kill(home)

    def _kill_replica(self, home: str, others: list[str]) -> None:
        self._kill(others[0])

    def _kill_all(self, home: str, others: list[str]) -> None:
        self._kill(home, *others)

    def _pause_home(self, home: str, others: list[str]) -> None:
        self._paused.add(home)
        self._cluster.brokers[home].send_signal(signal.SIGSTOP)

    def _pause_etcd(self, home: str, others: list[str]) -> None:
        self._etcd_paused = True
        self._cluster.etcd.pause()

    def _kill_etcd(self, home: str, others: list[str]) -> None:
        self._cluster.etcd.kill()

    # Links

    def _home_alone(self, home: str, others: list[str]) -> None:
        self._machines.part([[home], [*others, HERE]])

    def _replica_alone(self, home: str, others: list[str]) -> None:
        self._machines.part([[others[0]], [home, others[1], HERE]])

    def _home_not_heard(self, home: str, others: list[str]) -> None:
        for other in (*others, HERE):
            self._machines.cut_way(home, other)

    def _home_hears_nothing(self, home: str, others: list[str]) -> None:
        for other in (*others, HERE):
            self._machines.cut_way(other, home)

    def _home_without_etcd(self, home: str, others: list[str]) -> None:
        self._machines.cut(home, HERE)

    def _home_without_replicas(self, home: str, others: list[str]) -> None:
        self._machines.part([[home], others])

    def _all_apart(self, home: str, others: list[str]) -> None:
        self._machines.part([[home], *([other] for other in others)])
