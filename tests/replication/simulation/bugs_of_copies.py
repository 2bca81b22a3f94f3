"""Mistakes of one that keeps a copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from amqpd.cluster.copies import Copies
from amqpd.replication import receiver as receiver_module
from amqpd.replication.entry import LogEntry, Position
from amqpd.replication.log import Log, Match
from amqpd.replication.messages import Answered
from amqpd.replication.receiver import Receiver
from amqpd.replication.reign import SealDelay
from amqpd.replication.replica import Replica, Undone, Write
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import Ballot
from tests.replication.simulation.bugs import NoBug, Patched


def _follow_anybody(self: Replica, home: Seal, writes: list[Write]) -> None:
    if home.epoch > self.seal.epoch:
        self._seal(home, writes)


class NoEpochCheck(Patched):
    """A replica takes entries from a home whose epoch is over."""

    where, name, instead = Replica, "follow", _follow_anybody
    only = {"isolate": 3500}
    nodes = members = 3
    sources = 1

    @contextmanager
    def planted(self) -> Iterator[None]:
        def nothing(receiver: Receiver, source: int, seal: Seal) -> None: ...

        with super().planted(), patch.object(Receiver, "_is_fenced", nothing):
            yield


def _commit_any_epoch(self: Log, position: Position) -> Position:
    upto = self.nearest(min(position, self.matched))
    if upto > self.base:
        at = self._positions.index(upto) + 1
        del self._tail[:at], self._positions[:at]
        self.base = upto
    return self.base


class CommitOfAnOldEpoch(Patched):
    """An entry of an older epoch is taken for committed before one of the home's own epoch is."""

    where, name, instead = Log, "commit", _commit_any_epoch
    only = {"chain": 4000}
    nodes = members = 3


def _ballot_of_the_disk(self: Any, source: int, granted: bool) -> Ballot:
    return replace(_ballot(self, source, granted), last=self._shell.disk.head(source).position)


class SealOvertakesTheWriter(Patched):
    """The answer to a seal says what is on the disk now, and not what is on its way there."""

    where, name, instead = Copies, "_ballot", _ballot_of_the_disk
    only = {"late": 6000}
    nodes = members = 3
    sources = 1


_ballot = Copies._ballot


def _match_by_idx(self: Log, entry: LogEntry) -> Match:
    if entry.position[1] <= self.last[1] and any(each[1] == entry.position[1] for each in self._positions):
        return Match.HELD
    return _match(self, entry)


_match = Log.match


class ByIdxAlone(Patched):
    """The same idx is taken for the same entry, whatever the epoch."""

    where, name, instead = Log, "match", _match_by_idx


def _take_and_cut(self: Replica, home: Seal, entry: LogEntry, writes: list[Write]) -> Match:
    match = _take(self, home, entry, writes)
    filling = self.filling
    if match is Match.HELD and filling.base <= entry.position < filling.last:
        filling.undo(entry.position)
        writes.append(Undone(self.source, entry.position))
    return match


_take = Replica.take


class ResendUndoesWhatIsLonger(Patched):
    """What a home sends again ends what stands behind it."""

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
    """A replica waits from when an answer goes out; what it seals before is not in it."""

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
                _answers(copies._seal_delay, link, copies._shell.now_s)

        def nothing(delay: SealDelay, connection: Any, now_s: float) -> None: ...

        with patch.object(SealDelay, "answers", nothing), patch.object(Copies, "_tell", tell):
            yield


_tell = Copies._tell
_answers = SealDelay.answers


class SealsWithoutWaiting(Patched):
    """A replica seals at once, although it has just answered the old home."""

    where, name = SealDelay, "ends_s"
    only = {"isolate": 2500}
    nodes = members = 3
    instead = staticmethod(lambda delay, source, seal, connections: 0.0)


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
    def instead(self: Receiver, replica: Replica, home: Seal, state: Any, writes: list[Write]) -> None:
        _take_state(self, replica, home, state, writes)
        if state.last:
            self._gaps.pop(state.source, None)


_take_state = Receiver._take_state


class DamageIsTaken(Patched):
    """A peer takes an entry that is not what its checksum says."""

    where, name = receiver_module, "_check"
    only = {"isolate": 2500, "crash": 2000}
    instead = staticmethod(lambda entries: None)
