"""Random incarnations of a journal beside a plain model: what recovery gives back is what the model has left."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.journal.records import Recovered, Row, SeqRange
from amqpd.journal.sqlite import discards
from amqpd.journal.transaction import JournalTransaction
from tests.journal.disks import MemoryDrive, SqliteDrive, deadlines, row


@dataclass
class ModelQueue:
    rows: list[Row] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)
    next_seq: int = 0
    delivered: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    deletable: list[Row] = field(default_factory=list)


class Model:
    """Message by message, in plain Python; also what makes the transactions legal."""

    def __init__(self) -> None:
        self.index = 0
        self.queues: dict[int, ModelQueue] = {}
        self.next_id = 1

    def transaction(self, data: st.DataObject) -> JournalTransaction:
        self.index += 1
        cut = JournalTransaction(self.index)
        for queue_id in data.draw(st.sets(st.integers(1, 3)), label="publish to"):
            queue = self.queues.setdefault(queue_id, ModelQueue())
            for _ in range(data.draw(st.integers(1, 4))):
                gap, count = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 5))
                first = queue.next_seq + gap
                nbytes = data.draw(st.sampled_from([0, 10, 3000, 20_000]))
                new = row(queue_id, first, first + count - 1, nbytes=nbytes, persistent=data.draw(st.booleans()))
                new.body_bytes, new.published_ms = data.draw(st.sampled_from([(0, 0), (nbytes, 0), (3, 2**62)]))
                if data.draw(st.integers(0, 2), label="deadlines") == 0:
                    new.deadlines = deadlines(*((1000 + seq, seq, seq) for seq in range(first, first + count)))
                cut.rows.append(new)
                queue.rows.append(new)
                queue.next_seq = new.last_seq + 1
        for queue_id, queue in self.queues.items():
            cut.deletes += [SeqRange(queue_id, each.first_seq, each.last_seq) for each in queue.deletable]
            queue.rows = [each for each in queue.rows if each not in queue.deletable]
            for each in queue.rows:
                if data.draw(st.booleans(), label="settle in row"):
                    first = data.draw(st.integers(each.first_seq, each.last_seq))
                    last = data.draw(st.integers(first, each.last_seq))
                    cut.settled.append(SeqRange(queue_id, first, last))
                    queue.settled.update(range(first, last + 1))
                elif data.draw(st.integers(0, 2), label="comes back") == 0:
                    seq = data.draw(st.integers(each.first_seq, each.last_seq))
                    count = queue.counts.get(seq, 0) + 1
                    # The last one of a transaction counts.
                    cut.counts += [(queue_id, seq, 99), (queue_id, seq, count)]
                    queue.counts[seq] = count
            if data.draw(st.booleans(), label="deliver"):
                queue.delivered = data.draw(st.integers(0, queue.next_seq))
                cut.delivered[queue_id] = queue.delivered
            queue.deletable = [each for each in queue.rows if not self._living(queue, each)]
        if self.queues and data.draw(st.integers(0, 5)) == 0:
            gone = data.draw(st.sampled_from(sorted(self.queues)), label="drop")
            cut.dropped.append(gone)
            del self.queues[gone]
            cut.rows = [each for each in cut.rows if each.queue_id != gone]
        return cut

    def restart(self) -> None:
        for queue in self.queues.values():
            queue.rows = [each for each in queue.rows if each.persistent and self._living(queue, each)]
            queue.deletable = []

    def check(self, recovered: Recovered) -> None:
        assert recovered.index == self.index
        for queue_id, found in recovered.queues.items():
            queue = self.queues.get(queue_id, ModelQueue())
            assert [
                (each.first_seq, each.last_seq, each.nbytes, each.body_bytes, each.published_ms, each.deadlines)
                for each in found.rows
            ] == [
                (each.first_seq, each.last_seq, len(each.data), each.body_bytes, each.published_ms, each.deadlines)
                for each in queue.rows
            ]
            living = {seq for each in queue.rows for seq in range(each.first_seq, each.last_seq + 1)} - queue.settled
            assert found.counts == {seq: count for seq, count in queue.counts.items() if seq in living}
            for each in found.rows:
                settled = {seq for first, last in each.settled for seq in range(first, last + 1)}
                assert settled == set(range(each.first_seq, each.last_seq + 1)) & queue.settled
            assert found.next_seq == queue.next_seq
            assert found.delivered == queue.delivered
        for queue_id, queue in self.queues.items():
            known = queue_id in recovered.queues
            assert known or not (queue.rows or queue.next_seq or queue.delivered)

    @staticmethod
    def _living(queue: ModelQueue, each: Row) -> bool:
        return not set(range(each.first_seq, each.last_seq + 1)) <= queue.settled


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
@given(data=st.data())
def test_recovery_equals_the_model(kind, data):
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        # Small pieces, so that discards are interrupted in the middle.
        patch.setattr(discards, "PIECE_ROWS_MAX", 2)
        patch.setattr(discards, "PIECE_SETTLED_MAX", 2)
        patch.setattr(discards, "PIECE_DISCARDS_MAX", 2)
        patch.setattr("amqpd.journal.sqlite.statement_parameters.INLINE_RANGES_MAX", data.draw(st.integers(0, 3)))
        patch.setattr("amqpd.journal.sqlite.statement_parameters.INLINE_RANGES_PER_ROW", data.draw(st.integers(0, 1)))
        patch.setattr("amqpd.journal.sqlite.disk.RECOVERY_STEPS_MAX", data.draw(st.integers(0, 2)))
        drive = SqliteDrive(Path(directory)) if kind == "sqlite" else MemoryDrive()
        model = Model()
        disk = drive.open()
        model.check(disk.recover())
        for _ in range(data.draw(st.integers(1, 8), label="steps")):
            match data.draw(st.sampled_from(["commit", "commit", "commit", "vacuum", "restart"])):
                case "commit":
                    disk.commit(model.transaction(data))
                case "vacuum":
                    disk.vacuum_step()
                case "restart":
                    disk.close()
                    model.restart()
                    disk = drive.open()
                    model.check(disk.recover())
            for queue_id, queue in model.queues.items():
                for each in queue.rows:
                    assert disk.read(queue_id, each.first_seq, each.last_seq, 0) == [each]
        disk.close()
        model.restart()
        for _ in range(2):  # recovered twice is recovered once
            disk = drive.open()
            model.check(disk.recover())
            disk.close()
