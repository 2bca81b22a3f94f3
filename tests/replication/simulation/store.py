"""The metadata store: members with their leases, who was one, a record for each source; compare-and-swap, and what
changed is told to each member in order.

What can go wrong: it does not answer, before or after it did what it was asked; it tells late; it is put back to an
old copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from amqpd.cluster.records import DesiredSetRecord, KnownRecord
from amqpd.peers.entry import NO_VOTE, Vote
from amqpd.replication.take_over import SourceRecord
from tests.replication.simulation.clock import Clock
from tests.replication.simulation.law import Law

if TYPE_CHECKING:
    from tests.replication.simulation.process import Process

LEASE_S = 1.0
LEASE_MS = LEASE_S * 1000


Heard = Callable[[dict[str, int], list[SourceRecord], dict[int, DesiredSetRecord]], None]


class SimulatedStore:
    """Of a cluster."""

    def __init__(self, clock: Clock, members: dict[int, tuple[str, ...]], law: Law) -> None:
        self._clock = clock
        self._law = law
        self.revision = 1
        self.records = {
            source: SourceRecord(source, NO_VOTE, each, (1,) * len(each), 1) for source, each in members.items()
        }
        self.members: dict[str, int] = {}
        """who has a lease: name -> incarnation"""
        self.known: dict[str, KnownRecord] = {}
        self.copy = dict(self.records)
        self.desired_sets: dict[int, DesiredSetRecord] = {}
        """of operators, by source"""
        self.swapping: Counter[int] = Counter()
        """source -> swaps of its set that are not answered"""
        self.silence = 0.0
        """how often it does not answer"""
        self.stalled_until_ms = 0.0
        """until then it answers nobody, and does nothing"""
        self.away: set[str] = set()
        """forwarders that do not reach it"""
        self._missed: dict[str, list[Callable[[], None]]] = {}
        """news for them, in order"""
        self._readers: dict[str, Heard] = {}
        self._told_ms: dict[str, float] = {}
        self._generations = 1
        self._nonces = 0
        self._known_at: dict[str, int] = {}
        """the revision of what is known, by name"""

    # Members

    def draw_generation(self, name: str) -> int:
        """The records of the sources begin with disks of generation 1."""
        self._generations += name in self.known
        return self._generations if name in self.known else 1

    def draw_nonce(self) -> int:
        self._nonces += 1
        return self._nonces

    def look(self, name: str, seen: Callable[[KnownRecord | None, int, bool], None]) -> None:
        """Calls with what is known of the node, the revision of that, and whether it is a member."""

        def try_it() -> None:
            if self._is_silent(name):
                self._clock.after(50, 500, try_it)
            else:
                known = self.known.get(name)
                is_member = known is not None and self.members.get(name) == known.incarnation
                seen(known, self._known_at.get(name, 0), is_member)

        self._clock.after(1, 25, try_it)

    def put(self, process: Process, known: KnownRecord, revision: int, answered: Callable[[], None]) -> None:
        """The process is a member, and is known as that, unless somebody has put something since `revision`. What it
        does not tell is whether it was carried out. It is sent: it is carried out also when the process has ended by
        then, and its lease runs out later."""
        name = known.name

        def try_it() -> None:
            if self._is_silent(name):
                self._clock.after(50, 500, try_it if self._clock.chance.random() < 0.5 else answered)
                return
            if self._known_at.get(name, 0) == revision:
                self._law.claimed(known, process.disk_number)
                self.revision += 1
                self.known[name], self._known_at[name] = known, self.revision
                self.members[name] = known.incarnation
                self._changed([])
                if not process.up:
                    self._clock.counts["claim came when its process had ended"] += 1
                    self._clock.after(0.5 * LEASE_MS, 1.5 * LEASE_MS, lambda: self.lapse(name, known.incarnation))
            self._clock.after(1, 25, answered)

        self._clock.after(1, 25, try_it)

    def _is_silent(self, name: str) -> bool:
        return (
            name in self.away
            or self._clock.now_ms < self.stalled_until_ms
            or self._clock.chance.random() < self.silence
        )

    def lapse(self, name: str, incarnation: int) -> None:
        """Its lease has run out."""
        if self.members.get(name) == incarnation:
            del self.members[name]
            self._clock.counts["membership ended"] += 1
            self._changed([])

    def renew(self, name: str, incarnation: int) -> None:
        """It was lost, and the process lives."""
        if self.known[name].incarnation == incarnation and name not in self.members and name not in self.away:
            self.members[name] = incarnation
            self._changed([])

    def watch(self, name: str, heard: Heard) -> None:
        """The reader is told everything now, and then each change; one of an earlier incarnation is told no more."""
        self._readers[name] = heard
        heard(dict(self.members), list(self.records.values()), dict(self.desired_sets))

    def _changed(self, records: list[SourceRecord]) -> None:
        members, desired_sets, clock = dict(self.members), dict(self.desired_sets), self._clock
        for name, heard in self._readers.items():
            late_ms = 1000 if self.silence and clock.chance.random() < self.silence else 20
            at_ms = max(clock.now_ms + clock.chance.uniform(1, late_ms), self._told_ms.get(name, 0.0))
            self._told_ms[name] = at_ms
            clock.at(at_ms, partial(self._tell, name, partial(heard, members, records, desired_sets)))

    def _tell(self, name: str, news: Callable[[], None]) -> None:
        if name in self.away:
            self._missed.setdefault(name, []).append(news)
        else:
            news()

    def leaves(self, name: str) -> None:
        """The forwarder does not reach it; its lease runs out, and it hears of that when it is back."""
        self.away.add(name)
        incarnation = self.members.get(name, 0)
        self._clock.after(1000, 3000, lambda: self.lapse(name, incarnation) if name in self.away else None)

    def returns(self) -> None:
        """Everybody reaches it."""
        self.away.clear()
        missed, self._missed = self._missed, {}
        for news in missed.values():
            for each in news:
                each()

    # Records

    def swap(self, name: str, record: SourceRecord, then: Callable[[SourceRecord | None], None]) -> None:
        """Calls with the record as it is now, or None when somebody was first; again and again while the outcome is
        unknown, as `Swaps` does."""
        changes = record.members != self.records[record.source].members
        self.swapping[record.source] += changes

        def answered(found: SourceRecord | None) -> None:
            self.swapping[record.source] -= changes
            then(found)

        self._clock.after(2, 50, lambda: self._swap(name, record, answered))

    def _swap(self, name: str, record: SourceRecord, then: Callable[[SourceRecord | None], None]) -> None:
        chance, now = self._clock.chance, self.records[record.source]
        if self._is_silent(name):
            self._clock.counts["store did not answer"] += 1
            self._clock.after(50, 500, lambda: self._swap(name, record, then))
            return
        if now.revision == record.revision:
            self.revision += 1
            now = self.records[record.source] = replace(record, revision=self.revision)
            self._changed([now])
            if chance.random() < self.silence:
                self._clock.counts["swap of unknown outcome"] += 1
                self._clock.after(50, 500, lambda: self._swap(name, record, then))
                return
        # The second swap of an unknown one conflicts with the first, which was the same incarnation's.
        won = replace(now, revision=record.revision) == record
        self._clock.after(2, 50, lambda: then(now if won else None))

    # Desired sets

    def desired_set(self, desired_set: DesiredSetRecord) -> None:
        """An operator puts it, whatever is desired by then."""
        self.revision += 1
        self.desired_sets[desired_set.source] = replace(desired_set, revision=self.revision)
        self._changed([])

    def take_back_desired_set(self, source: int) -> None:
        """An operator does."""
        self.revision += 1
        del self.desired_sets[source]
        self._changed([])

    def change_desired_set(self, name: str, desired_set: DesiredSetRecord, *, drops: bool) -> None:
        """A leader has something to say of it, or has fulfilled it. Nothing happens when it is another one by now."""

        def change() -> None:
            now = self.desired_sets.get(desired_set.source)
            if self._is_silent(name):
                self._clock.counts["store did not answer"] += 1
            elif now is not None and now.revision == desired_set.revision:
                if drops:
                    self.revision += 1
                    del self.desired_sets[desired_set.source]
                    self._clock.counts["desired set fulfilled"] += 1
                    self._changed([])
                else:
                    self.desired_set(desired_set)

        self._clock.after(2, 50, change)

    def put_back(self) -> None:
        """An operator restores a copy. Revisions go on: a store of another generation would be told apart. The sets,
        and their disks' generations, stay as well: with older ones a set may have no majority, or those who have
        dropped their copies, and waits for the operator again."""
        self._clock.counts["store put back"] += 1
        self.revision += 1
        self.records = {
            source: replace(now, leader=self._leader_before(now), revision=self.revision)
            for source, now in self.records.items()
        }
        self._changed(list(self.records.values()))

    def _leader_before(self, now: SourceRecord) -> Vote:
        before = self.copy[now.source].leader
        return before if before.forwarder in ("", *now.members) else now.leader

    def keep_copy(self) -> None:
        self.copy = dict(self.records)
