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
from typing import NamedTuple

from amqpd.cluster.records import WishRecord
from amqpd.replication import seal as seals
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import SourceRecord
from tests.replication.simulation.clock import Clock


class Known(NamedTuple):
    """Of a member, as `amqpd.cluster.records.KnownRecord`."""

    life: int
    generation: int


Heard = Callable[[dict[str, int], list[SourceRecord], dict[int, WishRecord]], None]


class SimulatedStore:
    """Of a cluster."""

    def __init__(self, clock: Clock, members: dict[int, tuple[str, ...]]) -> None:
        self._clock = clock
        self.revision = 1
        self.records = {
            source: SourceRecord(source, seals.NONE, each, (1,) * len(each), 1) for source, each in members.items()
        }
        self.members: dict[str, int] = {}
        """who has a lease: name -> life"""
        self.known: dict[str, Known] = {}
        self.copy = dict(self.records)
        self.wishes: dict[int, WishRecord] = {}
        """of operators, by source"""
        self.swapping: Counter[int] = Counter()
        """source -> swaps of its set that are not answered"""
        self.silence = 0.0
        """how often it does not answer"""
        self.away: set[str] = set()
        """forwarders that do not reach it"""
        self._missed: dict[str, list[Callable[[], None]]] = {}
        """news for them, in order"""
        self._readers: dict[str, Heard] = {}
        self._told_ms: dict[str, float] = {}
        self._generations = 1

    # Members

    def join(self, name: str, life: int, generation: int | None, joined: Callable[[int, int], None]) -> None:
        """Calls with the life and the generation that count, as `Directory` finds them: a disk that does not go on
        from where it was known to be is another one. None: it has lost its own."""

        def try_it() -> None:
            if name in self.away or self._clock.chance.random() < self.silence:
                self._clock.after(50, 500, try_it)
                return
            known = self.known.get(name)
            counts, lives = generation, life
            if known is not None and (generation != known.generation or known.life >= life):
                self._clock.counts["disk is another one"] += 1
                counts, lives = None, max(life, known.life + 1)
            if counts is None:
                self._generations += known is not None
                counts = self._generations
            self.known[name] = Known(lives, counts)
            self.members[name] = lives
            self._changed([])
            joined(lives, counts)

        self._clock.after(2, 50, try_it)

    def lapse(self, name: str, life: int) -> None:
        """Its lease has run out."""
        if self.members.get(name) == life:
            del self.members[name]
            self._clock.counts["membership ended"] += 1
            self._changed([])

    def renew(self, name: str, life: int) -> None:
        """It was lost, and the process lives."""
        if self.known[name].life == life and name not in self.members and name not in self.away:
            self.members[name] = life
            self._changed([])

    def watch(self, name: str, heard: Heard) -> None:
        """The reader is told everything now, and then each change; one of an earlier life is told no more."""
        self._readers[name] = heard
        heard(dict(self.members), list(self.records.values()), dict(self.wishes))

    def _changed(self, records: list[SourceRecord]) -> None:
        members, wishes, clock = dict(self.members), dict(self.wishes), self._clock
        for name, heard in self._readers.items():
            late_ms = 1000 if self.silence and clock.chance.random() < self.silence else 20
            at_ms = max(clock.now_ms + clock.chance.uniform(1, late_ms), self._told_ms.get(name, 0.0))
            self._told_ms[name] = at_ms
            clock.at(at_ms, partial(self._tell, name, partial(heard, members, records, wishes)))

    def _tell(self, name: str, news: Callable[[], None]) -> None:
        if name in self.away:
            self._missed.setdefault(name, []).append(news)
        else:
            news()

    def leaves(self, name: str) -> None:
        """The forwarder does not reach it; its lease runs out, and it hears of that when it is back."""
        self.away.add(name)
        life = self.members.get(name, 0)
        self._clock.after(1000, 3000, lambda: self.lapse(name, life) if name in self.away else None)

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
        if name in self.away or chance.random() < self.silence:
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
        # The second swap of an unknown one conflicts with the first, which was the same life's.
        won = replace(now, revision=record.revision) == record
        self._clock.after(2, 50, lambda: then(now if won else None))

    # Wishes

    def wish(self, wish: WishRecord) -> None:
        """An operator puts it, whatever is wished by then."""
        self.revision += 1
        self.wishes[wish.source] = replace(wish, revision=self.revision)
        self._changed([])

    def take_back_wish(self, source: int) -> None:
        """An operator does."""
        self.revision += 1
        del self.wishes[source]
        self._changed([])

    def change_wish(self, name: str, wish: WishRecord, *, drops: bool) -> None:
        """A home has something to say of it, or has fulfilled it. Nothing happens when it is another one by now."""

        def change() -> None:
            now = self.wishes.get(wish.source)
            if name in self.away or self._clock.chance.random() < self.silence:
                self._clock.counts["store did not answer"] += 1
            elif now is not None and now.revision == wish.revision:
                if drops:
                    self.revision += 1
                    del self.wishes[wish.source]
                    self._clock.counts["wish fulfilled"] += 1
                    self._changed([])
                else:
                    self.wish(wish)

        self._clock.after(2, 50, change)

    def put_back(self) -> None:
        """An operator restores a copy. Revisions go on: a store of another generation would be told apart. The sets,
        and their disks' generations, stay as well: with older ones a set may have no majority, or those who have
        dropped their copies, and waits for the operator again."""
        self._clock.counts["store put back"] += 1
        self.revision += 1
        self.records = {
            source: replace(now, home=self._home_before(now), revision=self.revision)
            for source, now in self.records.items()
        }
        self._changed(list(self.records.values()))

    def _home_before(self, now: SourceRecord) -> Seal:
        before = self.copy[now.source].home
        return before if before.forwarder in ("", *now.members) else now.home

    def keep_copy(self) -> None:
        self.copy = dict(self.records)
