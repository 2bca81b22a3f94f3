"""Mistakes of one that keeps a copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from amqpd.cluster.followed_sources import FollowedSources
from amqpd.peers.entry import LogEntry, Position, Vote
from amqpd.peers.messages import Answered, Ballot
from amqpd.replication import receiver as receiver_module
from amqpd.replication.leader_lease import VoteDelay
from amqpd.replication.log import Log, Match
from amqpd.replication.receiver import Receiver
from amqpd.replication.replica import Replica, Undone, Write
from tests.replication.simulation.bugs import NoBug, Patched


def _follow_anybody(self: Replica, leader: Vote, writes: list[Write]) -> None:
    if leader.epoch > self.vote.epoch:
        self._vote(leader, writes)


class NoEpochCheck(Patched):
    """A replica takes entries from a leader whose epoch is over."""

    where, name, instead = Replica, "follow", _follow_anybody
    only = {"isolate": 3500}
    nodes = members = 3
    sources = 1

    @contextmanager
    def planted(self) -> Iterator[None]:
        def nothing(receiver: Receiver, source: int, vote: Vote) -> None: ...

        with super().planted(), patch.object(Receiver, "_fence", nothing):
            yield


def _commit_any_epoch(self: Log, position: Position) -> Position:
    upto = self.nearest(min(position, self.matched))
    if upto > self.base:
        at = self._positions.index(upto) + 1
        del self._tail[:at], self._positions[:at]
        self.base = upto
    return self.base


class CommitOfAnOldEpoch(Patched):
    """An entry of an older epoch is taken for committed before one of the leader's own epoch is."""

    where, name, instead = Log, "commit", _commit_any_epoch
    only = {"chain": 4000}
    nodes = members = 3


def _ballot_of_the_disk(self: Any, source: int, granted: bool) -> Ballot:
    return replace(_ballot(self, source, granted), last=self._shell.disk.head(source).position)


class VoteOvertakesTheWriter(Patched):
    """The answer to a vote says what is on the disk now, and not what is on its way there."""

    where, name, instead = FollowedSources, "_ballot", _ballot_of_the_disk
    only = {"late": 6000}
    nodes = members = 3
    sources = 1


_ballot = FollowedSources._ballot


def _match_by_idx(self: Log, entry: LogEntry) -> Match:
    if entry.position[1] <= self.last[1] and any(each[1] == entry.position[1] for each in self._positions):
        return Match.HELD
    return _match(self, entry)


_match = Log.match


class ByIdxAlone(Patched):
    """The same idx is taken for the same entry, whatever the epoch."""

    where, name, instead = Log, "match", _match_by_idx


def _take_and_cut(self: Replica, leader: Vote, entry: LogEntry, writes: list[Write]) -> Match:
    match = _take(self, leader, entry, writes)
    filling = self.filling
    if match is Match.HELD and filling.base <= entry.position < filling.last:
        filling.undo(entry.position)
        writes.append(Undone(self.source, entry.position))
    return match


_take = Replica.take


class ResendUndoesWhatIsLonger(Patched):
    """What a leader sends again ends what stands behind it."""

    where, name, instead = Replica, "take", _take_and_cut
    only = {"chain": 4000, "break": 500}
    nodes = members = 3


class AckOfWhatWasNotMatched(Patched):
    """A peer acknowledges a frame although something before it is missing."""

    where, name = Receiver, "_answer"

    @staticmethod
    def instead(self: Receiver, committed: int, writes: list[Write]) -> Any:
        self._gaps.clear()
        return _answer(self, committed, writes)


_answer = Receiver._answer


class DelayFromTheReply(NoBug):
    """A replica waits from when an answer goes out; what it votes before is not in it."""

    only = {"stalled answers": 4000}
    nodes = members = 3
    sources = 1

    @contextmanager
    def planted(self) -> Iterator[None]:
        def tell(copies: Any) -> None:
            stored = copies._journal.stored_index
            due = [answers for index, answers in copies._waiting if index <= stored]
            links = {link for answers in due for (link, _), each in answers.items() if isinstance(each, Answered)}
            _tell(copies)
            for link in links:
                _answers(copies._vote_delay, link, copies._shell.now_s)

        def nothing(delay: VoteDelay, connection: Any, now_s: float) -> None: ...

        with patch.object(VoteDelay, "answers", nothing), patch.object(FollowedSources, "stored", tell):
            yield


_tell = FollowedSources.stored
_answers = VoteDelay.answers


class VotesWithoutWaiting(Patched):
    """A replica votes at once, although it has just answered the old leader."""

    where, name = VoteDelay, "ends_s"
    only = {"isolate": 2500}
    nodes = members = 3
    instead = staticmethod(lambda delay, source, vote, connections: 0.0)


class StateAfterWhatIsNotCommitted(Patched):
    """A state begins where the peer's log ends, committed or not."""

    where, name = Receiver, "_answer"

    @staticmethod
    def instead(self: Receiver, committed: int, writes: list[Write]) -> Any:
        answer = _answer(self, committed, writes)
        return replace(answer, bases={source: self._replicas[source].log.last for source in answer.lacks})


class StateIsEverything(Patched):
    """A peer that has a state lacks nothing of what frames have told of since."""

    where, name = Receiver, "_take_state"

    @staticmethod
    def instead(self: Receiver, replica: Replica, leader: Vote, state: Any, writes: list[Write]) -> None:
        _take_state(self, replica, leader, state, writes)
        if state.last:
            self._gaps.pop(state.source, None)


_take_state = Receiver._take_state


class DamageIsTaken(Patched):
    """A peer takes an entry that is not what its checksum says."""

    where, name = receiver_module, "_check"
    only = {"isolate": 2500, "crash": 2000}
    instead = staticmethod(lambda entries: None)
