"""How long a home may deliver without asking again, and how long a replica must not seal after it has answered.

What comes in: when something was sent to a peer and answered by it; the time, as an argument, in seconds of a clock
that goes on while the machine sleeps (boot time). What goes out: whether the reign holds; when a replica may seal.
Rules: 1. An answer counts from when the question was *sent*: in between the peer may have sealed another epoch only
when it had waited from its own answer, which is later. 2. The home looks before each delivery, so also when it was
stopped in between. 3. No clock of another machine is compared with this one's; only rates are taken to be alike,
within `MARGIN`. 4. Confirms do not rest on this: a home whose reign is over confirms what a majority has, and no
more.
Not here: what is fenced (`seal.py`), and what is known of homes that are gone (their supervisor, or a free lock).

After leases as Gray and Cheriton have them ("Leases: An Efficient Fault-Tolerant Mechanism for Distributed File
Cache Consistency", 1989): the holder's ends before the granter's.
"""

from __future__ import annotations

import math

from amqpd.replication.commit import majority

MARGIN = 1.1
"""By how much longer a replica waits than a home reigns: clocks of two machines may differ in rate by so much."""


class Reign:
    """Of a home, over the sources of one lane."""

    def __init__(self, lease_s: float, members: int) -> None:
        self._lease_s = lease_s
        self._members = members
        self._answered: dict[str, float] = {}
        """peer -> when the last question was sent that it has answered"""

    def answered(self, peer: str, sent_s: float) -> None:
        """What was sent then, over a connection that is still open."""
        self._answered[peer] = max(sent_s, self._answered.get(peer, -math.inf))

    def closed(self, peer: str) -> None:
        """There is no connection to it any more."""
        self._answered.pop(peer, None)

    def holds(self, now_s: float) -> bool:
        """With the peers that have answered in time, this home is a majority of the set."""
        since = now_s - self._lease_s
        return 1 + sum(sent >= since for sent in self._answered.values()) >= majority(self._members)


class Patience:
    """Of a replica: which homes may still deliver, as far as it was asked."""

    def __init__(self, lease_s: float, started_s: float) -> None:
        """`started_s`: before it this forwarder may have answered anybody."""
        self._wait_s = lease_s * MARGIN
        self._started_s = started_s
        self._answered: dict[tuple[str, int], float] = {}

    def answers(self, forwarder: str, life: int, now_s: float) -> None:
        """Something is about to be answered to a home."""
        self._answered[forwarder, life] = now_s

    def ends_s(self, forwarder: str, life: int) -> float:
        """From when on another epoch may be sealed, for sources whose home was this one and is not known to be
        gone."""
        return max(self._started_s, self._answered.get((forwarder, life), -math.inf)) + self._wait_s

    def forget(self, before_s: float) -> None:
        """Homes that were answered before that time, and not since."""
        self._answered = {home: at for home, at in self._answered.items() if at >= before_s}
