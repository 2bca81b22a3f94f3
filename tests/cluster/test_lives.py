"""The end of a process in order, on a disk that does not take it: the store hears nothing, and the stop goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import structlog.testing
import trio

from amqpd.cluster import lives
from amqpd.errors import StorageFailure
from amqpd.journal.errors import DiskFull
from amqpd.topology.metadata.store import StoreUnavailable
from tests.cluster.directories import member_record

pytestmark = pytest.mark.trio


class Scene:
    """A disk and a directory, each of which may fail."""

    def __init__(self, disk_fails: Exception | None = None, store_fails: Exception | None = None) -> None:
        self.done: list[Any] = []
        self.disk: Any = SimpleNamespace(set_names=lambda **names: self._do(names, disk_fails))
        self.directory: Any = SimpleNamespace(me=member_record("a@x", life=5, generation=9), end_life=self._end_life)
        self._store_fails = store_fails

    def _do(self, what: Any, fails: Exception | None) -> None:
        if fails is not None:
            raise fails
        self.done.append(what)

    async def _end_life(self) -> None:
        self._do("store", self._store_fails)

    async def end(self) -> list[Any]:
        """What was logged."""
        with structlog.testing.capture_logs() as logged:
            await lives.end(self.disk, self.directory, trio.CapacityLimiter(1))
        return logged


async def test_the_disk_has_the_life_before_the_store() -> None:
    scene = Scene()
    assert await scene.end() == []
    assert scene.done == [{"generation": "9", "life": "6"}, "store"]


@pytest.mark.parametrize("failure", [DiskFull("no space is left"), StorageFailure("the disk failed")])
async def test_a_disk_that_does_not_take_it_keeps_nothing_else_from_ending(failure: Exception) -> None:
    scene = Scene(disk_fails=failure)
    [told] = await scene.end()
    assert told["log_level"] == "warning"
    assert told["reason"] == str(failure)
    assert scene.done == [], "a life that the disk has not would make it an older copy"


async def test_a_store_that_does_not_answer_is_said() -> None:
    scene = Scene(store_fails=StoreUnavailable("it does not answer"))
    [told] = await scene.end()
    assert told["reason"] == "it does not answer"
