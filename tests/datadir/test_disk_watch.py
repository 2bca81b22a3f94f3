"""`datadir/disks/watch.py`: what a repair raises concerns that repair.

What is verified: whatever it raises, the disk is not repaired, the watch goes on, disks are asked as before, and it
is tried again; what ends the node does; only the end of the node, by whatever, is the end of what is asked of disks.
While the list is written, which a disk that hangs makes slow, disks are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from amqpd.datadir.disks import repair as repair_module
from amqpd.datadir.disks import watch as watch_module
from amqpd.datadir.disks.copying import copy_journal
from amqpd.datadir.disks.opening import OpenDisks, open_disks
from amqpd.datadir.disks.standing import State
from amqpd.datadir.disks.watch import DisksWatch
from amqpd.journal.errors import JournalInUse, NewerFormat
from amqpd.topology.metadata.store import MetadataStoreError
from tests.harness.slow import slow

from ..harness.hanging import Hang, shorten

LONG_S = 30.0


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[OpenDisks]:
    shorten(monkeypatch, LOOK_S=0.02, CLOSE_S=0.0, AGAIN_S_MIN=0.05)
    found = open_disks([tmp_path / name for name in "abc"], accept_loss=False)
    found.disk.recover()
    yield found
    monkeypatch.undo()
    found.disk.close()
    found.close()


def watch(disks: OpenDisks, until: Callable[[DisksWatch], bool]) -> DisksWatch:
    """Run it, with the second disk left behind, until this is true."""
    made = DisksWatch(disks, None)
    made.begin()
    disks.group.leave(1, "it failed", damaged=True)

    async def run() -> None:
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(made.run)
                while not until(made):  # noqa: ASYNC110 - threads make it true
                    await trio.sleep(0.01)
                assert not disks.group.ending, "nobody waits for disks any more"
                nursery.cancel_scope.cancel()

    trio.run(run, strict_exception_groups=True)
    return made


@pytest.mark.parametrize(
    "raised", [JournalInUse("in use"), slow(NewerFormat("newer")), slow(MemoryError()), slow(TypeError("None"))]
)
def test_whatever_a_repair_raises_the_node_goes_on(
    disks: OpenDisks, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    tries: list[int] = []

    def copy(*given: object, **named: object) -> object:
        tries.append(0)
        if len(tries) < 3:
            raise raised
        return copy_journal(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(repair_module, "copy_journal", copy)
    watch(disks, lambda _: disks.group.state(1) is State.IN)
    assert len(tries) == 3
    assert disks.group.ending, "its end is the node's end"


def test_why_it_is_not_repaired_is_told(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(*_: object, **__: object) -> None:
        raise JournalInUse("another process has it open")

    monkeypatch.setattr(repair_module, "copy_journal", copy)
    found = watch(disks, lambda made: "not repaired" in made.facts()[1])
    assert found.facts()[1].endswith("not repaired: another process has it open)")


def test_what_ends_the_node_does(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    async def end(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise MetadataStoreError("the definitions failed")

    monkeypatch.setattr(watch_module.DisksWatch, "_end", end)
    with pytest.RaisesGroup(pytest.RaisesGroup(MetadataStoreError)):
        watch(disks, lambda _: False)
    assert disks.group.ending


def test_disks_are_looked_at_while_the_list_is_written(disks: OpenDisks, monkeypatch: pytest.MonkeyPatch) -> None:
    hang, looks = Hang(), [0]
    look = disks.group.look

    def count() -> None:
        looks[0] += hang.count
        look()

    monkeypatch.setattr(disks.group, "look", count)
    monkeypatch.setattr(disks.roster, "changes", hang(disks.roster.changes))

    def until(_: DisksWatch) -> bool:
        if looks[0] < 3:
            return False
        hang.let_go()
        return disks.group.state(1) is State.IN

    watch(disks, until)
    assert hang.count <= 2, "more than one writes it, beside the repair"
