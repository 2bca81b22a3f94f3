"""Full collections come when something in cycles has ended, and not otherwise."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import trio

from amqpd.garbage import ENDED_MAX, LOOK_S, THRESHOLDS, collect_garbage
from tests.core.harness import Harness


@pytest.fixture
def settings_of_python() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.trio
@pytest.mark.usefixtures("settings_of_python")
async def test_a_collection_comes_when_enough_has_ended(nursery: trio.Nursery, autojump_clock: object) -> None:
    node = Harness().node
    nursery.start_soon(collect_garbage, node)
    await trio.sleep(LOOK_S / 2)
    assert gc.get_threshold() == THRESHOLDS
    before = gc.get_stats()[2]["collections"]
    node.ended += ENDED_MAX - 1
    await trio.sleep(LOOK_S)
    assert gc.get_stats()[2]["collections"] == before
    node.ended += 1
    await trio.sleep(LOOK_S)
    assert gc.get_stats()[2]["collections"] == before + 1


def test_connections_and_queues_are_counted_when_they_end() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q", exclusive=True)
    before = harness.node.ended
    client.lose()
    assert harness.node.ended == before + 2
