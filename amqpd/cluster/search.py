"""Sources for queues that are declared here while there is none for them: made, and made again until there is one.

What comes in: declarations that wait; members and records, as the store had them last. What goes out: records of new
sources; whether there is one, to those that wait.
Rules: 1. Somebody who waits is answered, after `WANT_S` at the latest. 2. A source of this node is taken over by it
at once. One for another node gets a number for which that node is the first to try (`succession.py`), and has no
other advantage: should it be slower, another source is made. 3. Sources without a leader are bounded: a node makes
none for itself before it has links to a majority of the set, and takes one back that nobody has become the leader of.
4. So is what is looked at in one call, however many wait: the loop is everybody's. 5. A node that is isolated makes
nobody wait.
Not here: how a source is taken over (`takeovers.py`), which of several a queue gets and who keeps a new one
(`choosing.py`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from amqpd.cluster.choosing import Choices, Heard, new_set
from amqpd.cluster.directory import Directory
from amqpd.cluster.linkage import WELL, Linkage
from amqpd.cluster.records import SOURCES, source_of_key
from amqpd.cluster.succession import successors
from amqpd.node.cluster import LOCAL, WantedSource
from amqpd.node.sources import ServedSources
from amqpd.peers.entry import NO_VOTE
from amqpd.replication.commit import majority
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import StoreUnreached

WANT_S = 10.0
"""how long a declaration waits for a source to be served"""
SEARCH_S = 3.0
"""After that another source is tried, while somebody still waits: longer than an attempt to take over."""
UNSERVED_MAX = 4
"""Sources that this forwarder made, or tried to have, and that have no leader: no more are made beside them."""
TAKEN_BACK_S = 30.0
"""A source that has no leader for so long is taken back by who made it: several attempts, of several members."""
LOOKS_MAX = 256
"""Declarations that are looked at in one call, some milliseconds; the others in the next beats."""

Answer = Callable[[bool], None]

log = structlog.get_logger(component="cluster")


@dataclass(frozen=True, slots=True)
class _Want:
    wanted: WantedSource
    until_s: float
    answer: Answer


class SourceSearch:
    """Finds or makes a source for each queue that is declared at one node while there is none for it."""

    def __init__(
        self,
        directory: Directory,
        copies_max: int,
        now_s: Callable[[], float],
        start: Callable[[Callable[[], Awaitable[None]]], None],
        is_leader: Callable[[int], bool],
        created: Callable[[SourceRecord], None],
        sources: ServedSources,
        linkage: Callable[[], Linkage] = lambda: WELL,
        has_link: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """`start`: runs a task; `created`: a record that this forwarder is to take over; `has_link`: this forwarder,
        to a peer, now."""
        self._directory = directory
        self._copies_max = copies_max
        self._now_s = now_s
        self._start = start
        self._is_leader = is_leader
        self._created = created
        self._sources = sources
        self._wants: deque[_Want] = deque()
        """first of all the one that is to be looked at next"""
        self._again_s: dict[tuple[str, int], float] = {}
        """leaders and numbers of copies that a source is made for, and when another one may be"""
        self._made: set[int] = set()
        """sources that this forwarder made for others"""
        self._linkage = linkage
        self._has_link = has_link
        self._leaderless: dict[int, tuple[int, float]] = {}
        """sources that this forwarder made and that have no leader: the revision, and when they are taken back"""

    @property
    def _heard(self) -> Heard:
        directory = self._directory
        me, linkage = directory.me.name, self._linkage()
        return Heard(me, directory.roster.members, directory.roster.known, directory.roster.records, linkage)

    @property
    def _choices(self) -> Choices:
        return Choices(self._heard, self._sources.queues, self._sources.serving, self._copies_max)

    def choose(self, wanted: WantedSource) -> int:
        return self._choices.choose(wanted)[0]

    def want(self, wanted: WantedSource, answer: Answer) -> None:
        self._wants.append(_Want(wanted, self._now_s() + WANT_S, answer))
        self._is_there(wanted, self._choices)

    def look(self) -> list[Answer]:
        """Now and then, and when something may be served, or have another leader, that was not: those for which there
        is a source by now. For others one is made. At most `LOOKS_MAX` are looked at, next time those after them."""
        choices, answers = self._choices, list[Answer]()
        if not self._wants:
            self._again_s.clear()
        for _ in range(min(len(self._wants), LOOKS_MAX)):
            each = self._wants.popleft()
            if self._is_there(each.wanted, choices):
                answers.append(each.answer)
            else:
                self._wants.append(each)
        return answers

    def late(self) -> list[Answer]:
        """Those that have waited for long enough; all of them where this node is isolated."""
        now_s = self._now_s()
        self._take_back(now_s)
        if self._directory.me.name in self._linkage().isolated:
            late = [each.answer for each in self._wants]
            self._wants.clear()
            return late
        late = [each.answer for each in self._wants if each.until_s <= now_s]
        if late:
            self._wants = deque(each for each in self._wants if each.until_s > now_s)
        return late

    def _is_there(self, wanted: WantedSource, choices: Choices) -> bool:
        """There is a source, or one begins to be made."""
        found, leader = choices.choose(wanted)
        if found != LOCAL:
            return True
        place, now_s = (leader, choices.copies_of(wanted)), self._now_s()
        if now_s >= self._again_s.get(place, now_s):
            self._again_s[place] = now_s + SEARCH_S
            self._start(partial(self.make, *place))
        return False

    def _is_unserved(self, record: SourceRecord) -> bool:
        """It is to be had by this forwarder, or by another one soon."""
        me, leader = self._directory.me.name, record.leader
        if leader == NO_VOTE:
            return me in record.members or record.source in self._made
        return leader.forwarder == me and not self._is_leader(record.source)

    async def make(self, leader: str, copies: int) -> None:
        """One that nobody has had yet, for this leader."""
        heard = self._heard
        record = self._new(leader, copies)
        if record is None or sum(map(self._is_unserved, heard.records.values())) >= UNSERVED_MAX:
            return
        if leader == heard.me and not self._has_links(record):
            self._again_s.pop((leader, copies), None)  # links of a node that starts take a moment
            return
        try:
            created = await self._directory.swaps.swap(record)
        except StoreUnreached as error:
            log.warning("the metadata store does not answer", source=record.source, reason=str(error))
            return
        if created is not None:
            self._leaderless[created.source] = created.revision, self._now_s() + TAKEN_BACK_S
        if created is not None and leader == heard.me:
            self._created(created)
        elif created is not None:
            self._made.add(created.source)

    def _has_links(self, record: SourceRecord) -> bool:
        """This forwarder can become its leader."""
        me = self._directory.me.name
        linked = sum(name == me or self._has_link(name) for name in record.members)
        return linked >= majority(len(record.members))

    def _take_back(self, now_s: float) -> None:
        """What nobody has become the leader of: no queue names it, and nothing is in it."""
        for source, (revision, until_s) in list(self._leaderless.items()):
            record = self._directory.roster.records.get(source)
            is_same = record is not None and record.revision == revision
            if now_s < until_s and (record is None or is_same):
                continue  # what this node put it hears of a little later
            del self._leaderless[source]
            if record is not None and is_same:
                self._start(partial(self._drop, record))

    async def _drop(self, record: SourceRecord) -> None:
        assert record.leader == NO_VOTE
        try:
            await self._directory.swaps.drop(record)
        except StoreUnreached as error:
            log.warning("the metadata store does not answer", source=record.source, reason=str(error))
            self._leaderless[record.source] = record.revision, self._now_s() + TAKEN_BACK_S

    def _new(self, leader: str, copies: int) -> SourceRecord | None:
        """None: there is no number left, or too few nodes live."""
        heard = self._heard
        free = [number for number in range(1, SOURCES + 1) if number not in heard.records]
        unreadable = {source_of_key(key) for key in self._directory.roster.unreadable}
        free = [number for number in free if number not in unreadable]
        random.shuffle(free)  # others look for one at the same time
        found = None
        for source in free:
            members = new_set(source, leader, heard, copies)
            if not members:
                break
            generations = tuple(heard.known[name].generation for name in members)
            found = SourceRecord(source, NO_VOTE, members, generations)
            if leader == heard.me or successors(source, members)[0] == leader:
                break
        return found
