"""Which source a new queue gets, and on which nodes a new source is kept.

What comes in: what the queue asks for; the cluster as it was heard last; how many queues each source has. What goes
out: a source; where the leader of one is to be; a replica set.
Rules: 1. A queue that asks for no place is led by the node where it is declared, in the source there that has the
fewest queues. One that is `balanced` is led by the first node by hash of its name that has less than its bound of all
queues, so that every node finds the same one. 2. A number of copies that was asked for is met exactly. Without one a
source has at least what the cluster has (`cluster_copies`): one that was made while fewer nodes were known gets no
new queues. 3. A new set is of nodes that live as far as that goes, then in different failure domains, then in
different regions, then of those below their bound of copies, then by hash. 4. A node without links (`linkage.py`)
counts as one that does not live, and one that no source was ever kept on not at all: no new source waits for it. A
queue comes into a source that is kept on such a node only if there are too few others for another source. 5. Queues
of one definitions file (`ImportedQueues`) go to nodes that are the leader of a source with enough copies, and what
was said of one is said again: a file is compared several times.
Not here: that a source is made (`search.py`), what is to change of those that there are (`moves.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace

from amqpd.cluster.linkage import WELL, Linkage
from amqpd.cluster.placement import bound_of, next_member, ranked
from amqpd.cluster.records import KnownRecord, MemberRecord
from amqpd.node.cluster import LOCAL, WantedSource
from amqpd.replication.commit import majority
from amqpd.replication.take_over import SourceRecord


@dataclass(frozen=True, slots=True)
class Heard:
    """The state of its cluster that one node has heard of: members, records of sources, links."""

    me: str
    living: Mapping[str, MemberRecord]
    known: Mapping[str, KnownRecord]
    records: Mapping[int, SourceRecord]
    linkage: Linkage = WELL

    def copies_of(self, wanted: WantedSource, copies: int) -> int:
        """On how many nodes. `copies`: as the cluster has it. An even number that was asked for would survive no more
        losses than one less, so it is one more, if there are the nodes."""
        there = len(self.known.keys() - self.linkage.newcomers)
        return min(wanted.copies | 1 if wanted.copies else copies, max(there, 1))

    def usable(self, leader: str = "") -> Mapping[str, MemberRecord]:
        """Nodes that something new may be placed on; for a source of this leader."""
        return self.linkage.usable(self.living, leader)


class Choices:
    """The choices of sources for the queues that are declared at one moment; what these have in common is computed
    once."""

    def __init__(self, heard: Heard, queues: Mapping[int, int], served: Collection[int], copies: int) -> None:
        """`queues`: of each source; `served`: sources led here, and serves them; `copies`: as the cluster
        has it."""
        self._heard = heard
        self._queues = queues
        self._served = served
        self._copies = copies
        self._loads: dict[str, int] = {}
        """queues of each node that lives, once they are needed; with the bound of them"""
        self._bound = 0
        self._fitting: dict[tuple[str, int, bool], int] = {}
        """by leader, number of copies, and whether exactly that is wanted"""

    def choose(self, wanted: WantedSource) -> tuple[int, str]:
        """The source for a new queue and where it has its leader; `LOCAL` if there is none that is as it is
        wanted."""
        leader, size, exact = self.leader_for(wanted), self.copies_of(wanted), wanted.copies > 0
        found = self._fitting.get((leader, size, exact))
        if found is None:
            found = self._fitting[leader, size, exact] = self._fits(leader, size, exact)
        return found, leader

    def copies_of(self, wanted: WantedSource) -> int:
        """On how many nodes."""
        return self._heard.copies_of(wanted, self._copies)

    def leader_for(self, wanted: WantedSource) -> str:
        """The node that a new queue is to be led by."""
        if not wanted.balanced:
            return self._heard.me
        loads = self._loads
        if not loads:
            loads.update(dict.fromkeys(self._heard.usable(), 0))
            if not loads:
                return self._heard.me
            for source, record in self._heard.records.items():
                if record.leader.forwarder in loads:
                    loads[record.leader.forwarder] += self._queues.get(source, 0)
            self._bound = bound_of(sum(loads.values()) + 1, len(loads))
        return next(name for name in ranked(wanted.balanced, loads) if loads[name] < self._bound)

    def _fits(self, leader: str, size: int, exact: bool) -> int:
        heard = self._heard
        fitting = []
        enough = len(heard.usable(leader)) >= size
        for source in self._served if leader == heard.me else heard.records:
            record = heard.records.get(source)
            if record is None or record.leader.forwarder != leader:
                continue
            if enough and not all(heard.linkage.is_of_use(name, leader) for name in record.members):
                continue
            have = len(record.members)
            if have == size or (have > size and not exact):
                fitting.append((have > size, self._queues.get(source, 0), source))
        return min(fitting, default=(False, 0, LOCAL))[-1]


def new_set(source: int, leader: str, heard: Heard, copies: int) -> tuple[str, ...]:
    """This number of nodes, `leader` among them; empty: too few live."""
    living = heard.usable(leader)
    loads = Counter(name for record in heard.records.values() for name in record.members)
    candidates = {*(heard.known.keys() - heard.linkage.newcomers), leader}
    bound = bound_of(sum(loads[name] for name in candidates) + copies, len(candidates))
    full = {name for name in candidates if loads[name] >= bound}
    members = [leader]
    while len(members) < min(copies, len(candidates)):
        members.append(next_member(source, members, candidates.difference(members), living, full))
    if sum(name in living for name in members) < majority(len(members)):
        return ()
    return tuple(sorted(members))


class ImportedQueues:
    """Chooses the sources of the quorum queues in one import of definitions."""

    def __init__(self, heard: Heard, queues: Counter[int], copies: int) -> None:
        """`queues`: of each source; it is kept and counted on. `copies`: as the cluster has it."""
        self._heard = heard
        self._queues = queues
        self._copies = copies
        self._said: dict[Hashable, int] = {}
        self._able: dict[int, dict[str, MemberRecord]] = {}
        """by the number of copies that is asked for: nodes that are the leader of such a source"""

    def source_for(self, queue: Hashable, wanted: WantedSource) -> int | None:
        """None: no node serves one that is as wanted. `queue`: what tells it from others."""
        source = self._said.get(queue)
        if source is None:
            able = self._able_for(wanted)
            if not able:
                return None
            heard = replace(self._heard, living=able)
            source = self._said[queue] = Choices(heard, self._queues, (), self._copies).choose(wanted)[0]
            self._queues[source] += 1
        return source

    def _able_for(self, wanted: WantedSource) -> dict[str, MemberRecord]:
        able = self._able.get(wanted.copies)
        if able is None:
            heard = self._heard
            able = self._able[wanted.copies] = {
                name: member
                for name, member in heard.usable().items()
                if Choices(replace(heard, living={name: member}), {}, (), self._copies).choose(wanted)[0]
            }
        return able
