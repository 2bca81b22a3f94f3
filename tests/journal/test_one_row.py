"""A transaction of one row has a statement of its own: what it leaves on the disk is what the other one does."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from amqpd.journal.records import Row, SeqRange
from amqpd.journal.sqlite import disk as disk_module
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.one_row import write_row
from amqpd.journal.transaction import JournalTransaction
from tests.journal.disks import SqliteDrive, deadlines

TABLES = ("batch", "settled", "queue", "deadline", "returned", "discard")
# Without the checksum, which names the journal.
SOURCE = "SELECT source, epoch, idx, reserved, replicated, rows, rows_check, settled, settled_check FROM source"


def drawn(chance: Random, count: int) -> list[JournalTransaction]:
    """Of one row mostly, with others between."""
    transactions: list[JournalTransaction] = []
    first, stored = 0, list[tuple[int, int]]()
    for index in range(1, count + 1):
        last = first + chance.choice((0, 0, 7))
        data = chance.randbytes(chance.choice((0, 1, 160, 5_000, 20_000)))
        more = chance.random()
        row = Row(
            *(chance.choice((1, 1 << 62)), first, last, data, more > 0.05, len(data), 1_700_000_000_000),
            deadlines((5, first, last)) if more < 0.1 else b"",
        )
        transaction = JournalTransaction(index, [row] * (more < 0.95))
        if more < 0.3 and stored:
            transaction.settled = [SeqRange(*([row.queue_id, *stored.pop()]))]
        transactions.append(transaction)
        stored.append((first, last))
        first = last + 1
    return transactions


def on_disk(disk: SqliteDisk) -> dict[str, list[tuple[object, ...]]]:
    found = {table: disk._reader.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}
    return found | {"source": disk._reader.execute(SOURCE).fetchall()}


@pytest.mark.parametrize("seed", range(5))
def test_both_ways_leave_the_same(seed: int, tmp_path: Path) -> None:
    found: list[list[Any]] = []
    for name in ("own", "all"):
        drive = SqliteDrive(tmp_path / name)
        disk = drive.open()
        disk.recover()
        disk.checkpoints.shared = name == "all"
        for transaction in drawn(Random(seed), 60):
            disk.commit(transaction)
        # The record of the local source is written with the next other one.
        disk.commit(JournalTransaction(61))
        found.append([on_disk(disk), disk.head(0).position])
        disk.close()
        again = drive.open()
        found[-1].append(again.recover())
        rows = again.read(1, 0, 1 << 40, 1 << 30)
        assert not any(row.damage for row in rows)
        found[-1].append(rows)
        again.close()
    assert found[0] == found[1]


def test_it_is_taken_for_one_row_and_nothing_else(disk: SqliteDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def noted(*arguments: object) -> int:
        taken.append(arguments[1].index)  # type: ignore[attr-defined]
        return write_row(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(disk_module, "write_row", noted)
    row, timed = Row(1, 0, 0, b"x"), Row(1, 1, 1, b"x", deadlines=deadlines((5, 1, 1)))
    others = (
        JournalTransaction(2),
        JournalTransaction(3, [timed]),
        JournalTransaction(4, [Row(1, 2, 2, b"x")], [SeqRange(1, 0, 0)]),
        JournalTransaction(5, [Row(1, 3, 3, b"x")], deletes=[SeqRange(1, 0, 0)]),
        JournalTransaction(6, [Row(1, 4, 4, b"x")], delivered={1: 9}),
        JournalTransaction(7, [Row(1, 5, 5, b"x")], counts=[(1, 5, 1)]),
        JournalTransaction(8, [Row(1, 6, 6, b"x")], dropped=[2]),
    )
    disk.commit(JournalTransaction(1, [row]))
    for transaction in others:
        disk.commit(transaction)
    assert taken == [1]


def test_transactions_without_anything_between_are_no_gap(tmp_path: Path) -> None:
    """They are not given to the disk, and rows that the record does not tell of follow it one by one."""
    disk = SqliteDrive(tmp_path / "journal").open()
    disk.recover()
    for index, after in ((1, 0), (2, 1), (6, 2), (7, 6)):
        transaction = JournalTransaction(index, [Row(1, index, index, b"x")])
        transaction.after = after
        disk.commit(transaction)
    with pytest.raises(ValueError, match="transaction 9 follows 8, and not 7"):
        disk.commit(JournalTransaction(9, [Row(1, 9, 9, b"x")]))
    shutil.copytree(tmp_path / "journal", tmp_path / "crashed")
    disk.close()
    again = SqliteDrive(tmp_path / "crashed").open()
    assert again.recover().index == 7
    assert [row.first_seq for row in again.read(1, 0, 9, 1 << 20)] == [1, 2, 6, 7]
    again.close()
