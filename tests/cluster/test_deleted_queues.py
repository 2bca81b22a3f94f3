"""Queues that were deleted while nobody served their source: the next home asks the store, until that answers.

What is verified: who is asked, and when not any more. Not verified here: what is dropped
(`tests/node/test_queues_elsewhere.py`).
"""

from __future__ import annotations

from typing import Any

import pytest

from amqpd.cluster.deleted_queues import drop_deleted
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


async def run(scene: Scene, store: Any, homes: list[bool]) -> bool:
    """`homes`: whether this node still is the home, each time that this is asked. Whether something has changed."""
    changed: list[bool] = []
    await drop_deleted(store, scene.node, SOURCE, lambda: homes.pop(0), lambda: changed.append(True))
    return bool(changed)


@pytest.mark.parametrize("unanswered", [0, 3])
async def test_a_recorded_deletion_is_carried_out(scene: Scene, autojump_clock: object, unanswered: int) -> None:
    scene.begin(Recovered(0, {DELETED: RecoveredQueue([], 7, 0)}))
    scene.node.journal.take()
    assert await run(scene, Store(unanswered), [True] * 5)
    [entry] = scene.node.journal.take().entries
    assert entry.dropped == [DELETED]
    assert not scene.node.registry.has_unclaimed(SOURCE)


async def test_a_home_no_more_asks_no_more(scene: Scene, autojump_clock: object) -> None:
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
