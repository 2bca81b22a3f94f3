"""The leader's end of one replica set: all sources that are led here and that this set keeps.

What comes in: what each transaction of the journal has of these sources; that it is on the own disk; answers of
peers. What goes out: frames, what peers lack, and growing numbers: frames up to them are committed.
Rules: 1. Entries are cut once, and go to each peer as they are. 2. A frame is committed when a majority of the set
has it on disk, this forwarder among them. With it is committed whatever its entries follow: an epoch of a leader
begins with an entry of its own, and nothing before that one counts until it does. 3. A source that a peer has not
matched does not count there, and everything else does. One that so has no majority is left out: the others go on.
4. What a peer lacks is sent once. 5. What is kept for peers is bounded in bytes; a peer that lacks more is caught up
by state. 6. A learner gets what the members get, and counts for nothing. 7. A source that comes from another replica
set counts here from the frame on that says so, which has an entry of it: with that, all before it is committed.
Not here: what is under way to whom (`catch_up.py`), connections (the replica set is opened again after each
break), how an epoch is won (`take_over.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from amqpd.peers.entry import Frame, LogEntry, Position, new_entry
from amqpd.peers.messages import Acknowledgement, OpenedSource, Opening
from amqpd.replication.catch_up import Missed, PeerProgress, Resend, ResendCounts, Tail, Transfer, size_of
from amqpd.replication.commit import reached

KEPT_BYTES_MAX = 64 << 20
"""Of committed entries that some peer does not have: a peer that was away for some tenths of a second at full load is
sent what it missed, one that was away for longer is caught up by state, whose size is that of the backlog. As much
again is kept of sources that a connected peer has not matched."""
BEHIND_BYTES_MAX = 256 << 20
"""Of entries that follow the states which are on their way to a peer, and would not be kept without that: two seconds
at full load. When more comes, a large backlog goes in rounds, each with what came during the one before."""
MISSED_BYTES_MAX = 1 << 20
"""Of one message with what a peer lacks: some milliseconds of its disk, so that frames in between need not wait."""
UNDER_WAY_MAX = 8
"""Messages of that size, of all that is sent again to one peer and that it has not answered: so much is sent in the
time of an answer, which is one of its disk; and much less than a connection may have to send."""


class ReplicaSetLeader:
    """The leader's end of one replica set. Numbers are those of the own journal's transactions."""

    def __init__(
        self,
        members: Iterable[str],
        number: int,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        behind_bytes_max: int = BEHIND_BYTES_MAX,
        missed_bytes_max: int = MISSED_BYTES_MAX,
        learners: Iterable[str] = (),
        sent: ResendCounts | None = None,
    ) -> None:
        """`members`: of the replica set, this forwarder among them. `number`: of the last transaction. `learners`:
        who is about to be a member, once it has caught up. `sent`: where what is sent again is counted."""
        self.members = frozenset(members)
        self.learners = frozenset(learners)
        self.number = self.stored = self.committed = number
        """the last frame that was cut; is on the own disk; is committed, whatever it has"""
        self.passed = number
        """the last frame that is committed except for what it has of sources that are left out"""
        self.left_out: dict[int, int] = {}
        """sources that have no majority for something below `passed`, and up to where they do have one"""
        self.peers: dict[str, PeerProgress] = {}
        self.fenced: dict[int, int] = {}
        """source -> an epoch of another leader: this one's has ended, and `end` is to be called. It may take over
        again, with a higher one."""
        self.outbid: dict[int, int] = {}
        """source -> an epoch that a learner has voted for, as long ago as it was a member, or by a store that was put
        back since: it follows a higher one only"""
        self.sent = sent or ResendCounts()
        self._tails: dict[int, Tail] = {}
        self._kept_bytes_max = kept_bytes_max
        self._behind_bytes_max = behind_bytes_max
        self._missed_bytes_max = missed_bytes_max
        self._kept_bytes = 0
        """of the next"""
        self._kept: deque[tuple[int, int]] = deque()
        """number and bytes of frames that some member may lack"""
        self._forgotten = 0
        """the last frame that is not among them any more"""
        self._held: set[int] = set()
        """sources whose tails may have entries of such frames, since some peer was apart; or too many from before"""

    @property
    def open_bytes(self) -> int:
        """Of frames that are kept, because they are not committed or some peer does not have them. Publishers wait
        when this is well above `KEPT_BYTES_MAX`: then it is the former."""
        return self._kept_bytes

    def open_bytes_of(self, source: int) -> int:
        """The same of one source. What is kept longer of one that is left out is only in this: its publishers wait
        alone."""
        return self._tails[source].nbytes

    def lacks_bytes(self, peer: str, source: int) -> int | None:
        """What the peer has not said to have of the source; None: nobody knows, as it is away or needs the state."""
        at, tail = self.peers.get(peer), self._tails[source]
        if at is None or source in at.transfers:
            return None
        resend = at.resends.get(source)
        return tail.bytes_after(resend.reported if resend is not None else (tail.epoch, at.number))

    def committed_of(self, source: int) -> int:
        """Entries of the source in frames up to this one are committed: their confirms wait for it. Never below
        `committed`; 0 until there is something to be said of it in this replica set."""
        upto, tail = self.left_out.get(source, self.passed), self._tails.get(source)
        return upto if tail is None or upto >= tail.since else 0

    @property
    def sources(self) -> Collection[int]:
        return self._tails.keys()

    def begin(
        self, source: int, epoch: int, base: Position, tail: Iterable[LogEntry], uncounted: Iterable[str] = ()
    ) -> Opening:
        """This forwarder is the leader from the next frame on, which is to have an entry of the source. `tail`: what
        stands here above `base`; `uncounted`: peers whose disk is not admitted for it. To be sent to all peers that
        have a connection."""
        return self._joins(source, Tail(epoch, self.number + 1, base, tail), uncounted)

    def adopt(self, source: int, tail: Tail, first: int, uncounted: Iterable[str] = ()) -> Opening:
        """As `begin`, in the middle of an epoch: the source has been in another replica set, which has released this
        tail. `first`: number of the next frame, which is to have an entry of it."""
        tail.first = tail.since = first
        return self._joins(source, tail, uncounted)

    def release(self, source: int) -> Tail:
        """It goes to another replica set, which is asked from now on whether what it has is committed."""
        tail = self._tails[source]
        self.end(source)
        return tail

    def _joins(self, source: int, tail: Tail, uncounted: Iterable[str]) -> Opening:
        self._tails[source] = tail
        self.left_out.pop(source, None)
        if tail.nbytes > self._kept_bytes_max:
            self._held.add(source)  # no frame of this replica set, which goes when it is too much, has these entries
        names = set(uncounted)
        for name, peer in self.peers.items():
            (peer.uncounted.add if name in names else peer.uncounted.discard)(source)
            # A peer that had voted for another epoch took nothing of it.
            peer.transfers.pop(source, None)
            peer.resends.pop(source, None)
        return self._opening([source])

    def end(self, source: int) -> None:
        """It is not the leader any more; peers are to be told. What of it is not committed by then never is, by this
        replica set."""
        self._tails.pop(source, None)
        self.fenced.pop(source, None)
        self.outbid.pop(source, None)
        self.left_out.pop(source, None)
        for peer in self.peers.values():
            peer.transfers.pop(source, None)
            peer.resends.pop(source, None)

    def cut(self, number: int, payloads: Mapping[int, bytes], revision: int = 0) -> Frame:
        """What the transaction of the journal with this index has of the replica set's sources, for all peers.
        `revision`: see `Frame`."""
        entries = []
        for source, payload in payloads.items():
            tail = self._tails[source]
            entry = new_entry(source, (tail.epoch, number), tail.last, payload)
            tail.append(entry)
            entries.append(entry)
        for peer in self.peers.values():
            if peer.transfers:
                peer.keep_behind(entries, self._tails, self._behind_bytes_max)
        passed = self.passed if self.left_out else 0
        frame = Frame(number, self.number, tuple(entries), self.committed, passed, tuple(self.left_out), revision)
        self.number = number
        nbytes = sum(len(entry.payload) for entry in entries)
        self._kept.append((number, nbytes))
        self._kept_bytes += nbytes
        return frame

    def open(self, peer: str, uncounted: Iterable[int] = ()) -> Opening:
        """There is a connection to it: this is to be sent first, then each frame that is cut. `uncounted`: sources
        for which its disk is not admitted. Raises ValueError for what is no member."""
        if peer not in self.members | self.learners:
            raise ValueError(f"{peer} is no member of {sorted(self.members)}")
        self.peers[peer] = PeerProgress(uncounted)
        return self._opening(self._tails)

    def sends_state(self, peer: str, source: int, base: Position) -> int:
        """What is committed of the source, up to this entry, is about to be sent to the peer, as a difference to what
        it has up to `PeerProgress.bases`; the number of this transfer. It need not be gone on with when `sends` is
        not true any more. What follows the base is kept until the peer has it, if that is not too much."""
        at, tail = self.peers[peer], self._tails[source]
        at.transfers_begun += 1
        self.sent.transfers_begun += 1
        at.resends.pop(source, None)
        base_kept = max(base, tail.base)
        behind = Tail(tail.epoch, tail.first, base_kept, tail.after(base_kept) or ())
        at.transfers[source] = Transfer(at.transfers_begun, base, behind)
        return at.transfers_begun

    def sends(self, peer: str, source: int, transfer: int) -> bool:
        """Whether this transfer of state is still of use: its next part is to be sent."""
        at = self.peers.get(peer)
        return at is not None and source in at.transfers and at.transfers[source].number == transfer

    def state_failed(self, peer: str, source: int, transfer: int) -> None:
        """What was left of this transfer cannot be read: the peer's next answer asks for the state again."""
        if self.sends(peer, source, transfer):
            del self.peers[peer].transfers[source]

    def lag_of(self, peer: str) -> tuple[int, int]:
        """How many of the frames that are kept it has not answered, and their bytes; of one that is away, all."""
        at = self.peers.get(peer)
        number = -1 if at is None else at.number
        lacks = [nbytes for frame, nbytes in self._kept if frame > number]
        return len(lacks), sum(lacks)

    def admissible(self, peer: str) -> set[int]:
        """Sources that it has all of, and is not counted for: the record may name its disk by now."""
        at, tails = self.peers[peer], self._tails
        # An answer to a frame of this epoch: an older one was made before the peer had compared anything.
        return {source for source in at.uncounted - at.apart if source in tails and at.number >= tails[source].first}

    def has_all(self, peer: str, source: int) -> bool:
        """It is connected, counts for the source, and has said in this epoch that it lacks nothing. Whether it still
        answers, its number does not say."""
        at, tail = self.peers.get(peer), self._tails[source]
        return at is not None and at.counts(source) and at.number >= tail.first

    def uncounted_at(self, source: int) -> set[str]:
        """Connected peers whose disk is not admitted for the source: they keep no leader lease over it, either."""
        return {name for name, peer in self.peers.items() if source in peer.uncounted}

    def admit(self, peer: str, source: int) -> None:
        """The source's record names the peer's disk."""
        self.peers[peer].uncounted.discard(source)
        self._look()

    def close(self, peer: str) -> None:
        """The connection is gone. What the peer has on its disk it still has; it says so again over the next one."""
        self.peers.pop(peer, None)

    def answered(self, peer: str, answer: Acknowledgement) -> tuple[list[Missed], list[int]]:
        """What the peer is to be sent, of what it lacks; and sources of which it lacks more than is kept here, so
        that it needs their state (`sends_state`; until that is called, each answer says so)."""
        at = self.peers[peer]
        at.number = answer.number
        at.bases = answer.bases
        at.apart = frozenset(chain(answer.lacks, answer.fenced, answer.contradicted))
        for source, vote in answer.fenced.items():
            # Of its own epoch, too: a store that was put back handed it out twice, and that peer would never follow.
            if source in self._tails and vote.epoch >= self._tails[source].epoch:
                # A learner's word is no member's.
                (self.fenced if peer in self.members else self.outbid)[source] = vote.epoch
        self._look()
        for under_way in (at.transfers, at.resends):
            for source in under_way.keys() - answer.lacks.keys():
                del under_way[source]
                self.sent.transfers_done += under_way is at.transfers
        missed: list[Missed] = []
        behind: list[int] = []
        for source, position in answer.lacks.items():
            if source in at.resends:
                at.resends[source].reports(position)
        capacity = UNDER_WAY_MAX * self._missed_bytes_max - sum(each.nbytes for each in at.resends.values())
        for source, position in answer.lacks.items():
            if source not in self._tails or self._awaits_state(at, source, answer):
                continue
            found = None if source in answer.incomplete else self._resend(at, source, position, capacity)
            if found is None:
                behind.append(source)
            else:
                missed += found
                capacity -= sum(map(size_of, found))
        return missed, behind

    def _awaits_state(self, at: PeerProgress, source: int, answer: Acknowledgement) -> bool:
        """A transfer is under way, which the peer did not have when it made this answer."""
        transfer = at.transfers.get(source)
        if transfer is None:
            return False
        transfer.has_come |= source not in answer.incomplete and answer.lacks[source] >= transfer.base
        return not transfer.has_come

    def _resend(self, at: PeerProgress, source: int, position: Position, capacity: int) -> list[Missed] | None:
        """What follows this entry and is not under way, as far as that has the capacity. None: it is not kept."""
        resend, kept, transfer = at.resends.get(source), self._tails[source], at.transfers.get(source)
        if resend is None:
            resend = at.resends[source] = Resend(position)
        if transfer is not None and transfer.behind is not None:
            transfer.behind.forget_upto(position)
            if resend.sent < kept.base:
                kept = transfer.behind
        missed: list[Missed] = []
        while capacity > 0:
            entries = kept.after(resend.sent, self._missed_bytes_max)
            if entries is None:
                del at.resends[source]
                if at.transfers.pop(source, None) is not None:
                    self.sent.transfers_done += 1
                    self.sent.transfers_followed += 1
                return None
            if not entries:
                break
            missed.append(tuple(entries))
            resend.sends(missed[-1])
            nbytes = size_of(missed[-1])
            capacity -= nbytes
            for sent in (self.sent, at.sent):
                sent.again(len(entries), nbytes)
        return missed

    def note_stored(self, number: int) -> None:
        """Frames up to this one are on the own disk."""
        self.stored = number
        self._look()

    def _opening(self, sources: Iterable[int]) -> Opening:
        tails = [(source, self._tails[source]) for source in sources]
        said = tuple(OpenedSource(source, tail.epoch, tail.last, tail.checksum, tail.since) for source, tail in tails)
        return Opening(self.number, said, self.committed)

    def _look(self) -> None:
        peers = [peer for name, peer in self.peers.items() if name in self.members]
        before = self.passed
        self.passed = max(before, reached(self.stored, [peer.number for peer in peers], len(self.members)))
        left_out = {}
        for source in {*self.left_out, *chain.from_iterable(peer.apart | peer.uncounted for peer in peers)}:
            if source in self._tails:
                counting = [peer.number for peer in peers if peer.counts(source)]
                upto = reached(self.stored, counting, len(self.members))
                waits = self._tails[source].next_after(max(upto, self.left_out.get(source, before)))
                if waits is not None and waits <= self.passed:
                    left_out[source] = waits - 1
        self.left_out = left_out
        self.committed = min([self.passed, *left_out.values()])
        self._forget(list(self.peers.values()))

    def _forget(self, peers: list[PeerProgress]) -> None:
        """What everybody has, and what is too much to be kept for those that have not."""
        everywhere = 0
        if len(peers) == len(self.members | self.learners) - 1:
            everywhere = min([self.passed, *(peer.number for peer in peers)])
        keep_bytes = self._kept_bytes_max
        if self._kept_bytes > keep_bytes:
            keep_bytes //= 2  # so that it is seldom done
        kept, upto, too_much = self._kept, 0, 0
        while kept and (kept[0][0] <= everywhere or (self._kept_bytes > keep_bytes and kept[0][0] <= self.passed)):
            upto, nbytes = kept.popleft()
            self._kept_bytes -= nbytes
            if upto > everywhere:
                too_much = upto
        apart = {source for peer in peers for source in peer.apart if source in self._tails}
        if upto:
            self._forgotten = upto
            for source, tail in self._tails.items():
                tail.forget(min(too_much if source in apart else upto, self.committed_of(source)))
            self._held |= apart | self.left_out.keys()
        self._forget_held(peers, apart, bool(everywhere))
        if apart:
            self._forget_apart(apart)

    def _forget_held(self, peers: list[PeerProgress], apart: set[int], complete: bool) -> None:
        """What is not kept of others either, of sources that all connected peers have matched. Unless these are all
        peers (`complete`), only if it is too much: nobody asks for it, and publishers wait because of it. A peer that
        has not answered since the source was opened to it may ask yet: up to half as much again is kept for it."""
        self._held &= self._tails.keys()
        tails = {source: self._tails[source] for source in self._held - apart - self.left_out.keys()}
        going = {source for source, tail in tails.items() if self.committed_of(source) >= tail.first}
        nbytes_max = self._kept_bytes_max
        if sum(tails[source].nbytes for source in going) <= nbytes_max + nbytes_max // 2:
            number = min((peer.number for peer in peers), default=self.number)
            going = {source for source in going if number >= tails[source].first}
        if complete or sum(tails[source].nbytes for source in going) > nbytes_max:
            self._held -= going
            for tail, committed in [(tails[source], self.committed_of(source)) for source in going]:
                tail.forget(min(max(self._forgotten, tail.first), committed))

    def _forget_apart(self, sources: Iterable[int]) -> None:
        """Of sources that a connected peer has not matched, what others need no more, when that is too much."""
        kept_bytes = sum(self._tails[source].nbytes for source in sources)
        if kept_bytes <= self._kept_bytes_max:
            return
        for source in sorted(sources, key=lambda each: -self._tails[each].nbytes):
            if kept_bytes > self._kept_bytes_max // 2:
                tail = self._tails[source]
                kept_bytes -= tail.nbytes
                tail.forget(min(self._forgotten, self.committed_of(source)))
                kept_bytes += tail.nbytes
