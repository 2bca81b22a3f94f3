"""The disk of one forwarder in memory: `SourcesDisk`, as far as a forwarder without queues of its own needs it.

What comes in: transactions, each of them on it as a whole or not at all. What goes out: what a process finds on it.
Rules: 1. `Platter` is what outlasts processes. 2. What can go wrong with a disk is here (damage, an older copy of it,
an empty one in its place); when, and how long it takes, is its machine's (`machine.py`).
Not here: what is on it of one source (`kept.py`); the real one, in its place (`real_disk.py`).
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Collection, Iterator
from typing import Any

from amqpd.journal.disk import ReplicaState
from amqpd.journal.records import JournalDamaged, Recovered, Row, SourceEntry
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import LogEntry, Position
from amqpd.replication.replica import Appended, VoteCast, Write
from tests.replication.simulation.contents import Content, read_short, run_of, short
from tests.replication.simulation.kept import Kept

LOCAL = 0


def source_of(write: Write) -> int:
    return write.entry.source if isinstance(write, Appended) else write.source


class Platter:
    """What there is of a disk while no process has it open."""

    def __init__(self) -> None:
        self.index = self.epoch = 0
        """of the local source"""
        self.names: dict[str, str] = {}
        self.kept: dict[int, Kept] = {}
        self.keeps_votes = True
        self.synced: bytes | None = None
        """of one that says too early that something is on it: what is"""


class SimulatedDisk:
    """A process has it open."""

    prompt = True

    def __init__(self, platter: Platter, found_damage: Callable[[], None] = lambda: None) -> None:
        self._platter = platter
        self._found_damage = found_damage

    @property
    def names(self) -> dict[str, str]:
        return self._platter.names

    @property
    def kept(self) -> dict[int, Kept]:
        return self._platter.kept

    def recover(self) -> Recovered:
        platter = self._platter
        platter.epoch += 1
        whole = [kept.start() for kept in platter.kept.values()]
        if not all(whole):
            self._found_damage()
            # A start that found it may have been killed before it claimed another one.
            platter.names.pop("generation", None)
        return Recovered(platter.index, {})

    def commit(self, transaction: JournalTransaction, *, housekeeping: bool = True) -> None:
        platter = self._platter
        if transaction.after != platter.index:
            raise ValueError(f"transaction {transaction.index} does not follow {platter.index}")
        platter.index = transaction.index
        kept = platter.kept
        for write in transaction.writes:
            source = source_of(write)
            if source not in kept:
                kept[source] = Kept(source)
            if platter.keeps_votes or not isinstance(write, VoteCast):
                kept[source].apply(write)
        for source, position in transaction.committed.items():
            kept[source].commit(position)

    def payload(self, entry: SourceEntry) -> bytes:
        return short(entry)

    def content(self, payload: bytes) -> Content:
        return read_short(payload)

    def set_names(self, **names: str) -> None:
        self._platter.names.update(names)

    def head(self, source: int) -> SourceHead:
        if source == LOCAL:
            return SourceHead(LOCAL, self._platter.epoch, self._platter.index)
        kept = self._platter.kept.get(source)
        if kept is None:
            return SourceHead(source, replicated=True)
        return SourceHead(source, *kept.last, kept.reserved, replicated=True, committed=kept.base)

    def replicas(self) -> list[ReplicaState]:
        return [kept.replica() for _, kept in sorted(self._platter.kept.items())]

    def log_entries(self, source: int, after: Position, bytes_max: int) -> list[LogEntry]:
        kept, found = self._platter.kept.get(source), list[LogEntry]()
        for entry in kept.tail if kept is not None else ():
            if entry.position > after and (not found or bytes_max > 0):
                if not entry.sound:
                    raise JournalDamaged(f"entry {entry.position} of source {source} is not as it was made")
                found.append(entry)
                bytes_max -= len(entry.payload)
        return found

    def state_parts(self, source: int, after: Position, base: Position) -> Iterator[bytes]:
        kept = self._platter.kept.get(source)
        if kept is None or not after <= base <= kept.last:
            raise ValueError(f"no state of source {source} from {after} to {base}")
        return kept.state_parts(after, base)

    def recovered_of(self, sources: Collection[int]) -> Recovered:
        kept = self._platter.kept
        return Recovered(self._platter.index, {each: kept[each].recovered() for each in sources if each in kept})

    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]:
        rows = self._platter.kept[queue_id].rows
        return [
            Row(queue_id, seq, seq, run_of(int(rows[seq][1])).raw())
            for seq in range(first_seq, last_seq + 1)
            if seq in rows
        ]

    def vacuum_step(self, rests: bool = False) -> bool:
        return False

    def release_reserve(self) -> None:
        raise NotImplementedError("this disk is never full")

    def restore_reserve(self) -> bool:
        return True

    def close(self) -> None:
        pass


class SimulatedDrive:
    """The place of a disk in a machine."""

    def __init__(self, found_damage: Callable[[], None]) -> None:
        self.platter = Platter()
        self._found_damage = found_damage

    def open(self) -> SimulatedDisk:
        return SimulatedDisk(self.platter, self._found_damage)

    def wipe(self) -> None:
        """Somebody replaced it. No process has it open."""
        self.platter = Platter()

    def copy(self) -> Any:
        return pickle.dumps(self.platter)

    def restore(self, copy: Any) -> None:
        """An older state of it is put back. No process has it open."""
        self.platter = pickle.loads(copy)

    def damage(self, chance: random.Random) -> int:
        """In how many sources."""
        return sum(kept.damage(chance) for kept in self.platter.kept.values())

    @property
    def damaged(self) -> bool:
        return any(kept.damaged or kept.rows_damaged for kept in self.platter.kept.values())

    def power_loss(self) -> None:
        """What it has not synced is lost."""
        if self.platter.synced is not None:
            synced = self.platter.synced
            self.platter = pickle.loads(synced)
            self.platter.synced = synced

    def end(self) -> None:
        pass
