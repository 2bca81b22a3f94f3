"""What is done to etcd: one member of three, its leader, or all of it.

What comes in: a cluster. What goes out: etcd that does not answer; etcd that serves again.
Rules: with its leader gone etcd elects another one; with all of it gone, clients that are connected go on.
Not here: links to it (`link_faults.py`), how its processes are started (`tests/harness/etcd.py`).
"""

from __future__ import annotations

from contextlib import suppress

from ..harness.etcd import EtcdProcess, start_all
from .cluster import Cluster
from .link_faults import Make, Nobody


class StoreFaults:
    """`kinds`, by what they are called."""

    def __init__(self, cluster: Cluster) -> None:
        self._etcds = cluster.etcds
        self._paused: list[EtcdProcess] = []
        self.kinds: dict[str, Make] = {"etcd paused": self._pause, "etcd killed": self._kill}
        if len(self._etcds) > 1:
            self.kinds["leader of etcd killed"] = self._kill_leader
            self.kinds["leader of etcd paused"] = self._pause_leader

    def heal(self) -> None:
        """Returns when all of it serves."""
        for etcd in self._paused:
            etcd.go_on()
        self._paused.clear()
        start_all(self._etcds)

    def _pause(self, leader: str, others: list[str]) -> frozenset[str]:
        return self._stop(self._etcds)

    def _kill(self, leader: str, others: list[str]) -> frozenset[str]:
        for etcd in self._etcds:
            etcd.kill()
        return Nobody

    def _kill_leader(self, leader: str, others: list[str]) -> frozenset[str]:
        self._leader().kill()
        return Nobody

    def _pause_leader(self, leader: str, others: list[str]) -> frozenset[str]:
        return self._stop([self._leader()])

    def _stop(self, etcds: list[EtcdProcess]) -> frozenset[str]:
        for etcd in etcds:
            self._paused.append(etcd)
            etcd.pause()
        return Nobody

    def _leader(self) -> EtcdProcess:
        """Of an election that is under way nobody is it, for a moment; then any other does."""
        for etcd in self._etcds:
            with suppress(OSError):
                if etcd.leads():
                    return etcd
        return self._etcds[0]
