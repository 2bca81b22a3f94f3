"""Which sources this forwarder is to take over, and when.

What comes in: the records of sources, who is a member, of whom something was heard; the time. What goes out: sources
to begin an attempt for.
Rules: 1. A source is taken over when its home is gone: its process has ended or another life of it speaks, or nothing
was heard of it for `SILENCES` lease times. That is a reason to ask; whether it may be done is decided by those who
are asked. 2. The members of a set try one after the other, in an order of their own for each source, so that they do
not stand in each other's way, and the sources of a lost home spread; first of all the one that is wished for. Where
the home has handed over, the others wait for that one. 3. An attempt that failed is made again later, by chance.
Not here: the attempt (`takeovers.py`), which member should be the home while all are well (`moves.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

from amqpd.cluster.records import WishRecord
from amqpd.replication.reign import MARGIN
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import SourceRecord

STAGGER_S = 0.15
"""between the first member of a set and the next one: several times what a take-over takes"""
NAMED_S = 1.0
"""for the one that the home has handed over to: several times as long"""
AGAIN_S = 0.15
"""after a failure; up to twice that"""
SILENCES = MARGIN
"""lease times: so long a replica that has answered puts a seal off"""


class Succession:
    """Of one forwarder."""

    def __init__(self, name: str, life: int, lease_s: float, chance: Callable[[], float], started_s: float) -> None:
        self._started_s = started_s
        self._name = name
        self._life = life
        self._lease_s = lease_s
        self._chance = chance
        self._since: dict[int, tuple[Seal, float]] = {}
        """sources whose home is gone: which one, and since when that is known"""
        self._not_before: dict[int, float] = {}
        self.wishes: Mapping[int, WishRecord] = {}
        """of operators, by source"""

    def failed(self, source: int, now_s: float) -> None:
        """An attempt of it."""
        self._not_before[source] = now_s + AGAIN_S * (1 + self._chance())

    def due(
        self,
        records: Iterable[SourceRecord],
        is_gone: Callable[[Seal], bool],
        heard_s: Mapping[str, float],
        now_s: float,
    ) -> list[SourceRecord]:
        """Records of sources to begin with, of which this forwarder is a member and not the home. `is_gone`: the home
        of this seal is known to be; `heard_s`: when something was heard of a forwarder last; of one that is not in
        it, nothing was since the start."""
        found = []
        for record in records:
            source, home = record.source, record.home
            mine = home.forwarder == self._name
            silent_s = now_s - heard_s.get(home.forwarder, self._started_s)
            if not (mine or is_gone(home) or silent_s > SILENCES * self._lease_s):
                self._since.pop(source, None)
                continue
            seal, since_s = self._since.get(source, (home, now_s))
            if seal != home:
                since_s = now_s
            self._since[source] = home, since_s
            at_s = since_s + (0 if mine else self._turn_s(record))
            if now_s >= max(at_s, self._not_before.get(source, at_s)):
                found.append(record)
        return found

    def _turn_s(self, record: SourceRecord) -> float:
        """After the home is known to be gone."""
        wish = self.wishes.get(record.source)

        def place(member: str) -> tuple[bool, bool, bytes]:
            unnamed = wish is not None and bool(wish.home) and member != wish.home
            leaves = wish is not None and bool(wish.members) and member not in wish.members
            return unnamed, leaves, _place(record.source, member)

        others = sorted((each for each in record.members if each != record.home.forwarder), key=place)
        handed_over = record.home.epoch > 0 and not record.home.forwarder
        waits = handed_over and place(self._name)[:2] > place(others[0])[:2]
        return STAGGER_S * others.index(self._name) + (NAMED_S if waits else 0)


def successors(source: int, members: Iterable[str]) -> list[str]:
    """In the order in which they try to have it."""
    return sorted(members, key=lambda member: _place(source, member))


def _place(source: int, member: str) -> bytes:
    return blake2b(f"{source} {member}".encode(), digest_size=8).digest()
