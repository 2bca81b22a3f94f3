"""The sources of which this forwarder keeps a copy for other leaders.

What comes in: messages of leaders, over connections that they dialed. What goes out: writes for the own disk, and
answers when these are on it.
Rules: 1. An answer says what stands here when everything handed out before it is on the disk; a later one over the
same replica set takes the place of one that still waits: while the disk hangs there is one of each replica set and
transaction. 2. A vote waits while a leader that was answered may still hold its leader lease, unless that leader is
known to be gone; and a leader that holds its leader lease here answers that nobody else is needed. 3. A leader that
sends what the protocol does not know loses its connection, and nothing else.
Not here: what is compared with what (`replication/receiver.py`), the leader's end (`led_sources.py`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping

from amqpd.cluster.log_events import Counters
from amqpd.cluster.shell import LeaderLink, ProcessIdentity, Shell
from amqpd.journal.buffer import JournalBuffer
from amqpd.peers.entry import NO_VOTE, LogEntry, Position, Vote, is_far
from amqpd.peers.messages import (
    Answered,
    Ballot,
    Cut,
    Ended,
    Entries,
    Fetched,
    FetchEntries,
    FetchParts,
    Filled,
    HandedSessions,
    Heartbeat,
    Lacked,
    Message,
    OpenReplicaSet,
    RequestPreVote,
    RequestVote,
    SnapshotPart,
    Voted,
    Would,
)
from amqpd.replication.leader_lease import VoteDelay
from amqpd.replication.receiver import Receiver
from amqpd.replication.replica import Replicas, Write
from amqpd.replication.take_over import SourceRecord

PUT_OFF_MAX = 1024
"""votes that wait for the end of a leader lease: four of each source"""
REPLICA_SETS_MAX = 1024
"""Of one leader, over one connection: a leader has one for each set, and forgets those without a source."""
HANDED_BYTES_MAX = 16 << 20
"""of what leaders have passed for the next ones: what comes then is not kept, and that leader takes over"""
READS_MAX = 1024
"""Questions of one peer that wait for the own disk. An attempt has one at a time, and is given up after some seconds:
four of each source."""


class FollowedSources:
    """The copies of sources that one node keeps for the leaders of these sources."""

    def __init__(
        self,
        me: ProcessIdentity,
        shell: Shell,
        journal: JournalBuffer,
        replicas: Replicas,
        lease_s: float,
        is_gone: Callable[[Vote], bool],
        holds_lease: Callable[[int], bool],
        counters: Counters,
        records: Mapping[int, SourceRecord],
    ) -> None:
        """`is_gone`: the leader of this vote is known not to hold its leader lease any more. `holds_lease`: this
        forwarder does, over this source. `records`: as the store had them last."""
        self._records = records
        self._name, self._generation = me.name, me.generation
        self._shell = shell
        self._journal = journal
        self._replicas = replicas
        self._is_gone = is_gone
        self._holds_lease = holds_lease
        self._counters = counters
        self._vote_delay = VoteDelay(lease_s, shell.now_s)
        self._connections: dict[LeaderLink, None] = {}
        self._index = 0
        """of the last transaction that something was handed to"""
        self._waiting: deque[tuple[int, dict[tuple[LeaderLink, int], Message]]] = deque()
        """answers by the transaction that they wait for, then by the replica set, or by the source that is voted for,
        as a negative number: the last one of each"""
        self._open: set[int] = set()
        """sources with entries here that are not known to be committed"""
        self._bases: dict[int, Position] = {}
        """up to where the disk was told that they are"""
        self._put_off: list[tuple[float, LeaderLink, RequestVote]] = []
        self._handed: dict[int, HandedSessions] = {}
        """what leaders have passed that handed a source over, until there is another leader"""
        self.openings: Counter[int] = Counter()
        """how often leaders have begun to send each source here"""

    def accepted(self, incoming: LeaderLink) -> None:
        self._connections[incoming] = None

    def left(self, incoming: LeaderLink) -> None:
        """The connection is gone."""
        incoming.open = False
        self._connections.pop(incoming, None)
        sources = [each for receiver in incoming.receivers.values() for each in receiver.sources.items()]
        self._vote_delay.closed(incoming, sources, self._shell.now_s)
        self._put_off = [each for each in self._put_off if each[1] is not incoming]
        for _, answers in self._waiting:
            for key in [key for key in answers if key[0] is incoming]:
                del answers[key]

    def received(self, incoming: LeaderLink, message: Message) -> None:
        """A message of the forwarder that dialed."""
        if isinstance(message, RequestPreVote | RequestVote | FetchEntries | FetchParts) and not self._has(
            message.source
        ):
            incoming.close(f"there is no source {message.source}")
        elif isinstance(message, RequestPreVote):
            granted = self.would_vote(message.source, incoming.forwarder) and not self._holds_lease(message.source)
            incoming.send(Would(message.request, self._ballot(message.source, granted)))
        elif isinstance(message, RequestVote):
            if not self._lies(incoming, message.source, message.vote):
                self._request(incoming, message)
        elif isinstance(message, FetchEntries):
            self._fetch(incoming, message)
        elif isinstance(message, FetchParts):
            self._fetch_parts(incoming, message)
        elif isinstance(message, OpenReplicaSet | Cut | Lacked | Filled | Heartbeat | Ended):
            self._of_replica_set(incoming, message)
        elif isinstance(message, HandedSessions):
            self._hand(incoming, message)
        else:
            incoming.close(f"{type(message).__name__} is no question")

    def _hand(self, incoming: LeaderLink, message: HandedSessions) -> None:
        """Kept until there is another leader, if the one that says it is the leader here."""
        source = message.source
        if not self._has(source):
            incoming.close(f"there is no source {source}")
            return
        vote = self._replicas[source].vote
        if (vote.forwarder, vote.incarnation) != (incoming.forwarder, incoming.incarnation):
            return  # another one is voted for meanwhile
        self._handed.pop(source, None)
        if sum([len(each.body) for each in self._handed.values()]) + len(message.body) <= HANDED_BYTES_MAX:
            self._handed[source] = message

    def handed(self, source: int, last: Position) -> bytes:
        """What the leader before has passed to this node, which is the next one; empty: nothing, or its log had
        another end than this one, `last`. It is forgotten with this."""
        found = self._handed.pop(source, None)
        return found.body if found is not None and found.position == last else b""

    def _of_replica_set(
        self, incoming: LeaderLink, message: OpenReplicaSet | Cut | Lacked | Filled | Heartbeat | Ended
    ) -> None:
        receiver = incoming.receivers.get(message.replica_set)
        if isinstance(message, OpenReplicaSet) and any(
            self._lies(incoming, each.source, Vote(each.epoch, incoming.forwarder, incoming.incarnation))
            for each in message.opening.sources
            if self._has(each.source)
        ):
            return
        if receiver is None:
            if not isinstance(message, OpenReplicaSet):
                incoming.close(f"replica set {message.replica_set} was not opened")
                return
            if len(incoming.receivers) >= REPLICA_SETS_MAX:
                incoming.forget_unused()
            if len(incoming.receivers) >= REPLICA_SETS_MAX:
                incoming.close(f"{len(incoming.receivers)} replica sets are open")
                return
            receiver = incoming.receivers[message.replica_set] = Receiver(
                incoming.forwarder, incoming.incarnation, self._replicas
            )
        if isinstance(message, Ended):
            receiver.ended(message.source, message.epoch)
            return
        writes: list[Write] = []
        self._vote_delay.answers(incoming, self._shell.now_s)
        try:
            if isinstance(message, OpenReplicaSet):
                self.openings.update(each.source for each in message.opening.sources if self._has(each.source))
                for each in message.opening.sources:
                    self._handed.pop(each.source, None)
                answer = receiver.open(message.opening, writes)
                for opened in message.opening.sources:
                    for other in incoming.receivers.values():
                        if other is not receiver:
                            other.left(opened.source)
            elif isinstance(message, Cut):
                answer = receiver.receive(message.frame, writes)
            elif isinstance(message, Lacked):
                answer = receiver.repair(message.entries, writes)
            elif isinstance(message, Filled):
                answer = receiver.replace(message.state, writes)
            else:
                answer = receiver.told(message.committed, writes)
        except (ValueError, KeyError) as error:
            # What was taken before that stays taken, and is written.
            self._write(writes)
            incoming.close(str(error))
            return
        self._write(writes)
        if isinstance(message, Cut):
            self._open.update([entry.source for entry in message.frame.entries])
        elif not isinstance(message, Heartbeat):
            self._open.update(receiver.sources)
        self._commit()
        heard = self._shell.heard_revision
        self._wait(incoming, message.replica_set, Answered(message.replica_set, message.question, answer, heard))
        self.stored()

    def _write(self, writes: list[Write]) -> None:
        if writes:
            self._index = self._journal.write(writes)

    def _commit(self) -> None:
        """The disk may let go of what is committed."""
        for source in list(self._open):
            log = self._replicas[source].log
            if log.base != self._bases.get(source):
                self._bases[source] = log.base
                self._journal.note_committed(source, log.base)
            if log.base == log.last:
                self._open.discard(source)

    def is_sent(self, source: int) -> bool:
        """A leader that has a connection to here has it in a replica set."""
        return any(receiver.has(source) for each in self._connections for receiver in each.receivers.values())

    def drop(self, source: int) -> None:
        """Nothing of it is here any more. No leader sends it."""
        writes: list[Write] = []
        self._replicas[source].drop(writes)
        self._open.discard(source)
        self._bases.pop(source, None)
        self._handed.pop(source, None)
        self._journal.nothing_committed(source)
        self._write(writes)

    def unusable(self, source: int, reason: str) -> None:
        """What was sent of it is not on the disk: what was to be answered of that is not."""
        self._open.discard(source)
        self._bases.pop(source, None)
        for _, answers in self._waiting:
            for key in [key for key in answers if key[1] == -source]:
                del answers[key]
        for incoming in list(self._connections):
            if any(receiver.has(source) for receiver in incoming.receivers.values()):
                incoming.close(f"what it sent of source {source} cannot be written: {reason}")

    def _wait(self, incoming: LeaderLink, replica_set: int, answer: Message) -> None:
        waiting = self._waiting
        if not waiting or waiting[-1][0] != self._index:
            waiting.append((self._index, {}))
        waiting[-1][1][incoming, replica_set] = answer

    def stored(self) -> None:
        """More transactions are on the own disk, or something new is to be answered."""
        stored, waiting = self._journal.stored_index, self._waiting
        last: dict[tuple[LeaderLink, int], Message] = {}
        while waiting and waiting[0][0] <= stored:
            last |= waiting.popleft()[1]
        for (incoming, _), answer in last.items():
            if incoming.open:
                incoming.send(answer)

    def _has(self, source: int) -> bool:
        try:
            return self._replicas[source] is not None
        except KeyError:
            return False

    # Votes

    def _lies(self, incoming: LeaderLink, source: int, vote: Vote) -> bool:
        """No honest forwarder says this of a leader: then it loses the link, and nothing is promised."""
        record = self._records.get(source)
        known = max(self._replicas[source].vote.epoch, 0 if record is None else record.leader.epoch)
        reason = ""
        if (vote.forwarder, vote.incarnation) != (incoming.forwarder, incoming.incarnation):
            reason = f"it asks for a vote of {vote.forwarder!r}, incarnation {vote.incarnation}"
        elif is_far(vote.epoch, known):
            reason = f"it names epoch {vote.epoch} of source {source}, and {known} is the highest one heard of"
        if reason:
            incoming.close(reason)
        return bool(reason)

    def _request(self, incoming: LeaderLink, asked: RequestVote) -> None:
        until_s = self._waits_until(asked.source, incoming.forwarder)
        if until_s > self._shell.now_s:
            if len(self._put_off) < PUT_OFF_MAX:
                self._put_off.append((until_s, incoming, asked))
                self._counters.votes_put_off += 1
            return
        writes: list[Write] = []
        before = self._replicas[asked.source].vote
        granted = self._replicas.cast_vote(asked.source, asked.vote, writes)
        self._write(writes)
        self._tell_vote(asked, before, granted)
        ballot = self._ballot(asked.source, granted)
        # Who asks for another vote of the source over this connection has given up the one before.
        self._wait(incoming, -asked.source, Voted(asked.request, asked.vote, ballot))
        self.stored()

    def _tell_vote(self, asked: RequestVote, before: Vote, granted: bool) -> None:
        if granted:
            self._counters.votes_granted += 1
        else:
            self._counters.votes_refused += 1
        self._shell.log(
            "vote_granted" if granted else "vote_refused",
            **{"source": asked.source, "epoch": asked.vote.epoch, "from": before.forwarder},
            to=asked.vote.forwarder,
            epoch_before=before.epoch,
        )

    def would_vote(self, source: int, asks: str) -> bool:
        """Another epoch, now, if this forwarder asks."""
        return self._waits_until(source, asks) <= self._shell.now_s

    def _waits_until(self, source: int, asks: str) -> float:
        """Until when it votes for no other epoch of the source. A leader that asks itself knows that its leader lease
        ends."""
        vote = self._replicas[source].vote
        if vote == NO_VOTE or vote.forwarder in (self._name, asks) or self._is_gone(vote):
            return 0.0
        over = [
            each
            for each in self._connections
            if any(receiver.follows(source, vote) for receiver in each.receivers.values())
        ]
        return self._vote_delay.ends_s(source, vote, over)

    def beat(self) -> None:
        """Votes that were put off may be made by now, or are put off again."""
        due, self._put_off = self._put_off, []
        for until_s, incoming, asked in due:
            if until_s > self._shell.now_s and not self._is_gone(self._replicas[asked.source].vote):
                self._put_off.append((until_s, incoming, asked))
            else:
                self._request(incoming, asked)

    def _ballot(self, source: int, granted: bool) -> Ballot:
        replica = self._replicas[source]
        return Ballot(granted, replica.vote, replica.log.last, self._generation, replica.log.base)

    def _fetch_parts(self, incoming: LeaderLink, asked: FetchParts) -> None:
        base = self._replicas[asked.source].log.base

        def sends(state: SnapshotPart) -> bool:
            if incoming.open:
                incoming.send(Fetched(asked.request, state))
            if state.last or not incoming.open:
                incoming.reads -= 1
            return incoming.open

        def failed() -> None:
            # Who has asked waits as long as for a member that is gone, and asks another one.
            incoming.reads -= 1

        if self._may_read(incoming):
            self._shell.read_state(
                incoming, SnapshotPart(asked.source, 1, base, b"", True, False, asked.after), sends, failed
            )

    def _may_read(self, incoming: LeaderLink) -> bool:
        """One more read of the own disk for it; else it has lost the link."""
        if incoming.reads >= READS_MAX:
            incoming.close(f"{incoming.reads} of its questions wait for the disk")
            return False
        incoming.reads += 1
        return True

    def _fetch(self, incoming: LeaderLink, asked: FetchEntries) -> None:
        if not self._may_read(incoming):
            return

        def answered(entries: list[LogEntry]) -> None:
            incoming.reads -= 1
            if incoming.open:
                incoming.send(Entries(asked.request, tuple(entries)))

        self._shell.read_log(asked.source, asked.after, answered)
