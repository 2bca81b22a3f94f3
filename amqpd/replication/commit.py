"""What a majority holds.

What comes in: how far each member of a replica set is. What goes out: how far a majority is.
Rules: 1. A majority is more than half of what the set holds *now*, also of an even set on its way to another. 2. The
leader is always one of it: it is asked to deliver what it confirms.
Not here: that what is committed must be of the leader's own epoch (`log.py`, `leader.py`).
"""

from __future__ import annotations

from collections.abc import Sequence


def majority(members: int) -> int:
    """How many of this many members make one."""
    return members // 2 + 1


def reached(leader: int, peers: Sequence[int], members: int) -> int:
    """The greatest number that the leader and enough of its peers have reached. `peers`: of those that count; of a
    set of `members`, the leader among them."""
    needed = majority(members) - 1
    if needed > len(peers):
        return 0
    return min(leader, sorted(peers, reverse=True)[needed - 1]) if needed else leader
