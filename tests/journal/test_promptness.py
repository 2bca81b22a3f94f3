"""How long commits stay away from the pump's thread, on a clock of the test's own."""

from __future__ import annotations

import pytest

from amqpd.journal.commit_timing import PAUSE_S_MAX, PAUSE_S_MIN, TOOK_S_MAX, Promptness


def commits(promptness: Promptness, begin_s: float, end_s: float, took_s: float, each_s: float) -> tuple[int, float]:
    """(how many of them were on the pump's thread, how long these took together): one each `each_s`."""
    now_s, count, spent_s = begin_s, 0, 0.0
    while now_s < end_s:
        if promptness.expected(now_s):
            promptness.took(now_s, now_s + took_s)
            count, spent_s = count + 1, spent_s + took_s
        now_s += each_s + took_s
    return count, spent_s


@pytest.mark.parametrize("took_s", [0.021, 0.05, 0.2, 1.0])
def test_a_slow_disk_takes_little_of_the_pump(took_s: float) -> None:
    _, spent_s = commits(Promptness(), 0.0, 1000.0, took_s, 0.001)
    assert spent_s <= 80.0


def test_a_fast_disk_has_no_pause() -> None:
    promptness = Promptness()
    count, _ = commits(promptness, 0.0, 10.0, 0.0005, 0.0005)
    assert count == pytest.approx(10_000, abs=1)


def test_pauses_double_while_a_disk_stays_slow_and_are_short_again_when_it_was_fast_for_as_long() -> None:
    promptness, now_s, pauses = Promptness(), 0.0, []
    for _ in range(10):
        promptness.took(now_s, now_s + 2 * TOOK_S_MAX)
        now_s += 2 * TOOK_S_MAX
        low, high = 0.0, 100.0
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (low, middle) if promptness.expected(now_s + middle) else (middle, high)
        pauses.append(round(high, 3))
        now_s += high
    assert pauses == [min(PAUSE_S_MIN * 2**n, PAUSE_S_MAX) for n in range(10)]
    promptness.took(now_s + 2 * PAUSE_S_MAX, now_s + 2 * PAUSE_S_MAX + 2 * TOOK_S_MAX)
    assert promptness.expected(now_s + 2 * PAUSE_S_MAX + 2 * TOOK_S_MAX + PAUSE_S_MIN)


def test_some_that_take_long_on_the_average_are_enough() -> None:
    promptness = Promptness()
    count, _ = commits(promptness, 0.0, 0.2, TOOK_S_MAX / 2, 0.0)
    assert 1 < count < 8
