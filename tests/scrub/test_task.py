"""The task that scrubs, by the clock: passes, pauses, giving way, and what is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from amqpd.journal.sqlite.scrubbing import ScrubbedDamage, ScrubStep
from amqpd.scrub import RATE_MIN, YIELD_S, YIELDS_MAX, Scrub
from tests.queues.test_queue_damage import WHY, Scene

pytestmark = pytest.mark.trio
STEP, STEPS = 1 << 18, 40
HOUR = 3600.0


class Reading:
    """A journal of 10 MB. `finds`: by step."""

    def __init__(self, finds: dict[int, ScrubbedDamage] | None = None) -> None:
        self.finds = finds or {}
        self.passes = self.steps = 0
        self.at_s: list[float] = []
        self.closed = False

    def begin(self) -> int:
        self.passes += 1
        self.steps = 0
        return STEP * STEPS

    def step(self) -> ScrubStep:
        self.at_s.append(trio.current_time())
        self.steps += 1
        found = [self.finds[self.steps]] if self.steps in self.finds else []
        return ScrubStep(STEP, 2, STEP * STEPS, found, self.steps == STEPS)

    def close(self) -> None:
        self.closed = True


async def at_once(work: Callable[[], Any]) -> Any:
    await trio.lowlevel.checkpoint()
    return work()


class Run:
    def __init__(self, nursery: trio.Nursery, reading: Reading, interval_s: float = 7 * 24 * HOUR) -> None:
        self.scene = Scene(6, [])
        self.busy = False
        self.settled = 0
        self.begun_s = trio.current_time()
        self.scrub = Scrub(
            self.scene.harness.node,
            reading,
            lambda: self.busy,
            self._run_effects,
            interval_s,
            4 << 20,
            clock=lambda: 1_700_000_000 + trio.current_time() - self.begun_s,
            in_thread=at_once,
        )
        nursery.start_soon(self.scrub.run)

    def _run_effects(self) -> None:
        self.settled += 1
        self.scene.harness.step()


async def test_a_small_journal_is_read_at_the_least_rate_and_again_after_an_hour(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reading = Reading()
    async with trio.open_nursery() as nursery:
        run = Run(nursery, reading)
        await trio.sleep(2 * HOUR + 300)
        facts = run.scrub.facts()
        nursery.cancel_scope.cancel()
    assert reading.passes == 3
    first = [at_s - run.begun_s for at_s in reading.at_s[:STEPS]]
    assert first == pytest.approx([STEP / RATE_MIN * number for number in range(STEPS)])
    assert reading.at_s[STEPS] - run.begun_s == pytest.approx(HOUR)
    assert reading.closed
    assert (facts["pass"], facts["rows"], facts["bytes"], facts["progress"]) == (3, STEPS * 2, STEPS * STEP, 1.0)
    assert facts["started"] == "2023-11-15T00:13:20+00:00"
    assert facts["expected_s"] == pytest.approx(HOUR + STEPS * STEP / RATE_MIN, abs=0.1)
    assert (facts["damaged_rows_found"], facts["damaged_records_found"], facts["damage"]) == (0, 0, [])


async def test_a_short_interval_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    """40 steps of a quarter of a megabyte in 5 s: 2 MB/s."""
    reading = Reading()
    async with trio.open_nursery() as nursery:
        run = Run(nursery, reading, 5.0)
        await trio.sleep(14.9)
        nursery.cancel_scope.cancel()
    assert reading.passes == 3
    for number in range(3):
        begin, *_, end = reading.at_s[number * STEPS : (number + 1) * STEPS]
        assert begin - run.begun_s == pytest.approx(5.0 * number, abs=0.01)
        assert 4.0 < end - begin <= 4.5


async def test_the_greatest_rate_is_kept_where_the_interval_is_too_short(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reading = Reading()
    async with trio.open_nursery() as nursery:
        Run(nursery, reading, 0.001)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert len(reading.at_s) * STEP == pytest.approx(60 * (4 << 20), abs=STEP)


async def test_a_step_gives_way_to_a_consumer_but_not_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    reading = Reading()
    async with trio.open_nursery() as nursery:
        run = Run(nursery, reading)
        run.busy = True
        await trio.sleep(YIELD_S * YIELDS_MAX / 2)
        assert not reading.at_s
        await trio.sleep(YIELD_S * YIELDS_MAX)
        assert len(reading.at_s) == 1
        nursery.cancel_scope.cancel()


async def test_it_is_off_with_an_interval_of_zero_until_the_operator_asks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reading = Reading()
    async with trio.open_nursery() as nursery:
        run = Run(nursery, reading, 0.0)
        await trio.sleep(30 * 24 * HOUR)
        assert (reading.passes, run.scrub.facts()["expected_s"]) == (0, None)
        await run.scrub.asked({"now": True})
        await trio.sleep(24 * HOUR)
        assert (reading.passes, run.scrub.facts()["pass"]) == (1, 1)
        assert reading.at_s[-1] - reading.at_s[0] == pytest.approx(STEP * (STEPS - 1) / (4 << 20))
        nursery.cancel_scope.cancel()


async def test_a_pass_now_begins_in_place_of_the_slow_one(autojump_clock: trio.testing.MockClock) -> None:
    reading = Reading()
    async with trio.open_nursery() as nursery:
        run = Run(nursery, reading)
        await trio.sleep(10)
        assert 0 < run.scrub.facts()["progress"] < 0.2
        await run.scrub.asked({"now": True})
        await trio.sleep(3)
        facts = run.scrub.facts()
        assert (facts["pass"], facts["rows"], facts["progress"]) == (2, STEPS * 2, 1.0)
        nursery.cancel_scope.cancel()


async def test_what_is_found_is_told_once_and_fences_once(autojump_clock: trio.testing.MockClock) -> None:
    reading = Reading()
    async with trio.open_nursery() as nursery:
        run = Run(nursery, reading)
        queue_id = run.scene.queue.record.id
        reading.finds = {
            3: ScrubbedDamage("batch", (queue_id, 4, 4), WHY, messages=True),
            5: ScrubbedDamage("settled", (queue_id, 1, 1), "the record does not fit"),
            7: ScrubbedDamage("batch", (4711, 0, 0), "of a queue that is gone", messages=True),
        }
        await trio.sleep(3 * HOUR)
        facts = run.scrub.facts()
        nursery.cancel_scope.cancel()
    assert reading.passes == 3
    assert (facts["damaged_rows_found"], facts["damaged_records_found"]) == (1, 1)
    assert facts["damage"] == [WHY, "the record does not fit"]
    assert len(run.scene.told("queue_fenced")) == 1
    [told] = run.scene.told("journal_damaged")
    assert (told["table"], told["reason"]) == ("settled", "the record does not fit")
    assert "amqpd backup" in told["remedy"]
    assert run.settled == 9


async def test_a_damaged_row_is_fenced_when_its_messages_have_left_memory(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reading = Reading()
    async with trio.open_nursery() as nursery:
        run = Run(nursery, reading)
        run.scene.client.publish(b"6", delivery_mode=2)
        queue = run.scene.queue
        [level] = queue.messages.levels()
        reading.finds = {3: ScrubbedDamage("batch", (queue.record.id, 6, 6), WHY, messages=True)}
        await trio.sleep(HOUR / 2)
        [told] = run.scene.told("journal_damaged")
        assert (told["queue"], told["first"]) == ("q", 6)
        assert "in memory" in told["remedy"]
        assert not run.scene.told("queue_fenced")
        level.shrink(0)
        level.store.segments[-1].evict()
        await trio.sleep(HOUR)
        nursery.cancel_scope.cancel()
    assert len(run.scene.told("queue_fenced")) == 1
    assert run.scrub.facts()["damaged_rows_found"] == 1
