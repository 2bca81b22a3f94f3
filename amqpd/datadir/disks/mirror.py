"""The disks of one node as the one disk that its journal writes to.

What comes in: transactions and reads (`journal.sqlite.node_disk.NodeDisk`). What goes out: durability on a majority;
rows of the first disk that has them.
Rules: 1. `commit` returns when a majority has the transaction; each disk's own thread writes it. 2. While fewer than
a majority can store, it raises DiskFull or DisksLost, and may be called again with the same transaction, as for a
full disk. 3. What is read comes from a disk that has everything; while none has, it raises DisksLost, and may be
called again. 4. A row that is damaged on one disk is taken from another.
Not here: threads and queues (`group.py`, `worker.py`), who is asked (`questions.py`), repairs (`repair.py`), which
disks a start has (`opening.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from amqpd.datadir.disks.group import DiskGroup
from amqpd.datadir.disks.one_disk import OneDisk
from amqpd.datadir.disks.questions import ROWS_S, DiskQuestions
from amqpd.journal.disk import ReplicaState
from amqpd.journal.errors import DisksLost
from amqpd.journal.records import Recovered, Row, SourceEntry
from amqpd.journal.sqlite.outcome import JointOutcome
from amqpd.journal.sqlite.payload import encode
from amqpd.journal.sqlite.sources import SourceHead
from amqpd.journal.storing import bytes_of
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import LogEntry, Position

# What a step takes in memory beside bodies.
STEP_BYTES = 1024
ROW_BYTES = 256


class MirroredDisk:
    """The disks of one node as one `NodeDisk`, which writes to a majority of them; `opening.open_disks` makes it."""

    def __init__(self, group: DiskGroup, incarnation: int) -> None:
        """`incarnation`: of this process; of each disk's journal it is the epoch of the local source."""
        self.group = group
        self._questions = DiskQuestions(group)
        self._incarnation = incarnation
        self._first = group.first()
        self.accepted: list[str] = []
        """what was accepted as lost: sentences for the log"""
        self._transaction: JournalTransaction | None = None
        """that was handed out last, as this step"""
        self._step = 0
        self._stored = self._first.index
        self._names = self._first.names
        self._noted: dict[str, str] = {}
        self._named: tuple[int, dict[str, str]] = 0, {}
        """the step that wrote down names last, and these"""

    # As the journal's disk

    def examine(self) -> None:
        """Each was, when it was opened."""

    def recover(self) -> Recovered:
        """Each disk begins the same incarnation."""
        found: dict[OneDisk, Recovered] = {}

        def recover(disk: OneDisk) -> None:
            found[disk] = disk.recover(self._incarnation)

        self.group.wait(self.group.hand(recover, STEP_BYTES), however_long=True)
        return found[self.group.first()]

    def commit(self, transaction: JournalTransaction, *, housekeeping: bool = True) -> None:
        """After DiskFull, DisksLost too, it may be committed again."""
        if transaction is not self._transaction:
            for row in transaction.rows:
                row.join()  # once, and not by each disk
            names, self._noted = self._noted, {}
            outcome = JointOutcome(transaction)

            def step(disk: OneDisk) -> None:
                if names:
                    disk.note(**names)
                disk.commit(transaction, outcome=outcome)

            self._transaction, self._step = transaction, self.group.hand(step, _bytes_of(transaction))
        self.group.wait(self._step)
        self._stored = transaction.index

    @property
    def prompt(self) -> bool:
        """Several disks are waited for: never on the pump's thread."""
        return False

    def read(self, queue_id: int, first_seq: int, last_seq: int, bytes_max: int) -> list[Row]:
        """Rows of messages, from a disk on which they are whole, if there is one."""

        def read(disk: OneDisk) -> list[Row]:
            return disk.read(queue_id, first_seq, last_seq, bytes_max)

        while True:
            number, rows = self._questions.ask(read, ROWS_S)
            damage = next((row.damage for row in rows if row.damage), "")
            if not damage or not self.group.others_count(number):
                return rows
            self.group.leave(number, damage, damaged=True)

    def vacuum_step(self, rests: bool = False) -> bool:
        """Each disk's thread does its own housekeeping, and knows by itself how long it rests."""
        return False

    def release_reserve(self) -> None:
        """Each disk's thread gives up its own."""

    def restore_reserve(self) -> bool:
        """A majority has space."""
        with self.group.changed:
            return self.group.standings.able >= self.group.standings.majority

    def close(self) -> None:
        """What was handed out is stored as far as the disks allow, then each is closed."""
        self.group.close()

    # What else a node asks of its disk

    @property
    def path(self) -> Path:
        """Of a journal that has everything."""
        return self.group.first().path

    @property
    def index(self) -> int:
        """Of the last transaction that was handed out: the next one follows it."""
        return self._first.index if self._transaction is None else self._transaction.index

    @property
    def stored_index(self) -> int:
        """Of the last transaction that a majority has."""
        return self._first.index if self._transaction is None else self._stored

    @property
    def names(self) -> dict[str, str]:
        """While no disk has everything, those that were known last."""
        with suppress(DisksLost):
            self._names = self.group.first().names
        return self._names

    def head(self, source: int) -> SourceHead:
        """The head of a source, from a disk that has everything."""
        return self.group.first().head(source)

    def set_names(self, **names: str) -> None:
        """Write down names. Raises like `commit`, and as there the same may be tried again."""
        step, before = self._named
        with self.group.changed:
            pending = before == names and self.group.standings.stored < step
        if not pending:
            step = self.group.hand(lambda disk: disk.set_names(**names), STEP_BYTES)
            self._named = step, names
        self.group.wait(step)

    def note(self, **names: str) -> None:
        """Write down names with the next transaction, whenever it comes. From any thread."""
        self._noted = {**self._noted, **names}

    def forsake(self) -> None:
        """Close it as it was. Only before `recover`."""
        self.group.close()

    def sharing(self) -> AbstractContextManager[None]:
        """Of the disk that `path` is of: while another connection of this process may copy its log."""
        return self.group.first().sharing()

    def payload(self, entry: SourceEntry) -> bytes:
        return encode(entry)

    def replicas(self) -> list[ReplicaState]:
        return self._questions.ask(lambda disk: disk.replicas())[1]

    def log_entries(self, source: int, after: Position, bytes_max: int) -> list[LogEntry]:
        return self._questions.ask(lambda disk: disk.log_entries(source, after, bytes_max))[1]

    def recovered_of(self, sources: Collection[int]) -> Recovered:
        return self._questions.ask(lambda disk: disk.recovered_of(sources))[1]

    def state_parts(self, source: int, after: Position, base: Position) -> Iterator[bytes]:
        """When the disk fails or hangs in between it ends with ValueError: another one may give other parts, and who
        wants the state asks again."""
        number, parts = self._questions.ask(lambda disk: disk.state_parts(source, after, base))
        return self._parts(number, parts)

    def _parts(self, number: int, parts: Iterator[bytes]) -> Iterator[bytes]:
        while True:
            answer = self._questions.ask_one(number, lambda _: next(parts, None))
            if answer is None:
                raise ValueError(f"{self.group.members[number].path} failed while it was read")
            if answer[0] is None:
                return
            yield answer[0]


def _bytes_of(transaction: JournalTransaction) -> int:
    nbytes = STEP_BYTES + ROW_BYTES * (len(transaction.rows) + len(transaction.settled))
    nbytes += sum([len(row.data) + len(row.deadlines) for row in transaction.rows])
    return nbytes + sum(map(bytes_of, transaction.writes))
