"""The home's end of a lane: all sources that have their home here and the same replica set.

What comes in: what each transaction of the journal has of these sources; that it is on the own disk; answers of
peers. What goes out: frames, what peers lack, and one growing number: frames up to it are committed.
Rules: 1. Entries are cut once, and go to each peer as they are. 2. A frame is committed when a majority of the set
has it on disk, this forwarder among them. With it is committed whatever its entries follow: an epoch of a home
begins with an entry of its own, and nothing before that one counts until it does. 3. A source that a peer has not
matched does not count there, and everything else does.
Not here: connections (the lane is opened again after each break), how an epoch is won (`take_over.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain

from amqpd.replication.commit import reached
from amqpd.replication.entry import START, Frame, LogEntry, Position, new_entry
from amqpd.replication.receiver import Answer, Missed, Opening

KEPT_BYTES_MAX = 64 << 20
"""Of committed entries that some peer does not have: a peer that was away for some tenths of a second at full load is
sent what it missed, one that was away for longer is caught up by state, whose size is that of the backlog."""
MISSED_BYTES_MAX = 1 << 20
"""Of one message with what a peer lacks: some milliseconds of its disk, so that frames in between need not wait."""


class Tail:
    """Of one source, the entries that not every member is known to have, in order."""

    def __init__(self, epoch: int, first: int, base: Position, entries: Iterable[LogEntry]) -> None:
        self.epoch = epoch
        self.first = first
        """number of the first frame of this epoch"""
        self.base = base
        """the last entry before these"""
        self._entries = list(entries)
        self._positions = [each.position for each in self._entries]

    @property
    def last(self) -> Position:
        return self._positions[-1] if self._positions else self.base

    @property
    def checksum(self) -> int | None:
        """Of the last entry, if it is kept."""
        return self._entries[-1].checksum if self._entries else None

    def append(self, entry: LogEntry) -> None:
        self._entries.append(entry)
        self._positions.append(entry.position)

    def after(self, position: Position) -> list[LogEntry] | None:
        """What follows the last entry that is not above this position; None: that is not kept any more."""
        return self._entries[bisect_right(self._positions, position) :] if position >= self.base else None

    def next_after(self, number: int) -> int | None:
        """The first frame above this number that has an entry of it."""
        at = bisect_right(self._positions, (self.epoch, number))
        return self._positions[at][1] if at < len(self._positions) else None

    def forget(self, number: int) -> None:
        """Every member has what frames up to this one had of it."""
        at = bisect_right(self._positions, (self.epoch, number))
        if at and self._positions[at - 1][0] == self.epoch:
            self.base = self._positions[at - 1]
            del self._entries[:at], self._positions[:at]


class Peer:
    """Another member of the set, while there is a connection to it."""

    def __init__(self, uncounted: Iterable[int]) -> None:
        self.uncounted = set(uncounted)
        """sources whose record names another disk than it has: what it acknowledges is no copy yet"""
        self.number = 0
        """of its last answer"""
        self.apart: frozenset[int] = frozenset()
        """sources that do not count there"""
        self.states: dict[int, Position] = {}
        """sources whose state is on its way to it, with the last entry that it has"""
        self.transfers = 0
        """how many were begun"""
        self.bases: Mapping[int, Position] = {}
        """what it knows to be committed, of sources that it lacks something of"""


class HomeLane:
    """One of them. Numbers are those of the own journal's transactions."""

    def __init__(self, members: Iterable[str], number: int, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        """`members`: of the replica set, this forwarder among them. `number`: of the last transaction."""
        self.members = frozenset(members)
        self.number = self.stored = self.committed = number
        """the last frame that was cut; is on the own disk; is committed"""
        self.peers: dict[str, Peer] = {}
        self.fenced: dict[int, int] = {}
        """source -> an epoch of another home: this one's has ended, and `end` is to be called. It may take over
        again, with a higher one."""
        self._tails: dict[int, Tail] = {}
        self._kept_bytes_max = kept_bytes_max
        self._kept_bytes = 0
        self._kept: deque[tuple[int, int]] = deque()
        """number and bytes of frames, some of whose entries are kept"""

    @property
    def open_bytes(self) -> int:
        """Of frames that are kept, because they are not committed or some peer does not have them. Publishers wait
        when this is well above `KEPT_BYTES_MAX`: then it is the former."""
        return self._kept_bytes

    @property
    def sources(self) -> Iterable[int]:
        return self._tails.keys()

    def begin(
        self, source: int, epoch: int, base: Position, tail: Iterable[LogEntry], uncounted: Iterable[str] = ()
    ) -> Opening:
        """This forwarder is the home from the next frame on, which is to have an entry of the source. `tail`: what
        stands here above `base`; `uncounted`: peers whose disk is not admitted for it. To be sent to all peers that
        have a connection."""
        self._tails[source] = Tail(epoch, self.number + 1, base, tail)
        names = set(uncounted)
        for name, peer in self.peers.items():
            (peer.uncounted.add if name in names else peer.uncounted.discard)(source)
            peer.states.pop(source, None)  # a peer that had sealed another epoch took nothing of it
        return self._opening([source])

    def end(self, source: int) -> None:
        """It is not the home any more; peers are to be told. What of it is not committed by then never is, by this
        lane."""
        self._tails.pop(source, None)
        self.fenced.pop(source, None)

    def cut(self, number: int, payloads: Mapping[int, bytes]) -> Frame:
        """What the transaction of the journal with this index has of the lane's sources, for all peers."""
        entries = []
        for source, payload in payloads.items():
            tail = self._tails[source]
            entry = new_entry(source, (tail.epoch, number), tail.last, payload)
            tail.append(entry)
            entries.append(entry)
        frame = Frame(number, self.number, tuple(entries), self.committed)
        self.number = number
        nbytes = sum(len(entry.payload) for entry in entries)
        self._kept.append((number, nbytes))
        self._kept_bytes += nbytes
        return frame

    def open(self, peer: str, uncounted: Iterable[int] = ()) -> Opening:
        """There is a connection to it: this is to be sent first, then each frame that is cut. `uncounted`: sources
        for which its disk is not admitted. Raises ValueError for what is no member."""
        if peer not in self.members:
            raise ValueError(f"{peer} is no member of {sorted(self.members)}")
        self.peers[peer] = Peer(uncounted)
        return self._opening(self._tails)

    def sends_state(self, peer: str, source: int, base: Position) -> int:
        """What is committed of the source, up to this entry, is about to be sent to the peer, as a difference to what
        it has up to `peer_base`; the number of this transfer, after which an earlier one of the source need not be
        gone on with. The peer may be behind again when it has come: if more was committed meanwhile than is kept."""
        at = self.peers[peer]
        at.states[source] = base
        at.transfers += 1
        return at.transfers

    def peer_base(self, peer: str, source: int) -> Position:
        """What the peer knows to be committed of a source whose state it needs, as it said in its last answer: what
        the home has committed up to there it has, too, on this disk. START: it has nothing, or did not say."""
        return self.peers[peer].bases.get(source, START)

    def admissible(self, peer: str) -> set[int]:
        """Sources that it has all of, and is not counted for: the record may name its disk by now."""
        at, tails = self.peers[peer], self._tails
        # An answer to a frame of this epoch: an older one was made before the peer had compared anything.
        return {source for source in at.uncounted - at.apart if source in tails and at.number >= tails[source].first}

    def admit(self, peer: str, source: int) -> None:
        """The source's record names the peer's disk."""
        self.peers[peer].uncounted.discard(source)
        self._look()

    def close(self, peer: str) -> None:
        """The connection is gone. What the peer has on its disk it still has; it says so again over the next one."""
        self.peers.pop(peer, None)

    def answered(self, peer: str, answer: Answer) -> tuple[list[Missed], list[int]]:
        """What the peer is to be sent, of what it lacks; and sources of which it lacks more than is kept here, so
        that it needs their state (`sends_state`)."""
        at = self.peers[peer]
        at.number = answer.number
        at.bases = answer.bases
        at.apart = frozenset(chain(answer.lacks, answer.fenced, answer.contradicted))
        for source, seal in answer.fenced.items():
            # Of its own epoch, too: a store that was put back handed it out twice, and that peer would never follow.
            if source in self._tails and seal.epoch >= self._tails[source].epoch:
                self.fenced[source] = seal.epoch
        self._look()
        at.states = {source: base for source, base in at.states.items() if source in answer.lacks}
        missed, behind = [], []
        for source, position in answer.lacks.items():
            tail = self._tails.get(source)
            if tail is None:
                continue
            incomplete = source in answer.incomplete
            if source in at.states and not incomplete and position >= at.states[source]:
                del at.states[source]  # it has come
            entries = None if incomplete else tail.after(position)
            if entries is None and source not in at.states:
                behind.append(source)
            elif entries:
                missed.append(Missed(tuple(_first_of(entries))))
        return missed, behind

    def is_stored(self, number: int) -> None:
        """Frames up to this one are on the own disk."""
        self.stored = number
        self._look()

    def _opening(self, sources: Iterable[int]) -> Opening:
        tails = [(source, self._tails[source]) for source in sources]
        said = tuple((source, tail.epoch, tail.last, tail.checksum) for source, tail in tails)
        return Opening(self.number, said, self.committed)

    def _look(self) -> None:
        peers = list(self.peers.values())
        number = reached(self.stored, [peer.number for peer in peers], len(self.members))
        for source in {source for peer in peers for source in peer.apart | peer.uncounted if source in self._tails}:
            counting = [peer.number for peer in peers if source not in peer.apart | peer.uncounted]
            waits = self._tails[source].next_after(reached(self.stored, counting, len(self.members)))
            if waits is not None:
                number = min(number, waits - 1)
        self.committed = max(self.committed, number)
        self._forget(peers)

    def _forget(self, peers: list[Peer]) -> None:
        """What every member has, and what is too much to be kept for those that have not."""
        everywhere = 0
        if len(peers) == len(self.members) - 1:
            everywhere = min([self.committed, *(peer.number for peer in peers)])
        keep_bytes = self._kept_bytes_max
        if self._kept_bytes > keep_bytes:
            keep_bytes //= 2  # so that it is seldom done
        kept, upto, too_much = self._kept, 0, 0
        while kept and (kept[0][0] <= everywhere or (self._kept_bytes > keep_bytes and kept[0][0] <= self.committed)):
            upto, nbytes = kept.popleft()
            self._kept_bytes -= nbytes
            if upto > everywhere:
                too_much = upto
        if upto:
            apart = frozenset().union(*(peer.apart for peer in peers))
            for source, tail in self._tails.items():
                tail.forget(too_much if source in apart else upto)


def _first_of(entries: list[LogEntry]) -> Iterable[LogEntry]:
    """At least one."""
    left = MISSED_BYTES_MAX
    for entry in entries:
        if left <= 0:
            break
        yield entry
        left -= len(entry.payload)
