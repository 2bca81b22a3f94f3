"""`datadir/disks/scan.py`: which disk is condemned by what the scrub finds.

What is verified: a disk on which damage is found, or that does not answer, is left behind; one that was repaired
meanwhile is not: what is read is its old file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqpd.datadir.disks.opening import OpenDisks, open_disks
from amqpd.datadir.disks.repair import Repair
from amqpd.datadir.disks.scan import ENDED, DisksScan
from amqpd.datadir.disks.standing import DiskState
from amqpd.journal.sqlite.scrubbing import Scan, ScrubbedDamage, ScrubStep

from ..harness.hanging import Hang, shorten

FOUND = ScrubStep(1, 1, 1, [ScrubbedDamage("batch", (1,), "a page is damaged")], False)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[OpenDisks]:
    found = open_disks([tmp_path / name for name in "abc"], accept_loss=False)
    found.disk.recover()
    yield found
    found.disk.close()
    found.close()


@pytest.fixture
def scan(disks: OpenDisks) -> Iterator[DisksScan]:
    """Begun, of the first disk."""
    made, standings = DisksScan(disks.group), disks.group.standings
    with disks.group.changed:  # the first one may be the last to have everything
        assert disks.group.changed.wait_for(lambda: standings.disks[0].stored == standings.handed, 30)
    made.begin()
    yield made
    made.end()


def repaired(disks: OpenDisks) -> None:
    """The first disk, with a new file."""
    disks.group.leave(0, "it failed", damaged=True)
    repair = Repair(disks, 0)
    repair.copy()
    with disks.group.changed:
        assert disks.group.changed.wait_for(lambda: disks.group.has_caught_up(repair._number), 30)
    repair.join()


def test_a_disk_with_damage_is_left_behind(
    disks: OpenDisks, scan: DisksScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scan, "step", lambda _: FOUND)
    assert scan.step() == ScrubStep(1, 1, 1, [], True)
    assert disks.group.members[0].reason == "damage was found: a page is damaged"


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_damage_of_a_file_before_the_repair_is_not_of_the_disk(
    disks: OpenDisks, scan: DisksScan, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def step(_: Scan) -> ScrubStep:
        if when == "meanwhile":
            repaired(disks)
        return FOUND

    monkeypatch.setattr(Scan, "step", step)
    if when == "before":
        repaired(disks)
    assert scan.step() is ENDED
    assert disks.group.state(0) is DiskState.IN


@pytest.mark.parametrize("repair", [False, True])
def test_a_file_that_does_not_answer(
    disks: OpenDisks, scan: DisksScan, monkeypatch: pytest.MonkeyPatch, repair: bool
) -> None:
    shorten(monkeypatch, HANG_S=0.3)
    hang = Hang()

    def step(_: Scan) -> ScrubStep:
        if repair:
            repaired(disks)
        hang(lambda: None)()
        return FOUND

    monkeypatch.setattr(Scan, "step", step)
    if repair:  # which may take longer than the bound
        monkeypatch.setattr(disks.group, "others_count", lambda _: hang.count > 0)
    assert scan.step() is ENDED
    assert disks.group.state(0) is (DiskState.IN if repair else DiskState.BEHIND)
    hang.let_go()
