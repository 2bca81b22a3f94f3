"""Mistakes of a home, and of one that is about to be it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from amqpd.audit.kinds import ACKED
from amqpd.cluster.homes import Homes
from amqpd.cluster.shell import OwnLog
from amqpd.cluster.takeovers import TakeOvers
from amqpd.journal.records import RecoveredQueue
from amqpd.replication import commit
from amqpd.replication import home as home_module
from amqpd.replication import reign as reign_module
from amqpd.replication import seal as seals
from amqpd.replication import take_over as take_over_module
from amqpd.replication.entry import START
from amqpd.replication.replica import Replica, Write
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import Ballot, SourceRecord
from tests.replication.simulation.bugs import NoBug, Patched

if TYPE_CHECKING:
    from tests.replication.simulation.process import Process


class TwoHomesOfOneEpoch(Patched):
    """A replica seals one epoch for two homes; the store, put back, hands it out twice."""

    where, name = seals, "grants"
    instead = staticmethod(lambda sealed, asked: asked.epoch >= sealed.epoch)
    only = {"put back": 7000, "isolate": 2500, "crash": 4000}
    nodes = members = 3
    sources = 1

    @contextmanager
    def planted(self) -> Iterator[None]:
        def follow(replica: Replica, home: Seal, writes: list[Write]) -> None:
            if home.epoch < replica.seal.epoch:
                _follow(replica, home, writes)
            elif home.epoch > replica.seal.epoch:
                replica._seal(home, writes)

        def would(attempt: Any, member: str, ballot: Ballot) -> Any:
            step = _would(attempt, member, ballot)
            if isinstance(step, take_over_module.Swap):
                attempt.seal = Seal(attempt.record.home.epoch + 1, attempt.forwarder, attempt.life)
                return take_over_module.Swap(replace(attempt.record, home=attempt.seal))
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
            patch.object(reign_module, "majority", half),
        ):
            yield


class BackInTheOldEpoch(NoBug):
    """A home that crashed goes on in its old epoch, with what its disk has."""

    def __init__(self) -> None:
        self._homes: dict[str, dict[int, SourceRecord]] = {}

    def ended(self, process: Process) -> None:
        if process.forwarder is not None:
            sources = process.forwarder.homes.sources
            self._homes[process.name] = {source: own.record for source, own in sources.items() if own.serving}

    def joined(self, process: Process) -> None:
        for source, record in self._homes.pop(process.name, {}).items():
            if process.there.replicas[source].seal == record.home and not process.machine.drive.damaged:
                base, head = process.there.base_of(source), process.disk.head(source)
                own = OwnLog(process.disk.log_entries(source, base, 1 << 62), head.reserved)
                process.there.homes.begin(record, own)


class HighestLogIgnored(Patched):
    """The highest of the seals' logs is not looked for: the taker goes on from its own."""

    where, name = take_over_module.TakeOver, "sealed"

    @staticmethod
    def instead(self: Any, member: str, seal: Seal, ballot: Ballot) -> Any:
        return _sealed(self, member, seal, replace(ballot, last=self._replica.log.last))


_sealed = take_over_module.TakeOver.sealed


class PeersApartCount(Patched):
    """A source that a peer has not matched counts there."""

    where, name = home_module.HomeLane, "answered"

    @staticmethod
    def instead(self: Any, peer: str, answer: Any) -> Any:
        missed = _answered(self, peer, answer)
        self.peers[peer].apart = frozenset()
        self._look()
        return missed


_answered = home_module.HomeLane.answered


class EmptyReplicaVotes(Patched):
    """A disk that was emptied counts as it did before."""

    where, name = SourceRecord, "counts"
    instead = staticmethod(lambda record, forwarder, generation: forwarder in record.members)
    only = {"wipe": 1500, "isolate": 2500, "crash": 4000}
    nodes = members = 3


class WipedReplicaAcknowledges(Patched):
    """What an emptied disk acknowledges counts before it is admitted, while its vote does not."""

    where, name = home_module.HomeLane, "open"
    only = {"forget": 4000}
    nodes = members = 3
    sources = 1

    @staticmethod
    def instead(self: Any, peer: str, uncounted: Any = ()) -> Any:
        return _open(self, peer)


_open = home_module.HomeLane.open


class ReignFromTheAnswer(Patched):
    """A home reigns for a lease from when an answer came."""

    only = {"late": 6000}
    nodes = members = 3
    sources = 1
    where, name = Homes, "answered"

    @staticmethod
    def instead(self: Any, peer: str, message: Any) -> None:
        _homes_answered(self, peer, message)
        lane = self._by_number.get(message.lane)
        if lane is not None and peer in lane.questions:
            lane.reign.answered(peer, self._shell.now_s)


_homes_answered = Homes.answered


class EmptyDiskKeepsTheReign(Patched):
    """A peer whose disk was emptied, and so has forgotten whom it sealed, keeps the reign of an old home."""

    only = {"forget": 4000}
    nodes = members = 3
    sources = 1
    where, name = reign_module.Reign, "holds"

    @staticmethod
    def instead(self: Any, now_s: float, uncounted: Container[str] = ()) -> Any:
        return _holds(self, now_s)


_holds = reign_module.Reign.holds


class OwnSealDoesNotWait(Patched):
    """One that takes over seals when the store says yes, although it has answered the old home meanwhile."""

    only = {"answers": 4000}
    nodes = members = 3
    sources = 1
    where, name = TakeOvers, "_swapped"

    @staticmethod
    def instead(self: Any, attempt: Any, record: Any) -> None:
        with patch.object(self, "_would_seal", lambda source, name: True):
            _swapped(self, attempt, record)


_swapped = TakeOvers._swapped


class AdmittedByAnOlderAnswer(Patched):
    """An answer from before the source joined the lane is taken for one about it."""

    where, name = home_module.HomeLane, "admissible"
    only = {"wipe": 1500, "isolate": 2500, "crash": 4000}
    nodes = members = 3

    @staticmethod
    def instead(self: Any, peer: str) -> Any:
        at = self.peers[peer]
        return {source for source in at.uncounted - at.apart if source in self._tails} if at.number else set()


class NothingKeptIsNothingThere(Patched):
    """A home that keeps no entry of a source says that it has none."""

    where, name = home_module.HomeLane, "_opening"
    only = {"wipe": 1500, "isolate": 2500, "crash": 4000}
    nodes = members = 3

    @staticmethod
    def instead(self: Any, sources: Any) -> Any:
        opening = _opening(self, sources)
        said = [each._replace(last=START) if each.checksum is None else each for each in opening.sources]
        return replace(opening, sources=tuple(said))


_opening = home_module.HomeLane._opening


class LeftOutIsConfirmed(Patched):
    """A source without a majority is taken for committed as far as its lane is."""

    where, name = home_module.HomeLane, "_look"
    only = {"chain": 4000, "isolate": 2500, "break": 500}
    nodes = members = 3
    sources = 3

    @staticmethod
    def instead(self: Any) -> None:
        _look(self)
        self.left_out, self.committed = {}, self.passed


_look = home_module.HomeLane._look


class PeersHearNothingOfWhatIsLeftOut(Patched):
    """A frame says how far the lane is, and not which sources are left out: a peer that has an entry takes it for
    committed, although only the home has it besides.

    That hurts in a set of five or more. The one that takes it for committed has it, and so has the home: of three or
    four members every majority has one of these two. Peers whose disks are not admitted are not enough either: the
    lane counts them and the source does not, but they have no vote, and those that have one and lack the entry are no
    majority then. It takes a peer that counts, is connected, and lacks the entry."""

    where, name = home_module.HomeLane, "cut"
    only = {"left out": 5000}
    nodes = members = 5
    sources = 3

    @staticmethod
    def instead(self: Any, number: int, payloads: Any) -> Any:
        return replace(_cut(self, number, payloads), left_out=())


_cut = home_module.HomeLane.cut


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
    """A new home numbers behind the messages that are there, and forgets what an earlier one reserved."""

    def begins_at(self, process: Process, found: RecoveredQueue) -> int:
        return max((row.last_seq + 1 for row in found.rows), default=0)


class RefusedThenConfirmed(NoBug):
    """A home that ends tells clients that what they wait for is not there (basic.nack), in place of saying nothing
    (their connections are closed): the next home may have it. They send it again, and have that confirmed."""

    refuses_what_is_unknown = True


class LetterSettledTooEarly(NoBug):
    """A queue does not say that a message goes on elsewhere: it is settled before its letter is committed."""

    def cause_of_a_letter(self, cause: int) -> int:
        return ACKED
