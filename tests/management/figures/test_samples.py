"""Series of samples: which are kept, and what a range of time finds of them."""

from __future__ import annotations

import pytest

from amqpd.management.figures.samples import BASIC, GLOBAL, RANGE_MAX, SampleRange, Series, range_back

S = 1000
NAMES = ("level", "twice")


def filled(seconds: range, policies=BASIC) -> Series:
    """The value is the time."""
    series = Series(NAMES, policies)
    for second in seconds:
        series.add(second * S, (second, 2 * second))
    return series


def found(series: Series, now_s: int, age_s: int, incr_s: int, **more: bool) -> list[tuple[int, int]]:
    wanted = range_back(now_s * S, age_s, incr_s, **more)
    assert wanted is not None
    return [(sample.at_ms // S, sample.values[0]) for sample in series.within(wanted)]


def test_one_is_kept_of_each_five_seconds_the_first() -> None:
    series = Series(NAMES)
    for second in (102, 103, 104, 105, 109, 111):
        series.add(second * S, (second, 0))
    assert found(series, 112, 30, 5) == [(110, 111), (105, 105), (100, 102)]


def test_a_range_ends_at_a_whole_step_and_has_both_ends() -> None:
    series = filled(range(0, 200, 5))
    assert found(series, 123, 20, 5) == [(120, 120), (115, 115), (110, 110), (105, 105), (100, 100)]
    assert found(series, 123, 60, 30) == [(120, 120), (90, 90), (60, 60)]
    assert found(series, 64, 30, 7) == [(63, 60), (56, 55), (49, 45), (42, 40), (35, 35)]


def test_ahead_it_ends_at_the_next_whole_step_whose_value_is_the_newest() -> None:
    series = filled(range(0, 125, 5))
    assert found(series, 123, 10, 5, ahead=True) == [(125, 120), (120, 120), (115, 115)]
    assert found(series, 120, 5, 5, ahead=True) == [(120, 120), (115, 115)]


def test_nothing_is_made_up_before_the_first_and_where_nobody_looked() -> None:
    series = filled(range(1000, 1020, 5))
    assert found(series, 1016, 600, 5) == [(1015, 1015), (1010, 1010), (1005, 1005), (1000, 1000)]
    series.add(1050 * S, (1050, 0))
    assert found(series, 1051, 50, 5)[:3] == [(1050, 1050), (1020, 1015), (1015, 1015)]
    assert found(Series(NAMES), 1000, 60, 5) == []


def test_a_day_has_its_samples_the_older_the_fewer() -> None:
    series = filled(range(0, 100_000, 5), GLOBAL)
    now = 99_999
    for age_s, incr_s in ((600, 5), (3_600, 60), (28_800, 600), (86_400, 1_800)):
        rows = found(series, now, age_s, incr_s)
        assert [at for at, _ in rows] == list(range(now - now % incr_s, now - now % incr_s - age_s - 1, -incr_s))
        assert all(at == value for at, value in rows)
    # Minutes are known for an hour: before that, the value of the ten minutes that they are of.
    assert found(series, now, 18_000, 60)[-1] == (81_960, 81_600)


@pytest.mark.parametrize(("policies", "samples"), [(BASIC, 122 + 61), (GLOBAL, 122 + 62 + 50 + 49)])
def test_it_does_not_grow(policies, samples: int) -> None:
    series = filled(range(0, 200_000, 5), policies)
    assert sum(len(ring._rows) for ring in series._rings) == samples * (1 + len(NAMES))


def test_a_rate_is_that_of_the_last_two() -> None:
    series = filled(range(100, 105, 5))
    assert series.rate("twice") == 0
    series.add(115 * S, (190, 230))
    assert (series.rate("level"), series.rate("twice")) == (6, 2)


@pytest.mark.parametrize(("age", "incr"), [(0, 5), (-1, 5), (30, 0), (30, -5), (-30, -5), (5 * (RANGE_MAX + 1), 5)])
def test_what_is_no_range(age: int, incr: int) -> None:
    assert range_back(1_000_000, age, incr) is None


def test_the_longest_range() -> None:
    assert range_back(10_000_000, 5 * RANGE_MAX + 4, 5) == SampleRange(10_000_000 - 2_504_000, 10_000_000, 5_000)
