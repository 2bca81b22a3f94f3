"""The sources that this forwarder leads.

What comes in: sources that were taken over; transactions of the journal, with what they have of these sources;
answers of peers. What goes out: messages to peers, writes for the own disk, lanes that report, sources that end.
Rules: 1. A source is served when the first entry of its epoch is committed: everything before it is, then. 2. An
entry goes to the own disk and to the peers at the same time; it counts here as it counts there: when it is stored.
3. A leader whose own replica has voted for another epoch appends nothing more. 4. What ends says so to its peers, so
that nobody waits for its leader lease to end. 5. A source whose set is another one goes to another replica set,
between two transactions. What it had before is committed with its first entry there, and nothing of it is reported
before that.
Not here: how a source is taken over (`takeovers.py`), which set it gets (`set_changes.py`), the peers' end
(`followed_sources.py`), what a confirm is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from amqpd.cluster.led_replica_set import LedReplicaSet, OpenQuestions, ReplicaSetKey, SourceLane, SourceLeadership
from amqpd.cluster.log_events import Counters, place_of
from amqpd.cluster.shell import OwnLog, Shell
from amqpd.cluster.watch import ReplicaSetWatch
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.numbers import Numbers
from amqpd.peers.entry import START
from amqpd.peers.messages import (
    Answered,
    Cut,
    Ended,
    Filled,
    HandedSessions,
    Heartbeat,
    Lacked,
    Opening,
    OpenReplicaSet,
    SnapshotPart,
)
from amqpd.peers.versions import HAS_DATA_LINKS, LOWEST, NAMES_REVISIONS, of_set
from amqpd.replication.catch_up import ResendCounts
from amqpd.replication.leader import KEPT_BYTES_MAX
from amqpd.replication.replica import Replicas, Write
from amqpd.replication.take_over import SourceRecord

LAG_BYTES_MAX = 2 * KEPT_BYTES_MAX
"""Of one replica set, that are not committed, or kept for a peer that is away: half of it is that at most. Then
publishers of its sources wait: for a majority that does not answer, or is slower than the disk here. So do those of
one source that is left out and has so much by itself."""
LAGGING_BYTES_MAX = 4 * LAG_BYTES_MAX
"""Of all sources whose publishers wait, in memory. Then all publishers of this node do: several sets may be without a
majority, and what comes in without a publisher does not wait everywhere."""
UNADMITTED = -1
"""generation of a peer that nobody has heard of"""
HANDED_OVER = "handed over"
ADMITTED_S = 40.0
"""The store may never answer. Longer than a swap takes (`SWAP_S`); the same one twice does no harm."""

CUT_OFF_LEASES = 0.5
"""Lease times after which clients are told that no majority answers, counted from the loss of the leader lease, so
1.5 lease times after the last answers: three seconds by default."""
GIVES_UP_LEASES = 5
"""Lease times, counted from the same moment, after which a leader is none: twelve seconds after the last answers by
default. A node that is started again, or a network that is set up again, is back before that, and its clients need
not connect again."""
TELLS_S = 1.0
"""Clients that begin to wait while a leader is cut off are told within this time."""


class LedSources:
    """The sources that one node leads, and the replica sets that keep them."""

    def __init__(
        self,
        shell: Shell,
        journal: JournalBuffer,
        replicas: Replicas,
        lease_s: float,
        on_report: Callable[[SourceLane], None],
        name: str,
        counters: Counters,
    ) -> None:
        """`name`: of this forwarder."""
        self._shell = shell
        self._name = name
        self._counters = counters
        self._watch = ReplicaSetWatch(shell, name, counters)
        self._journal = journal
        self._replicas = replicas
        self._lease_s = lease_s
        self._on_report = on_report
        self.sources: dict[int, SourceLeadership] = {}
        self.sent = ResendCounts()
        """to all peers, also in replica sets that are forgotten"""
        self.replica_sets: dict[ReplicaSetKey, LedReplicaSet] = {}
        self._by_number: dict[int, LedReplicaSet] = {}
        self._numbers = 0
        """how many replica sets there were"""
        self._asked: set[int] = set()
        """sources of which somebody waits for a transaction that is not cut yet"""
        self.contradicting: set[tuple[str, int]] = set()
        """peers and sources of which they have something else committed, over connections that are open"""
        self.generations: dict[str, int] = {}
        """of the disks of peers, as they said over the connections that are open"""
        self._versions: dict[str, int] = {}
        """of the messages, the highest that each peer speaks, as it said over its last link"""
        self._admitting: dict[tuple[str, int], float] = {}
        """peers and sources of which the store is asked to name the disk, and until when its answer is waited for"""
        self.cut_off: dict[int, SourceLane] = {}
        """sources of which no majority answers: their clients are told"""
        self.given_up: set[int] = set()
        """sources that were, for too long, until somebody is their leader again"""
        self._told_cut_off_s = 0.0

    # What ends and begins

    def begin(self, record: SourceRecord, own: OwnLog, handed: bytes = b"") -> None:
        """This forwarder has taken it over, and `own` is what its disk has of it by now. `handed`: what the leader
        before has passed (`HandedSessions`)."""
        source, vote = record.source, record.leader
        if self._replicas[source].vote != vote:
            return  # another one was voted for meanwhile
        if source in self.sources:
            self.end(source, "this leader has taken it over again")
        replica_set = self._replica_set_of((record.members, ()))
        self.given_up.discard(source)
        lane = SourceLane(source, self._journal.index, self._journal.force, self._asked)
        self.sources[source] = SourceLeadership(
            vote, record, replica_set, lane, begun_s=self._shell.now_s, handed=handed
        )
        log = self._replicas[source].log
        uncounted = [peer for peer in replica_set.leader.peers if not self._counts(record, peer)]
        opening = replica_set.leader.begin(source, vote.epoch, log.base, [*own.tail], uncounted)
        for peer in replica_set.leader.peers:
            self._open(replica_set, peer, opening)
        # The first entry of the epoch reserves numbers: none that an earlier leader gave is given again.
        self._journal.lead(source, vote.epoch, Numbers(own.reserved, own.reserved), lane)

    def end(self, source: int, reason: str, to: str = "", *, settled: bool = False) -> None:
        """It is the leader no more: `HANDED_OVER`, or why not. `to`: the next leader, if it is known. `settled`: all
        that was handed in is committed, and its queues were stopped before: nobody waits for anything of it."""
        own = self.sources.pop(source)
        if reason == HANDED_OVER:
            self._counters.hand_overs += 1
            self._shell.log("source_handed_over", source=source, epoch=own.vote.epoch)
        else:
            self._counters.sources_lost += 1
            self._shell.log("source_lost", source=source, epoch=own.vote.epoch, to=to, reason=reason)
        own.replica_set.leader.end(source)
        own.replica_set.open.discard(source)
        self._lags_no_more(own)
        self._journal.leave(source)
        self._hand(own, settled=settled)
        for peer in own.replica_set.leader.peers:
            self._shell.send(peer, Ended(own.replica_set.number, source, own.vote.epoch))
        if not settled:
            self._shell.ended(source, own.lane)
        self._forget_unused(own.replica_set)
        if own.lane.ends(lost=not settled):
            self._on_report(own.lane)

    def _hand(self, own: SourceLeadership, *, settled: bool) -> None:
        """In front of `Ended`: who takes it over has what its sessions pass on."""
        source, peers = own.record.source, own.replica_set.leader.peers
        handed = self._shell.handed_sessions(source)
        if handed and settled:
            message = HandedSessions(source, self._replicas[source].log.last, (handed,))
            for peer in peers:
                if self._versions.get(peer, LOWEST) >= HAS_DATA_LINKS:
                    self._shell.send(peer, message)

    @property
    def between(self) -> bool:
        """No transaction is on its way to the disk: what was cut is in the replica sets, and nothing else."""
        return self._journal.stored_index == self._journal.index - 1

    def move(self, source: int, key: ReplicaSetKey) -> None:
        """It has this set, or learner, from now on. Called `between` two transactions, while it serves, and when an
        earlier move is settled (`SourceLeadership.moved`)."""
        own, index = self.sources[source], self._journal.index
        before, replica_set = own.replica_set, self._replica_set_of(key)
        tail = before.leader.release(source)
        before.open.discard(source)
        self._lags_no_more(own)
        own.replica_set, own.moved = replica_set, index
        uncounted = [peer for peer in replica_set.leader.peers if not self._counts(own.record, peer)]
        opening = replica_set.leader.adopt(source, tail, index, uncounted)
        replica_set.open.add(source)
        for peer in replica_set.leader.peers:
            self._open(replica_set, peer, opening)
        for peer in before.leader.peers:
            # A peer of both replica sets has left the old one with the opening of the new one.
            if not replica_set.has(peer):
                self._shell.send(peer, Ended(before.number, source, own.vote.epoch))
        self._journal.move(source)
        self._forget_unused(before)

    def note_record(self, source: int, record: SourceRecord) -> None:
        """The store has this one, of the same leader."""
        own = self.sources[source]
        if record.revision > own.record.revision:
            own.record, own.known_at = record, self._journal.index
            if own.replica_set.learners:
                own.lane.force()

    def _replica_set_of(self, key: ReplicaSetKey) -> LedReplicaSet:
        replica_set = self.replica_sets.get(key)
        if replica_set is None:
            self._numbers += 1
            number, index = self._numbers, self._journal.index - 1
            replica_set = self.replica_sets[key] = LedReplicaSet(number, key, index, self._lease_s, self.sent)
            replica_set.leader.stored = replica_set.leader.committed = index
            replica_set.version = self._version_of(replica_set)
            self._by_number[number] = replica_set
            for peer in self.generations:
                if replica_set.has(peer):
                    self._connect(replica_set, peer)
        return replica_set

    def _forget_unused(self, replica_set: LedReplicaSet) -> None:
        """It has no source."""
        if not replica_set.leader.sources and self.replica_sets.get(replica_set.key) is replica_set:
            del self.replica_sets[replica_set.key], self._by_number[replica_set.number]

    @property
    def now_s(self) -> float:
        """On the clock that replica sets know their peers' answers by."""
        return self._shell.now_s

    def holds_lease(self, source: int) -> bool:
        """It may deliver to those who must be the only ones."""
        own = self.sources.get(source)
        if own is None or self._replicas[source].vote != own.vote:
            return False  # without the own word the others' are no majority
        return own.replica_set.leader_lease.holds(self._shell.now_s, own.replica_set.leader.uncounted_at(source))

    # Connections

    def dialed(self, peer: str, generation: int, version: int) -> None:
        """There is a new connection to it, over which this version of the messages is used."""
        self.generations[peer] = generation
        if self._versions.get(peer) != version:
            self._speaks(peer, version)
        for replica_set in self.replica_sets.values():
            if replica_set.has(peer):
                self._connect(replica_set, peer)

    def lost(self, peer: str) -> None:
        """There is none any more."""
        self.generations.pop(peer, None)
        self.contradicting = {each for each in self.contradicting if each[0] != peer}
        for replica_set in list(self.replica_sets.values()):
            if replica_set.has(peer):
                replica_set.lost(peer)
                self._look(replica_set)

    def _speaks(self, peer: str, version: int) -> None:
        """From the next frame on each of its sets is written to in what all of its members read."""
        self._versions[peer] = version
        for replica_set in self.replica_sets.values():
            before, replica_set.version = replica_set.version, self._version_of(replica_set)
            if replica_set.version != before:
                self._shell.log(
                    "set_version", members=list(replica_set.members), version=replica_set.version, was=before
                )

    def _version_of(self, replica_set: LedReplicaSet) -> int:
        return of_set(
            (each for each in (*replica_set.members, *replica_set.learners) if each != self._name), self._versions
        )

    def _connect(self, replica_set: LedReplicaSet, peer: str) -> None:
        replica_set.questions[peer] = OpenQuestions()
        mine = [source for source, own in self.sources.items() if own.replica_set is replica_set]
        uncounted = [source for source in mine if not self._counts(self.sources[source].record, peer)]
        self._open(replica_set, peer, replica_set.leader.open(peer, uncounted))

    def _open(self, replica_set: LedReplicaSet, peer: str, opening: Opening) -> None:
        self._shell.send(peer, OpenReplicaSet(replica_set.number, self._asks(replica_set, peer), opening))

    def _asks(self, replica_set: LedReplicaSet, peer: str) -> int:
        return replica_set.questions[peer].ask(self._shell.now_s)

    def _counts(self, record: SourceRecord, peer: str) -> bool:
        return record.counts(peer, self.generations.get(peer, UNADMITTED))

    # Transactions

    def cut(self, index: int, payloads: Mapping[int, bytes]) -> list[Write]:
        """What the transaction with this index of the journal has of these sources: on its way to the peers when this
        returns. For the own disk."""
        writes: list[Write] = []
        of: dict[int, dict[int, bytes]] = {}
        for source, payload in payloads.items():
            own = self.sources.get(source)
            if own is None:
                continue
            if self._replicas[source].vote != own.vote:
                voted = self._replicas[source].vote
                self.end(source, f"epoch {voted.epoch} is voted for here", voted.forwarder)
                continue
            own.first = own.first or index
            of.setdefault(own.replica_set.number, {})[source] = payload
        for source in list(self._asked):
            own = self.sources.get(source)
            waited = own is not None and own.lane.cut(index)
            if own is None or not own.lane.first_asked:
                self._asked.discard(source)
            if own is not None and waited:
                of.setdefault(own.replica_set.number, {})
                own.replica_set.open.add(source)
        for replica_set in self.replica_sets.values():
            if replica_set.number in of:
                self._cut(replica_set, index, of[replica_set.number], writes)
        return writes

    def _cut(
        self, replica_set: LedReplicaSet, index: int, payloads: Mapping[int, bytes], writes: list[Write]
    ) -> None:
        revision = self._shell.heard_revision if replica_set.version >= NAMES_REVISIONS else 0
        frame = replica_set.leader.cut(index, payloads, revision)
        for entry in frame.entries:
            self._replicas[entry.source].take(self.sources[entry.source].vote, entry, writes)
            replica_set.open.add(entry.source)
        self._look_at_lag(replica_set)
        for peer in replica_set.leader.peers:
            self._shell.send(peer, Cut(replica_set.number, self._asks(replica_set, peer), frame))

    def stored(self, index: int) -> None:
        """The transactions up to this one are on the own disk."""
        for replica_set in list(self.replica_sets.values()):
            replica_set.leader.note_stored(min(index, replica_set.leader.number))
            self._look(replica_set)

    # Answers

    def answered(self, peer: str, message: Answered) -> None:
        """Over the connection that is open."""
        replica_set = self._by_number.get(message.replica_set)
        if replica_set is None or peer not in replica_set.questions:
            return
        if message.answer.number > replica_set.leader.number:
            return  # nobody has what was not sent
        replica_set.answered(peer, message.question)
        self.contradicting -= {(peer, source) for source in replica_set.leader.sources}
        if message.answer.contradicted:
            self._counters.replicas_contradicted += 1
            self.contradicting |= {(peer, source) for source in message.answer.contradicted}
            self._shell.log("replica_contradicts", peer=peer, sources=sorted(message.answer.contradicted))
        missed, behind = replica_set.leader.answered(peer, message.answer)
        for each in missed:
            self._shell.send(peer, Lacked(replica_set.number, self._asks(replica_set, peer), each))
        self._look(replica_set)
        for source in behind:
            if source in self.sources:
                self._send_state(replica_set, peer, source)
        self._admit(replica_set, peer)

    def _send_state(self, replica_set: LedReplicaSet, peer: str, source: int) -> None:
        base = self._replicas[source].log.base  # as `_look` has just committed it
        transfer = replica_set.leader.sends_state(peer, source, base)
        after = self.sources[source].record.trusted(replica_set.leader.peers[peer].bases.get(source, START))
        questions = replica_set.questions[peer]
        self._shell.log("peer_is_sent_state", peer=peer, source=source, after=place_of(after), base=place_of(base))

        def sends(state: SnapshotPart) -> bool:
            if replica_set.questions.get(peer) is not questions or not replica_set.leader.sends(
                peer, source, transfer
            ):
                self._shell.log("state_given_up", peer=peer, source=source)
                return False  # another connection, or of no use any more
            self._counters.state_bytes_sent += len(state.part)
            self._shell.send(peer, Filled(replica_set.number, self._asks(replica_set, peer), state))
            return True

        def failed() -> None:
            if replica_set.questions.get(peer) is questions:
                replica_set.leader.state_failed(peer, source, transfer)

        self._shell.read_state(peer, SnapshotPart(source, transfer, base, b"", True, False, after), sends, failed)

    def _admit(self, replica_set: LedReplicaSet, peer: str) -> None:
        """Sources that the peer has all of, on a disk that the record does not name. A learner is no member yet
        (`set_changes.py`)."""
        if peer in replica_set.learners:
            return
        for source in replica_set.leader.admissible(peer):
            own, generation = self.sources[source], self.generations[peer]
            now_s = self._shell.now_s
            if self._admitting.get((peer, source), now_s) > now_s:
                continue
            self._admitting[peer, source] = now_s + ADMITTED_S
            asked = own.record.admitted(peer, generation)

            def answered(
                record: SourceRecord | None,
                source: int = source,
                own: SourceLeadership = own,
                generation: int = generation,
            ) -> None:
                self._admitting.pop((peer, source), None)
                if record is None or self.sources.get(source) is not own:
                    return
                self.note_record(source, record)
                if self.generations.get(peer) == generation and peer in replica_set.leader.peers:
                    self._counters.disks_admitted += 1
                    self._shell.log("disk_admitted", peer=peer, source=source)
                    replica_set.leader.admit(peer, source)
                    self._look(replica_set)

            self._shell.swap(asked, answered)

    def beat(self) -> None:
        """Now and then: what is committed is told where no frame has told it, and a peer that lives says so."""
        for replica_set in self.replica_sets.values():
            for peer in replica_set.leader.peers:
                asks, committed = self._asks(replica_set, peer), replica_set.leader.committed
                self._shell.send(peer, Heartbeat(replica_set.number, asks, committed, self._shell.heard_revision))
        self._watch.look(self.replica_sets.values())
        self._look_at_majorities()

    def _look_at_majorities(self) -> None:
        """A leader that no majority answers may be cut off, and another one be there: clients are told, then it gives
        up. When a majority answers again, it is the leader again if nobody else is."""
        before, now_s = self.cut_off, self._shell.now_s
        self.cut_off = {}
        for replica_set in list(self.replica_sets.values()):
            lost_s = self._watch.lost_for_s(replica_set)
            if lost_s >= GIVES_UP_LEASES * self._lease_s:
                self.given_up.update(replica_set.leader.sources)
                for source in list(replica_set.leader.sources):
                    self.end(source, f"no majority of its nodes has answered for {lost_s + self._lease_s:.0f} s")
            elif lost_s >= CUT_OFF_LEASES * self._lease_s:
                self.cut_off |= {source: self.sources[source].lane for source in replica_set.leader.sources}
                self._look_at_lag(replica_set)
            elif any(source in before for source in replica_set.leader.sources):
                self._look_at_lag(replica_set)
        if (self.cut_off and self._told_cut_off_s + TELLS_S <= now_s) or self.cut_off.keys() != before.keys():
            self._told_cut_off_s = now_s
            self._shell.cut_off(list(self.cut_off.values()))

    def _look_at_lag(self, replica_set: LedReplicaSet) -> None:
        leader = replica_set.leader
        much = leader.open_bytes > LAG_BYTES_MAX or any(source in self.cut_off for source in leader.sources)
        for source in list(leader.sources if much or replica_set.lagging else replica_set.open):
            lags = much or leader.open_bytes_of(source) > LAG_BYTES_MAX
            self.sources[source].lane.lagging = lags
            (replica_set.lagging.add if lags else replica_set.lagging.discard)(source)
        self._tell_lag()

    def _lags_no_more(self, own: SourceLeadership) -> None:
        """It leaves its replica set."""
        own.lane.lagging = False
        own.replica_set.lagging.discard(own.record.source)
        self._tell_lag()

    def _tell_lag(self) -> None:
        lagging = [each for each in self.replica_sets.values() if each.lagging]
        self._journal.lagging = bool(lagging)
        nbytes = sum(each.leader.open_bytes_of(source) for each in lagging for source in each.lagging)
        self._journal.overfull = nbytes > LAGGING_BYTES_MAX

    def _look(self, replica_set: LedReplicaSet) -> None:
        """What is committed by now, and whose leader this is not any more."""
        if replica_set.number not in self._by_number:
            return  # it was forgotten meanwhile
        self._look_at_lag(replica_set)
        leader = replica_set.leader
        for source in list(leader.fenced):
            if source in self.sources:
                self.end(source, f"epoch {leader.fenced[source]} is voted for at a peer")
        reports: list[SourceLane] = []
        for source in list(replica_set.open):
            own, log = self.sources[source], self._replicas[source].log
            committed = leader.committed_of(source)
            before, base = log.base, log.commit((own.vote.epoch, committed))
            if base == log.last and committed >= own.lane.forced:
                replica_set.open.discard(source)
            if base != before:
                self._journal.note_committed(source, base)
                self._journal.source_committed(source, base[1])
            if not own.serving and own.first and committed >= own.first:
                own.serving = True
                self._shell.served(source)
            if own.moved and committed >= own.moved:
                own.moved = 0
            if committed > own.lane.reported:
                own.lane.reported = committed
                reports.append(own.lane)
        # What waits for several of them is looked at once, when all have said how far they are.
        for lane in reports:
            self._on_report(lane)
