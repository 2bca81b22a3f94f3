"""The state of a source, sent as a difference: what every disk does with it, and what only SQLite's tables show."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from amqpd.backup.progress import Progress
from amqpd.checking.check import check
from amqpd.checking.repair import repair
from amqpd.journal.records import SeqRange, SourceEntry
from amqpd.journal.sqlite import discards, statement_parameters
from amqpd.journal.sqlite import state as state_module
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.payload import BadPayload
from amqpd.journal.sqlite.state import decode
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import START, Position, Vote
from amqpd.replication.replica import (
    Appended,
    StateBegin,
    StateDiscard,
    StateEnd,
    StateInstall,
    StatePart,
    Undone,
    VoteCast,
    Write,
)
from tests.journal.disks import (
    Drive,
    DrivenDisk,
    MemoryDrive,
    SqliteDrive,
    appended,
    deadlines,
    idle,
    row,
    rows_on_disk,
    store,
    tell,
    undo,
    write,
)
from tests.journal.test_replicas import seen, tables

SOURCE = 1


@pytest.fixture
def other(drive: Drive, tmp_path: Path) -> Drive:
    """Of another forwarder."""
    return SqliteDrive(tmp_path / "other") if isinstance(drive, SqliteDrive) else MemoryDrive()


def opened(drive: Drive) -> DrivenDisk:
    disk = drive.open()
    disk.recover()
    return disk


def a_leader(drive: Drive) -> DrivenDisk:
    """Committed up to (1, 6): a row that died, one that is half settled, one that lives; a queue that was dropped."""
    disk = opened(drive)
    timed = deadlines((9, 10, 14))
    store(disk, SOURCE, 1, 1, row(20, 0, 9), row(20, 10, 19, deadlines=timed), row(21, 0, 9), row(22, 0, 4))
    store(disk, SOURCE, 1, 2, delivered={20: 5, 22: 1}, counts=[(20, 11, 1), (21, 2, 1)], reserved=100)
    store(disk, SOURCE, 1, 3, settled=[SeqRange(20, 0, 9), SeqRange(20, 12, 13)], retired=[SeqRange(20, 0, 9)])
    store(disk, SOURCE, 1, 4, row(20, 20, 29, nbytes=5000), counts=[(20, 11, 2)])
    store(disk, SOURCE, 1, 5, row(22, 5, 5), dropped=[21])
    store(disk, SOURCE, 1, 6, delivered={20: 7})
    tell(disk, SOURCE, 1, 6)
    return disk


def state(disk: DrivenDisk, after: Position, base: Position) -> list[Write]:
    parts = [StatePart(SOURCE, part) for part in disk.state_parts(SOURCE, after, base)]
    return [StateBegin(SOURCE), *parts, StateEnd(SOURCE, base)]


def queues_of(disk: DrivenDisk) -> object:
    return disk.recovered_of({SOURCE}).queues


def test_an_empty_disk_gets_all(drive, other):
    leader, replica = a_leader(drive), opened(other)
    write(replica, *state(leader, START, (1, 6)), StateInstall(SOURCE))
    assert seen(replica) == seen(leader)
    assert replica.replicas() == leader.replicas()
    assert replica.read(20, 10, 29, 1 << 20) == leader.read(20, 10, 29, 1 << 20)
    idle(leader)
    assert rows_on_disk(replica) == rows_on_disk(leader)
    for disk in (leader, replica):
        disk.close()


def test_a_copy_that_is_dropped_leaves_its_vote_and_may_be_made_again(drive, other):
    leader, replica = a_leader(drive), opened(other)
    write(replica, VoteCast(SOURCE, Vote(1, "leader", 1)))
    write(replica, *state(leader, START, (1, 6)), StateInstall(SOURCE))
    store(replica, SOURCE, 1, 7, row(20, 30, 30))
    store(replica, 2, 1, 8, row(30, 0, 9))
    others = replica.recovered_of({2}).queues
    write(replica, StateBegin(SOURCE), StateEnd(SOURCE, START), StateInstall(SOURCE))
    for _ in range(2):
        assert queues_of(replica) == {}
        assert replica.recovered_of({2}).queues == others
        [left] = [each for each in replica.replicas() if each.source == SOURCE]
        assert (left.vote, left.base, left.tail) == (Vote(1, "leader", 1), START, [])
        idle(replica)
        assert rows_on_disk(replica) == [(30, 0)]
        replica.close()
        replica = opened(other)
    write(replica, *state(leader, START, (1, 6)), StateInstall(SOURCE))
    assert queues_of(replica) == queues_of(leader)
    for disk in (leader, replica):
        disk.close()


def test_what_stands_is_unchanged_until_all_has_come(drive, other):
    leader, replica = a_leader(drive), opened(other)
    store(replica, SOURCE, 1, 1, row(20, 0, 9), row(20, 10, 19), row(21, 0, 9))
    before = queues_of(replica), replica.replicas(), replica.log_entries(SOURCE, START, 1)
    for each in state(leader, START, (1, 6)):
        write(replica, each)
        assert (queues_of(replica), replica.replicas(), replica.log_entries(SOURCE, START, 1)) == before
    write(replica, StateDiscard(SOURCE))
    assert (queues_of(replica), replica.replicas(), replica.log_entries(SOURCE, START, 1)) == before
    store(replica, SOURCE, 1, 2, row(20, 20, 29))
    idle(replica)
    assert rows_on_disk(replica) == [(20, 0), (20, 10), (20, 20), (21, 0)]
    for disk in (leader, replica):
        disk.close()


@pytest.mark.parametrize("until", [1, 2, -1, None])
def test_a_process_that_begins_forgets_what_was_staged(drive, other, until):
    leader, replica = a_leader(drive), opened(other)
    store(replica, SOURCE, 1, 1, row(20, 0, 9), row(20, 10, 19))
    before = queues_of(replica), replica.replicas()
    store(leader, SOURCE, 1, 7, row(20, 30, 30))
    writes = [*state(leader, START, (1, 6)), *map(Appended, leader.log_entries(SOURCE, (1, 6), 1))]
    write(replica, *writes[:until])
    replica.close()
    replica = opened(other)
    assert (queues_of(replica), replica.replicas()) == before
    assert rows_on_disk(replica) == [(20, 0), (20, 10)]
    with pytest.raises(ValueError, match="nothing is being staged"):
        write(replica, StateInstall(SOURCE))
    store(replica, SOURCE, 1, 2, row(20, 20, 29))
    write(replica, *writes, StateInstall(SOURCE))
    assert seen(replica) == seen(leader)
    for disk in (leader, replica):
        disk.close()


def test_entries_that_come_meanwhile_are_staged_too(drive, other):
    leader, replica = a_leader(drive), opened(other)
    writes = state(leader, START, (1, 6))
    store(
        leader,
        SOURCE,
        1,
        7,
        row(20, 30, 39),
        settled=[SeqRange(20, 20, 29)],
        retired=[SeqRange(20, 20, 29)],
        delivered={20: 9},
    )
    store(leader, SOURCE, 1, 8, dropped=[22], counts=[(20, 11, 3)], reserved=900)
    entries = list(map(Appended, leader.log_entries(SOURCE, (1, 6), 1 << 20)))
    write(replica, *writes, entries[0])
    wrong = appended(leader, SourceEntry(SOURCE, 1, 8, [row(20, 40, 49)]), (1, 7))
    write(replica, wrong, Undone(SOURCE, (1, 7)), entries[1])
    assert queues_of(replica) == {}
    write(replica, StateInstall(SOURCE))
    assert seen(replica) == seen(leader)
    assert replica.replicas() == leader.replicas()
    assert replica.log_entries(SOURCE, START, 1 << 20) == leader.log_entries(SOURCE, START, 1 << 20)
    assert undo(replica, SOURCE, 1, 6)[20].rows == undo(leader, SOURCE, 1, 6)[20].rows
    assert seen(replica) == seen(leader)
    for disk in (leader, replica):
        disk.close()


def test_what_stood_above_what_both_have_goes_and_what_died_goes(drive, other):
    """A difference: the replica has what both have up to (1, 2), and then another leader's tail."""
    leader, replica = a_leader(drive), opened(other)
    store(
        replica,
        SOURCE,
        1,
        1,
        row(20, 0, 9),
        row(20, 10, 19, deadlines=deadlines((9, 10, 14))),
        row(21, 0, 9),
        row(22, 0, 4),
    )
    store(replica, SOURCE, 1, 2, delivered={20: 5, 22: 1}, counts=[(20, 11, 1), (21, 2, 1)], reserved=100)
    tell(replica, SOURCE, 1, 2)
    store(replica, SOURCE, 1, 9, row(20, 20, 24), counts=[(20, 11, 5)], settled=[SeqRange(20, 10, 19)], dropped=[22])
    parts = state(leader, (1, 2), (1, 6))
    write(replica, *parts, VoteCast(SOURCE, Vote(3, "b", 1)), StateInstall(SOURCE))
    assert seen(replica) == seen(leader)
    assert replica.replicas()[0][2:] == leader.replicas()[0][2:]
    idle(leader)
    idle(replica)
    assert rows_on_disk(replica) == rows_on_disk(leader)
    if isinstance(parts[1], StatePart) and isinstance(drive, SqliteDrive):
        rows = [each for part in parts[1:-1] if isinstance(part, StatePart) for each in decode(part.part).rows]
        assert [(each.queue_id, each.first_seq) for each, _, _ in rows] == [(20, 20), (22, 5)]
    for disk in (leader, replica):
        disk.close()


def test_a_purge_that_the_leader_does_not_have_deletes_nothing_of_what_takes_its_place(drive, other, monkeypatch):
    """As for a member whose set was forced to go on without it: what it had committed is not in the log, it is sent
    all."""
    monkeypatch.setattr(statement_parameters, "INLINE_RANGES_MAX", 1)
    each = [SeqRange(20, at * 10, at * 10 + 9) for at in range(9)]
    rows = [row(20, item.first_seq, item.last_seq) for item in each]
    leader, replica = opened(drive), opened(other)
    for disk in (leader, replica):
        store(disk, SOURCE, 1, 1, *rows)
    store(leader, SOURCE, 2, 1, row(20, 90, 99))
    tell(leader, SOURCE, 2, 1)
    store(replica, SOURCE, 1, 2, settled=each, retired=each)
    tell(replica, SOURCE, 1, 2)
    write(replica, *state(leader, START, (2, 1)), StateInstall(SOURCE))
    idle(replica)
    assert queues_of(replica) == queues_of(leader)
    assert rows_on_disk(replica) == rows_on_disk(leader)
    for disk in (leader, replica):
        disk.close()


def test_a_purge_that_is_half_carried_out_goes_on_when_its_tail_comes_again(drive, other, monkeypatch):
    """Its rows leave first, then what was settled of them: that is below what both have, and no state names it."""
    monkeypatch.setattr(statement_parameters, "INLINE_RANGES_MAX", 1)
    monkeypatch.setattr(discards, "PIECE_ROWS_MAX", 4)
    halves = [SeqRange(20, at * 10, at * 10 + 4) for at in range(9)]
    each = [SeqRange(20, at * 10, at * 10 + 9) for at in range(9)]
    rests = [SeqRange(20, at * 10 + 5, at * 10 + 9) for at in range(9)]
    leader, replica = opened(drive), opened(other)
    for disk in (leader, replica):
        store(disk, SOURCE, 1, 1, *[row(20, item.first_seq, item.last_seq) for item in each])
        store(disk, SOURCE, 1, 2, settled=halves)
        store(disk, SOURCE, 1, 3, settled=rests, retired=each)
        tell(disk, SOURCE, 1, 3)
    replica.vacuum_step()
    write(replica, *state(leader, (1, 2), (1, 3)), StateInstall(SOURCE))
    idle(replica)
    assert rows_on_disk(replica) == []
    if isinstance(replica, SqliteDisk):
        assert tables(replica)["settled"] == []
    for disk in (leader, replica):
        disk.close()


@pytest.mark.parametrize("whole", [False, True])
def test_a_drop_that_was_never_committed_takes_no_mark_when_what_follows_is(drive, other, whole):
    """Its tail goes, and entries behind it are committed, in one transaction."""
    leader, replica = opened(drive), opened(other)
    for disk in (leader, replica):
        store(disk, SOURCE, 1, 1, row(20, 0, 9))
        store(disk, SOURCE, 1, 2, delivered={20: 5})
    store(leader, SOURCE, 2, 1, settled=[SeqRange(20, 0, 9)], retired=[SeqRange(20, 0, 9)])
    tell(leader, SOURCE, 2, 1)
    tell(replica, SOURCE, 1, 2)
    store(replica, SOURCE, 1, 3, dropped=[20])
    if whole:
        write(replica, *state(leader, (1, 2), (2, 1)), StateInstall(SOURCE))
    else:
        entry = appended(replica, SourceEntry(SOURCE, 2, 1), (1, 2))
        write(replica, Undone(SOURCE, (1, 2)), entry, committed={SOURCE: (2, 1)})
    idle(replica)
    queue = replica.recovered_of({SOURCE}).queues[20]
    assert (queue.next_seq, queue.delivered) == (10, 5)
    for disk in (leader, replica):
        disk.close()


def test_what_does_not_fit_is_refused(drive, other):
    leader, replica = a_leader(drive), opened(other)
    parts = state(leader, START, (1, 6))
    last = SourceEntry(SOURCE, 1, 9)
    for refused in (
        parts[1:],
        [*parts[:-1], StateInstall(SOURCE)],
        [*parts, Undone(SOURCE, (1, 5))],
        [parts[0], appended(leader, last)],
        [*parts, appended(leader, last, (1, 8))],
    ):
        with pytest.raises(ValueError, match=r"staged|come|follows"):
            write(replica, *refused)
        assert replica.replicas() == []
    with pytest.raises(ValueError, match="no state"):
        list(leader.state_parts(SOURCE, START, (1, 7)))
    for disk in (leader, replica):
        disk.close()


def test_a_part_that_is_damaged_is_refused(tmp_path: Path) -> None:
    leader, replica = a_leader(SqliteDrive(tmp_path / "leader")), opened(SqliteDrive(tmp_path / "replica"))
    parts = list(leader.state_parts(SOURCE, START, (1, 6)))
    for part in (b"", parts[-1][:-1], parts[-1] + b"x", b"\2" + parts[-1][1:], parts[0][:100]):
        with pytest.raises(BadPayload):
            write(replica, StateBegin(SOURCE), StatePart(SOURCE, part))
    with pytest.raises(BadPayload):
        write(replica, StateBegin(2), StatePart(2, parts[0]))
    mixed = [StatePart(SOURCE, part) for part in (*parts, *leader.state_parts(SOURCE, (1, 1), (1, 6)))]
    with pytest.raises(BadPayload, match="more than one state"):
        write(replica, StateBegin(SOURCE), *mixed, StateEnd(SOURCE, (1, 6)), StateInstall(SOURCE))
    for disk in (leader, replica):
        disk.close()


def test_a_check_does_not_take_what_is_staged_for_damage(tmp_path: Path) -> None:
    leader, drive = a_leader(SqliteDrive(tmp_path / "leader")), SqliteDrive(tmp_path / "replica")
    replica = drive.open()
    replica.recover()
    store(replica, SOURCE, 1, 1, row(20, 0, 9), row(20, 10, 19))
    write(replica, VoteCast(SOURCE, Vote(1, "a", 1)), *state(leader, START, (1, 6)))
    replica.close()
    found = [each.line for each in check(drive.directory, Progress()).report.findings if each.file == JOURNAL]
    assert found == []
    connection = sqlite3.connect(drive.directory / JOURNAL)
    connection.execute("UPDATE seal SET life = 8")
    connection.commit()
    connection.close()
    repair(drive.directory, Progress())
    repaired = opened(drive)
    assert rows_on_disk(repaired) == [(20, 0), (20, 10)]
    repaired.close()
    leader.close()


def test_of_a_state_in_many_parts_what_left_meanwhile_is_passed_over(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(state_module, "PART_BYTES", 20)
    leader, replica = a_leader(SqliteDrive(tmp_path / "leader")), opened(SqliteDrive(tmp_path / "replica"))
    parts = leader.state_parts(SOURCE, START, (1, 6))
    writes: list[Write] = [StateBegin(SOURCE), StatePart(SOURCE, next(parts))]
    store(leader, SOURCE, 1, 7, settled=[SeqRange(20, 20, 29)], retired=[SeqRange(20, 20, 29)])
    entry = leader.log_entries(SOURCE, (1, 6), 1)
    tell(leader, SOURCE, 1, 7)
    idle(leader)
    writes += [StatePart(SOURCE, part) for part in parts]
    assert len(writes) > 3
    for each in (*writes, StateEnd(SOURCE, (1, 6)), *map(Appended, entry), StateInstall(SOURCE)):
        write(replica, each)
    tell(replica, SOURCE, 1, 7)
    idle(replica)
    assert seen(replica) == seen(leader)
    assert isinstance(leader, type(replica))
    mine, its = tables(replica), tables(leader)  # type: ignore[arg-type]
    assert {name: rows for name, rows in mine.items() if name != "queue"} == {
        name: rows for name, rows in its.items() if name != "queue"
    }
    for disk in (leader, replica):
        disk.close()


def test_other_sources_and_the_local_one_go_on_meanwhile(tmp_path: Path) -> None:
    leader, drive = a_leader(SqliteDrive(tmp_path / "leader")), SqliteDrive(tmp_path / "replica")
    replica = opened(drive)
    for each in state(leader, START, (1, 6)):
        write(replica, each)
        replica.commit(JournalTransaction(replica.index + 1, [row(10, replica.index, replica.index)]))
        store(replica, 2, 1, replica.index, row(30, replica.index, replica.index))
    write(replica, StateInstall(SOURCE))
    assert seen(replica) == seen(leader)
    replica.close()
    replica = drive.open()
    assert len(replica.recover().queues[10].rows) == len(replica.recovered_of({2}).queues[30].rows) == 4
    assert seen(replica) == seen(leader)
    for disk in (leader, replica):
        disk.close()
