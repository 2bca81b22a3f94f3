"""A source for queues that are declared here while none is served: made, and made again until there is one.

What comes in: declarations that wait; members and records, as the store had them last. What goes out: records of new
sources; whether there is one, to those that wait.
Rules: 1. Somebody who waits is answered, after `WANT_S` at the latest. 2. A set counts on all nodes that are known,
those that live first, in different failure domains while there are such: while some are away new sources have their
full number of copies, and with too few of a set alive none is made. 3. Sources without a home are bounded.
Not here: how a source is taken over (`takeovers.py`), which of several a queue gets (`amqpd/node/sources.py`).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import structlog

from amqpd.cluster.directory import Directory
from amqpd.cluster.records import SOURCES
from amqpd.replication import seal as seals
from amqpd.replication.commit import majority
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import StoreUnreached

WANT_S = 10.0
"""how long a declaration waits for a source to be served here"""
SEARCH_S = 3.0
"""After that another source is tried, while somebody still waits: longer than an attempt to take over."""
UNSERVED_MAX = 4
"""Sources that this forwarder made, or tried to have, and that have no home: no more are made beside them."""

Answer = Callable[[bool], None]

log = structlog.get_logger(component="cluster")


class SourceSearch:
    """Of one forwarder."""

    def __init__(
        self,
        directory: Directory,
        copies_max: int,
        now_s: Callable[[], float],
        start: Callable[[Callable[[], Awaitable[None]]], None],
        is_home: Callable[[int], bool],
        created: Callable[[SourceRecord], None],
    ) -> None:
        """`start`: runs a task; `created`: a record that this forwarder is to take over."""
        self._directory = directory
        self._copies_max = copies_max
        self._now_s = now_s
        self._start = start
        self._is_home = is_home
        self._created = created
        self._wants: list[tuple[float, Answer]] = []
        self._again_s = 0.0

    def want(self, answer: Answer) -> None:
        """See `Sources.want`."""
        self._wants.append((self._now_s() + WANT_S, answer))
        self.look()

    def found(self) -> list[Answer]:
        """A source is served: those that waited."""
        wants, self._wants = self._wants, []
        return [answer for _, answer in wants]

    def late(self) -> list[Answer]:
        """Those that have waited for long enough."""
        now_s = self._now_s()
        late = [answer for until_s, answer in self._wants if until_s <= now_s]
        self._wants = [each for each in self._wants if each[0] > now_s]
        return late

    def look(self) -> None:
        """Now and then: begin, while somebody waits."""
        now_s = self._now_s()
        if self._wants and now_s >= self._again_s:
            self._again_s = now_s + SEARCH_S
            self._start(self.run)

    def _copies(self) -> int:
        """As many as a set may have: those that are away for some time are not forgotten."""
        return min(self._copies_max, len(self._directory.known))

    def is_full(self, source: int) -> bool:
        """See `Sources.is_full`."""
        record = self._directory.records.get(source)
        return record is not None and len(record.members) >= self._copies()

    def new_set(self) -> tuple[str, ...]:
        """This forwarder and others, those that live first; empty: too few do."""
        me, living = self._directory.me.name, self._directory.members
        others = [name for name in self._directory.known if name != me]
        random.shuffle(others)
        members, used = [me], {living[me].domain} if me in living else set()
        while others and len(members) < self._copies():
            # What lives first, and of that what does not fail together with those that are in already.
            best = min(others, key=lambda name: (name not in living, name in living and living[name].domain in used))
            others.remove(best)
            members.append(best)
            if best in living:
                used.add(living[best].domain)
        if sum(name in living for name in members) < majority(len(members)):
            return ()
        return tuple(sorted(members))

    def _is_unserved(self, record: SourceRecord) -> bool:
        """It is to be had by this forwarder, or by another one soon."""
        me, home = self._directory.me.name, record.home
        if home == seals.NONE:
            return me in record.members
        return home.forwarder == me and not self._is_home(record.source)

    async def run(self) -> None:
        """One that nobody has had yet."""
        members, taken = self.new_set(), self._directory.records
        free = [number for number in range(1, SOURCES + 1) if number not in taken]
        if not members or not free or sum(map(self._is_unserved, taken.values())) >= UNSERVED_MAX:
            return
        generations = tuple(self._directory.known[name].generation for name in members)
        record = SourceRecord(random.choice(free), seals.NONE, members, generations)
        try:
            created = await self._directory.swap(record)
        except StoreUnreached as error:
            log.warning("the metadata store does not answer", source=record.source, reason=str(error))
            return
        if created is not None:
            self._created(created)
