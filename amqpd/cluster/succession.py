"""Which sources this forwarder is to take over, and when.

What comes in: the records of sources, who is a member, of whom something was heard; the time. What goes out: sources
to begin an attempt for.
Rules: 1. A source is taken over when its leader is gone: its process has ended or another incarnation of it speaks,
or nothing was heard of it for `SILENCES` lease times. That is a reason to ask; whether it may be done is decided by
those who are asked. 2. The members of a set try one after the other, in an order of their own for each source, so
that they do not stand in each other's way, and the sources of a lost leader spread; first of all the one that is
asked for. Where the leader has handed over, the others wait for that one. 3. An attempt that failed is made again
later, by chance.
Not here: the attempt (`takeovers.py`), which member should be the leader while all are well (`moves.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

from amqpd.cluster.records import DesiredSetRecord
from amqpd.peers.entry import Vote
from amqpd.replication.leader_lease import MARGIN
from amqpd.replication.take_over import SourceRecord

STAGGER_S = 0.15
"""between the first member of a set and the next one: several times what a take-over takes"""
NAMED_S = 1.0
"""for the one that the leader has handed over to: several times as long"""
AGAIN_S = 0.15
"""after a failure; up to twice that"""
SILENCES = MARGIN
"""lease times: so long a replica that has answered puts a vote off"""


class Succession:
    """Decides which sources one node is to take over, and when."""

    def __init__(
        self, name: str, incarnation: int, lease_s: float, chance: Callable[[], float], started_s: float
    ) -> None:
        self._started_s = started_s
        self._name = name
        self._incarnation = incarnation
        self._lease_s = lease_s
        self._chance = chance
        self._since: dict[int, tuple[Vote, float]] = {}
        """sources whose leader is gone: which one, and since when that is known"""
        self._not_before: dict[int, float] = {}
        self.desired_sets: Mapping[int, DesiredSetRecord] = {}
        """of operators, by source"""

    def failed(self, source: int, now_s: float) -> None:
        """An attempt of it."""
        self._not_before[source] = now_s + AGAIN_S * (1 + self._chance())

    def due(
        self,
        records: Iterable[SourceRecord],
        is_gone: Callable[[Vote], bool],
        heard_s: Mapping[str, float],
        now_s: float,
    ) -> list[SourceRecord]:
        """Records of sources to begin with, of which this forwarder is a member and not the leader. `is_gone`: the
        leader of this vote is known to be; `heard_s`: when something was heard of a forwarder last; of one that is
        not in it, nothing was since the start."""
        found = []
        for record in records:
            source, leader = record.source, record.leader
            mine = leader.forwarder == self._name
            silent_s = now_s - heard_s.get(leader.forwarder, self._started_s)
            if not (mine or is_gone(leader) or silent_s > SILENCES * self._lease_s):
                self._since.pop(source, None)
                continue
            vote, since_s = self._since.get(source, (leader, now_s))
            if vote != leader:
                since_s = now_s
            self._since[source] = leader, since_s
            at_s = since_s + (0 if mine else self._turn_s(record))
            if now_s >= max(at_s, self._not_before.get(source, at_s)):
                found.append(record)
        return found

    def _turn_s(self, record: SourceRecord) -> float:
        """After the leader is known to be gone."""
        desired_set = self.desired_sets.get(record.source)

        def place(member: str) -> tuple[bool, bool, bytes]:
            unnamed = desired_set is not None and bool(desired_set.leader) and member != desired_set.leader
            leaves = desired_set is not None and bool(desired_set.members) and member not in desired_set.members
            return unnamed, leaves, _place(record.source, member)

        others = sorted((each for each in record.members if each != record.leader.forwarder), key=place)
        handed_over = record.leader.epoch > 0 and not record.leader.forwarder
        waits = handed_over and place(self._name)[:2] > place(others[0])[:2]
        return STAGGER_S * others.index(self._name) + (NAMED_S if waits else 0)


def successors(source: int, members: Iterable[str]) -> list[str]:
    """In the order in which they try to have it."""
    return sorted(members, key=lambda member: _place(source, member))


def _place(source: int, member: str) -> bytes:
    return blake2b(f"{source} {member}".encode(), digest_size=8).digest()
