"""Cuts between forwarders that are each on a machine of its own, and etcd's.

What comes in: machines, the leader of the queues, the other forwarders in an order that a seed has drawn. What goes
out: links that are cut; who is on the minority's side of it.
Rules: 1. A minority reaches no majority of all forwarders, itself counted, in both directions: nothing that is
published there from then on may be confirmed before the links are whole. 2. In a ring, and over a bridge, somebody
reaches a majority though no two reach the same ones.
Not here: how links are cut (`tests/harness/namespaces.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..harness.namespaces import HERE, Machines

Nobody: frozenset[str] = frozenset()
Make = Callable[[str, list[str]], frozenset[str]]
"""leader, others -> the minority"""


class LinkFaults:
    """`kinds`, by what they are called."""

    def __init__(self, machines: Machines, forwarders: int) -> None:
        self._machines = machines
        self._few = (forwarders - 1) // 2
        """a minority, as large as it can be"""
        self.kinds: dict[str, Make] = {
            "leader alone": self._leader_alone,
            "minority without leader": self._minority_alone,
            "leader in a minority": self._leader_in_minority,
            "leader hears, is not heard": self._leader_not_heard,
            "leader is heard, hears nothing": self._leader_hears_nothing,
            "leader without etcd": self._leader_without_etcd,
            "leader without replicas": self._leader_without_replicas,
            "leader without one replica": self._leader_without_one,
            "all from each other": self._all_apart,
            "two sides and a bridge": self._bridge,
        }
        if forwarders < 4:
            del self.kinds["leader in a minority"]  # it is alone then
        if forwarders >= 5:
            self.kinds["ring of majorities"] = self._ring

    def _leader_alone(self, leader: str, others: list[str]) -> frozenset[str]:
        return self._apart([leader], others)

    def _minority_alone(self, leader: str, others: list[str]) -> frozenset[str]:
        return self._apart(others[: self._few], [leader, *others[self._few :]])

    def _leader_in_minority(self, leader: str, others: list[str]) -> frozenset[str]:
        return self._apart([leader, *others[: self._few - 1]], others[self._few - 1 :])

    def _apart(self, few: Sequence[str], most: Sequence[str]) -> frozenset[str]:
        """etcd is on the side of most."""
        self._machines.part([few, [*most, HERE]])
        return frozenset(few)

    def _leader_not_heard(self, leader: str, others: list[str]) -> frozenset[str]:
        for other in (*others, HERE):
            self._machines.cut_way(leader, other)
        return frozenset([leader])

    def _leader_hears_nothing(self, leader: str, others: list[str]) -> frozenset[str]:
        for other in (*others, HERE):
            self._machines.cut_way(other, leader)
        return frozenset([leader])

    def _leader_without_etcd(self, leader: str, others: list[str]) -> frozenset[str]:
        self._machines.cut(leader, HERE)
        return Nobody

    def _leader_without_replicas(self, leader: str, others: list[str]) -> frozenset[str]:
        self._machines.part([[leader], others])
        return frozenset([leader])

    def _leader_without_one(self, leader: str, others: list[str]) -> frozenset[str]:
        self._machines.cut(leader, others[0])
        return Nobody

    def _all_apart(self, leader: str, others: list[str]) -> frozenset[str]:
        self._machines.part([[leader], *([other] for other in others)])
        return frozenset([leader, *others])

    def _bridge(self, leader: str, others: list[str]) -> frozenset[str]:
        """One reaches both sides, which do not reach each other; etcd is reached by all."""
        _, *sided = others
        half = len(sided) // 2
        self._machines.part([[leader, *sided[:half]], sided[half:]])
        return Nobody

    def _ring(self, leader: str, others: list[str]) -> frozenset[str]:
        """Each reaches the two beside it, so that with itself it has three of five."""
        ring = [leader, *others]
        for at, one in enumerate(ring):
            for step in range(2, len(ring) - 1):
                self._machines.cut(one, ring[(at + step) % len(ring)])
        return Nobody if len(ring) == 5 else frozenset(ring)
