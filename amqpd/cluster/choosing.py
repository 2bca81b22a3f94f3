"""Which source a new queue gets, and on which nodes a new source is kept.

What comes in: what the queue asks for; the cluster as it was heard last; how many queues each source has. What goes
out: a source; where the home of one is to be; a replica set.
Rules: 1. A queue without a wish is at home where it is declared, in the source there that has the fewest queues. One
that is `balanced` is at home at the first node by hash of its name that has less than its bound of all queues, so
that every node finds the same one. 2. A number of copies that was asked for is met exactly. Without one a
source has at least what the cluster has (`cluster_copies`): one that was made while fewer nodes were known gets no
new queues. 3. A new set is of nodes that live as far as that goes, then in different failure domains, then in
different regions, then of those below their bound of copies, then by hash.
Not here: that a source is made (`search.py`), the set and home that every source should have (`placement.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from amqpd.cluster.placement import bound_of, next_member, ranked
from amqpd.cluster.records import KnownRecord, MemberRecord
from amqpd.node.sources import LOCAL, Wanted
from amqpd.replication.commit import majority
from amqpd.replication.take_over import SourceRecord


@dataclass(frozen=True, slots=True)
class Heard:
    """What a node has heard of its cluster."""

    me: str
    living: Mapping[str, MemberRecord]
    known: Mapping[str, KnownRecord]
    records: Mapping[int, SourceRecord]

    def copies_of(self, wanted: Wanted, copies: int) -> int:
        """On how many nodes. `copies`: as the cluster has it. An even number that was asked for would survive no more
        losses than one less, so it is one more, if there are the nodes."""
        return min(wanted.copies | 1 if wanted.copies else copies, len(self.known))


def home_for(wanted: Wanted, heard: Heard, queues: Mapping[int, int]) -> str:
    """The node that a new queue is to have its home at. `queues`: of each source."""
    if not wanted.balanced or not heard.living:
        return heard.me
    loads = dict.fromkeys(heard.living, 0)
    for source, record in heard.records.items():
        if record.home.forwarder in loads:
            loads[record.home.forwarder] += queues.get(source, 0)
    bound = bound_of(sum(loads.values()) + 1, len(loads))
    return next(name for name in ranked(wanted.balanced, loads) if loads[name] < bound)


def choose(
    wanted: Wanted, heard: Heard, queues: Mapping[int, int], served: Collection[int], copies: int
) -> tuple[int, str]:
    """The source for a new queue and where it has its home; `LOCAL` if there is none that is as it is wanted.
    `served`: sources whose home is here, and serves them."""
    home, size = home_for(wanted, heard, queues), heard.copies_of(wanted, copies)
    found = served if home == heard.me else heard.records
    fitting = []
    for source in found:
        record = heard.records.get(source)
        if record is None or record.home.forwarder != home:
            continue
        have = len(record.members)
        if have == size or (have > size and not wanted.copies):
            fitting.append((have > size, queues.get(source, 0), source))
    return min(fitting, default=(False, 0, LOCAL))[-1], home


def new_set(source: int, home: str, heard: Heard, copies: int) -> tuple[str, ...]:
    """This number of nodes, `home` among them; empty: too few live."""
    living = heard.living
    loads = Counter(name for record in heard.records.values() for name in record.members)
    candidates = {*heard.known, home}
    bound = bound_of(sum(loads[name] for name in candidates) + copies, len(candidates))
    full = {name for name in candidates if loads[name] >= bound}
    members = [home]
    while len(members) < min(copies, len(candidates)):
        members.append(next_member(source, members, candidates.difference(members), living, full))
    if sum(name in living for name in members) < majority(len(members)):
        return ()
    return tuple(sorted(members))
