"""`datadir/disks`: what is said of disks that fail at a moment that is hard to hit.

What is verified: what waits for a majority is not said to be safe; a repair whose source fails ends, and leaves
nothing open; a disk that is closed is not waited for. And that each gives back to the file system what it does not
need, when nothing is written for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from amqpd.datadir.disks import repair as repair_module
from amqpd.datadir.disks.opening import OpenDisks, open_disks
from amqpd.datadir.disks.repair import NotRepaired, Repair
from amqpd.datadir.disks.standing import DiskState
from amqpd.datadir.opening import Pair
from amqpd.journal.errors import DisksLost
from amqpd.journal.records import Row, SeqRange
from amqpd.journal.sqlite import checkpoints
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.transaction import JournalTransaction

from ..harness.hanging import shorten

LONG_S = 60.0


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[OpenDisks]:
    found = open_disks([tmp_path / name for name in "abc"], accept_loss=False)
    found.disk.recover()
    yield found
    found.disk.close()
    found.close()


class Store:
    """What a metadata store knows of its journal."""

    def __init__(self) -> None:
        self.known: tuple[str, int] | None = None

    async def refresh(self) -> int:
        return 0

    async def identity(self) -> str:
        return "m" * 32

    async def journal(self) -> tuple[str, int] | None:
        return self.known

    async def set_journal(self, identity: str, index: int) -> None:
        self.known = identity, index


def test_what_too_few_disks_have_is_not_noted(disks: OpenDisks) -> None:
    """The metadata would say at the next start that the journal lacks it: a kill, and nothing is lost."""
    trio.run(_wait_for_a_majority, disks)


async def _wait_for_a_majority(disks: OpenDisks) -> None:
    store = Store()
    pair = Pair(disks.disk, store)  # type: ignore[arg-type]
    stored = await pair.begin()
    await pair.note()
    assert store.known is not None
    assert store.known[1] == stored
    standings = disks.group.standings
    with disks.group.changed:  # the first disk may be the last one to store what the two others have
        assert disks.group.changed.wait_for(lambda: standings.disks[0].stored == standings.handed, 30)
    for number in (1, 2):
        disks.group.leave(number, "it failed")
    with pytest.raises(DisksLost):
        disks.disk.commit(JournalTransaction(stored + 1))
    await pair.note()
    assert store.known[1] == stored
    assert disks.disk.index == stored + 1, "the next transaction follows the one that waits"
    assert disks.disk.stored_index == stored


def test_the_disk_that_is_copied_fails_before_the_copy_begins(disks: OpenDisks) -> None:
    disks.group.leave(0, "it failed")
    disks.group.leave(1, "so did it")
    with pytest.raises(TimeoutError, match="b was left behind: so did it"):
        disks.group.begin_repair(0, 1)
    assert disks.group.state(0) is DiskState.BEHIND


def test_a_moment_that_is_not_used_is_closed(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Moment] = []

    class Moment:
        """A connection."""

        closed = False

        def __init__(self, path: Path) -> None:
            made.append(self)

        def close(self) -> None:
            self.closed = True

    def fails(number: int, like: int, wanted: Callable[[], bool]) -> None:
        raise TimeoutError("it was left behind")

    disks.group.leave(0, "it failed")
    monkeypatch.setattr(repair_module, "open_moment", Moment)
    monkeypatch.setattr(disks.group, "begin_repair", fails)
    with pytest.raises(NotRepaired, match="it was left behind"):
        Repair(disks, 0).copy()
    assert [each.closed for each in made] == [True]


def test_each_disks_file_shrinks_once_after_a_long_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of one directory: of disks with nothing on them 105 MB each were in use for ever."""
    monkeypatch.setattr(checkpoints, "FREE_BYTES_KEPT", 8 << 20)
    monkeypatch.setattr(checkpoints, "RESTING_BYTES_KEPT", 1 << 20)
    shorten(monkeypatch, HOUSEKEEPING_IDLE_S=0.02, RESTING_S=0.05)
    done = threading.Condition()
    last: dict[SqliteDisk, tuple[bool, bool]] = {}
    step = SqliteDisk.vacuum_step

    def count(disk: SqliteDisk, rests: bool = False) -> bool:
        more = step(disk, rests)
        with done:
            last[disk] = rests, more
            done.notify_all()
        return more

    monkeypatch.setattr(SqliteDisk, "vacuum_step", count)

    def shrunk() -> bool:
        sizes = [(path / JOURNAL).stat().st_size for path in paths]
        return max(sizes) < 2 << 20 and list(last.values()) == [(True, False)] * 3

    paths = [tmp_path / name for name in "abc"]
    disks = open_disks(paths, accept_loss=False)
    try:
        disks.disk.recover()
        for seq in range(1, 13):
            row = Row(1, seq, seq, bytes(1 << 20), True, 1 << 20, 0)
            disks.disk.commit(JournalTransaction(disks.disk.index + 1, rows=[row]))
        disks.disk.commit(JournalTransaction(disks.disk.index + 1, deletes=[SeqRange(1, 0, 99)]))
        with done:
            assert done.wait_for(shrunk, LONG_S), last
        disks.disk.commit(JournalTransaction(disks.disk.index + 1))
    finally:
        monkeypatch.undo()
        disks.disk.close()
        disks.close()


def test_a_disk_that_is_closed_is_not_waited_for(disks: OpenDisks) -> None:
    worker = disks.group.members[1].worker
    assert worker is not None
    disks.group.leave(1, "it failed")
    assert worker.ended(30)
    with pytest.raises(TimeoutError, match="b is not open any more"):
        disks.group.run_on(1, lambda disk: disk.index, 5)
