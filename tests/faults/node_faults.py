"""What is done to forwarders themselves: killed, stopped, without power, with an empty disk, with one that fails.

What comes in: a cluster, the leader of the queues, the other forwarders in an order that a seed has drawn. What goes
out: a fault; forwarders that run and serve again.
Rules: 1. What takes what is on disk away (power, an emptied disk) is done to a minority at most: copies that a
majority has must be enough. 2. A disk that was emptied counts again when the store names it; nothing else may fail
before (`loses_copies`). 3. A forwarder that ends though no fault ended it fails `heal`. 4. A failing fsync ends it,
and it has to say so in one sentence. What this machine cannot do is not among the kinds, and `missing` says why.
Not here: links (`link_faults.py`), etcd (`store_faults.py`).
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable

from .cluster import Cluster
from .link_faults import Make, Nobody
from .strace import FailingCalls

READY_DEADLINE_S = 120.0
ADMITTED_DEADLINE_S = 180.0
LOADED_S = 60.0
"""of these, under load"""
CALLS = "fsync,fdatasync"
PAUSED = frozenset({"leader paused", "minority paused"})
LOSES_COPIES = frozenset({"leader's disk emptied", "minority's disks emptied"})
BETWEEN_QUESTIONS_S = 0.2


class NodeFaults:
    """`kinds`, by what they are called."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._few = (len(cluster.brokers) - 1) // 2
        self._down: set[str] = set()
        self._paused: set[str] = set()
        self.missing: dict[str, str] = {}
        """kinds that this machine cannot do, and why"""
        self.kinds: dict[str, Make] = {
            "leader killed": self._of_leader(self._kill),
            "minority killed": self._of_minority(self._kill),
            "all killed": self._kill_all,
            "leader paused": self._of_leader(self._pause),
            "minority paused": self._of_minority(self._pause),
            "leader's disk emptied": self._of_leader(self._empty),
            "minority's disks emptied": self._of_minority(self._empty),
        }
        self._or_missing(
            {
                "leader without power": self._of_leader(self._cut_power),
                "minority without power": self._of_minority(self._cut_power),
            },
            None if cluster.disks else "needs root and mount, for disks whose power is cut",
        )
        self._or_missing(
            {
                "leader's fsync fails": self._of_leader(self._fail_fsync),
                "replica's fsync fails": self._fail_one_fsync,
            },
            None if shutil.which("strace") else "strace is not installed",
        )

    def heal(self) -> None:
        """Returns when all processes run and serve. Raises AssertionError if one has ended by itself."""
        brokers = self._cluster.brokers
        for name in self._paused:
            brokers[name].send_signal(signal.SIGCONT)
        self._paused.clear()
        ended = [name for name, each in brokers.items() if not each.running and name not in self._down]
        assert not ended, f"ended by themselves: {ended}"
        for name in self._down:
            brokers[name].spawn()
        for name in self._down:
            brokers[name].wait_ready(READY_DEADLINE_S)
        self._down.clear()

    def wait_admitted(self, end_load: Callable[[], None]) -> None:
        """Until every forwarder lives, and the store counts each disk. Nobody tells of it, so it is asked. Publishers
        that send as fast as they can take a loaded machine for themselves: the load ends when it takes long."""
        began_s = time.monotonic()
        deadline_s = began_s + ADMITTED_DEADLINE_S
        while True:
            members = self._cluster.status()["members"]
            if all(each["lives"] and not each["copies_of_another_disk"] for each in members):
                return
            assert time.monotonic() < deadline_s, f"copies do not count: {members}"
            if time.monotonic() > began_s + LOADED_S:
                end_load()
            time.sleep(BETWEEN_QUESTIONS_S)

    def _or_missing(self, kinds: dict[str, Make], why: str | None) -> None:
        if why is None:
            self.kinds.update(kinds)
        else:
            self.missing.update(dict.fromkeys(kinds, why))

    def _of_leader(self, fault: Callable[[str], None]) -> Make:
        def make(leader: str, others: list[str]) -> frozenset[str]:
            fault(leader)
            return Nobody

        return make

    def _of_minority(self, fault: Callable[[str], None]) -> Make:
        def make(leader: str, others: list[str]) -> frozenset[str]:
            for name in others[: self._few]:
                fault(name)
            return Nobody

        return make

    def _kill(self, name: str) -> None:
        self._down.add(name)
        self._cluster.brokers[name].kill()

    def _kill_all(self, leader: str, others: list[str]) -> frozenset[str]:
        for name in (leader, *others):
            self._kill(name)
        return Nobody

    def _pause(self, name: str) -> None:
        self._paused.add(name)
        self._cluster.brokers[name].send_signal(signal.SIGSTOP)

    def _empty(self, name: str) -> None:
        self._kill(name)
        shutil.rmtree(self._cluster.brokers[name].data_dir)

    def _cut_power(self, name: str) -> None:
        broker = self._cluster.brokers[name]
        self._down.add(name)
        self._cluster.disks[name].cut(broker.broker_pid, broker.kill)

    def _fail_one_fsync(self, leader: str, others: list[str]) -> frozenset[str]:
        self._fail_fsync(others[0])
        return Nobody

    def _fail_fsync(self, name: str) -> None:
        broker = self._cluster.brokers[name]
        self._down.add(name)
        with FailingCalls(broker.broker_pid, CALLS, "error=EIO") as failing:
            code = broker.wait()
            assert failing.injected, "no call failed: this was not tested"
        assert code not in (0, -9, -15), f"{name} ended with {code}"
        assert "Traceback" not in broker.log, f"{name} says no sentence:\n{broker.log[-3000:]}"
