"""Cuts between forwarders that are each on a machine of its own, and etcd's.

What comes in: machines, the home of the queues, the other forwarders in an order that a seed has drawn. What goes
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
"""home, others -> the minority"""


class LinkFaults:
    """`kinds`, by what they are called."""

    def __init__(self, machines: Machines, forwarders: int) -> None:
        self._machines = machines
        self._few = (forwarders - 1) // 2
        """a minority, as large as it can be"""
        self.kinds: dict[str, Make] = {
            "home alone": self._home_alone,
            "minority without home": self._minority_alone,
            "home in a minority": self._home_in_minority,
            "home hears, is not heard": self._home_not_heard,
            "home is heard, hears nothing": self._home_hears_nothing,
            "home without etcd": self._home_without_etcd,
            "home without replicas": self._home_without_replicas,
            "home without one replica": self._home_without_one,
            "all from each other": self._all_apart,
            "two sides and a bridge": self._bridge,
        }
        if forwarders < 4:
            del self.kinds["home in a minority"]  # it is alone then
        if forwarders >= 5:
            self.kinds["ring of majorities"] = self._ring

    def _home_alone(self, home: str, others: list[str]) -> frozenset[str]:
        return self._apart([home], others)

    def _minority_alone(self, home: str, others: list[str]) -> frozenset[str]:
        return self._apart(others[: self._few], [home, *others[self._few :]])

    def _home_in_minority(self, home: str, others: list[str]) -> frozenset[str]:
        return self._apart([home, *others[: self._few - 1]], others[self._few - 1 :])

    def _apart(self, few: Sequence[str], most: Sequence[str]) -> frozenset[str]:
        """etcd is on the side of most."""
        self._machines.part([few, [*most, HERE]])
        return frozenset(few)

    def _home_not_heard(self, home: str, others: list[str]) -> frozenset[str]:
        for other in (*others, HERE):
            self._machines.cut_way(home, other)
        return frozenset([home])

    def _home_hears_nothing(self, home: str, others: list[str]) -> frozenset[str]:
        for other in (*others, HERE):
            self._machines.cut_way(other, home)
        return frozenset([home])

    def _home_without_etcd(self, home: str, others: list[str]) -> frozenset[str]:
        self._machines.cut(home, HERE)
        return Nobody

    def _home_without_replicas(self, home: str, others: list[str]) -> frozenset[str]:
        self._machines.part([[home], others])
        return frozenset([home])

    def _home_without_one(self, home: str, others: list[str]) -> frozenset[str]:
        self._machines.cut(home, others[0])
        return Nobody

    def _all_apart(self, home: str, others: list[str]) -> frozenset[str]:
        self._machines.part([[home], *([other] for other in others)])
        return frozenset([home, *others])

    def _bridge(self, home: str, others: list[str]) -> frozenset[str]:
        """One reaches both sides, which do not reach each other; etcd is reached by all."""
        _, *sided = others
        half = len(sided) // 2
        self._machines.part([[home, *sided[:half]], sided[half:]])
        return Nobody

    def _ring(self, home: str, others: list[str]) -> frozenset[str]:
        """Each reaches the two beside it, so that with itself it has three of five."""
        ring = [home, *others]
        for at, one in enumerate(ring):
            for step in range(2, len(ring) - 1):
                self._machines.cut(one, ring[(at + step) % len(ring)])
        return Nobody if len(ring) == 5 else frozenset(ring)
