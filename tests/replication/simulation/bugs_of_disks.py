"""Mistakes of a disk: of the simulated one, which does what the journal's own promises."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from amqpd.peers.entry import LogEntry, Position
from tests.replication.simulation.bugs import NoBug, Patched
from tests.replication.simulation.disk import SimulatedDisk
from tests.replication.simulation.kept import Kept, Staging

if TYPE_CHECKING:
    from tests.replication.simulation.machine import Machine


class AckBeforeSync(NoBug):
    """A disk says that it has what it has not: a power cut takes it."""

    def commits(self, machine: Machine) -> None:
        platter = machine.drive.platter
        # Now and then it does what it says.
        if platter.synced is None or machine.chance.random() < 0.2:
            platter.synced = None
            platter.synced = pickle.dumps(platter)


class VoteNotDurable(NoBug):
    """A crash forgets what was voted for."""

    only = {"forget": 4000}
    nodes = members = 3
    sources = 1

    def drive(self, drive: Any) -> None:
        drive.platter.keeps_votes = False


def _all_with_this_idx(self: Kept, position: Position) -> list[LogEntry]:
    return [each for each in self.tail if each.position[1] > position[1]]


class UndoByIdxAlone(Patched):
    """A disk undoes what has a higher idx, whatever its epoch."""

    where, name, instead = Kept, "undone", _all_with_this_idx
    only = {"chain": 4000}


def _leaves_at_once(self: Kept, seq: int, position: Position) -> None:
    self.rows.pop(seq, None)


class DeleteAtLocalCommit(Patched):
    """A message leaves the disk when its settle is written, committed or not."""

    where, name, instead = Kept, "settles", _leaves_at_once


def _buries(self: Kept) -> bool:
    for seq in self.settled:
        self.rows.pop(seq, None)
    return _start(self)


class RecoveryBuriesUncommittedSettles(Patched):
    """A start deletes what is settled, committed or not."""

    where, name, instead = Kept, "start", _buries


_start = Kept.start


def _all_stay(self: Kept, seq: int, at: Position, staged: Staging) -> bool:
    return True


class DeadRowsLive(Patched):
    """A disk that takes a state in keeps what has died since."""

    where, name, instead = Kept, "stays", _all_stay


def _keeps_its_generation(disk: SimulatedDisk) -> Any:
    generation = disk.names.get("generation")
    found = _recover(disk)
    if generation is not None:
        disk.set_names(generation=generation)
    return found


class DamagedDiskCounts(Patched):
    """A disk that has lost something is the same as before."""

    where, name, instead = SimulatedDisk, "recover", _keeps_its_generation
    only = {"damage": 300, "crash": 1000, "isolate": 2500}
    nodes = members = 3


_recover = SimulatedDisk.recover
