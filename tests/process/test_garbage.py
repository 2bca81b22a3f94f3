"""Full collections come when something in cycles has ended, and not otherwise."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest
import trio

from amqpd.flow.turns import TURN_WORK_MAX
from amqpd.process import garbage
from amqpd.process.garbage import ENDED_MANY_MAX, ENDED_MAX, LOOK_S, THRESHOLDS, collect_garbage
from amqpd.pump import CHANGE_WORK, YOUNG_LOOKS, YOUNG_WORK_MAX
from tests.harness.harness import Harness
from tests.test_pump import pump_of


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


@pytest.mark.trio
@pytest.mark.usefixtures("settings_of_python")
async def test_it_waits_while_very_much_lives(
    nursery: trio.Nursery, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "COLLECTION_S_MAX", -1)
    node = Harness().node
    nursery.start_soon(collect_garbage, node)
    await trio.sleep(LOOK_S / 2)
    before = gc.get_stats()[2]["collections"]
    node.ended += ENDED_MANY_MAX - 1
    await trio.sleep(LOOK_S)
    assert gc.get_stats()[2]["collections"] == before
    node.ended += 1
    await trio.sleep(LOOK_S)
    assert gc.get_stats()[2]["collections"] == before + 1


@pytest.mark.trio
@pytest.mark.usefixtures("settings_of_python")
async def test_it_waits_when_the_last_one_took_long(
    nursery: trio.Nursery, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are not alike: two thousand log-ins that wait took as long as eight times as many deliveries."""
    clock = iter([0.0, 0.1, 0.1, 0.11])
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    monkeypatch.setattr(garbage, "OBJECTS_MIN", 1)
    kept = [[number] for number in range(1_000)]
    node = Harness().node
    nursery.start_soon(collect_garbage, node)
    await trio.sleep(LOOK_S / 2)
    lived = [[number] for number in range(1_000)]
    gc.collect()
    before = gc.get_stats()[2]["collections"]
    for ended, collections in ((ENDED_MAX, 1), (ENDED_MAX, 1), (ENDED_MANY_MAX - ENDED_MAX, 2), (ENDED_MAX, 3)):
        node.ended += ended
        await trio.sleep(LOOK_S)
        assert gc.get_stats()[2]["collections"] == before + collections
        clock = iter([0.0, 0.0])
    assert len(kept) == len(lived)


@pytest.mark.usefixtures("settings_of_python")
def test_growth_alone_causes_no_long_collection() -> None:
    """A million objects of clients that live, as consumers and deliveries do: the young are looked at, never all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    walked: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            walked.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(1_000_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 1_000_000
    assert len(walked) > 10
    assert max(walked) < 150_000


def test_connections_are_counted_when_they_end() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("q", exclusive=True)
    before = harness.node.ended
    client.lose()
    assert harness.node.ended == before + 1


@pytest.mark.usefixtures("settings_of_python")
def test_the_young_are_looked_at_by_the_work_that_was_done() -> None:
    """Where as many objects go as come Python sees no growth, and would look after a million."""
    looks, ticks_a_look = 9, YOUNG_WORK_MAX // TURN_WORK_MAX + 1

    async def main() -> None:
        harness = Harness()
        pump, connection = pump_of(harness), harness.client().connection

        def steps() -> Iterator[None]:
            while True:
                harness.node.turns.charge(connection, TURN_WORK_MAX)
                yield

        connection.intake.begin_apart(steps())
        before = [each["collections"] for each in gc.get_stats()]
        for _ in range(looks * ticks_a_look):
            pump._tick([])
        found.extend(each["collections"] - was for each, was in zip(gc.get_stats(), before, strict=True))
        pump.close()

    found: list[int] = []
    gc.set_threshold(0)
    trio.run(main)
    assert found == [looks - looks // YOUNG_LOOKS, looks // YOUNG_LOOKS, 0]


@pytest.mark.usefixtures("settings_of_python")
def test_the_young_are_looked_at_while_very_much_is_declared() -> None:
    """What declarations needed goes while queues come: twelve thousand made 157,000 objects young, 73 ms of one."""

    async def main() -> None:
        pump = pump_of(Harness())
        before = [each["collections"] for each in gc.get_stats()]
        for _ in range(YOUNG_LOOKS * (YOUNG_WORK_MAX // CHANGE_WORK + 1)):
            pump.run_effects_of_changes(1)
        found.extend(each["collections"] - was for each, was in zip(gc.get_stats(), before, strict=True))
        pump.close()

    found: list[int] = []
    gc.set_threshold(0)
    trio.run(main)
    assert found == [YOUNG_LOOKS - 1, 1, 0]
