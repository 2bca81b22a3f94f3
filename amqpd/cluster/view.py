"""The cluster as one of its nodes sees it, for an operator who asks that node.

What comes in: the roster of this moment, what this node knows as a home. What goes out: members, sources, sentences.
Rules: 1. A look is made source by source, so that the node goes on in between. 2. The roster may change meanwhile:
a source that has gone is left out. 3. How far copies are only the home of a source knows: of other homes' sources
nothing is said of that.
Not here: the rows themselves (`overview.py`, `standing.py`), who asks (`admin/`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from amqpd.cluster.choosing import Heard
from amqpd.cluster.copy_facts import replica_facts, source_facts
from amqpd.cluster.forwarder import Forwarder
from amqpd.cluster.imported_queues import ImportedQueues
from amqpd.cluster.overview import Row, alike_rows, member_rows, sentences
from amqpd.cluster.roster import Roster
from amqpd.cluster.standing import Standing, standing


class ClusterView:
    """Of one moment. `copies`: as many as a source has that does not ask for a number."""

    def __init__(self, here: Forwarder, roster: Roster, copies: int) -> None:
        self._here = here
        self._roster = roster
        self._copies = copies

    def quorum_facts(self) -> Row:
        """What `amqpd quorum status` asks of each node."""
        here = self._here
        sources, copies = source_facts(here.homes), replica_facts(here.replicas)
        return {"node": here.name, "sources": sources, "copies": copies}

    def standings(self, asked: Mapping[int, int]) -> Iterator[Standing | None]:
        """Of each source, in their order. `asked`: how many copies a source is to have, where a queue of it says
        that."""
        facts = {row["source"]: row for row in source_facts(self._here.homes)}
        for source in sorted(self._roster.records):
            there = source in self._roster.records
            yield standing(source, self._roster, facts, asked.get(source, self._copies)) if there else None

    def imported(self, queues: Counter[int]) -> ImportedQueues:
        """Chooses the sources of an import's queues. `queues`: how many each source has."""
        roster = self._roster
        # Copies: an import is planned in a thread.
        heard = Heard("", dict(roster.members), dict(roster.known), dict(roster.records))
        return ImportedQueues(heard, queues, self._copies)

    def others(self) -> list[str]:
        """All other nodes that are members, or were and are not forgotten."""
        return sorted((self._roster.members.keys() | self._roster.known.keys()) - {self._here.name})

    def lives(self, name: str) -> bool:
        """It is a member."""
        return name in self._roster.members

    def home_of(self, source: int) -> str:
        """Empty: it has none, as far as that is known."""
        return self._roster.home_of(source)

    def members_of(self, source: int) -> tuple[str, ...]:
        """The nodes that keep the source."""
        record = self._roster.records.get(source)
        return record.members if record is not None else ()

    def rows(self, found: Sequence[Standing], queues: Mapping[int, int]) -> Row:
        """`queues`: how many each source has."""
        return {
            "node": self._here.name,
            "says": sentences(self._roster, found),
            "members": member_rows(self._roster),
            "sources": alike_rows(found, queues),
            "statistics": self._here.statistics().facts(),
        }
