"""A disk's claim among its journal's names, and the end of a process in order on a disk that does not take it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import structlog.testing
import trio

from amqpd.cluster import incarnations
from amqpd.cluster.claims import Claim
from amqpd.errors import StartupError, StorageFailure
from amqpd.journal.errors import DiskFull
from amqpd.topology.metadata.store import StoreUnavailable

pytestmark = pytest.mark.trio


class Scene:
    """A disk and a directory, each of which may fail."""

    def __init__(self, disk_fails: Exception | None = None, store_fails: Exception | None = None) -> None:
        self.done: list[Any] = []
        self.disk: Any = SimpleNamespace(set_names=lambda **names: self._do(names, disk_fails))
        self.directory: Any = SimpleNamespace(ending=Claim(9, 6, 4, (3, 2)), end_incarnation=self._end_incarnation)
        self._store_fails = store_fails

    def _do(self, what: Any, fails: Exception | None) -> None:
        if fails is not None:
            raise fails
        self.done.append(what)

    async def _end_incarnation(self) -> None:
        self._do("store", self._store_fails)

    async def end(self) -> list[Any]:
        """What was logged."""
        with structlog.testing.capture_logs() as logged:
            await incarnations.end(self.disk, self.directory, trio.CapacityLimiter(1))
        return logged


async def test_the_disk_has_the_incarnation_before_the_store() -> None:
    scene = Scene()
    assert await scene.end() == []
    assert scene.done == [{"generation": "9", "life": "6", "nonce": "4", "claimed_upon": "3 2"}, "store"]


@pytest.mark.parametrize("failure", [DiskFull("no space is left"), StorageFailure("the disk failed")])
async def test_a_disk_that_does_not_take_it_keeps_nothing_else_from_ending(failure: Exception) -> None:
    scene = Scene(disk_fails=failure)
    [told] = await scene.end()
    assert told["log_level"] == "warning"
    assert told["reason"] == str(failure)
    assert scene.done == [], "an incarnation that the disk has not would make it an older copy"


async def test_a_store_that_does_not_answer_is_said() -> None:
    scene = Scene(store_fails=StoreUnavailable("it does not answer"))
    [told] = await scene.end()
    assert told["reason"] == "it does not answer"


class FullDisk:
    """`reserve`: there is one to give up."""

    def __init__(self, *, reserve: bool) -> None:
        self.names: dict[str, str] = {}
        self._reserve, self._full = reserve, True

    def set_names(self, **names: str) -> None:
        if self._full:
            raise DiskFull("no space is left")
        self.names |= names

    def release_reserve(self) -> None:
        self._full = not self._reserve

    def head(self, source: int) -> Any:
        return SimpleNamespace(epoch=40)


async def test_a_full_disk_gives_up_its_reserve_for_a_claim() -> None:
    disk: Any = FullDisk(reserve=True)
    claim = Claim(9, 6, 4, (3, 2))
    await incarnations.keep(disk, trio.CapacityLimiter(1), claim)
    assert incarnations.of(disk) == claim


async def test_a_disk_without_any_space_is_the_reason_why_a_node_does_not_join() -> None:
    disk: Any = FullDisk(reserve=False)
    with pytest.raises(StartupError, match="cannot join its cluster: no space is left; make space"):
        await incarnations.keep(disk, trio.CapacityLimiter(1), Claim(9, 6, 4, (3, 2)))


@pytest.mark.parametrize(
    ("names", "claim"),
    [
        ({"generation": "9", "life": "6"}, Claim(9, 6)),  # of the version before nonces
        ({"generation": "9"}, Claim(9, 39)),  # of one before lives: each start is an epoch
        ({"generation": "", "life": "6", "nonce": "4"}, Claim(0, 6, 4)),  # a loss was accepted
        ({}, Claim(0, 39)),
    ],
)
async def test_what_disks_of_other_versions_say_is_read(names: dict[str, str], claim: Claim) -> None:
    disk: Any = FullDisk(reserve=False)
    disk.names = names
    assert incarnations.of(disk) == claim
