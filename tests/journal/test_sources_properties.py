"""Random incarnations of a journal with several sources beside a plain model: what is committed lags behind what is
stored, tails are undone to any (epoch, idx), and the process ends between any two steps."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from amqpd.journal.operation_marks import (
    ForwarderGone,
    GatheringMarks,
    IncarnationEnded,
    Marked,
    MarkRecord,
    Marks,
    Purged,
    Refused,
)
from amqpd.journal.records import Recovered, Row, SeqRange, SourceEntry
from amqpd.journal.sqlite import discards, statement_parameters
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.transaction import JournalTransaction
from amqpd.replication.replica import Appended, Undone, Write
from tests.journal.disks import (
    Drive,
    DrivenDisk,
    MemoryDrive,
    SqliteDrive,
    appended,
    row,
    rows_on_disk,
    tell,
    write,
)

Position = tuple[int, int]
Seen = dict[int, tuple[list[tuple[int, int, tuple[tuple[int, int], ...]]], int, dict[int, int]]]
"""queue_id -> (rows with what of them is settled, the delivered mark, counts); queues with nothing are left out"""
SOURCES = {0: (10, 11), 1: (20, 21), 2: (30, 31)}
"""source -> its queues; the first is the local one"""


@dataclass
class QueueModel:
    rows: dict[int, Row] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)
    delivered: int = 0
    dropped: bool = False

    def is_dead(self, first: int) -> bool:
        """The row is nothing that anybody gets any more."""
        each = self.rows[first]
        return self.dropped or all(seq in self.settled for seq in range(each.first_seq, each.last_seq + 1))


@dataclass
class SourceModel:
    source: int
    entries: list[SourceEntry] = field(default_factory=list)
    committed: Position = (0, 0)
    epoch: int = 1
    idx: int = 0
    next_seq: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    reserved: int = 0

    def state(self, upto: Position) -> dict[int, QueueModel]:
        """After the entries up to this position, one by one."""
        queues = {queue_id: QueueModel() for queue_id in SOURCES[self.source]}
        for entry in self.entries:
            if (entry.epoch, entry.idx) > upto:
                break
            for each in entry.rows:
                queues[each.queue_id].rows[each.first_seq] = each
            for part in entry.settled:
                queues[part.queue_id].settled.update(range(part.first_seq, part.last_seq + 1))
            for queue_id, seq, count in entry.counts:
                queues[queue_id].counts[seq] = count
            for queue_id, below in entry.delivered.items():
                queues[queue_id].delivered = below
            for queue_id in entry.dropped:
                queues[queue_id].dropped = True
        return queues

    @property
    def head(self) -> Position:
        """Of the last entry."""
        return max([self.committed, *((each.epoch, each.idx) for each in self.entries[-1:])])

    def marks(self, upto: Position) -> Marks:
        """After the entries up to this position."""
        marks = Marks()
        for entry in self.entries:
            if (entry.epoch, entry.idx) > upto:
                break
            for change in entry.marks:
                for record in change.records():
                    marks.apply(record)
        return marks

    def draw_marks(self, data: st.DataObject, entry: SourceEntry) -> None:
        """Some records of edges' operations, one after the other."""
        marks, gathering = self.marks(self.head), GatheringMarks()
        for _ in range(data.draw(st.integers(0, 3), label="marks")):
            record = draw_record(data, marks)
            gathering.note(record)
            marks.apply(record)
        entry.marks = gathering.changes()

    def draw(self, data: st.DataObject) -> SourceEntry:
        entry = SourceEntry(self.source, self.epoch, self.idx + data.draw(st.integers(1, 3), label="gap"))
        for queue_id, queue in self.state(self.head).items():
            if queue.dropped:
                continue
            what = data.draw(st.sampled_from(["publish", "settle", "return", "deliver", "drop", "publish", "settle"]))
            living = [each for first, each in queue.rows.items() if not queue.is_dead(first)]
            if what == "publish":
                first = self.next_seq[queue_id]
                for count in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)):
                    entry.rows.append(row(queue_id, first, first + count - 1))
                    first += count
                self.next_seq[queue_id] = first
            elif what == "drop" and data.draw(st.integers(0, 2)) == 0:
                entry.dropped.append(queue_id)
            elif what == "deliver":
                entry.delivered[queue_id] = data.draw(st.integers(0, self.next_seq[queue_id]))
            elif living and what in ("settle", "return"):
                each = data.draw(st.sampled_from(living))
                first = data.draw(st.integers(each.first_seq, each.last_seq))
                if what == "return":
                    entry.counts.append((queue_id, first, queue.counts.get(first, 0) + 1))
                else:
                    left = set(range(each.first_seq, each.last_seq + 1)) - queue.settled
                    if data.draw(st.booleans(), label="whole") or left == {first}:
                        entry.retired.append(SeqRange(queue_id, each.first_seq, each.last_seq))
                        entry.settled.append(entry.retired[-1])
                    else:
                        entry.settled.append(SeqRange(queue_id, first, first))
        if self.source and data.draw(st.integers(0, 3), label="reserve") == 0:
            entry.reserved = max(self.reserved, *self.next_seq.values(), 0) + 5
        self.draw_marks(data, entry)
        return entry

    def written(self, disk: DrivenDisk, entry: SourceEntry) -> Appended:
        return appended(disk, entry, self.head)

    def stored(self, entry: SourceEntry) -> None:
        self.entries.append(entry)
        self.idx = entry.idx
        self.reserved = max(self.reserved, entry.reserved)

    def undo(self, position: Position) -> None:
        self.entries = [each for each in self.entries if (each.epoch, each.idx) <= position]
        # What comes now is of another epoch, whose leader's journal may be younger.
        self.epoch, self.idx = self.epoch + 1, 0


def draw_record(data: st.DataObject, marks: Marks) -> MarkRecord:
    """One that may come, or come late, where this is."""
    forwarder = data.draw(st.sampled_from(["f", "forwarder two"]))
    living = max([number for name, number in marks.marks if name == forwarder], default=marks.ended.get(forwarder, 0))
    incarnation = max(1, living + data.draw(st.sampled_from([0, 0, 0, 1, -1])))
    what = data.draw(st.sampled_from(["mark", "mark", "mark", "end", "gone"]))
    if what == "gone" and data.draw(st.booleans()):
        return ForwarderGone(forwarder)
    if what == "end":
        return IncarnationEnded(forwarder, incarnation)
    before = marks.marks.get((forwarder, incarnation))
    mark = before.mark if before is not None else 0
    last = mark + data.draw(st.integers(0, 5))
    outcomes = [
        Purged(number, 7) if number % 4 == 3 else Refused(number, 0, 1 + number % 2)
        for number in range(mark + 1, last + 1)
        if number % 3
    ]
    if data.draw(st.booleans(), label="purging"):
        outcomes.append(Purged(last + 1, data.draw(st.integers(1, 3))))
    return Marked(forwarder, incarnation, last, data.draw(st.integers(0, mark)), tuple(outcomes))


class Incarnation:
    """A directory, its disk, and the models."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        self.models = {source: SourceModel(source) for source in SOURCES}
        self.disk = self.drive.open()
        self.disk.recover()
        self.retired: list[SeqRange] = []
        """of the local source, by its last transaction"""

    def commit(self, data: st.DataObject) -> None:
        local = self.models[0].draw(data)
        local.epoch, local.idx = self.disk.head(0).epoch, self.disk.index + 1
        self.models[0].epoch = local.epoch
        entries = [self.models[source].draw(data) for source in data.draw(st.sets(st.sampled_from([1, 2])))]
        transaction = JournalTransaction(
            local.idx, local.rows, local.settled, self.retired, local.delivered, local.counts
        )
        transaction.marks = local.marks
        transaction.dropped = local.dropped
        transaction.writes = [self.models[each.source].written(self.disk, each) for each in entries]
        self.disk.commit(transaction)
        self.retired = local.retired
        for entry in (local, *entries):
            self.models[entry.source].stored(entry)

    def tell(self, source: int, position: Position) -> None:
        model = self.models[source]
        model.committed = max(model.committed, position)
        tell(self.disk, source, *position)
        self._gone_by()

    def write(self, *writes: Write) -> None:
        write(self.disk, *writes)
        self._gone_by()

    def _gone_by(self) -> None:
        """A transaction has passed that has nothing of the local source."""
        self.models[0].stored(SourceEntry(0, self.disk.head(0).epoch, self.disk.index))

    def positions(self, source: int) -> list[Position]:
        """Those that are stored and not below what is committed."""
        model = self.models[source]
        stored = [(each.epoch, each.idx) for each in model.entries]
        return [model.committed, *(each for each in stored if each > model.committed)]

    def restart(self) -> Recovered:
        self.disk.close()
        self.disk = self.drive.open()
        self.retired = []
        local = self.disk.recover()
        assert local.marks_of(0) == self.models[0].marks(self.models[0].head)
        assert not set(local.queues) & {*SOURCES[1], *SOURCES[2]}
        return self.found()

    def found(self) -> Recovered:
        """Of all sources; beside each other, and together."""
        together = self.disk.recovered_of(SOURCES)
        alone = [self.disk.recovered_of({source}).queues for source in SOURCES]
        assert together.queues == alone[0] | alone[1] | alone[2]
        for source, model in self.models.items():
            assert together.marks_of(source) == self.disk.recovered_of({source}).marks_of(source)
            assert together.marks_of(source) == model.marks(model.head), source
        for state in self.disk.replicas():
            model = self.models[state.source]
            assert (state.base, state.reserved) == (model.committed, model.reserved)
            stored = [(each.epoch, each.idx) for each in model.entries]
            assert [link.position for link in state.tail] == [each for each in stored if each > model.committed]
        return together

    def expected(self) -> Seen:
        seen: Seen = {}
        for model in self.models.values():
            for queue_id, queue in model.state(model.head).items():
                if queue.dropped:
                    continue
                living = [each for first, each in sorted(queue.rows.items()) if not queue.is_dead(first)]
                numbers = {seq for each in living for seq in range(each.first_seq, each.last_seq + 1)}
                counts = {seq: n for seq, n in queue.counts.items() if seq in numbers - queue.settled}
                if living or queue.delivered:
                    rows = [(each.first_seq, each.last_seq, tuple(_parts(each, queue.settled))) for each in living]
                    seen[queue_id] = rows, queue.delivered, counts
        return seen

    def check_recovered(self, recovered: Recovered) -> None:
        assert all(self.disk.head(source).position == self.models[source].head for source in (1, 2))
        seen: Seen = {}
        for queue_id, queue in recovered.queues.items():
            if queue.rows or queue.delivered:
                rows = [(each.first_seq, each.last_seq, tuple(each.settled)) for each in queue.rows]
                seen[queue_id] = rows, queue.delivered, queue.counts
            source = next(source for source, queues in SOURCES.items() if queue_id in queues)
            assert queue.next_seq >= max([self.models[source].reserved, *(each.last_seq + 1 for each in queue.rows)])
        assert seen == self.expected()

    def on_disk(self) -> set[tuple[int, int]]:
        return set(rows_on_disk(self.disk))

    def check_kept(self) -> None:
        """No row has left whose end is not committed; what is read is what was written."""
        there = self.on_disk()
        for model in self.models.values():
            upto = model.head if model.source == 0 else model.committed
            before = model.state(upto)
            for entry in model.entries:
                for each in entry.rows:
                    queue = before[each.queue_id]
                    if each.first_seq not in queue.rows or not queue.is_dead(each.first_seq):
                        assert queue.dropped or (each.queue_id, each.first_seq) in there

    def check_end(self) -> None:
        """When all is committed, what is dead leaves, and nothing is kept of what was replaced."""
        for source in (1, 2):
            self.tell(source, self.models[source].head)
        while self.disk.vacuum_step():
            pass
        self.check_recovered(self.restart())
        while self.disk.vacuum_step():
            pass
        assert self.on_disk() == {
            (queue_id, first) for queue_id, (rows, _, _) in self.expected().items() for first, _, _ in rows
        }
        if isinstance(self.disk, SqliteDisk):
            for table in ("former", "former_operation_mark", "discard", "tail"):
                assert self.disk._writer.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def _parts(each: Row, settled: set[int]) -> Iterator[tuple[int, int]]:
    first = None
    for seq in range(each.first_seq, each.last_seq + 2):
        if seq in settled and seq <= each.last_seq:
            first = seq if first is None else first
        elif first is not None:
            yield first, seq - 1
            first = None


@contextmanager
def small() -> Iterator[None]:
    """Deletions come in several pieces, and become discards soon."""
    with (
        patch.object(discards, "PIECE_ROWS_MAX", 1),
        patch.object(discards, "PIECE_SETTLED_MAX", 1),
        patch.object(statement_parameters, "INLINE_RANGES_MAX", 2),
    ):
        yield


STEPS = ["commit", "commit", "commit", "tell", "undo", "restart", "idle", "new epoch"]


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_undo_at_every_point_and_nothing_leaves_early(kind, data):
    with small(), tempfile.TemporaryDirectory() as directory:
        incarnation = Incarnation(SqliteDrive(Path(directory)) if kind == "sqlite" else MemoryDrive())
        try:
            for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=3, max_size=14)):
                source = data.draw(st.sampled_from([1, 2]), label="source")
                model = incarnation.models[source]
                if step == "commit":
                    incarnation.commit(data)
                elif step == "tell":
                    incarnation.tell(source, data.draw(st.sampled_from(incarnation.positions(source))))
                elif step == "undo":
                    position = data.draw(st.sampled_from(incarnation.positions(source)))
                    event(f"undo of {sum((e.epoch, e.idx) > position for e in model.entries)} entries")
                    model.undo(position)
                    incarnation.write(Undone(source, position))
                    incarnation.check_recovered(incarnation.found())
                elif step == "new epoch":
                    # Its leader's journal may be younger: the order is by epoch first.
                    model.epoch, model.idx = model.epoch + 1, 0
                    event("new epoch")
                    barrier = SourceEntry(source, model.epoch, 1)
                    incarnation.write(model.written(incarnation.disk, barrier))
                    model.stored(barrier)
                elif step == "restart":
                    incarnation.check_recovered(incarnation.restart())
                else:
                    incarnation.disk.vacuum_step()
                incarnation.check_kept()
            incarnation.check_end()
        finally:
            incarnation.disk.close()
