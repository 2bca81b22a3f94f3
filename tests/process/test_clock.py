"""The broker's time does not go back, whatever is done to the system's clock."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from amqpd.process.clock import AHEAD_MAX_S, GIVEN_BACK, SteadyClock

NOON_S, DAY_S = 1_800_000_000, 86_400


class Scene:
    """Two clocks of a system."""

    def __init__(self, last_s: float = 0) -> None:
        self.wall_s, self.running_s = float(NOON_S), 7.0
        self.clock = SteadyClock(
            round(last_s * 1000),
            lambda: round(self.wall_s * 1_000_000_000),
            lambda: round(self.running_s * 1_000_000_000),
        )

    def after(self, seconds: float) -> float:
        """What it says then, in seconds."""
        self.wall_s += seconds
        self.running_s += seconds
        assert self.clock.us() // 1000 == self.clock.ms()
        return self.clock.ms() / 1000


def test_it_is_the_systems_and_does_not_follow_it_when_that_is_set():
    scene = Scene(last_s=NOON_S - 5)
    assert scene.after(10) == NOON_S + 10
    scene.wall_s -= DAY_S
    assert scene.after(10) == NOON_S + 20
    assert scene.clock.ahead_s() == DAY_S


def test_a_clock_that_was_set_back_before_the_start_is_gone_on_from_and_met_again():
    scene = Scene(last_s=NOON_S + DAY_S)
    assert scene.clock.set_back_s == scene.clock.ahead_s() == DAY_S
    before = scene.clock.ms() / 1000
    assert before == NOON_S + DAY_S
    for _ in range(GIVEN_BACK):
        now = scene.after(DAY_S)
        assert now - before == pytest.approx(DAY_S * (1 - 1 / GIVEN_BACK))
        before = now
    assert scene.clock.ahead_s() == 0
    assert scene.after(DAY_S) - before == DAY_S


def test_what_is_too_much_is_not_made_up_for():
    scene = Scene(last_s=NOON_S + AHEAD_MAX_S + 1)
    assert scene.clock.ms() == NOON_S * 1000
    assert scene.clock.set_back_s == AHEAD_MAX_S + 1


@pytest.mark.parametrize(
    ("last_s", "level", "said"),
    [
        (NOON_S + DAY_S, "warning", "86,400 s behind the time when the journal was written last"),
        (NOON_S + 10 * AHEAD_MAX_S, "error", "1,728,000 s behind"),
        (NOON_S + 1, None, ""),
        (NOON_S - DAY_S, None, ""),
        (0, None, ""),
    ],
)
def test_the_start_says_it(last_s: float, level: str | None, said: str):
    with capture_logs() as lines:
        Scene(last_s)
    assert [line["log_level"] for line in lines] == ([level] if level else [])
    assert all(said in line["reason"] for line in lines)


@pytest.mark.trio
async def test_a_clock_that_is_set_while_the_broker_runs_is_said_once(autojump_clock: trio.testing.MockClock):
    scene = Scene()
    with capture_logs() as lines, trio.move_on_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.clock.watch)
            await trio.sleep(15)
            scene.wall_s -= 3600
            await trio.sleep(100)
            scene.wall_s += 7200
            await trio.sleep(100)
            scene.wall_s += 1
            await trio.sleep(100)
            nursery.cancel_scope.cancel()
    assert [(line["forward_by_s"], line["broker_ahead_s"]) for line in lines] == [(-3600, 3600), (7200, -3600)]
    assert "earlier" in lines[1]["consequence"]
    assert "earlier" not in lines[0]["consequence"]
