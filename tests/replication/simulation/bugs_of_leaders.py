"""Mistakes of a leader, and of one that is about to be it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from amqpd.audit.kinds import ACKED
from amqpd.cluster.led_sources import LedSources
from amqpd.cluster.shell import OwnLog
from amqpd.cluster.takeovers import TakeOvers
from amqpd.journal.records import RecoveredQueue
from amqpd.peers.entry import START, Vote
from amqpd.peers.messages import Ballot
from amqpd.replication import commit
from amqpd.replication import leader as leader_module
from amqpd.replication import leader_lease as leader_lease_module
from amqpd.replication import replica as replica_module
from amqpd.replication import take_over as take_over_module
from amqpd.replication.replica import Replica, Write
from amqpd.replication.take_over import SourceRecord
from tests.replication.simulation.bugs import NoBug, Patched

if TYPE_CHECKING:
    from tests.replication.simulation.process import Process


class TwoLeadersOfOneEpoch(Patched):
    """A replica votes for one epoch for two leaders; the store, put back, hands it out twice."""

    where, name = replica_module, "grants"
    instead = staticmethod(lambda voted, asked: asked.epoch >= voted.epoch)
    only = {"put back": 7000, "isolate": 2500, "crash": 4000}
    nodes = members = 3
    sources = 1

    @contextmanager
    def planted(self) -> Iterator[None]:
        def follow(replica: Replica, leader: Vote, writes: list[Write]) -> None:
            if leader.epoch < replica.vote.epoch:
                _follow(replica, leader, writes)
            elif leader.epoch > replica.vote.epoch:
                replica._vote(leader, writes)

        def would(attempt: Any, member: str, ballot: Ballot) -> Any:
            step = _would(attempt, member, ballot)
            if isinstance(step, take_over_module.Swap):
                attempt.vote = Vote(attempt.record.leader.epoch + 1, attempt.forwarder, attempt.incarnation)
                return take_over_module.Swap(replace(attempt.record, leader=attempt.vote))
            return step

        with (
            super().planted(),
            patch.object(Replica, "follow", follow),
            patch.object(take_over_module.TakeOver, "would", would),
        ):
            yield


_follow = Replica.follow
_would = take_over_module.TakeOver.would


class HalfOfAnEvenSet(NoBug):
    """Two of four are taken for a majority."""

    nodes = members = 4

    @contextmanager
    def planted(self) -> Iterator[None]:
        def half(members: int) -> int:
            return (members + 1) // 2

        with (
            patch.object(take_over_module, "majority", half),
            patch.object(commit, "majority", half),
            patch.object(leader_lease_module, "majority", half),
        ):
            yield


class BackInTheOldEpoch(NoBug):
    """A leader that crashed goes on in its old epoch, with what its disk has."""

    def __init__(self) -> None:
        self._leaders: dict[str, dict[int, SourceRecord]] = {}

    def ended(self, process: Process) -> None:
        if process.forwarder is not None:
            sources = process.forwarder.led_sources.sources
            self._leaders[process.name] = {source: own.record for source, own in sources.items() if own.serving}

    def joined(self, process: Process) -> None:
        for source, record in self._leaders.pop(process.name, {}).items():
            if process.there.replicas[source].vote == record.leader and not process.machine.drive.damaged:
                base, head = process.there.base_of(source), process.disk.head(source)
                own = OwnLog(process.disk.log_entries(source, base, 1 << 62), head.reserved)
                process.there.led_sources.begin(record, own)


class HighestLogIgnored(Patched):
    """The highest of the votes' logs is not looked for: the taker goes on from its own."""

    where, name = take_over_module.TakeOver, "voted"

    @staticmethod
    def instead(self: Any, member: str, vote: Vote, ballot: Ballot) -> Any:
        return _voted(self, member, vote, replace(ballot, last=self._replica.log.last))


_voted = take_over_module.TakeOver.voted


class PeersApartCount(Patched):
    """A source that a peer has not matched counts there."""

    where, name = leader_module.ReplicaSetLeader, "answered"

    @staticmethod
    def instead(self: Any, peer: str, answer: Any) -> Any:
        missed = _answered(self, peer, answer)
        self.peers[peer].apart = frozenset()
        self._look()
        return missed


_answered = leader_module.ReplicaSetLeader.answered


class EmptyReplicaVotes(Patched):
    """A disk that was emptied counts as it did before."""

    where, name = SourceRecord, "counts"
    instead = staticmethod(lambda record, forwarder, generation: forwarder in record.members)
    only = {"wipe": 1500, "isolate": 2500, "crash": 4000}
    nodes = members = 3


class WipedReplicaAcknowledges(Patched):
    """What an emptied disk acknowledges counts before it is admitted, while its vote does not."""

    where, name = leader_module.ReplicaSetLeader, "open"
    only = {"forget": 4000}
    nodes = members = 3
    sources = 1

    @staticmethod
    def instead(self: Any, peer: str, uncounted: Any = ()) -> Any:
        return _open(self, peer)


_open = leader_module.ReplicaSetLeader.open


class LeaderLeaseFromTheAnswer(Patched):
    """A leader holds its leader lease for a lease from when an answer came."""

    only = {"late": 6000}
    nodes = members = 3
    sources = 1
    where, name = LedSources, "answered"

    @staticmethod
    def instead(self: Any, peer: str, message: Any) -> None:
        _leaders_answered(self, peer, message)
        replica_set = self._by_number.get(message.replica_set)
        if replica_set is not None and peer in replica_set.questions:
            replica_set.leader_lease.answered(peer, self._shell.now_s)


_leaders_answered = LedSources.answered


class EmptyDiskKeepsTheLeaderLease(Patched):
    """A peer whose disk was emptied, and so has forgotten whom it voted for, keeps the leader lease of an old
    leader."""

    only = {"forget": 4000}
    nodes = members = 3
    sources = 1
    where, name = leader_lease_module.LeaderLease, "holds"

    @staticmethod
    def instead(self: Any, now_s: float, uncounted: Container[str] = ()) -> Any:
        return _holds(self, now_s)


_holds = leader_lease_module.LeaderLease.holds


class OwnVoteDoesNotWait(Patched):
    """One that takes over votes when the store says yes, although it has answered the old leader meanwhile."""

    only = {"answers": 4000}
    nodes = members = 3
    sources = 1
    where, name = TakeOvers, "_swapped"

    @staticmethod
    def instead(self: Any, attempt: Any, record: Any) -> None:
        with patch.object(self, "_would_vote", lambda source, name: True):
            _swapped(self, attempt, record)


_swapped = TakeOvers._swapped


class AdmittedByAnOlderAnswer(Patched):
    """An answer from before the source joined the replica set is taken for one about it."""

    where, name = leader_module.ReplicaSetLeader, "admissible"
    only = {"wipe": 1500, "isolate": 2500, "crash": 4000}
    nodes = members = 3

    @staticmethod
    def instead(self: Any, peer: str) -> Any:
        at = self.peers[peer]
        return {source for source in at.uncounted - at.apart if source in self._tails} if at.number else set()


class NothingKeptIsNothingThere(Patched):
    """A leader that keeps no entry of a source says that it has none."""

    where, name = leader_module.ReplicaSetLeader, "_opening"
    only = {"wipe": 1500, "isolate": 2500, "crash": 4000}
    nodes = members = 3

    @staticmethod
    def instead(self: Any, sources: Any) -> Any:
        opening = _opening(self, sources)
        said = [each._replace(last=START) if each.checksum is None else each for each in opening.sources]
        return replace(opening, sources=tuple(said))


_opening = leader_module.ReplicaSetLeader._opening


class LeftOutIsConfirmed(Patched):
    """A source without a majority is taken for committed as far as its replica set is."""

    where, name = leader_module.ReplicaSetLeader, "_look"
    only = {"chain": 4000, "isolate": 2500, "break": 500}
    nodes = members = 3
    sources = 3

    @staticmethod
    def instead(self: Any) -> None:
        _look(self)
        self.left_out, self.committed = {}, self.passed


_look = leader_module.ReplicaSetLeader._look


class PeersHearNothingOfWhatIsLeftOut(Patched):
    """A frame says how far the replica set is, and not which sources are left out: a peer that has an entry takes it
    for committed, although only the leader has it besides.

    That hurts in a set of five or more. The one that takes it for committed has it, and so has the leader: of three
    or four members every majority has one of these two. Peers whose disks are not admitted are not enough either: the
    replica set counts them and the source does not, but they have no vote, and those that have one and lack the entry
    are no majority then. It takes a peer that counts, is connected, and lacks the entry."""

    where, name = leader_module.ReplicaSetLeader, "cut"
    only = {"left out": 5000}
    nodes = members = 5
    sources = 3

    @staticmethod
    def instead(self: Any, number: int, payloads: Any, revision: int) -> Any:
        return replace(_cut(self, number, payloads, revision), left_out=())


_cut = leader_module.ReplicaSetLeader.cut


class FetchedStateIsEverything(Patched):
    """A taker goes on from the state of the winner, without what follows it."""

    where, name = take_over_module.TakeOver, "fetched_state"
    only = {"chain": 4000, "wipe": 2000}
    nodes = members = 3

    @staticmethod
    def instead(self: Any, member: str, state: Any, writes: list[Write]) -> Any:
        if self._is_asked(member):
            self._ballots[member] = replace(self._ballots[member], last=state.base)
        return _fetched_state(self, member, state, writes)


_fetched_state = take_over_module.TakeOver.fetched_state


class ReusedNumbers(NoBug):
    """A new leader numbers behind the messages that are there, and forgets what an earlier one reserved."""

    def begins_at(self, process: Process, found: RecoveredQueue) -> int:
        return max((row.last_seq + 1 for row in found.rows), default=0)


class RefusedThenConfirmed(NoBug):
    """A leader that ends tells clients that what they wait for is not there (basic.nack), in place of saying nothing
    (their connections are closed): the next leader may have it. They send it again, and have that confirmed."""

    refuses_what_is_unknown = True


class DeadLetterSettledTooEarly(NoBug):
    """A queue does not say that a message goes on elsewhere: it is settled before its dead letter is committed."""

    def cause_of_a_dead_letter(self, cause: int) -> int:
        return ACKED
