"""Queues that were deleted while nobody served their source: the next leader asks the store, until that answers.

What is verified: who is asked, and when not any more. Not verified here: what is dropped
(`tests/node/test_remote_queues.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from amqpd.cluster.deleted_queues import Deletions, drop_deleted
from amqpd.journal.records import Recovered, RecoveredQueue
from amqpd.topology.metadata.store import StoreUnavailable
from tests.node.test_source_moves import SOURCE, Scene, scene

__all__ = ["scene"]

pytestmark = pytest.mark.trio
DELETED = 77


class Store:
    """Of which the first questions are not answered."""

    def __init__(self, unanswered: int) -> None:
        self.unanswered = unanswered
        self.asked = 0

    async def dropped_queues(self) -> frozenset[int]:
        self.asked += 1
        if self.asked <= self.unanswered:
            raise StoreUnavailable("a test says so")
        return frozenset({DELETED})


async def run(scene: Scene, store: Any, leaders: list[bool]) -> bool:
    """`leaders`: whether this node still is the leader, each time that this is asked. Whether something has
    changed."""
    changed: list[bool] = []
    await drop_deleted(Deletions(store), scene.node, SOURCE, lambda: leaders.pop(0), lambda: changed.append(True))
    return bool(changed)


@pytest.mark.parametrize("unanswered", [0, 3])
async def test_a_recorded_deletion_is_carried_out(scene: Scene, autojump_clock: object, unanswered: int) -> None:
    scene.begin(Recovered(0, {DELETED: RecoveredQueue([], 7, 0)}))
    scene.node.journal.take()
    assert await run(scene, Store(unanswered), [True] * 5)
    [entry] = scene.node.journal.take().entries
    assert entry.dropped == [DELETED]
    assert not scene.node.registry.has_unclaimed(SOURCE)


async def test_a_leader_no_more_asks_no_more(scene: Scene, autojump_clock: object) -> None:
    scene.begin(Recovered(0, {DELETED: RecoveredQueue([], 7, 0)}))
    store = Store(1)
    assert not await run(scene, store, [True, False])
    assert store.asked == 1


async def test_a_source_that_stops_meanwhile_is_left_alone(scene: Scene, autojump_clock: object) -> None:
    scene.begin(Recovered(0, {DELETED: RecoveredQueue([], 7, 0)}))
    store = Store(0)
    asked = store.dropped_queues

    async def stops() -> frozenset[int]:
        scene.node.source_stops(SOURCE)
        return await asked()

    store.dropped_queues = stops  # type: ignore[method-assign]
    assert not await run(scene, store, [True] * 3)


async def test_without_unknown_messages_the_store_is_left_alone(scene: Scene, autojump_clock: object) -> None:
    scene.begin()
    store = Store(0)
    assert not await run(scene, store, [True])
    assert store.asked == 0


class Held(Store):
    """Each answer comes when the test says so, and is the number of the question."""

    def __init__(self, unanswered: int = 0) -> None:
        super().__init__(unanswered)
        self.goes_on = trio.Event()

    async def dropped_queues(self) -> frozenset[int]:
        goes_on, number = self.goes_on, self.asked + 1
        await super().dropped_queues()
        await goes_on.wait()
        return frozenset({number})


async def test_sources_that_ask_at_once_have_one_read_that_was_begun_after_they_asked(nursery: trio.Nursery) -> None:
    """Each read all of it for itself, and held up whoever wanted to swap a record."""
    store: Any = Held()
    deletions = Deletions(store)
    found: list[frozenset[int]] = []

    async def ask() -> None:
        found.append(await deletions.read())

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(20):
        nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    store.goes_on.set()
    await trio.testing.wait_all_tasks_blocked()
    assert found == [{1}, *[{2}] * 20]
    assert await deletions.read() == {3}, "nothing is kept"


async def test_who_waits_for_a_read_that_fails_asks_by_itself(nursery: trio.Nursery) -> None:
    store: Any = Held(unanswered=1)
    deletions = Deletions(store)
    found: list[frozenset[int]] = []

    async def ask() -> None:
        try:
            found.append(await deletions.read())
        except StoreUnavailable:
            found.append(frozenset())

    for _ in range(3):
        nursery.start_soon(ask)
    store.goes_on.set()
    await trio.testing.wait_all_tasks_blocked()
    assert found == [frozenset(), {2}, {2}]
