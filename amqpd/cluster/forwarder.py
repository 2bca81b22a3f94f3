"""A forwarder's place in the cluster: the leader of some sources, a copy of others, ready to take over.

What comes in: connections and messages of other forwarders, what the store says, the journal's transactions, the
time. What goes out: all that `shell.py` has.
Rules: 1. The parts know each other only through here. 2. Nothing here waits: what was handed to the disk or the store
is gone on with when that answers.
Not here: sockets, threads, the store's client (`runner.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from amqpd.cluster.followed_sources import FollowedSources
from amqpd.cluster.led_replica_set import SourceLane
from amqpd.cluster.led_sources import HANDED_OVER, LedSources
from amqpd.cluster.leftovers import Leftovers
from amqpd.cluster.log_events import Counters, place_of
from amqpd.cluster.metadata_lag import MetadataLag
from amqpd.cluster.records import DesiredSetRecord
from amqpd.cluster.set_changes import SetChanges
from amqpd.cluster.shell import LeaderLink, OwnLog, ProcessIdentity, Shell
from amqpd.cluster.spreading import Spreading
from amqpd.cluster.statistics import ClusterStatistics, statistics
from amqpd.cluster.succession import Succession
from amqpd.cluster.takeovers import GiveBacks, TakeOvers
from amqpd.journal.buffer import JournalBuffer
from amqpd.peers.entry import NO_VOTE, Position, Vote
from amqpd.peers.messages import Answered, Cut, Entries, Fetched, Heartbeat, Message, Voted, Would
from amqpd.replication.commit import majority
from amqpd.replication.replica import Replica, Replicas
from amqpd.replication.set_change import handed_over
from amqpd.replication.take_over import SourceRecord


class Forwarder:
    """One node's part in the cluster: it leads some sources and keeps copies of others."""

    def __init__(
        self,
        me: ProcessIdentity,
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
        name = me.name
        self.name, self.incarnation, self.generation = me
        self._shell = shell
        self._journal = journal
        self.replicas = replicas
        self._fast = fast_takeover
        self.counters = Counters()
        self.records: dict[int, SourceRecord] = {}
        """as the store had them last"""
        self.led_sources = LedSources(shell, journal, replicas, lease_s, on_report, name, self.counters)
        self.copies = FollowedSources(
            me,
            shell,
            journal,
            replicas,
            lease_s,
            self.is_gone,
            self.led_sources.holds_lease,
            self.counters,
            self.records,
        )
        self._metadata = MetadataLag(shell, lease_s)
        self._unreadable: set[int] = set()
        """sources whose records cannot be read now"""
        self.takeovers = TakeOvers(
            me,
            shell,
            journal,
            replicas,
            self.copies.would_vote,
            self._won,
            self._ended,
            GiveBacks(shell, self.records),
            self.counters,
        )
        self.changes = SetChanges(name, shell, journal, self.led_sources)
        self.changes.take_over = self.take_over
        self._spreading = Spreading(name, shell) if spreads else None
        self._leftovers = Leftovers(name, shell, replicas, self.copies, self.records)
        self._succession = Succession(name, me.incarnation, lease_s, chance, shell.now_s)
        self._incarnations: dict[str, int] = {}
        """the highest incarnation of each forwarder that was heard of, from itself or from the store"""
        self._gone: dict[str, int] = {}
        """forwarders whose membership has ended, with the incarnation that had it"""
        self._refused: set[str] = set()
        """forwarders whose machine says that nobody listens there"""
        self._heard_s: dict[str, float] = {}
        self.isolated: Collection[str] = frozenset()
        """members without links to a majority (`linkage.py`): nothing is moved to them"""
        self._leaves = False
        self._stopped = self._leaving = 0
        """the transaction up to which all has to be committed before the end; sources of which the store is told"""
        self._lease_s = lease_s
        self._beat_s = shell.now_s

    # What the store says

    def members_are(self, incarnations: Mapping[str, int], were: Mapping[str, int]) -> None:
        """Those with a lease, with their incarnations; and those that had one when this was told last."""
        for name, incarnation in incarnations.items():
            self._met(name, incarnation)
            self._heard_s.setdefault(name, self._shell.now_s)
            self._gone.pop(name, None)
        self.changes.members = incarnations.keys()
        self._gone.update((name, incarnation) for name, incarnation in were.items() if name not in incarnations)

    def note_record(self, record: SourceRecord) -> None:
        """The store has this one now."""
        before = self.records.get(record.source)
        if before is not None and before.revision >= record.revision:
            return
        self.records[record.source] = record
        self._unreadable.discard(record.source)
        if record.leader.forwarder != self.name:
            self.led_sources.given_up.discard(record.source)
        own = self.led_sources.sources.get(record.source)
        if own is None:
            return
        if record.leader != own.vote:
            # Somebody else has taken it over, or tries to: this leader is not needed.
            self.led_sources.end(record.source, "the store names another leader", record.leader.forwarder)
        else:
            self.led_sources.note_record(record.source, record)

    def record_gone(self, source: int) -> None:
        """The store has none any more. Of a source that was led once, the last one counts on: that is a store that
        has gone back."""
        before = self.records.get(source)
        if before is not None and before.leader == NO_VOTE:
            del self.records[source]

    def record_unreadable(self, source: int, reason: str) -> None:
        """Nobody can know from the store who leads the source: this node stops, and does not try to, until it is told
        of a record again."""
        self._unreadable.add(source)
        if source in self.led_sources.sources:
            self.led_sources.end(source, reason)

    def desired_sets_are(self, desired_sets: Mapping[int, DesiredSetRecord]) -> None:
        """The store has these, by source."""
        self.changes.desired_sets = self._succession.desired_sets = desired_sets

    def is_gone(self, vote: Vote) -> bool:
        """The leader of this vote is known not to hold its leader lease any more."""
        if vote.forwarder == self.name:
            return vote.incarnation != self.incarnation
        if self._incarnations.get(vote.forwarder, 0) > vote.incarnation:
            return True
        if self._fast and vote.forwarder in self._refused:
            return True
        return not vote.forwarder

    def _left(self, vote: Vote) -> bool:
        """Its membership has ended: it is worth asking for its sources."""
        return self._gone.get(vote.forwarder, -1) >= vote.incarnation or self.is_gone(vote)

    def _met(self, name: str, incarnation: int) -> None:
        if incarnation > self._incarnations.get(name, 0):
            self._incarnations[name] = incarnation

    # Connections

    def dialed(self, peer: str, incarnation: int, generation: int, version: int) -> None:
        """There is a connection to it, over which this version of the messages is used."""
        self._met(peer, incarnation)
        self._refused.discard(peer)
        self.led_sources.dialed(peer, generation, version)

    def lost(self, peer: str) -> None:
        """There is none any more."""
        self._metadata.lost(peer)
        self.led_sources.lost(peer)

    def refused(self, peer: str) -> None:
        """Nobody listens at its address: its process has ended, unless somebody between here and there says so."""
        self._refused.add(peer)

    def accepted(self, incoming: LeaderLink) -> None:
        """It has dialed this forwarder."""
        self._met(incoming.forwarder, incoming.incarnation)
        self._refused.discard(incoming.forwarder)
        self.copies.accepted(incoming)

    def left(self, incoming: LeaderLink) -> None:
        self.copies.left(incoming)

    def asked(self, incoming: LeaderLink, message: Message) -> None:
        """A message of one that has dialed."""
        self._heard_s[incoming.forwarder] = self._shell.now_s
        if isinstance(message, Heartbeat):
            self._metadata.heard(incoming.forwarder, message.revision)
        elif isinstance(message, Cut):
            self._metadata.heard(incoming.forwarder, message.frame.revision)
        self.copies.received(incoming, message)

    def answered(self, peer: str, message: Message) -> None:
        """A message over the connection that was dialed."""
        self._heard_s[peer] = self._shell.now_s
        if isinstance(message, Answered):
            self._metadata.heard(peer, message.revision)
            self.led_sources.answered(peer, message)
        elif isinstance(message, Would | Voted | Entries | Fetched):
            self.takeovers.received(peer, message)

    # The journal and the time

    def stored(self, index: int) -> None:
        """The transactions up to this one are on the own disk."""
        self.led_sources.stored(index)
        self.copies.stored()
        self.takeovers.stored()
        self.changes.stored()

    def unusable(self, replica: Replica, reason: str) -> None:
        """What a leader has sent of this source the disk cannot take, and has left out: here it is as the disk has
        it, and nothing more is taken from that leader in its epoch."""
        source, sent_by = replica.source, self.replicas[replica.source].vote
        self._shell.log("copy_unusable", source=source, leader=sent_by.forwarder, epoch=sent_by.epoch, reason=reason)
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
        self._metadata.beat()
        self.led_sources.beat()
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
            if self.copies.would_vote(record.source, self.name):
                self.takeovers.begin(record)

    def _spread(self) -> None:
        if self._spreading is None:
            return
        led, now_s = self.led_sources.sources, self._shell.now_s

        def has_all(member: str, source: int) -> bool:
            replica_set = led[source].replica_set
            return member == self.name or (
                member in replica_set.members and replica_set.has_all(member, source, now_s)
            )

        usable = [name for name in self.changes.members if name not in self.isolated]
        move = self._spreading.look(self.records, usable, self.changes.desired_sets, led.keys(), has_all, now_s)
        if move is not None:
            self.counters.sources_spread += 1
            self._shell.log("source_spread", source=move[0], to=move[1], sources=len(led))

    def _may_take(self, record: SourceRecord) -> bool:
        return (
            not self._leaves
            and record.source not in self._unreadable
            and record.counts(self.name, self.generation)
            and self.takeovers.may_begin(record.source)
            and record.source not in self.led_sources.sources
            and record.source not in self.changes.handing
            and self._has_links(record)
        )

    def _has_links(self, record: SourceRecord) -> bool:
        """To a majority of its members: without them nobody would answer, and it would be tried again and again."""
        linked = sum(name == self.name or name in self.led_sources.generations for name in record.members)
        return linked >= majority(len(record.members))

    def stops(self, source: int) -> bool:
        """Its queues stand still, to be handed over."""
        return self._leaves or self.changes.stops(source)

    def is_moving(self, source: int) -> bool:
        """Who leads it is decided within moments: it is handed over, or taken over, here. A process that is about to
        end sends its clients away, whatever they wait for."""
        record, led = self.records.get(source), self.led_sources
        mine = record is not None and record.leader.forwarder == self.name
        undecided = mine or source in self.takeovers or source in self.changes.handing
        return self._leaves or (undecided and source not in led.cut_off and source not in led.given_up)

    def stop_sources(self) -> None:
        """This process is about to end: nothing more comes into its queues or out of them, and what is under way is
        committed."""
        self._leaves = True
        for source, own in self.led_sources.sources.items():
            self._shell.stops(source)
            own.lane.force()
        self._stopped = self._journal.index

    @property
    def is_settled(self) -> bool:
        """What its sources had is committed."""
        return all(map(self._is_settled, self.led_sources.sources))

    def _is_settled(self, source: int) -> bool:
        own = self.led_sources.sources[source]
        return 0 < self._stopped <= own.replica_set.leader.committed_of(source)

    def leave(self) -> None:
        """This process is about to end: it is the leader of nothing, its peers know it, and so does the store: they
        need not wait until nothing is heard of it."""
        self._leaves = True
        records = []
        for source, own in list(self.led_sources.sources.items()):
            records.append(own.record)
            self.led_sources.end(source, HANDED_OVER, settled=self._is_settled(source))
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
            self.counters, self.led_sources, self.records.values(), self.name, self.generation, self._shell.now_s
        )

    def base_of(self, source: int) -> Position:
        """Up to where it is known here to be committed."""
        return self.replicas[source].log.base

    def _won(self, record: SourceRecord, before: Vote, own: OwnLog) -> str:
        """Why this is not its leader all the same; empty: it is."""
        if record.source in self._unreadable:
            return "the store's record cannot be read meanwhile"
        self.note_record(record)
        known = self.records[record.source]
        if known.leader != record.leader:
            # Somebody else was in the store before this was won: no later word would end this leader.
            return f"{known.leader} is in the store meanwhile"
        last = self.replicas[record.source].log.last
        if 0 < record.given_up >= last[0]:
            # The first take-over since. What a lost member had above that, committed or not, is in no log any more.
            self._shell.log(
                "majority_given_up",
                source=record.source,
                epoch_given_up=record.given_up,
                epoch=record.leader.epoch,
                survivors=list(record.members),
                goes_on_after=place_of(last),
                known_committed=place_of(self.base_of(record.source)),
            )
        # Somebody may have put the same again since, to be sure of it (`leftovers.py`): swaps are of that revision.
        self.led_sources.begin(known, own, self.copies.handed(record.source, last))
        if self._spreading is not None:
            desired_set = self.changes.desired_sets.get(record.source)
            desired = desired_set is not None and desired_set.leader == self.name
            self._spreading.took_over(record.source, was_led=before.epoch > 0, desired=desired)
        self.changes.took_over(record.source, before)
        return ""

    def _ended(self, source: int, won: bool) -> None:
        if not won:
            self._succession.failed(source, self._shell.now_s)
