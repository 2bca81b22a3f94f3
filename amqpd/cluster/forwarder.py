"""A forwarder's place in the cluster: the home of some sources, a copy of others, ready to take over.

What comes in: connections and messages of other forwarders, what the store says, the journal's transactions, the
time. What goes out: all that `shell.py` has.
Rules: 1. The parts know each other only through here. 2. Nothing here waits: what was handed to the disk or the store
is gone on with when that answers.
Not here: sockets, threads, the store's client (`runner.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from amqpd.cluster.copies import Copies
from amqpd.cluster.counters import Counters
from amqpd.cluster.give_backs import GiveBacks
from amqpd.cluster.home_link import HomeLink
from amqpd.cluster.homes import HANDED_OVER, Homes
from amqpd.cluster.leftovers import Leftovers
from amqpd.cluster.log_events import place_of
from amqpd.cluster.own_lane import SourceLane
from amqpd.cluster.records import WishRecord
from amqpd.cluster.set_changes import SetChanges
from amqpd.cluster.shell import OwnLog, Shell
from amqpd.cluster.spreading import Spreading
from amqpd.cluster.statistics import ClusterStatistics, statistics
from amqpd.cluster.succession import Succession
from amqpd.cluster.takeovers import TakeOvers
from amqpd.journal.buffer import JournalBuffer
from amqpd.replication import seal as seals
from amqpd.replication.commit import majority
from amqpd.replication.entry import Position
from amqpd.replication.messages import Answered, Entries, Fetched, Message, Sealed, Would
from amqpd.replication.replica import Replica, Replicas
from amqpd.replication.seal import Seal
from amqpd.replication.set_change import handed_over
from amqpd.replication.take_over import SourceRecord


class Forwarder:
    """One process."""

    def __init__(
        self,
        name: str,
        life: int,
        generation: int,
        shell: Shell,
        journal: JournalBuffer,
        replicas: Replicas,
        lease_s: float,
        chance: Callable[[], float],
        on_report: Callable[[SourceLane], None],
        *,
        fast_takeover: bool = False,
        spreads: bool = False,
    ) -> None:
        """`replicas`: of all sources; `spreads`: what failovers piled up here is moved (`spreading.py`)."""
        self.name = name
        self.life = life
        self.generation = generation
        self._shell = shell
        self._journal = journal
        self.replicas = replicas
        self._fast = fast_takeover
        self.counters = Counters()
        self.records: dict[int, SourceRecord] = {}
        """as the store had them last"""
        self.homes = Homes(shell, journal, replicas, lease_s, on_report, name, self.counters)
        self.copies = Copies(
            *(name, generation, shell, journal, replicas, lease_s, self.is_gone),
            *(self.homes.reigns, self.counters, self.records),
        )
        self._unreadable: set[int] = set()
        """sources whose records cannot be read now"""
        self.takeovers = TakeOvers(
            *(name, life, generation, shell, journal, replicas, self.copies.would_seal, self._won, self._ended),
            *(GiveBacks(shell, self.records), self.counters),
        )
        self.changes = SetChanges(name, shell, journal, self.homes)
        self.changes.take_over = self.take_over
        self._spreading = Spreading(name, shell.put_wish, shell.drop_wish) if spreads else None
        self._leftovers = Leftovers(name, shell, replicas, self.copies, self.records)
        self._succession = Succession(name, life, lease_s, chance, shell.now_s)
        self._lives: dict[str, int] = {}
        """the highest life of each forwarder that was heard of, from itself or from the store"""
        self._gone: dict[str, int] = {}
        """forwarders whose membership has ended, with the life that had it"""
        self._refused: set[str] = set()
        """forwarders whose machine says that nobody listens there"""
        self._heard_s: dict[str, float] = {}
        self.isolated: Collection[str] = frozenset()
        """members without links to a majority (`linkage.py`): nothing is moved to them"""
        self._leaves = False
        self._journal = journal
        self._stopped = self._leaving = 0
        """the transaction up to which all has to be committed before the end; sources of which the store is told"""
        self._lease_s = lease_s
        self._beat_s = shell.now_s

    # What the store says

    def members_are(self, lives: Mapping[str, int], were: Mapping[str, int]) -> None:
        """Those with a lease, with their lives; and those that had one when this was told last."""
        for name, life in lives.items():
            self._met(name, life)
            self._heard_s.setdefault(name, self._shell.now_s)
            self._gone.pop(name, None)
        self.changes.members = lives.keys()
        self._gone.update((name, life) for name, life in were.items() if name not in lives)

    def record_is(self, record: SourceRecord) -> None:
        """The store has this one now."""
        before = self.records.get(record.source)
        if before is not None and before.revision >= record.revision:
            return
        self.records[record.source] = record
        self._unreadable.discard(record.source)
        if record.home.forwarder != self.name:
            self.homes.given_up.discard(record.source)
        own = self.homes.sources.get(record.source)
        if own is None:
            return
        if record.home != own.seal:
            # Somebody else has taken it over, or tries to: this home is not needed.
            self.homes.end(record.source, "the store names another home", record.home.forwarder)
        else:
            self.homes.record_is(record.source, record)

    def record_gone(self, source: int) -> None:
        """The store has none any more. Of a source that was led once, the last one counts on: that is a store that
        has gone back."""
        before = self.records.get(source)
        if before is not None and before.home == seals.NONE:
            del self.records[source]

    def record_unreadable(self, source: int, reason: str) -> None:
        """Nobody can know from the store who leads the source: this node stops, and does not try to, until it is told
        of a record again."""
        self._unreadable.add(source)
        if source in self.homes.sources:
            self.homes.end(source, reason)

    def wishes_are(self, wishes: Mapping[int, WishRecord]) -> None:
        """The store has these, by source."""
        self.changes.wishes = self._succession.wishes = wishes

    def is_gone(self, seal: Seal) -> bool:
        """The home of this seal is known not to reign any more."""
        if seal.forwarder == self.name:
            return seal.life != self.life
        if self._lives.get(seal.forwarder, 0) > seal.life:
            return True
        if self._fast and seal.forwarder in self._refused:
            return True
        return not seal.forwarder

    def _left(self, seal: Seal) -> bool:
        """Its membership has ended: it is worth asking for its sources."""
        return self._gone.get(seal.forwarder, -1) >= seal.life or self.is_gone(seal)

    def _met(self, name: str, life: int) -> None:
        if life > self._lives.get(name, 0):
            self._lives[name] = life

    # Connections

    def dialed(self, peer: str, life: int, generation: int) -> None:
        """There is a connection to it."""
        self._met(peer, life)
        self._refused.discard(peer)
        self.homes.dialed(peer, generation)

    def lost(self, peer: str) -> None:
        """There is none any more."""
        self.homes.lost(peer)

    def refused(self, peer: str) -> None:
        """Nobody listens at its address: its process has ended, unless somebody between here and there says so."""
        self._refused.add(peer)

    def accepted(self, incoming: HomeLink) -> None:
        """It has dialed this forwarder."""
        self._met(incoming.forwarder, incoming.life)
        self._refused.discard(incoming.forwarder)
        self.copies.accepted(incoming)

    def left(self, incoming: HomeLink) -> None:
        self.copies.left(incoming)

    def asked(self, incoming: HomeLink, message: Message) -> None:
        """A message of one that has dialed."""
        self._heard_s[incoming.forwarder] = self._shell.now_s
        self.copies.received(incoming, message)

    def answered(self, peer: str, message: Message) -> None:
        """A message over the connection that was dialed."""
        self._heard_s[peer] = self._shell.now_s
        if isinstance(message, Answered):
            self.homes.answered(peer, message)
        elif isinstance(message, Would | Sealed | Entries | Fetched):
            self.takeovers.received(peer, message)

    # The journal and the time

    def stored(self, index: int) -> None:
        """The transactions up to this one are on the own disk."""
        self.homes.stored(index)
        self.copies.stored()
        self.takeovers.stored()
        self.changes.stored()

    def unusable(self, replica: Replica, reason: str) -> None:
        """What a home has sent of this source the disk cannot take, and has left out: here it is as the disk has it,
        and nothing more is taken from that home in its epoch."""
        source, sent_by = replica.source, self.replicas[replica.source].seal
        self._shell.log("copy_unusable", source=source, home=sent_by.forwarder, epoch=sent_by.epoch, reason=reason)
        self._journal.leave_out(source)
        replica.refused = sent_by
        self.replicas.put(replica)
        self.copies.unusable(source, reason)
        self.takeovers.unusable(source, reason)

    def beat(self) -> None:
        """Some twenty times in a lease."""
        now_s, before_s, self._beat_s = self._shell.now_s, self._beat_s, self._shell.now_s
        if now_s - before_s > self._lease_s / 2:
            # This process was stopped: others may have spoken meanwhile.
            self._heard_s = dict.fromkeys(self._heard_s, now_s)
        self.homes.beat()
        self.copies.beat()
        self.takeovers.beat()
        if not self._leaves:
            self.changes.beat()
            self._leftovers.beat()
            self._spread()
        mine = [record for record in self.records.values() if self._may_take(record)]
        for record in self._succession.due(mine, self._left, self._heard_s, self._shell.now_s):
            if self.takeovers.full:
                break
            if self.copies.would_seal(record.source, self.name):
                self.takeovers.begin(record)

    def _spread(self) -> None:
        if self._spreading is None:
            return
        led, now_s = self.homes.sources, self._shell.now_s

        def has_all(member: str, source: int) -> bool:
            lane = led[source].lane
            return member == self.name or (member in lane.members and lane.has_all(member, source, now_s))

        usable = [name for name in self.changes.members if name not in self.isolated]
        move = self._spreading.look(self.records, usable, self.changes.wishes, led.keys(), has_all, now_s)
        if move is not None:
            self.counters.sources_spread += 1
            self._shell.log("source_spread", source=move[0], to=move[1], sources=len(led))

    def _may_take(self, record: SourceRecord) -> bool:
        return (
            not self._leaves
            and record.source not in self._unreadable
            and record.counts(self.name, self.generation)
            and self.takeovers.may_begin(record.source)
            and record.source not in self.homes.sources
            and record.source not in self.changes.handing
            and self._has_links(record)
        )

    def _has_links(self, record: SourceRecord) -> bool:
        """To a majority of its members: without them nobody would answer, and it would be tried again and again."""
        linked = sum(name == self.name or name in self.homes.generations for name in record.members)
        return linked >= majority(len(record.members))

    def stop_sources(self) -> None:
        """This process is about to end: nothing more comes into its queues or out of them, and what is under way is
        committed."""
        self._leaves = True
        for source, own in self.homes.sources.items():
            self._shell.stops(source)
            own.waits.force()
        self._stopped = self._journal.index

    @property
    def is_settled(self) -> bool:
        """What its sources had is committed."""
        return all(map(self._is_settled, self.homes.sources))

    def _is_settled(self, source: int) -> bool:
        own = self.homes.sources[source]
        return 0 < self._stopped <= own.lane.home.committed_of(source)

    def leave(self) -> None:
        """This process is about to end: it is the home of nothing, its peers know it, and so does the store: they
        need not wait until nothing is heard of it."""
        self._leaves = True
        records = []
        for source, own in list(self.homes.sources.items()):
            records.append(own.record)
            self.homes.end(source, HANDED_OVER, settled=self._is_settled(source))
        for record in records:
            self._leaving += 1
            self._shell.swap(handed_over(record), self._told_of_leaving)
        self.takeovers.leave()

    def _told_of_leaving(self, _: SourceRecord | None) -> None:
        self._leaving -= 1

    @property
    def has_left(self) -> bool:
        """The store has answered for all of its sources."""
        return not self._leaving

    def take_over(self, record: SourceRecord) -> None:
        """At once: the source is new, or somebody asks for it."""
        if self._may_take(record):
            self.takeovers.begin(record)

    def statistics(self) -> ClusterStatistics:
        """As of now."""
        return statistics(
            self.counters, self.homes, self.records.values(), self.name, self.generation, self._shell.now_s
        )

    def base_of(self, source: int) -> Position:
        """Up to where it is known here to be committed."""
        return self.replicas[source].log.base

    def _won(self, record: SourceRecord, before: Seal, own: OwnLog) -> str:
        """Why this is not its home all the same; empty: it is."""
        if record.source in self._unreadable:
            return "the store's record cannot be read meanwhile"
        self.record_is(record)
        known = self.records[record.source]
        if known.home != record.home:
            # Somebody else was in the store before this was won: no later word would end this home.
            return f"{known.home} is in the store meanwhile"
        last = self.replicas[record.source].log.last
        if 0 < record.given_up >= last[0]:
            # The first take-over since. What a lost member had above that, committed or not, is in no log any more.
            self._shell.log(
                "majority_given_up",
                source=record.source,
                epoch_given_up=record.given_up,
                epoch=record.home.epoch,
                survivors=list(record.members),
                goes_on_after=place_of(last),
                known_committed=place_of(self.base_of(record.source)),
            )
        # Somebody may have put the same again since, to be sure of it (`leftovers.py`): swaps are of that revision.
        self.homes.begin(known, own)
        if self._spreading is not None:
            wish = self.changes.wishes.get(record.source)
            wished = wish is not None and wish.home == self.name
            self._spreading.took_over(record.source, was_led=before.epoch > 0, wished=wished)
        self.changes.took_over(record.source, before)
        return ""

    def _ended(self, source: int, won: bool) -> None:
        if not won:
            self._succession.failed(source, self._shell.now_s)
