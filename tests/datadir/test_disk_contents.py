"""`datadir/disks`: what another node has sent is refused by one disk, and taken by the others.

What is verified: what a transaction left out is the same on each disk that counts, and what the node is told,
whichever disk comes first; the next transaction is stored. Not verified: repairs (`test_disk_repair.py`), what is
refused (`tests/journal/test_lies.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amqpd.datadir.disks.opening import OpenDisks, open_disks
from amqpd.datadir.disks.standing import DiskState
from amqpd.journal.records import SourceEntry
from amqpd.journal.sqlite import entry_checks
from amqpd.journal.sqlite.outcome import JointOutcome
from amqpd.journal.sqlite.payload import BadPayload, encode
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import new_entry
from amqpd.replication.replica import Appended
from tests.journal.disks import row

BAD, GOOD = 5, 6
LONG_S = 60.0


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[OpenDisks]:
    found = open_disks([tmp_path / name for name in "abc"], accept_loss=False)
    found.disk.recover()
    yield found
    found.disk.close()
    found.close()


def transaction(disks: OpenDisks, idx: int, sources: tuple[int, ...] = (BAD, GOOD)) -> JournalTransaction:
    writes = []
    for source in sources:
        entry = SourceEntry(source, 1, idx, rows=[row(40 + source, 10 * idx, 10 * idx + 9, nbytes=50)])
        writes.append(Appended(new_entry(source, (1, idx), (1, idx - 1) if idx > 1 else (0, 0), encode(entry))))
    made = JournalTransaction(disks.disk.index + 1, writes=list(writes))
    made.own = frozenset()
    return made


def on_disk(number: int) -> bool:
    """This is its thread."""
    return threading.current_thread().name == f"disk {number}"


def stored_by_all(disks: OpenDisks) -> None:
    group = disks.group
    with group.changed:
        assert group.changed.wait_for(
            lambda: all(
                each.state is DiskState.BEHIND or each.stored == group.standings.handed
                for each in group.standings.disks
            ),
            LONG_S,
        )


def ends(disks: OpenDisks) -> list[set[int] | None]:
    """Of each disk, the sources that it has; None: it was left behind."""
    found: list[set[int] | None] = []
    for member in disks.group.members:
        disk = member.disk
        behind = disks.group.state(member.number) is DiskState.BEHIND
        found.append(None if behind or disk is None else {each.source for each in disk.replicas() if each.tail})
    return found


class Refuses:
    """In place of `entry_checks.check`: disk 1 refuses what is of the bad source, in its turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> None:
        self._check, self._before = entry_checks.check, before
        self.ended = False
        monkeypatch.setattr(entry_checks, "check", self)

    def __call__(self, connection: Any, payload: Any, *more: Any, **named: Any) -> None:
        if payload.source == BAD and not self.ended:
            for number in range(3):
                if on_disk(number):
                    self._before(number)
            if on_disk(1):
                raise BadPayload("this disk does not like it")
        self._check(connection, payload, *more, **named)


def test_a_disk_that_refuses_what_others_have_is_left_behind(
    disks: OpenDisks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lack what the node has answered for, with the same number of transactions as they."""
    group = disks.group

    def before(number: int) -> None:
        if number == 1:
            with group.changed:
                assert group.changed.wait_for(
                    lambda: group.standings.disks[0].stored == group.standings.handed, LONG_S
                )

    refuses = Refuses(monkeypatch, before)
    given = transaction(disks, 1)
    disks.disk.commit(given)
    stored_by_all(disks)
    assert given.unusable == {}
    assert ends(disks) == [{BAD, GOOD}, None, {BAD, GOOD}]
    assert "this disk does not like it" in group.members[1].unrepaired
    assert group.members[1].damaged
    refuses.ended = True
    after = transaction(disks, 2)
    disks.disk.commit(after)
    assert after.unusable == {}


def test_what_one_disk_refuses_first_no_other_one_has(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    """They had written it when that was said, and not committed it."""
    given = transaction(disks, 1)
    said = threading.Event()

    def before(number: int) -> None:
        if number != 1:
            assert said.wait(LONG_S)

    left_out = outcome_said(monkeypatch, said)
    refuses = Refuses(monkeypatch, before)
    disks.disk.commit(given)
    stored_by_all(disks)
    assert left_out == [BAD]
    assert set(given.unusable) == {BAD}
    assert ends(disks) == [{GOOD}, {GOOD}, {GOOD}]
    refuses.ended = True
    after = transaction(disks, 2, (GOOD,))
    disks.disk.commit(after)
    stored_by_all(disks)
    assert after.unusable == {}
    assert ends(disks) == [{GOOD}, {GOOD}, {GOOD}]


def outcome_said(monkeypatch: pytest.MonkeyPatch, said: threading.Event) -> list[int]:
    """The sources that were left out, as they are."""
    leave_out, found = JointOutcome.leave_out, list[int]()

    def refused(self: JointOutcome, source: int, reason: str) -> None:
        leave_out(self, source, reason)
        found.append(source)
        said.set()

    monkeypatch.setattr(JointOutcome, "leave_out", refused)
    return found
