"""The end of a replica set at a peer: takes in what a leader sends over one connection.

What comes in: the opening of the replica set, frames, and entries that were missing. What goes out: for each, what to
write, and an answer that is sent when that is written.
Rules: 1. Frames are taken one after the other; the answer is the number of the last one. 2. Each source matches by
itself: one that does not is left out, and the answer says so; everything else of the frame counts. 3. A source is in
line again when it has all that frames of this replica set had of it. 4. A source whose leader the sender is not any
more is `fenced`, and everything else goes on.
Not here: how the leader makes up for what is missing (`leader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from amqpd.peers.entry import BrokenConnection, Frame, LogEntry, Position, Vote
from amqpd.peers.messages import Acknowledgement, Opening, SnapshotPart
from amqpd.replication.log import Log, Match
from amqpd.replication.replica import Contradiction, Replica, Replicas, StaleLeader, Write


@dataclass(slots=True)
class _Gap:
    wanted: Position
    """the last entry that was seen of it; START when that is everything"""
    nearest: Position


class Receiver:
    """The peer's end of one replica set over one connection."""

    def __init__(self, forwarder: str, incarnation: int, replicas: Replicas) -> None:
        self._forwarder = forwarder
        self._incarnation = incarnation
        self._replicas = replicas
        self._leaders: dict[int, Vote] = {}
        """of the sources of the replica set"""
        self._number = self._committed = self._passed = 0
        self._left_out: frozenset[int] = frozenset()
        """sources of which what is above `_committed` does not count, although frames up to `_passed` do"""
        self._since: dict[int, int] = {}
        """of the sources: the first frame that says something of them"""
        self._gaps: dict[int, _Gap] = {}
        self._fenced: dict[int, Vote] = {}
        self._contradicted: set[int] = set()
        self._staging: dict[int, Log | None] = {}
        """sources that are caught up by state over this connection, with what is staged: another connection of the
        leader may begin with it again, and what comes late over this one is not to be mixed in"""
        self._open: set[int] = set()
        """sources with entries here that are not known to be committed"""
        self._votes = -1
        self._transfers: dict[int, int] = {}
        """of sources of which state is coming"""

    def follows(self, source: int, vote: Vote) -> bool:
        """The leader over this connection has this vote of the source, and has not ended its leader lease."""
        return self._leaders.get(source) == vote and source not in self._fenced

    def has(self, source: int) -> bool:
        """It is in the replica set."""
        return source in self._leaders

    @property
    def sources(self) -> dict[int, Vote]:
        """Those of the replica set, with the leader's vote."""
        return dict(self._leaders)

    def open(self, opening: Opening, writes: list[Write]) -> Acknowledgement:
        """Raises KeyError for a source of which there is no replica here."""
        self._number = opening.number
        for source, epoch, last, checksum, since in opening.sources:
            self._leaders[source] = Vote(epoch, self._forwarder, self._incarnation)
            self._since[source] = since
            # What was said of an earlier epoch of the same leader.
            self._fenced.pop(source, None)
            self._gaps.pop(source, None)
            self._contradicted.discard(source)
            self._transfers.pop(source, None)
            self._compare(source, last, checksum, writes)
        return self._answer(opening.committed, writes)

    def receive(self, frame: Frame, writes: list[Write]) -> Acknowledgement:
        """Raises BrokenConnection for a frame that does not follow, or is damaged."""
        _check(frame.entries)
        if frame.after != self._number:
            raise BrokenConnection(f"frame {frame.number} follows {frame.after}, the last one here is {self._number}")
        for entry in frame.entries:
            self._take(entry, writes)
        self._number = frame.number
        self._passed, self._left_out = frame.passed, frozenset(frame.left_out)
        return self._answer(frame.committed, writes)

    def repair(self, missed: Sequence[LogEntry], writes: list[Write]) -> Acknowledgement:
        """Raises BrokenConnection for an entry that is damaged."""
        _check(missed)
        for entry in missed:
            self._take(entry, writes)
        return self._answer(self._committed, writes)

    def replace(self, state: SnapshotPart, writes: list[Write]) -> Acknowledgement:
        """State that is not lacked any more, or of a transfer that another one has followed, is passed over. Raises
        BrokenConnection for state that leaves something out that is not here."""
        source, leader = state.source, self._leaders.get(state.source)
        if leader is None or source not in self._gaps:
            return self._answer(self._committed, writes)
        if state.first:
            self._transfers[source] = state.transfer
        if self._transfers.get(source) == state.transfer:
            try:
                self._take_state(self._replicas[source], leader, state, writes)
            except StaleLeader as fenced:
                self._fence(source, fenced.vote)
        return self._answer(self._committed, writes)

    def _take_state(self, replica: Replica, leader: Vote, state: SnapshotPart, writes: list[Write]) -> None:
        gap = self._gaps[state.source]
        if state.first:
            # What it has acknowledged to this leader it has to have again.
            gap.wanted = max(gap.wanted, replica.log.matched)
            replica.stage(leader, writes, state.after)
            self._staging[state.source] = replica.staged
        if self._staging.get(state.source) is not replica.staged:
            return
        replica.take_part(leader, state.part, writes)
        if state.last:
            del self._transfers[state.source]
            replica.end_state(leader, state.base, writes)
            self._staging[state.source] = replica.staged
            gap.nearest = state.base
            if state.base >= gap.wanted:
                del self._gaps[state.source]
            elif state.base >= replica.log.last:
                # It has all that this replica ever acknowledged. What follows may be too much to be kept at the
                # leader: then the next state is a difference to this one.
                del self._staging[state.source]
                replica.install_state(writes)

    def ended(self, source: int, epoch: int) -> None:
        """The leader says that it is not the leader any more: nobody has to wait for its leader lease to end."""
        if source in self._leaders and self._leaders[source].epoch == epoch:
            self.left(source)

    def left(self, source: int) -> None:
        """It is not in this replica set any more. What numbers of the replica set say from now on is not said of it,
        though it may go on over another replica set."""
        for each in (self._leaders, self._since, self._gaps, self._fenced, self._staging, self._transfers):
            each.pop(source, None)
        self._contradicted.discard(source)
        self._open.discard(source)

    def told(self, committed: int, writes: list[Write]) -> Acknowledgement:
        """Frames up to this one are committed, and there is no frame to say so with."""
        return self._answer(committed, writes)

    def _answer(self, committed: int, writes: list[Write]) -> Acknowledgement:
        if self._votes != self._replicas.votes:
            # The leader is to hear of each vote with the next answer, whatever that is to: its leader lease ends with
            # it.
            self._votes = self._replicas.votes
            for source, leader in self._leaders.items():
                if self._replicas[source].vote.epoch > leader.epoch:
                    self._fence(source, self._replicas[source].vote)
        self._commit(committed)
        lacks = {source: gap.nearest for source, gap in self._gaps.items()}
        for source in [source for source in self._staging if source not in self._gaps]:
            if self._staging.pop(source) is self._replicas[source].staged and source in self._leaders:
                self._replicas[source].install_state(writes)
        incomplete = frozenset(source for source in self._gaps if not self._replicas[source].usable)
        bases = {source: self._replicas[source].log.base for source in lacks}
        return Acknowledgement(
            self._number, lacks, dict(self._fenced), incomplete, frozenset(self._contradicted), bases
        )

    def _fence(self, source: int, vote: Vote) -> None:
        self._fenced[source] = vote
        self._gaps.pop(source, None)

    def _compare(self, source: int, last: Position, checksum: int | None, writes: list[Write]) -> None:
        """A source joins the replica set. Its leader's last entry is compared, without its payload."""
        replica = self._replicas[source]
        try:
            replica.follow(self._leaders[source], writes)
        except StaleLeader as fenced:
            self._fence(source, fenced.vote)
            return
        if replica.refused == self._leaders[source]:
            self._contradicted.add(source)
            return
        replica.discard_state(writes)  # of another connection, or of an epoch that has ended
        self._staging.pop(source, None)
        log = replica.log
        if log.has(last, checksum):
            log.held(last)
            self._open.add(source)
        else:
            self._gaps[source] = _Gap(last, log.nearest((last[0], last[1] - 1)))

    def _take(self, entry: LogEntry, writes: list[Write]) -> None:
        source = entry.source
        if source in self._fenced or source in self._contradicted or source not in self._leaders:
            return
        try:
            match = self._replicas[source].take(self._leaders[source], entry, writes)
        except StaleLeader as fenced:
            self._fence(source, fenced.vote)
            return
        except Contradiction:
            self._contradicted.add(source)
            self._gaps.pop(source, None)
            self._staging.pop(source, None)  # it would take its place without all that was acknowledged
            self._replicas[source].discard_state(writes)
            return
        self._open.add(source)
        log = self._replicas[source].filling
        gap = self._gaps.get(source)
        if match is Match.AHEAD:
            # Of several in a row the first one says from where on the leader is to send.
            nearest = log.nearest(entry.before)
            if gap is None:
                self._gaps[source] = _Gap(entry.position, nearest)
            else:
                gap.wanted, gap.nearest = max(gap.wanted, entry.position), min(gap.nearest, nearest)
        elif gap is not None:
            gap.nearest = max(entry.position, log.matched)
            if log.matched >= gap.wanted:
                del self._gaps[source]

    def _commit(self, number: int) -> None:
        """Of all sources, what they have up to this frame. Looks at those that have something open."""
        self._committed = max(self._committed, number)
        passed = max(self._committed, self._passed)
        for source in list(self._open):
            log, leader = self._replicas[source].filling, self._leaders[source]
            upto = self._committed if source in self._left_out else passed
            if upto < self._since[source]:
                continue
            if self._replicas[source].vote != leader or log.commit((leader.epoch, upto)) == log.last:
                self._open.discard(source)


def _check(entries: Iterable[LogEntry]) -> None:
    """Before anything of them is taken. Raises BrokenConnection."""
    for entry in entries:
        if not entry.sound:
            raise BrokenConnection(f"entry {entry.position} of source {entry.source} is not what its checksum says")
