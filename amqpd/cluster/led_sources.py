"""The sources that this forwarder leads.

What comes in: sources that were taken over; transactions of the journal, with what they have of these sources;
answers of peers. What goes out: messages to peers, writes for the own disk, lanes that report, sources that end.
Rules: 1. A source is served when the first entry of its epoch is committed: everything before it is, then. 2. An
entry goes to the own disk and to the peers at the same time; it counts here as it counts there: when it is stored.
3. A leader whose own replica has voted for another epoch appends nothing more. 4. What ends says so to its peers, so
that nobody waits for its leader lease to end. 5. A source whose set is another one goes to another lane, between two
transactions. What it had before is committed with its first entry there, and nothing of it is reported before that.
Not here: how a source is taken over (`takeovers.py`), which set it gets (`set_changes.py`), the peers' end
(`followed_sources.py`), what a confirm is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from amqpd.cluster.log_events import Counters, place_of
from amqpd.cluster.own_lane import LaneKey, OpenQuestions, Own, OwnLane, SourceLane
from amqpd.cluster.shell import OwnLog, Shell
from amqpd.cluster.watch import LaneWatch
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.numbers import Numbers
from amqpd.peers.entry import START
from amqpd.peers.messages import Answered, Cut, Ended, Filled, Heartbeat, Lacked, Opening, OpenLane, SnapshotPart
from amqpd.peers.versions import NAMES_REVISIONS, of_set
from amqpd.replication.catch_up import ResendCounts
from amqpd.replication.leader import KEPT_BYTES_MAX
from amqpd.replication.replica import Replicas, Write
from amqpd.replication.take_over import SourceRecord

LAG_BYTES_MAX = 2 * KEPT_BYTES_MAX
"""Of one lane, that are not committed, or kept for a peer that is away: half of it is that at most. Then publishers
of its sources wait: for a majority that does not answer, or is slower than the disk here. So do those of one source
that is left out and has so much by itself."""
LAGGING_BYTES_MAX = 4 * LAG_BYTES_MAX
"""Of all sources whose publishers wait, in memory. Then all publishers of this node do: several sets may be without a
majority, and what comes in without a publisher does not wait everywhere."""
UNADMITTED = -1
"""generation of a peer that nobody has heard of"""
HANDED_OVER = "handed over"
ADMITTED_S = 40.0
"""The store may never answer. Longer than a swap takes (`SWAP_S`); the same one twice does no harm."""

GIVES_UP_LEASES = 5
"""Lease times without an answer of a majority, after which a leader is none: ten seconds by default. A node that is
started again, or a network that is set up again, is back before that, and its clients need not connect again."""
TELLS_S = 1.0
"""Clients that begin to wait while a leader is cut off are told within this time."""


class LedSources:
    """The sources that one node leads, with the lanes over which their replica sets answer."""

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
        self._watch = LaneWatch(shell, name, counters)
        self._journal = journal
        self._replicas = replicas
        self._lease_s = lease_s
        self._on_report = on_report
        self.sources: dict[int, Own] = {}
        self.sent = ResendCounts()
        """to all peers, also in lanes that are forgotten"""
        self.lanes: dict[LaneKey, OwnLane] = {}
        self._by_number: dict[int, OwnLane] = {}
        self._numbers = 0
        """how many lanes there were"""
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

    def begin(self, record: SourceRecord, own: OwnLog) -> None:
        """This forwarder has taken it over, and `own` is what its disk has of it by now."""
        source, vote = record.source, record.leader
        if self._replicas[source].vote != vote:
            return  # another one was voted for meanwhile
        if source in self.sources:
            self.end(source, "this leader has taken it over again")
        lane = self._lane_of((record.members, ()))
        self.given_up.discard(source)
        waits = SourceLane(source, self._journal.index, self._journal.force, self._asked)
        self.sources[source] = Own(vote, record, lane, waits, begun_s=self._shell.now_s)
        log = self._replicas[source].log
        uncounted = [peer for peer in lane.leader.peers if not self._counts(record, peer)]
        opening = lane.leader.begin(source, vote.epoch, log.base, [*own.tail], uncounted)
        for peer in lane.leader.peers:
            self._open(lane, peer, opening)
        # The first entry of the epoch reserves numbers: none that an earlier leader gave is given again.
        self._journal.lead(source, vote.epoch, Numbers(own.reserved, own.reserved), waits)

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
        own.lane.leader.end(source)
        own.lane.open.discard(source)
        self._lags_no_more(own)
        self._journal.leave(source)
        for peer in own.lane.leader.peers:
            self._shell.send(peer, Ended(own.lane.number, source, own.vote.epoch))
        if not settled:
            self._shell.ended(source, own.waits)
        self._forget_unused(own.lane)
        if own.waits.ends(lost=not settled):
            self._on_report(own.waits)

    @property
    def between(self) -> bool:
        """No transaction is on its way to the disk: what was cut is in the lanes, and nothing else."""
        return self._journal.stored_index == self._journal.index - 1

    def move(self, source: int, key: LaneKey) -> None:
        """It has this set, or learner, from now on. Called `between` two transactions, while it serves, and when an
        earlier move is settled (`Own.moved`)."""
        own, index = self.sources[source], self._journal.index
        before, lane = own.lane, self._lane_of(key)
        tail = before.leader.release(source)
        before.open.discard(source)
        self._lags_no_more(own)
        own.lane, own.moved = lane, index
        uncounted = [peer for peer in lane.leader.peers if not self._counts(own.record, peer)]
        opening = lane.leader.adopt(source, tail, index, uncounted)
        lane.open.add(source)
        for peer in lane.leader.peers:
            self._open(lane, peer, opening)
        for peer in before.leader.peers:
            # A peer of both lanes has left the old one with the opening of the new one.
            if not lane.has(peer):
                self._shell.send(peer, Ended(before.number, source, own.vote.epoch))
        self._journal.move(source)
        self._forget_unused(before)

    def record_is(self, source: int, record: SourceRecord) -> None:
        """The store has this one, of the same leader."""
        own = self.sources[source]
        if record.revision > own.record.revision:
            own.record, own.known_at = record, self._journal.index
            if own.lane.learners:
                own.waits.force()

    def _lane_of(self, key: LaneKey) -> OwnLane:
        lane = self.lanes.get(key)
        if lane is None:
            self._numbers += 1
            number, index = self._numbers, self._journal.index - 1
            lane = self.lanes[key] = OwnLane(number, key, index, self._lease_s, self.sent)
            lane.leader.stored = lane.leader.committed = index
            lane.version = self._version_of(lane)
            self._by_number[number] = lane
            for peer in self.generations:
                if lane.has(peer):
                    self._connect(lane, peer)
        return lane

    def _forget_unused(self, lane: OwnLane) -> None:
        """It has no source."""
        if not lane.leader.sources and self.lanes.get(lane.key) is lane:
            del self.lanes[lane.key], self._by_number[lane.number]

    @property
    def now_s(self) -> float:
        """On the clock that lanes know their peers' answers by."""
        return self._shell.now_s

    def holds_lease(self, source: int) -> bool:
        """It may deliver to those who must be the only ones."""
        own = self.sources.get(source)
        if own is None or self._replicas[source].vote != own.vote:
            return False  # without the own word the others' are no majority
        return own.lane.leader_lease.holds(self._shell.now_s, own.lane.leader.uncounted_at(source))

    # Connections

    def dialed(self, peer: str, generation: int, version: int) -> None:
        """There is a new connection to it, over which this version of the messages is used."""
        self.generations[peer] = generation
        if self._versions.get(peer) != version:
            self._speaks(peer, version)
        for lane in self.lanes.values():
            if lane.has(peer):
                self._connect(lane, peer)

    def lost(self, peer: str) -> None:
        """There is none any more."""
        self.generations.pop(peer, None)
        self.contradicting = {each for each in self.contradicting if each[0] != peer}
        for lane in list(self.lanes.values()):
            if lane.has(peer):
                lane.lost(peer)
                self._look(lane)

    def _speaks(self, peer: str, version: int) -> None:
        """From the next frame on each of its sets is written to in what all of its members read."""
        self._versions[peer] = version
        for lane in self.lanes.values():
            before, lane.version = lane.version, self._version_of(lane)
            if lane.version != before:
                self._shell.log("set_version", members=list(lane.members), version=lane.version, was=before)

    def _version_of(self, lane: OwnLane) -> int:
        return of_set((each for each in (*lane.members, *lane.learners) if each != self._name), self._versions)

    def _connect(self, lane: OwnLane, peer: str) -> None:
        lane.questions[peer] = OpenQuestions()
        mine = [source for source, own in self.sources.items() if own.lane is lane]
        uncounted = [source for source in mine if not self._counts(self.sources[source].record, peer)]
        self._open(lane, peer, lane.leader.open(peer, uncounted))

    def _open(self, lane: OwnLane, peer: str, opening: Opening) -> None:
        self._shell.send(peer, OpenLane(lane.number, self._asks(lane, peer), opening))

    def _asks(self, lane: OwnLane, peer: str) -> int:
        return lane.questions[peer].ask(self._shell.now_s)

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
            of.setdefault(own.lane.number, {})[source] = payload
        for source in list(self._asked):
            own = self.sources.get(source)
            waited = own is not None and own.waits.cut(index)
            if own is None or not own.waits.first_asked:
                self._asked.discard(source)
            if own is not None and waited:
                of.setdefault(own.lane.number, {})
                own.lane.open.add(source)
        for lane in self.lanes.values():
            if lane.number in of:
                self._cut(lane, index, of[lane.number], writes)
        return writes

    def _cut(self, lane: OwnLane, index: int, payloads: Mapping[int, bytes], writes: list[Write]) -> None:
        revision = self._shell.heard_revision if lane.version >= NAMES_REVISIONS else 0
        frame = lane.leader.cut(index, payloads, revision)
        for entry in frame.entries:
            self._replicas[entry.source].take(self.sources[entry.source].vote, entry, writes)
            lane.open.add(entry.source)
        self._look_at_lag(lane)
        for peer in lane.leader.peers:
            self._shell.send(peer, Cut(lane.number, self._asks(lane, peer), frame))

    def stored(self, index: int) -> None:
        """The transactions up to this one are on the own disk."""
        for lane in list(self.lanes.values()):
            lane.leader.is_stored(min(index, lane.leader.number))
            self._look(lane)

    # Answers

    def answered(self, peer: str, message: Answered) -> None:
        """Over the connection that is open."""
        lane = self._by_number.get(message.lane)
        if lane is None or peer not in lane.questions:
            return
        if message.answer.number > lane.leader.number:
            return  # nobody has what was not sent
        lane.answered(peer, message.question)
        self.contradicting -= {(peer, source) for source in lane.leader.sources}
        if message.answer.contradicted:
            self._counters.replicas_contradicted += 1
            self.contradicting |= {(peer, source) for source in message.answer.contradicted}
            self._shell.log("replica_contradicts", peer=peer, sources=sorted(message.answer.contradicted))
        missed, behind = lane.leader.answered(peer, message.answer)
        for each in missed:
            self._shell.send(peer, Lacked(lane.number, self._asks(lane, peer), each))
        self._look(lane)
        for source in behind:
            if source in self.sources:
                self._send_state(lane, peer, source)
        self._admit(lane, peer)

    def _send_state(self, lane: OwnLane, peer: str, source: int) -> None:
        base = self._replicas[source].log.base  # as `_look` has just committed it
        transfer = lane.leader.sends_state(peer, source, base)
        after = self.sources[source].record.trusted(lane.leader.peers[peer].bases.get(source, START))
        questions = lane.questions[peer]
        self._shell.log("peer_is_sent_state", peer=peer, source=source, after=place_of(after), base=place_of(base))

        def sends(state: SnapshotPart) -> bool:
            if lane.questions.get(peer) is not questions or not lane.leader.sends(peer, source, transfer):
                self._shell.log("state_given_up", peer=peer, source=source)
                return False  # another connection, or of no use any more
            self._counters.state_bytes_sent += len(state.part)
            self._shell.send(peer, Filled(lane.number, self._asks(lane, peer), state))
            return True

        def failed() -> None:
            if lane.questions.get(peer) is questions:
                lane.leader.state_failed(peer, source, transfer)

        self._shell.read_state(peer, SnapshotPart(source, transfer, base, b"", True, False, after), sends, failed)

    def _admit(self, lane: OwnLane, peer: str) -> None:
        """Sources that the peer has all of, on a disk that the record does not name. A learner is no member yet
        (`set_changes.py`)."""
        if peer in lane.learners:
            return
        for source in lane.leader.admissible(peer):
            own, generation = self.sources[source], self.generations[peer]
            now_s = self._shell.now_s
            if self._admitting.get((peer, source), now_s) > now_s:
                continue
            self._admitting[peer, source] = now_s + ADMITTED_S
            asked = own.record.admitted(peer, generation)

            def answered(
                record: SourceRecord | None, source: int = source, own: Own = own, generation: int = generation
            ) -> None:
                self._admitting.pop((peer, source), None)
                if record is None or self.sources.get(source) is not own:
                    return
                self.record_is(source, record)
                if self.generations.get(peer) == generation and peer in lane.leader.peers:
                    self._counters.disks_admitted += 1
                    self._shell.log("disk_admitted", peer=peer, source=source)
                    lane.leader.admit(peer, source)
                    self._look(lane)

            self._shell.swap(asked, answered)

    def beat(self) -> None:
        """Now and then: what is committed is told where no frame has told it, and a peer that lives says so."""
        for lane in self.lanes.values():
            for peer in lane.leader.peers:
                asks, committed = self._asks(lane, peer), lane.leader.committed
                self._shell.send(peer, Heartbeat(lane.number, asks, committed, self._shell.heard_revision))
        self._watch.look(self.lanes.values())
        self._look_at_majorities()

    def _look_at_majorities(self) -> None:
        """A leader that no majority answers may be cut off, and another one be there: clients are told, then it gives
        up. When a majority answers again, it is the leader again if nobody else is."""
        before, now_s = self.cut_off, self._shell.now_s
        self.cut_off = {}
        for lane in list(self.lanes.values()):
            lost_s = self._watch.lost_for_s(lane)
            if lost_s >= GIVES_UP_LEASES * self._lease_s:
                self.given_up.update(lane.leader.sources)
                for source in list(lane.leader.sources):
                    self.end(source, f"no majority of its nodes has answered for {lost_s:.0f} s")
            elif lost_s >= self._lease_s / 2:
                self.cut_off |= {source: self.sources[source].waits for source in lane.leader.sources}
                self._look_at_lag(lane)
            elif any(source in before for source in lane.leader.sources):
                self._look_at_lag(lane)
        if (self.cut_off and self._told_cut_off_s + TELLS_S <= now_s) or self.cut_off.keys() != before.keys():
            self._told_cut_off_s = now_s
            self._shell.cut_off(list(self.cut_off.values()))

    def _look_at_lag(self, lane: OwnLane) -> None:
        leader = lane.leader
        much = leader.open_bytes > LAG_BYTES_MAX or any(source in self.cut_off for source in leader.sources)
        for source in list(leader.sources if much or lane.lagging else lane.open):
            lags = much or leader.open_bytes_of(source) > LAG_BYTES_MAX
            self.sources[source].waits.lagging = lags
            (lane.lagging.add if lags else lane.lagging.discard)(source)
        self._tell_lag()

    def _lags_no_more(self, own: Own) -> None:
        """It leaves its lane."""
        own.waits.lagging = False
        own.lane.lagging.discard(own.record.source)
        self._tell_lag()

    def _tell_lag(self) -> None:
        lagging = [each for each in self.lanes.values() if each.lagging]
        self._journal.lagging = bool(lagging)
        nbytes = sum(each.leader.open_bytes_of(source) for each in lagging for source in each.lagging)
        self._journal.overfull = nbytes > LAGGING_BYTES_MAX

    def _look(self, lane: OwnLane) -> None:
        """What is committed by now, and whose leader this is not any more."""
        if lane.number not in self._by_number:
            return  # it was forgotten meanwhile
        self._look_at_lag(lane)
        leader = lane.leader
        for source in list(leader.fenced):
            if source in self.sources:
                self.end(source, f"epoch {leader.fenced[source]} is voted for at a peer")
        reports: list[SourceLane] = []
        for source in list(lane.open):
            own, log = self.sources[source], self._replicas[source].log
            committed = leader.committed_of(source)
            before, base = log.base, log.commit((own.vote.epoch, committed))
            if base == log.last and committed >= own.waits.forced:
                lane.open.discard(source)
            if base != before:
                self._journal.is_committed(source, base)
                self._journal.source_committed(source, base[1])
            if not own.serving and own.first and committed >= own.first:
                own.serving = True
                self._shell.served(source)
            if own.moved and committed >= own.moved:
                own.moved = 0
            if committed > own.waits.reported:
                own.waits.reported = committed
                reports.append(own.waits)
        # What waits for several of them is looked at once, when all have said how far they are.
        for waits in reports:
            self._on_report(waits)
