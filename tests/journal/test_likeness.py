"""`journal/sqlite/likeness.py` and `journal/sqlite/adoption.py`: one journal becomes another one.

What is verified: after random transactions that differ, the target has the source's records, in one transaction or in
several; a disk that adopts them goes on as the source does; a copy that is given up in one transaction has changed
nothing; a body that is damaged on the source comes from another disk.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amqpd.datadir.disks.copying import copy_journal, open_moment
from amqpd.journal.records import JournalDamaged, Row, SeqRange
from amqpd.journal.sqlite import likeness, schema
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.transaction import JournalTransaction
from tests.harness.slow import slow
from tests.journal.disks import RESERVE_BYTES, deadlines, row


def open_disk(directory: Path) -> SqliteDisk:
    return SqliteDisk(directory, reserve_bytes=RESERVE_BYTES)


class Traffic:
    """Transactions as queues make them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.next = dict.fromkeys(range(1, 6), 0)
        self.live: list[Row] = []
        self.deletable: list[SeqRange] = []

    def transaction(self, index: int) -> JournalTransaction:
        chance, rows, settled = self.chance, list[Row](), list[SeqRange]()
        for _ in range(chance.randint(0, 6)):
            queue_id, count = chance.choice(list(self.next)), chance.randint(1, 5)
            first = self.next[queue_id]
            self.next[queue_id] += count
            timed = deadlines((5, first, first)) if chance.random() < 0.2 else b""
            rows.append(row(queue_id, first, first + count - 1, nbytes=chance.randint(1, 3000), deadlines=timed))
        deletes, self.deletable = self.deletable, []
        for each in [each for each in self.live if chance.random() < 0.2]:
            self.live.remove(each)
            whole = SeqRange(each.queue_id, each.first_seq, each.last_seq)
            settled.append(whole)
            self.deletable.append(whole)
        counts = [(each.queue_id, each.first_seq, 2) for each in self.live[:2] if chance.random() < 0.5]
        self.live += rows
        delivered = {chance.choice(list(self.next)): chance.randint(0, 9)}
        return JournalTransaction(index, rows, settled, deletes, delivered, counts)


def run(disk: SqliteDisk, traffic: Traffic, count: int, *others: SqliteDisk) -> None:
    for _ in range(count):
        transaction = traffic.transaction(disk.index + 1)
        for each in (disk, *others):
            each.commit(transaction)


def records(directory: Path) -> dict[str, list[tuple[object, ...]]]:
    """Of each table all that it has."""
    with closing(open_moment(directory / "journal.db")) as connection:
        return {
            table.name: sorted(connection.execute(f"SELECT * FROM {table.name}").fetchall())
            for table in schema.metadata.sorted_tables
        }


@pytest.mark.parametrize("seed", [0, slow(1), slow(2), slow(3)])
@pytest.mark.parametrize("whole", [False, True])
def test_a_journal_becomes_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, whole: bool
) -> None:
    monkeypatch.setattr(likeness, "STEP_ROWS", 7)
    monkeypatch.setattr(likeness, "STEP_BYTES", 5_000)
    monkeypatch.setattr(likeness, "COMMIT_BYTES", 20_000)
    traffic = Traffic(seed)
    source = open_disk(tmp_path / "source")
    source.recover()
    run(source, traffic, 20)
    target = tmp_path / "target"
    target.mkdir()
    if whole:
        # What it has is of the same journal, and older.
        with closing(open_moment(source.path)) as moment:
            copy_journal(moment, target, whole=False)
        run(source, traffic, 20)
    with closing(open_moment(source.path)) as moment:
        known = source.adoption_source()
        run(source, traffic, 3)  # what comes after the moment is not copied
        made = copy_journal(moment, target, whole=whole)
        assert made.written
        wanted = {
            table.name: sorted(moment.execute(f"SELECT * FROM {table.name}").fetchall())
            for table in schema.metadata.sorted_tables
        }
    assert records(target) == wanted
    copy = open_disk(target)
    copy.adopt(known)
    assert copy.index == source.index - 3
    copy.close()
    source.close()


def test_what_adopts_goes_on_as_the_source_does(tmp_path: Path) -> None:
    traffic = Traffic(7)
    source = open_disk(tmp_path / "source")
    source.recover()
    run(source, traffic, 30)
    (tmp_path / "target").mkdir()
    with closing(open_moment(source.path)) as moment:
        known = source.adoption_source()
        copy_journal(moment, tmp_path / "target", whole=False)
    target = open_disk(tmp_path / "target")
    target.adopt(known)
    run(source, traffic, 30, target)
    transaction = JournalTransaction(source.index + 1, dropped=[1, 2])
    source.commit(transaction)
    target.commit(transaction)
    while source.vacuum_step() | target.vacuum_step():
        pass
    source.close()
    target.close()
    before, after = open_disk(tmp_path / "source"), open_disk(tmp_path / "target")
    assert before.recover() == after.recover()
    assert before.head(0).position == after.head(0).position
    before.close()
    after.close()


def test_nothing_is_written_when_both_are_equal(tmp_path: Path) -> None:
    source = open_disk(tmp_path / "source")
    source.recover()
    run(source, Traffic(1), 10)
    (tmp_path / "target").mkdir()
    with closing(open_moment(source.path)) as moment:
        copy_journal(moment, tmp_path / "target", whole=False)
        again = copy_journal(moment, tmp_path / "target", whole=True)
    assert (again.written, again.removed) == (0, 0)
    source.close()


def test_a_copy_that_is_given_up_changes_nothing(tmp_path: Path) -> None:
    traffic = Traffic(2)
    source = open_disk(tmp_path / "source")
    source.recover()
    run(source, traffic, 10)
    (tmp_path / "target").mkdir()
    with closing(open_moment(source.path)) as moment:
        copy_journal(moment, tmp_path / "target", whole=False)
    before = records(tmp_path / "target")
    run(source, traffic, 10)
    steps = iter(range(5))

    def give_up() -> None:
        if next(steps, None) is None:
            raise TimeoutError

    with closing(open_moment(source.path)) as moment, pytest.raises(TimeoutError):
        copy_journal(moment, tmp_path / "target", whole=True, goes_on=give_up)
    assert records(tmp_path / "target") == before
    source.close()


def test_a_damaged_target_is_told_by_sqlite(tmp_path: Path) -> None:
    source = open_disk(tmp_path / "source")
    source.recover()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "journal.db").write_bytes(b"SQLite format 3\0" + bytes(5000))
    with closing(open_moment(source.path)) as moment, pytest.raises(sqlite3.DatabaseError):
        copy_journal(moment, tmp_path / "target", whole=True)
    source.close()


@pytest.mark.parametrize("damage", ["zeroblob(nbytes)", slow("x'00'"), slow("'text'")])
@pytest.mark.parametrize("whole", [False, True])
def test_a_damaged_body_comes_from_another_disk(tmp_path: Path, damage: str, whole: bool) -> None:
    """Without one it is copied as it is: it is found when it is read."""
    places = [tmp_path / name for name in "abcd"]
    disks = [open_disk(each) for each in places]
    for each in disks:
        each.recover()
    run(disks[0], Traffic(1), 40, disks[1])
    for each in disks:
        each.close()
    good = records(places[0])
    with closing(sqlite3.connect(places[0] / "journal.db")) as connection:
        connection.execute(
            f"UPDATE batch SET data = {damage} WHERE batch_id = (SELECT max(batch_id) FROM batch WHERE nbytes > 8)"
        )
        connection.commit()
    assert records(places[0]) != good
    journals = [each / "journal.db" for each in places[:2]]
    for target, others, mended in ((places[2], journals, 1), (places[3], journals[:1], 0)):
        with closing(open_moment(journals[0])) as source:
            assert copy_journal(source, target, whole=whole, others=others).mended == mended
    assert records(places[2]) == good
    assert records(places[3]) == records(places[0])


def damaged(directory: Path, *statements: str) -> Path:
    """A journal with some records, after these statements."""
    disk = open_disk(directory)
    disk.recover()
    run(disk, Traffic(1), 40)
    disk.close()
    with closing(sqlite3.connect(directory / "journal.db")) as connection:
        for each in statements:
            connection.execute(each)
        connection.commit()
    return directory / "journal.db"


def test_a_damaged_length_takes_no_memory(tmp_path: Path) -> None:
    journal = damaged(tmp_path / "a", f"UPDATE batch SET deadline_bytes = {1 << 60}")
    with closing(open_moment(journal)) as source:
        copy_journal(source, tmp_path / "b", whole=False)
    assert records(tmp_path / "b") == records(tmp_path / "a")


def test_an_index_with_a_row_more_is_damage(tmp_path: Path) -> None:
    """By the index a record is found that the table has not."""
    journal = tmp_path / "a" / "journal.db"
    damaged(tmp_path / "a")
    with closing(sqlite3.connect(journal)) as connection:
        name, sql, root = connection.execute(
            "SELECT name, sql, rootpage FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'batch'"
        ).fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = ?", (name,))
        connection.commit()
    with closing(sqlite3.connect(journal)) as connection:
        connection.execute("DELETE FROM batch WHERE batch_id = (SELECT max(batch_id) FROM batch)")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('index', ?, 'batch', ?, ?)",
            (name, root, sql),
        )
        connection.commit()
    with closing(open_moment(journal)) as source, pytest.raises(JournalDamaged, match="a row more"):
        copy_journal(source, tmp_path / "b", whole=False)
