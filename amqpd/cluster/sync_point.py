"""The sync point of a change to the topology: when the node that made it may answer that it is made.

What comes in: which nodes are registered, and which of them live; how far each one says that it has applied the
metadata, and who has asked it for that; answers that wait, each with the revision of its change; the time. What goes
out: the answers whose sync point has come.
Rules: 1. The sync point of revision r comes when this node knows that enough registered nodes have applied r for
every majority to have one of them. 2. The answer goes out when, besides, each other node that may be current
(`currency.py`) has reported r, or `KNOWN_LEASES` lease times after the sync point: by then each node that is current
has asked somebody who has applied r. 3. A node is not waited for if it is no member, has no link to this one, and
none of those who have applied r was asked by it within as long; nor if its process has ended in order. 4. A node that
joins counts once a revision that has it is known: others may not have heard of it, and find a majority without it.
5. A node of which all that is so for `GIVEN_UP_LEASES` is given up: the sync point comes without it. 6. A node whose
version reports nothing is neither waited for nor counted.
So after the answer every publish that starts later, at a node that is current, is routed with the change.
Not here: who may take publishes (`currency.py`), what says and hears the revisions (`applied_revisions.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from amqpd.replication.commit import majority

KNOWN_LEASES = 1.1
"""A node is current for one lease time by its clock after it has asked; the tenth is for clocks that differ."""
GIVEN_UP_LEASES = 5.0
"""Until a node that nobody hears of counts no more. Longer than a store that was silent lets leases run out."""


def blocking(count: int) -> int:
    """The least number of `count` nodes of which each majority has one."""
    return count - majority(count) + 1


@dataclass(frozen=True, slots=True)
class Registered:
    """The nodes of a cluster that report how far they have applied the metadata, by name."""

    voters: frozenset[str] = frozenset()
    """all that have a durable record in the store, whether they live or not"""
    members: frozenset[str] = frozenset()
    """those of them whose leases have not run out"""
    ended: frozenset[str] = frozenset()
    """those of them whose last process has ended in order"""


@dataclass(slots=True)
class _Waiting:
    """An answer that waits for the sync point of a revision."""

    revision: int
    answer: Callable[[], None]
    since_s: float | None = None
    """when the sync point has come"""


class SyncPoint:
    """The changes that one node has made, and that may not be known to all other nodes yet."""

    def __init__(self, name: str, lease_s: float, now_s: float) -> None:
        """`name`: of this node. `lease_s`: lease time of the cluster. Times are of the boot-time clock."""
        self._name = name
        self._known_s, self._given_up_s = KNOWN_LEASES * lease_s, GIVEN_UP_LEASES * lease_s
        self._began_s = now_s
        self.registered, self._since = Registered(), 0
        """and the revision from which on these are the voters"""
        self._counted: frozenset[str] | None = None
        """the voters as of the last revision that was known; None: none was since the start"""
        self._applied: dict[str, int] = {}
        self._asked_by: dict[str, frozenset[str]] = {}
        """by node, who had asked it within `KNOWN_LEASES` when it reported last"""
        self._linked: set[str] = set()
        self._unlinked_s: dict[str, float] = {}
        self._absent_s: dict[str, float] = {}
        """since when voters are no members"""
        self._waiting: deque[_Waiting] = deque()
        """by revision"""
        self.known = 0
        """changes up to this revision are known to all that are current"""

    def __len__(self) -> int:
        """Answers that wait."""
        return len(self._waiting)

    # What is heard

    def nodes_are(self, registered: Registered, revision: int, now_s: float) -> None:
        """As of this revision of the metadata."""
        if registered.voters != self.registered.voters:
            self._since = revision
        self.registered = registered
        absent = registered.voters - registered.members - {self._name}
        self._absent_s = {name: self._absent_s.get(name, now_s) for name in absent}

    def linked(self, name: str) -> None:
        """There is a link over which this node reports to the present one."""
        self._linked.add(name)

    def unlinked(self, name: str, now_s: float) -> None:
        self._linked.discard(name)
        self._unlinked_s[name] = now_s

    def reported(self, name: str, revision: int, asked_by: Collection[str]) -> None:
        """The node has applied this revision, and these had asked it within `KNOWN_LEASES`; this node itself says so,
        too."""
        self._applied[name] = max(revision, self._applied.get(name, 0))
        self._asked_by[name] = frozenset(asked_by)

    # What waits

    def wait(self, revision: int, answer: Callable[[], None]) -> None:
        """`answer` is among what `due` gives when the change of this revision is known; revisions do not go back."""
        self._waiting.append(_Waiting(revision, answer))

    def due(self, now_s: float) -> list[Callable[[], None]]:
        """The answers that go out now, in the order in which they came. Called when something was heard, and some
        times in a lease."""
        for waiting in self._waiting:
            if waiting.since_s is None:
                if not self._is_sync_point(waiting.revision, now_s):
                    break  # nor has that of a later one come
                waiting.since_s = now_s
        found: list[Callable[[], None]] = []
        while self._waiting and self._is_known(self._waiting[0], now_s):
            waiting = self._waiting.popleft()
            self.known = max(self.known, waiting.revision)
            if self._since <= waiting.revision:
                self._counted = self.registered.voters
            found.append(waiting.answer)
        return found

    def is_known(self, revision: int, now_s: float) -> bool:
        """The change of this revision is known to all that may be current, as far as they have reported."""
        return self._is_sync_point(revision, now_s) and not self._lacking(revision, now_s)

    def missing(self, now_s: float) -> list[str]:
        """Names of the nodes that the first answer waits for."""
        return self._lacking(self._waiting[0].revision, now_s) if self._waiting else []

    def _is_known(self, waiting: _Waiting, now_s: float) -> bool:
        since_s = waiting.since_s
        if since_s is None:
            return False
        return now_s - since_s >= self._known_s or not self._lacking(waiting.revision, now_s)

    def _is_sync_point(self, revision: int, now_s: float) -> bool:
        if self._applied.get(self._name, 0) < revision:
            return False  # who the voters are is not known as of this revision
        voters = self.registered.voters
        counted = voters - {self._name} if self._counted is None else self._counted & voters
        return all(self._blocks(each, revision, now_s) for each in (voters, counted))

    def _blocks(self, voters: frozenset[str], revision: int, now_s: float) -> bool:
        left = [name for name in voters if not self._is_given_up(name, now_s)]
        return not left or sum(self._has(name, revision) for name in left) >= blocking(len(left))

    def _has(self, name: str, revision: int) -> bool:
        return self._applied.get(name, 0) >= revision

    def _lacking(self, revision: int, now_s: float) -> list[str]:
        """Those that may be current without this revision, as far as it is known here who that may be."""
        others = (self.registered.voters | self.registered.members) - {self._name}
        return sorted(
            name for name in others if not self._has(name, revision) and not self._is_away(name, revision, now_s)
        )

    def _is_away(self, name: str, revision: int, now_s: float) -> bool:
        if name not in self._absent_s or name in self._linked:
            return False
        if name in self.registered.ended:
            return True
        asked = any(name in by for peer, by in self._asked_by.items() if self._has(peer, revision))
        return not asked and now_s - self._absent_s[name] >= self._known_s

    def _is_given_up(self, name: str, now_s: float) -> bool:
        if name not in self._absent_s or name in self._linked:
            return False
        if name in self.registered.ended:
            return True
        asked = any(name in by for peer, by in self._asked_by.items() if peer in self._linked)
        since_s = max(self._absent_s[name], self._unlinked_s.get(name, self._began_s))
        return not asked and now_s - since_s >= self._given_up_s
