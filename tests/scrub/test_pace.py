"""The scrub's arithmetic: a pass is done in time, and never faster than allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.scrub import AIM, RATE_MIN, ScrubPace, expected_s, pass_s, period_s, rate

STEP = 1 << 18
sizes = st.integers(0, 1 << 40)
rates = st.integers(1 << 10, 1 << 30)
intervals = st.floats(1.0, 1e7)


@given(sizes, st.floats(-10, 1e7), rates)
def test_the_rate_is_within_its_bounds(left: int, left_s: float, rate_max: int) -> None:
    found = rate(left, left_s, rate_max)
    assert min(RATE_MIN, rate_max) <= found <= rate_max


@given(
    st.integers(1, 200),
    intervals,
    rates,
    st.lists(st.floats(0, 10), min_size=1, max_size=20),
    st.integers(0, STEP // 2),
)
def test_a_pass_ends_in_its_interval_or_runs_at_the_greatest_rate(
    steps: int, interval_s: float, rate_max: int, took: list[float], growth: int
) -> None:
    """What steps take, waiting for consumers included, and what is added to the journal, comes on top."""
    total = begun_with = steps * STEP
    pace = ScrubPace(0.0, interval_s, rate_max, total)
    now_s = spent_s = 0.0
    number = read = 0
    while read < total:
        spent_s += took[number % len(took)]
        now_s += took[number % len(took)]
        number += 1
        read += STEP
        total += growth
        pause_s = pace.step(STEP, total, now_s)
        assert 0 <= pause_s <= STEP / min(RATE_MIN, rate_max) + 1e-6
        now_s += pause_s
        assert read <= rate_max * now_s * (1 + 1e-9) + 1, "never faster than allowed, in the sum"
        assert 0 <= pace.progress <= 0.99
    most_s = max(AIM * interval_s, begun_with / rate_max) + spent_s + (read - begun_with) / rate_max
    assert now_s <= most_s * (1 + 1e-9) + 1e-6


@given(sizes, intervals, rates)
def test_the_stated_time_holds_two_passes_in_any_order(total: int, interval_s: float, rate_max: int) -> None:
    """A byte is read as the first of a pass, and as the last of the next one."""
    one = pass_s(total, interval_s, rate_max)
    begin_of_next = max(one, period_s(interval_s))
    assert expected_s(total, interval_s, rate_max) >= begin_of_next + one


@pytest.mark.parametrize(
    ("total", "interval_s", "rate_max", "seconds"),
    [
        (0, 604_800, 4 << 20, 0),
        (100 << 20, 604_800, 4 << 20, 1600),  # the least rate
        (100 << 30, 604_800, 4 << 20, 0.9 * 604_800),  # what the interval needs
        (10 << 40, 604_800, 4 << 20, 10 * (1 << 18)),  # the greatest rate
        (1 << 20, 1, 4 << 20, 0.9),
    ],
)
def test_how_long_a_pass_takes(total: int, interval_s: float, rate_max: int, seconds: float) -> None:
    assert pass_s(total, interval_s, rate_max) == pytest.approx(seconds)
    assert expected_s(total, interval_s, rate_max) == pytest.approx(max(seconds, min(interval_s, 3600)) + seconds)
