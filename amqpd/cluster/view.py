"""The cluster as one of its nodes sees it, for an operator who asks that node.

What comes in: the roster of this moment, what this node knows as a leader. What goes out: members, sources,
sentences.
Rules: 1. A look is made source by source, so that the node goes on in between. 2. The roster may change meanwhile:
a source that has gone is left out. 3. How far copies are only the leader of a source knows: of other leaders' sources
nothing is said of that.
Not here: the rows themselves (`overview.py`, `source_status.py`), who asks (`admin/`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from amqpd.cluster.choosing import Heard, ImportedQueues
from amqpd.cluster.forgotten_starts import forgotten_start_sentence, recent_starts
from amqpd.cluster.forwarder import Forwarder
from amqpd.cluster.linkage import Linkage
from amqpd.cluster.overview import EMPTY, Row, alike_rows, member_rows, sentences
from amqpd.cluster.roster import Roster
from amqpd.cluster.source_status import SourceStatus, replica_facts, source_facts, source_status


class NodeClusterView:
    """The cluster at one moment, as one of its nodes sees it. `copies`: as many as a source has that does not ask
    for a number."""

    def __init__(
        self,
        here: Forwarder,
        roster: Roster,
        copies: int,
        linkage: Linkage,
        link_state: Callable[[str], str],
        now_ms: int,
        of_store: Sequence[str] = (),
        classic: Mapping[str, int] = EMPTY,
        of_data: Sequence[str] = (),
    ) -> None:
        """`link_state`: of this node's link to another one, in words. `now_ms`: since the epoch. `of_store`,
        `of_data`: what is not well with the store, and with this node's data connections, a sentence each.
        `classic`: how many classic queues each other node leads."""
        self._here = here
        self._roster = roster
        self._copies = copies
        self._linkage = linkage
        self._link_state = link_state
        self._now_ms = now_ms
        self._of_store = of_store
        self._classic = classic
        self._of_data = of_data

    def quorum_facts(self) -> Row:
        """What `amqpd quorum status` asks of each node."""
        here = self._here
        sources, copies = source_facts(here.led_sources), replica_facts(here.replicas)
        return {"node": here.name, "sources": sources, "copies": copies}

    def source_statuses(self, asked: Mapping[int, int]) -> Iterator[SourceStatus | None]:
        """Of each source, in their order. `asked`: how many copies a source is to have, where a queue of it says
        that."""
        facts = {row["source"]: row for row in source_facts(self._here.led_sources)}
        for source in sorted(self._roster.records):
            there = source in self._roster.records
            copies = asked.get(source, self._copies)
            yield source_status(source, self._roster, facts, copies, self._linkage) if there else None

    def imported(self, queues: Counter[int]) -> ImportedQueues:
        """Chooses the sources of an import's queues. `queues`: how many each source has."""
        roster = self._roster
        # Copies: an import is planned in a thread.
        heard = Heard("", dict(roster.members), dict(roster.known), dict(roster.records), self._linkage)
        return ImportedQueues(heard, queues, self._copies)

    def others(self) -> list[str]:
        """All other nodes that are members, or were and are not forgotten."""
        return sorted((self._roster.members.keys() | self._roster.known.keys()) - {self._here.name})

    def lives(self, name: str) -> bool:
        """It is a member."""
        return name in self._roster.members

    def is_isolated(self, name: str) -> bool:
        """It is a member and has no link to a majority of the others."""
        return name in self._linkage.isolated

    def without_link(self, name: str) -> list[str]:
        """Members to which this one has no link."""
        others = self._roster.members.keys() - {name}
        return sorted(other for other in others if self._linkage.lacks(name, other))

    def why_silent(self, name: str) -> str:
        """Why a member may not have answered."""
        if self._linkage.lacks(self._here.name, name):
            return self._linkage.why(name)
        return self._link_state(name)

    def isolated(self) -> dict[str, str]:
        """Members without links to a majority: a sentence of each, with the way out."""
        linkage = self._linkage
        return {name: f"{linkage.why(name)}; {linkage.way_out(name)}" for name in sorted(linkage.isolated)}

    def forgotten_starts(self) -> dict[str, tuple[str, int]]:
        """Nodes that were forgotten and ask to be let in: of each a sentence with the way out, and since when."""
        return {
            each.name: (forgotten_start_sentence(each), each.since_ms)
            for each in recent_starts(self._roster, self._now_ms)
        }

    def members_of(self, source: int) -> tuple[str, ...]:
        """The nodes that keep the source."""
        record = self._roster.records.get(source)
        return record.members if record is not None else ()

    def rows(self, found: Sequence[SourceStatus], queues: Mapping[int, int]) -> Row:
        """`queues`: how many each source has."""
        return {
            "node": self._here.name,
            "says": sentences(
                self._roster,
                found,
                self._linkage,
                now_ms=self._now_ms,
                of_store=self._of_store,
                classic=self._classic,
                of_data=self._of_data,
            ),
            "members": member_rows(self._roster, self._linkage),
            "sources": alike_rows(found, queues),
            "statistics": self._here.statistics().facts(),
        }
