"""A leader's disk and a replica's that gets the same entries: at every point both have the same queues, and in the
end the same tables. The model of what a source has is that of `test_sources_properties.py`."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from amqpd.journal.errors import DiskFull
from amqpd.journal.operation_marks import MarkChange, Outcome, Purged, Refused, ranges_of
from amqpd.journal.records import RecoveredQueue, SeqRange, SourceEntry
from amqpd.journal.sqlite import disk as disk_module
from amqpd.journal.sqlite import state as state_module
from amqpd.journal.sqlite import statement_parameters
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.payload import decode, encode
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import START, LogEntry, Position, Vote
from amqpd.replication.log import EntryHead
from amqpd.replication.replica import (
    Appended,
    StateBegin,
    StateEnd,
    StateInstall,
    StatePart,
    Undone,
    VoteCast,
    Write,
)
from tests.journal.disks import DrivenDisk, SqliteDrive, appended, deadlines, idle, row, store, tell, undo, write
from tests.journal.payloads import entry_of
from tests.journal.test_sources_properties import SourceModel, small

SOURCE = 1
TABLES = (
    *("batch", "deadline", "settled", "returned", "queue", "discard", "former", "tail"),
    *("operation_mark", "former_operation_mark"),
)


OWN = {"queue": ("next_seq", "crc")}
"""Columns that a disk chooses for itself, besides numbers of rows. A mark's number says how far the rows reached that
this disk deleted: a copy that came while they were deleted never had them. The source's reservation is above it."""


def tables(disk: SqliteDisk) -> dict[str, list[tuple[object, ...]]]:
    """Of the source, without what a disk chooses for itself."""
    found = {}
    for table in TABLES:
        columns = [name for _, name, *_ in disk._writer.execute(f"PRAGMA table_info({table})")]
        own = ("batch_id", "discard_id", "first_row", *OWN.get(table, ()))
        mine = ", ".join(name for name in columns if name not in own)
        says = "AND delivered >= 0" if table == "queue" else ""
        query = f"SELECT {mine} FROM {table} WHERE source = {SOURCE} {says} ORDER BY {mine}"
        found[table] = disk._writer.execute(query).fetchall()
    return found


def seen(disk: DrivenDisk) -> dict[object, object]:
    """Queues, as far as they do not depend on what has left this disk already; and operations of edges."""
    recovered = disk.recovered_of({SOURCE})
    queues: dict[int, RecoveredQueue] = recovered.queues
    found: dict[object, object] = {
        queue_id: (queue.rows, queue.delivered, queue.counts)
        for queue_id, queue in queues.items()
        if queue.rows or queue.delivered
    }
    if SOURCE in recovered.marks:
        found["marks"] = recovered.marks[SOURCE]
    return found


class Side:
    """A directory, and the disk on it."""

    def __init__(self, empty: Path, directory: Path) -> None:
        shutil.copytree(empty, directory)
        self.drive = SqliteDrive(directory)
        self.disk = self.drive.open()
        self.disk.recover()
        self.committed: Position = START

    @property
    def last(self) -> Position:
        return self.disk.head(SOURCE).position

    def tell(self, position: Position) -> None:
        self.committed = max(self.committed, position)
        tell(self.disk, SOURCE, *position)

    def restart(self) -> None:
        before = self.disk.replicas(), seen(self.disk)
        self.disk.close()
        self.disk = self.drive.open()
        assert self.disk.recover().queues == {}
        assert (self.disk.replicas(), seen(self.disk)) == before


class Pair:
    """A leader, a replica, and the log that the leader has."""

    def __init__(self, empty: Path, directory: Path) -> None:
        self.leader, self.replica = Side(empty, directory / "leader"), Side(empty, directory / "replica")
        self.model = SourceModel(SOURCE)
        self.log: list[LogEntry] = []

    def publish(self, data: st.DataObject) -> None:
        entry = self.model.draw(data)
        made = appended(self.leader.disk, entry)
        write(self.leader.disk, made)
        self.model.stored(entry)
        self.log.append(made.entry)

    def missing(self) -> list[LogEntry]:
        """What the replica lacks, by what its disk says; it has nothing else."""
        return [each for each in self.log if each.position > self.replica.last]

    def ship(self, count: int, committed: Position | None = None) -> None:
        """In one transaction."""
        writes = [Appended(each) for each in self.missing()[:count]]
        write(self.replica.disk, *writes, committed=None if committed is None else {SOURCE: committed})

    def _diverge(self, data: st.DataObject) -> None:
        """The replica gets what a leader of the same epoch wrote and nobody else has."""
        model = self.model
        other = SourceModel(SOURCE, list(model.entries), START, model.epoch, model.idx, model.next_seq.copy())
        other.reserved = model.reserved
        writes: list[Write] = [VoteCast(SOURCE, Vote(model.epoch, "old", 1))]
        last = self.replica.last
        if last != self.log_end:
            # It has a divergent tail, of an epoch before: this leader has not, and its messages have the same
            # numbers.
            writes.append(Undone(SOURCE, last := self.log_end))
        for _ in range(data.draw(st.integers(1, 3), label="divergent")):
            entry = other.draw(data)
            writes.append(appended(self.replica.disk, entry, last))
            other.stored(entry)
            last = (entry.epoch, entry.idx)
        event(f"divergent tail of {len(writes) - 1}")
        write(self.replica.disk, *writes)

    def catch_up(self, data: st.DataObject) -> None:
        """By state, from some entry that both have, while the leader goes on; what the replica has above that is
        another's. It may take more than one try."""
        base, disk = self.leader.committed, self.replica.disk
        if base < self.replica.committed or base == START:
            return
        both = [each.position for each in self.log if each.position <= min(base, self.replica.last)]
        after = data.draw(st.sampled_from([START, *both]), label="after")
        if not self.missing() and data.draw(st.booleans(), label="diverges"):
            self._diverge(data)
            self.model.epoch, self.model.idx = self.model.epoch + 1, 0
        before = seen(disk), disk.replicas()
        write(disk, StateBegin(SOURCE))
        for part in self.leader.disk.state_parts(SOURCE, after, base):
            write(disk, StatePart(SOURCE, part))
            what = data.draw(st.sampled_from(["", "publish", "committed", "idle", "restart"]), label="meanwhile")
            if what == "publish":
                self.publish(data)
            elif what == "committed":
                self.leader.tell(self.leader.last)
            elif what == "idle":
                idle(self.leader.disk)
            elif what == "restart":
                self.replica.restart()
                event("restart in the middle of a state")
                assert (seen(self.replica.disk), self.replica.disk.replicas()) == before
                self.catch_up(data)
                return
        write(disk, StateEnd(SOURCE, base))
        above = [each for each in self.log if each.position > base]
        count = data.draw(st.integers(0, len(above)), label="entries staged")
        assert (seen(disk), disk.replicas()) == before
        write(disk, *map(Appended, above[:count]))
        write(disk, StateInstall(SOURCE))
        event(f"caught up after {'nothing' if after == START else 'something'}")
        self.replica.committed = base

    def diverge(self, data: st.DataObject) -> None:
        """The replica gets what nobody else has, and then what counts."""
        if self.missing():
            return
        before, model = seen(self.replica.disk), self.model
        self._diverge(data)
        if data.draw(st.booleans(), label="restart"):
            self.replica.restart()
        write(self.replica.disk, VoteCast(SOURCE, Vote(model.epoch + 1, "new", 1)), Undone(SOURCE, self.log_end))
        model.epoch, model.idx = model.epoch + 1, 0
        assert seen(self.replica.disk) == before

    @property
    def log_end(self) -> Position:
        return self.log[-1].position if self.log else START

    def check(self) -> None:
        if not self.missing():
            assert seen(self.leader.disk) == seen(self.replica.disk)
        for side in (self.leader, self.replica):
            states = side.disk.replicas()
            if states:
                above = [each for each in self.log if side.committed < each.position <= side.last]
                assert states[0].base == side.committed
                assert states[0].tail == [EntryHead(each.position, each.before, each.checksum) for each in above]
                assert side.disk.log_entries(SOURCE, side.committed, 1 << 30) == above

    def end(self) -> None:
        self.ship(1000)
        for side in (self.leader, self.replica):
            side.tell(self.log_end)
            idle(side.disk)
            side.restart()
            idle(side.disk)
        self.check()
        assert tables(self.leader.disk) == tables(self.replica.disk)


STEPS = [
    *("publish", "publish", "publish", "ship", "ship", "committed", "committed", "diverge"),
    *("catch up", "catch up", "restart", "idle"),
]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal that is new: to make one takes long."""
    directory = tmp_path_factory.mktemp("empty") / "data"
    SqliteDrive(directory).open().close()
    return directory


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_replica_is_what_its_leader_is(empty, data):
    with small(), patch.object(state_module, "PART_BYTES", 100), tempfile.TemporaryDirectory() as directory:
        pair = Pair(empty, Path(directory))
        try:
            for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=4, max_size=16)):
                side = data.draw(st.sampled_from([pair.leader, pair.replica]), label="side")
                if step == "publish":
                    pair.publish(data)
                elif step == "ship":
                    pair.ship(data.draw(st.integers(1, 4)))
                elif step == "committed":
                    mine = [each.position for each in pair.log if side.committed < each.position <= side.last]
                    if mine:
                        side.tell(data.draw(st.sampled_from(mine)))
                elif step == "diverge":
                    pair.diverge(data)
                elif step == "catch up":
                    pair.catch_up(data)
                elif step == "restart":
                    side.restart()
                else:
                    side.disk.vacuum_step()
                pair.check()
            if pair.log:
                pair.end()
        finally:
            pair.leader.disk.close()
            pair.replica.disk.close()


@pytest.fixture
def drive(tmp_path: Path) -> SqliteDrive:
    return SqliteDrive(tmp_path / "data")


OUTCOMES: list[Outcome] = [Refused(5, 0, 1), Refused(6, 0, 1), Purged(8, 70)]
LARGE = SourceEntry(
    SOURCE,
    3,
    9,
    [
        row(20, 0, 9, nbytes=5000, deadlines=deadlines((1, 0, 3), (5, 4, 9)), body_bytes=4000, published_ms=77),
        row(20, 10, 19, nbytes=0, persistent=False),
        row(21, 5, 5, nbytes=3000, deadlines=deadlines((1, 5, 5))),
        row(20, 20, 29, nbytes=100),
    ],
    [SeqRange(20, 0, 9), SeqRange(21, 5, 5), SeqRange(20, 3, 4)],
    [SeqRange(20, 0, 9), SeqRange(21, 5, 5)],
    {20: 10, 21: 4},
    [(20, 3, 1), (21, 5, 2)],
    [22, 23],
    800,
    [
        MarkChange("f", gone=True, ended=2, incarnation=3, mark=9, heard=4, ranges=tuple(ranges_of(OUTCOMES))),
        MarkChange("another", ended=7),
    ],
)


@pytest.mark.parametrize("statement_bytes", [1, 4000, 1 << 20])
def test_a_payload_says_what_the_entry_has(monkeypatch, statement_bytes):
    """In one statement, or in many."""
    monkeypatch.setattr(statement_parameters, "STATEMENT_BYTES_MAX", statement_bytes)
    payload = encode(LARGE)
    assert entry_of(payload) == LARGE
    found = decode(payload)
    assert (found.rows, len(found.chunks)) == (4, {1: 4, 4000: 2}.get(statement_bytes, 1))
    assert payload.startswith(found.control)


@pytest.mark.parametrize("statement_bytes", [1, 4000, 1 << 20])
def test_an_entry_of_many_statements_is_read_back(monkeypatch, drive, statement_bytes):
    monkeypatch.setattr(statement_parameters, "STATEMENT_BYTES_MAX", statement_bytes)
    disk = drive.open()
    disk.recover()
    made = appended(disk, LARGE)
    monkeypatch.undo()
    write(disk, made)
    assert disk.log_entries(SOURCE, START, 1) == [made.entry]
    assert disk.read(20, 20, 29, 1) == [LARGE.rows[3]]
    disk.close()


def test_a_full_disk_changes_nothing_and_the_same_is_tried_again(drive, monkeypatch):
    disk = drive.open()
    disk.recover()
    store(disk, SOURCE, 1, 1, row(20, 0, 9), delivered={20: 1}, counts=[(20, 1, 1)])
    before = disk.replicas(), seen(disk), tables(disk)
    entry = SourceEntry(SOURCE, 1, 2, [row(20, 10, 19)], delivered={20: 2}, counts=[(20, 1, 2)], dropped=[21])
    transaction = JournalTransaction(2, [row(10, 0, 0)], writes=[Undone(SOURCE, (1, 1)), appended(disk, entry)])
    transaction.committed = {SOURCE: (1, 2)}
    pages = disk._writer.execute("PRAGMA page_count").fetchone()[0]
    disk._writer.execute(f"PRAGMA max_page_count = {pages}")
    transaction.rows[0].data = bytes(200_000)
    with pytest.raises(DiskFull):
        disk.commit(transaction)
    assert (disk.replicas(), seen(disk), tables(disk)) == before
    disk._writer.execute("PRAGMA max_page_count = 1000000")
    disk.commit(transaction)
    assert [state.base for state in disk.replicas()] == [(1, 2)]
    disk.close()


def test_a_purge_of_much_leaves_in_pieces_when_it_is_committed(drive, monkeypatch):
    monkeypatch.setattr(statement_parameters, "INLINE_RANGES_MAX", 1)
    disk = drive.open()
    disk.recover()
    rows = [row(20, at * 10, at * 10 + 9) for at in range(9)]
    store(disk, SOURCE, 1, 1, *rows)
    each = [SeqRange(20, at * 10, at * 10 + 9) for at in range(9)]
    store(disk, SOURCE, 1, 2, settled=each, retired=each)
    idle(disk)
    assert len(tables(disk)["batch"]) == 9
    assert len(undo(disk, SOURCE, 1, 1)[20].rows) == 9
    store(disk, SOURCE, 2, 1, settled=each, retired=each)
    tell(disk, SOURCE, 2, 1)
    idle(disk)
    assert {name: found for name, found in tables(disk).items() if found and name != "queue"} == {}
    assert disk.recovered_of({SOURCE}).queues[20].next_seq == 90
    disk.close()


def test_a_page_that_cannot_be_changed_ends_deletions_and_not_the_writes(drive, monkeypatch):
    disk = drive.open()
    disk.recover()
    store(disk, SOURCE, 1, 1, row(20, 0, 9))
    store(disk, SOURCE, 1, 2, settled=[SeqRange(20, 0, 9)], retired=[SeqRange(20, 0, 9)])
    real = disk_module.__dict__["write"]

    def damaged(connection, work, piece, *more):
        if piece:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return real(connection, work, piece, *more)

    monkeypatch.setattr(disk_module, "write", damaged)
    entry = appended(disk, SourceEntry(SOURCE, 1, 3, [row(20, 10, 19)]))
    write(disk, entry, committed={SOURCE: (1, 2)})
    assert disk.kept is not None
    assert [each[0] for each in tables(disk)["batch"]] == [20, 20]
    assert disk.replicas()[0].tail == [EntryHead((1, 3), (1, 2), entry.entry.checksum)]
    disk.close()
