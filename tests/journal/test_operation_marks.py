"""What a log has of the operations of edges: the fold of records, and what the tables make of them.

What is verified: one by one, folded for a transaction, or as a disk's record, the same state; what a start, an undo,
a state for another disk and a damaged record make of it; journals and payloads of versions that know nothing of it.
At random, with everything else that a source has: `test_sources_properties.py`, `test_replicas.py`; lies:
`test_lies.py`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.backup.progress import Progress
from amqpd.checking.repair import repair
from amqpd.journal.errors import DiskFull
from amqpd.journal.operation_marks import (
    ForwarderGone,
    GatheringMarks,
    IncarnationEnded,
    MarkChange,
    Marked,
    MarkRecord,
    Marks,
    OperationMark,
    Outcome,
    OutcomeRange,
    Purged,
    Refused,
    ranges_of,
)
from amqpd.journal.records import JournalDamaged, SourceEntry
from amqpd.journal.sqlite import payload as payload_module
from amqpd.journal.sqlite import state as state_module
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.mark_bytes import pack_changes, unpack_changes
from amqpd.journal.sqlite.mark_rows import MarkRow, marks_of
from amqpd.journal.sqlite.payload import WITHOUT_MARKS, decode, encode
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import START
from amqpd.replication.replica import StateBegin, StateEnd, StateInstall, StatePart
from tests.journal.disks import DrivenDisk, SqliteDrive, appended, row, store, tell, undo, write
from tests.journal.test_sources import damage, found_by_check, found_by_scrub

OF_NOBODY = OperationMark()


@pytest.fixture
def drive(tmp_path: Path) -> SqliteDrive:
    return SqliteDrive(tmp_path / "data")


def changes(*records: MarkRecord) -> list[MarkChange]:
    gathering = GatheringMarks()
    for record in records:
        gathering.note(record)
    return gathering.changes()


def made_of(*records: MarkRecord) -> Marks:
    marks = Marks()
    for record in records:
        marks.apply(record)
    return marks


def opened(drive: SqliteDrive) -> SqliteDisk:
    disk = drive.open()
    disk.recover()
    return disk


def marks_on(disk: DrivenDisk, source: int = 1) -> Marks:
    return disk.recovered_of({source}).marks_of(source)


class Chance:
    """Records as leaders make them, and some that come late."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.marks = Marks()

    def record(self) -> MarkRecord:
        draw = self.data.draw
        forwarder = draw(st.sampled_from(["f", "g"]))
        living = [number for name, number in self.marks.marks if name == forwarder]
        incarnation = max(1, max([0, *living]) + draw(st.integers(-1, 1)))
        what = draw(st.integers(0, 9))
        record: MarkRecord
        if what == 0:
            record = ForwarderGone(forwarder)
        elif what <= 2:
            record = IncarnationEnded(forwarder, incarnation)
        else:
            mark = self.marks.marks.get((forwarder, incarnation), OF_NOBODY).mark
            last = mark + draw(st.integers(0, 4))
            outcomes: list[Outcome] = [
                Purged(number, 3) if draw(st.booleans()) else Refused(number, 0, draw(st.integers(1, 2)))
                for number in range(mark + 1, last + 1)
                if draw(st.booleans())
            ]
            if draw(st.booleans()):
                outcomes.append(Purged(last + 1, draw(st.integers(1, 3))))
            record = Marked(forwarder, incarnation, last, draw(st.integers(0, mark)), tuple(outcomes))
        self.marks.apply(record)
        return record


@given(data=st.data())
def test_folded_for_a_transaction_or_as_records_of_a_disk_they_say_the_same(data):
    """What comes of an ended incarnation within one transaction is left out there, so it is not in the state."""
    chance, folded = Chance(data), Marks()
    rows: dict[str, MarkRow] = {}
    for at in range(1, data.draw(st.integers(2, 6))):
        gathered = changes(*(chance.record() for _ in range(data.draw(st.integers(0, 6)))))
        assert unpack_changes(pack_changes(gathered)) == gathered
        for change in gathered:
            for record in change.records():
                folded.apply(record)
            after = rows.get(change.forwarder, MarkRow()).after(change, (1, at))
            rows[change.forwarder] = after
        assert folded == chance.marks
        assert marks_of({name: each for name, each in rows.items() if not each.is_empty}) == chance.marks


def test_outcomes_that_are_alike_are_one_range():
    outcomes: list[Outcome] = [Refused(number, 0, 1) for number in range(1, 1001)]
    outcomes += [Refused(1001, 0, 2), Purged(1002, 5), Purged(1003, 5), Refused(1005, 0, 2)]
    ranges = ranges_of(outcomes)
    assert ranges == [
        OutcomeRange(0, 1, 1000, 0, 1),
        OutcomeRange(0, 1001, 1001, 0, 2),
        OutcomeRange(1, 1002, 1003, 5, 0),
        OutcomeRange(0, 1005, 1005, 0, 2),
    ]
    assert [outcome for each in ranges for outcome in each.outcomes()] == outcomes
    heard = OperationMark(1005, tuple(ranges)).after(1006, 999, [])
    assert heard.outcomes == outcomes[999:]


def test_how_far_a_purge_has_come_is_said_again_until_it_is_done():
    steps = [
        Marked("f", 1, 4, 0, (Purged(3, 9), Purged(4, 9), Purged(5, 9))),
        Marked("f", 1, 4, 0, (Purged(5, 18),)),
        Marked("f", 1, 6, 0, (Purged(5, 20), Refused(6, 0, 1))),
        Marked("f", 1, 6, 5, ()),
    ]
    left: list[list[Outcome]] = [
        [Purged(3, 9), Purged(4, 9), Purged(5, 9)],
        [Purged(3, 9), Purged(4, 9), Purged(5, 18)],
        [Purged(3, 9), Purged(4, 9), Purged(5, 20), Refused(6, 0, 1)],
        [Refused(6, 0, 1)],
    ]
    for count, expected in enumerate(left, 1):
        assert made_of(*steps[:count]).marks["f", 1].outcomes == expected
        [change] = changes(*steps[:count])
        assert made_of(*change.records()).marks["f", 1].outcomes == expected


def test_a_purge_under_way_that_is_like_the_one_before_it_is_forgotten_beside_that():
    """One range of both, of which the first is heard and the second not done."""
    marks = made_of(Marked("f", 1, 2, 0, (Purged(2, 3), Purged(3, 3))), Marked("f", 1, 2, 2, ()))
    assert marks.marks["f", 1] == OperationMark(2)


def test_a_newer_incarnation_ends_the_one_before_it():
    marks = made_of(Marked("f", 3, 9, 0, (Refused(9, 0, 1),)), Marked("f", 5, 2, 0, ()))
    assert (marks.marks, marks.ended) == ({("f", 5): OperationMark(2)}, {"f": 4})
    marks.apply(Marked("f", 3, 12, 0, ()))
    assert list(marks.marks) == [("f", 5)]


def test_an_incarnation_is_a_number_from_1_on():
    with pytest.raises(ValueError, match="they begin with 1"):
        GatheringMarks().note(Marked("f", 0, 1, 0, ()))


REFUSED = (Refused(2, 0, 3), Refused(3, 0, 3), Purged(4, 7))


def test_a_start_gives_a_leader_what_was_marked_and_keeps_what_ended(drive):
    disk = opened(drive)
    store(disk, 1, 1, 1, row(20, 0, 9), marks=changes(Marked("f", 1, 4, 0, REFUSED), Marked("g", 2, 8, 3, ())))
    store(disk, 1, 1, 2, marks=changes(Marked("f", 1, 9, 2, (Refused(8, 1, 2),)), IncarnationEnded("g", 2)))
    disk.commit(JournalTransaction(3, [row(10, 0, 0)], marks=changes(Marked("h", 1, 1, 0, ()))))
    for _ in range(2):
        left: list[Outcome] = [*REFUSED[1:], Refused(8, 1, 2)]
        assert marks_on(disk).marks == {("f", 1): OperationMark(9, tuple(ranges_of(left)))}
        assert marks_on(disk).ended == {"g": 2}
        assert marks_on(disk, 2) == Marks()
        tell(disk, 1, 1, 2)
        disk.close()
        disk = drive.open()
        recovered = disk.recover()
        assert recovered.marks == {0: Marks({("h", 1): OperationMark(1)})}
    assert disk._writer.execute("SELECT count(*) FROM former_operation_mark").fetchone() == (0,)
    disk.commit(JournalTransaction(disk.index + 1, marks=changes(IncarnationEnded("h", 1), ForwarderGone("x"))))
    disk.commit(JournalTransaction(disk.index + 1, marks=changes(ForwarderGone("h"))))
    store(disk, 1, 1, 3, marks=changes(ForwarderGone("g"), ForwarderGone("f")))
    tell(disk, 1, 1, 3)
    disk.close()
    disk = drive.open()
    assert (disk.recover().marks, marks_on(disk)) == ({}, Marks())
    assert disk._writer.execute("SELECT count(*) FROM former_operation_mark").fetchone() == (0,)
    disk.close()


@pytest.mark.parametrize("restarts", [False, True])
def test_an_undo_brings_back_what_an_entry_has_written_over_or_removed(drive, restarts):
    disk = opened(drive)
    records: list[list[MarkRecord]] = [
        [Marked("f", 1, 4, 0, REFUSED)],
        [Marked("f", 1, 9, 4, ()), Marked("g", 1, 1, 0, ())],
        [ForwarderGone("f"), IncarnationEnded("g", 1)],
        [Marked("f", 7, 1, 0, ()), ForwarderGone("g")],
    ]
    states = [Marks()]
    for idx, each in enumerate(records, 1):
        store(disk, 1, 1, idx, marks=changes(*each))
        states.append(made_of(*(record for some in records[:idx] for record in some)))
        assert marks_on(disk) == states[-1]
    for idx in (3, 2, 1, 0):
        if restarts:
            disk.close()
            disk = opened(drive)
        undo(disk, 1, 1, idx) if idx else undo(disk, 1, 0, 0)
        assert marks_on(disk) == states[idx]
        tables = [disk._writer.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in
                  ("operation_mark", "former_operation_mark")]  # fmt: skip
        assert tables[0] == len({*(name for name, _ in states[idx].marks), *states[idx].ended})
        assert tables[1] <= 2 * idx
    disk.close()


def test_what_is_replaced_below_a_removal_is_forgotten_after_a_start_too(drive):
    """Nothing is left in the table of what there is, and something in that of what there was."""
    disk = opened(drive)
    store(disk, 1, 1, 1, marks=changes(Marked("f", 1, 4, 0, ())))
    store(disk, 1, 1, 2, marks=changes(ForwarderGone("f")))
    disk.close()
    disk = opened(drive)
    assert disk._writer.execute("SELECT count(*) FROM former_operation_mark").fetchone() == (1,)
    tell(disk, 1, 1, 2)
    assert disk._writer.execute("SELECT count(*) FROM former_operation_mark").fetchone() == (0,)
    disk.close()


def test_a_full_disk_has_neither_the_mark_nor_what_it_is_of(drive):
    disk = opened(drive)
    store(disk, 1, 1, 1, row(20, 0, 9), marks=changes(Marked("f", 1, 4, 0, ())))
    disk.commit(JournalTransaction(2, marks=changes(Marked("h", 1, 1, 0, ()))))
    before = marks_on(disk), marks_on(disk, 0)
    entry = SourceEntry(1, 1, 3, [row(20, 10, 19)], marks=changes(Marked("f", 1, 5, 0, ())))
    transaction = JournalTransaction(3, [row(10, 0, 0)], writes=[appended(disk, entry)])
    transaction.marks = changes(Marked("h", 1, 2, 0, ()))
    pages = disk._writer.execute("PRAGMA page_count").fetchone()[0]
    disk._writer.execute(f"PRAGMA max_page_count = {pages}")
    transaction.rows[0].data = bytes(200_000)
    with pytest.raises(DiskFull):
        disk.commit(transaction)
    assert (marks_on(disk), marks_on(disk, 0)) == before
    disk._writer.execute("PRAGMA max_page_count = 1000000")
    disk.commit(transaction)
    assert (marks_on(disk).marks["f", 1].mark, marks_on(disk, 0).marks["h", 1].mark) == (5, 2)
    disk.close()


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_state_has_what_was_marked_at_its_base_and_nothing_that_was_removed(drive, tmp_path, monkeypatch, after):
    monkeypatch.setattr(state_module, "PART_BYTES", 100)
    leader, replica = opened(drive), opened(SqliteDrive(tmp_path / "other"))
    entries: list[list[MarkRecord]] = [
        [Marked("f", 1, 4, 0, REFUSED), Marked("g", 1, 1, 0, ())],
        [Marked("f", 1, 9, 3, ()), Marked("h", 3, 1, 0, ())],
        [ForwarderGone("g"), Marked("f", 1, 12, 4, ())],
        [Marked("f", 2, 1, 0, ()), ForwarderGone("h"), Marked("new", 1, 1, 0, ())],
    ]
    for idx, each in enumerate(entries, 1):
        store(leader, 1, 1, idx, row(20, 10 * idx, 10 * idx + 9), marks=changes(*each))
        if idx <= after:
            store(replica, 1, 1, idx, row(20, 10 * idx, 10 * idx + 9), marks=changes(*each))
    tell(leader, 1, 1, 3)
    # Nobody has these but the replica.
    store(replica, 1, 2, 1, marks=changes(Marked("f", 1, 77, 0, ()), Marked("lost", 1, 1, 0, ())))
    parts = list(leader.state_parts(1, (1, after) if after else START, (1, 3)))
    assert len(parts) > 3
    write(replica, StateBegin(1), *(StatePart(1, part) for part in parts), StateEnd(1, (1, 3)))
    assert marks_on(replica).marks["f", 1].mark == 77
    write(replica, StateInstall(1))
    expected = made_of(*(record for each in entries[:3] for record in each))
    for _ in range(2):
        assert marks_on(replica) == expected
        assert replica._writer.execute("SELECT count(*) FROM former_operation_mark").fetchone() == (0,)
        replica.close()
        replica = opened(SqliteDrive(tmp_path / "other"))
    leader.close()
    replica.close()


def test_without_marks_payloads_and_states_are_those_that_older_nodes_read(drive):
    disk = opened(drive)
    store(disk, 1, 1, 1, row(20, 0, 9))
    tell(disk, 1, 1, 1)
    entry = SourceEntry(1, 1, 2, [row(20, 10, 19)])
    assert encode(entry)[0] == WITHOUT_MARKS
    assert [part[0] for part in disk.state_parts(1, START, (1, 1))] == [1, 1]
    entry.marks = changes(Marked("f", 1, 4, 0, ()))
    assert encode(entry)[0] == WITHOUT_MARKS + 1
    disk.close()


def test_an_entry_of_a_version_that_is_not_known_stops_its_source_with_a_sentence(drive, monkeypatch):
    """As an older node meets one with marks: nothing of it is skipped, and what is there stays."""
    entry = SourceEntry(1, 1, 2, [row(20, 10, 19)], marks=changes(Marked("f", 1, 4, 0, ())))
    disk = opened(drive)
    store(disk, 1, 1, 1, row(20, 0, 9))
    made = appended(disk, entry)
    monkeypatch.setattr(payload_module, "_sizes", {1: payload_module._sizes[1]})
    monkeypatch.setattr(payload_module, "VERSION", 1)
    transaction = JournalTransaction(disk.index + 1, [row(10, 0, 0)], writes=[made])
    transaction.own = frozenset()
    disk.commit(transaction)
    assert transaction.unusable == {1: "a payload of version 2, and this one knows up to 1"}
    assert disk.head(1).position == (1, 1)
    with pytest.raises(ValueError, match="a payload of version 2"):
        decode(made.entry.payload)
    disk.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE operation_mark SET mark = mark + 1", "how far another node's operations are done does not fit"),
        ("UPDATE operation_mark SET forwarder = 'x'", "how far another node's operations are done does not fit"),
        ("UPDATE operation_mark SET forwarder = 7", "how far another node's operations are done does not fit"),
        ("UPDATE operation_mark SET outcomes = x'00'", "how far another node's operations are done does not fit"),
        ("UPDATE operation_mark SET outcomes = 'text'", "how far another node's operations are done does not fit"),
        ("UPDATE former_operation_mark SET was_idx = 7", "the former record of how far another node's operations"),
    ],
)
def test_a_damaged_record_is_found_by_all_who_look_and_a_repair_is_without_it(drive, change, said):
    disk = opened(drive)
    store(disk, 1, 1, 1, row(20, 0, 9), marks=changes(Marked("f", 1, 4, 0, REFUSED)))
    store(disk, 1, 1, 2, marks=changes(Marked("f", 1, 5, 0, ())))
    disk.close()
    assert found_by_check(drive.directory) == found_by_scrub(drive.directory) == []
    damage(drive.directory, change)
    assert any(said in line for line in found_by_check(drive.directory))
    assert any(f"of '{change.split()[1]}' does not fit" in line for line in found_by_scrub(drive.directory))
    with pytest.raises(JournalDamaged, match=r"operations of|types that were written"):
        SqliteDisk(drive.directory).examine()
    done = repair(drive.directory, Progress())
    assert {each.severity for each in done.consequences} == {"may come back"}
    assert found_by_check(drive.directory) == []
    disk = opened(drive)
    assert marks_on(disk) == (Marks() if " operation" in change else made_of(Marked("f", 1, 5, 0, REFUSED)))
    disk.close()


def test_a_record_of_a_transaction_that_is_not_there_is_damage(drive):
    disk = opened(drive)
    disk.commit(JournalTransaction(1, [row(10, 0, 0)], marks=changes(Marked("h", 1, 1, 0, ()))))
    source, _, *rest = disk._writer.execute("SELECT * FROM operation_mark").fetchone()
    assert (source, rest[:3]) == (0, [0, 1, 1])
    disk.close()
    damage(drive.directory, "UPDATE operation_mark SET source = 9, crc = 0")
    assert len(found_by_check(drive.directory)) == 1


def test_a_journal_of_the_format_before_gets_the_tables(drive):
    disk = opened(drive)
    store(disk, 1, 1, 1, row(20, 0, 9), counts=[(20, 3, 1)])
    disk.close()
    connection = sqlite3.connect(drive.directory / JOURNAL)
    connection.executescript(
        "DROP TABLE operation_mark; DROP TABLE former_operation_mark;UPDATE alembic_version SET version_num = '0006';"
    )
    connection.close()
    disk = opened(drive)
    assert (marks_on(disk), disk.recovered_of({1}).queues[20].counts) == (Marks(), {3: 1})
    store(disk, 1, 1, 2, marks=changes(Marked("f", 1, 4, 0, REFUSED)))
    assert marks_on(disk).marks["f", 1].outcomes == list(REFUSED)
    disk.close()
    assert found_by_check(drive.directory) == []


def test_a_disk_that_adopts_another_one_goes_on_with_its_marks(drive):
    disk = opened(drive)
    store(disk, 1, 1, 1, marks=changes(Marked("f", 1, 4, 0, ())))
    known = disk.adoption_source()
    store(disk, 1, 1, 2, marks=changes(Marked("f", 1, 5, 0, ())))
    assert known.operations.of(1)["f"].of.mark == 4
    disk.close()
