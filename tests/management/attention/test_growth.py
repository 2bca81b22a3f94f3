"""Counters seen now and then: how much one grew lately, and for how long it stood still."""

from __future__ import annotations

from amqpd.management.attention.watch import RECENT_MS, Growth, Still

MIN = 60_000


def test_growth_counts_for_ten_minutes_after_it_was_last() -> None:
    growth = Growth(0)
    growth.look(5_000, 7)
    assert growth.recent(5_000) == 7
    assert growth.recent(5_000 + RECENT_MS - 1) == 7
    assert growth.recent(5_000 + RECENT_MS) == 0


def test_what_grew_long_ago_is_not_counted_again() -> None:
    growth = Growth(0)
    growth.look(MIN, 1_000_000)
    growth.look(60 * MIN, 1_000_003)
    assert growth.recent(60 * MIN) == 3
    assert growth.last_ms == 60 * MIN


def test_steady_growth_is_that_of_the_last_five_to_ten_minutes() -> None:
    growth = Growth(0)
    for value in range(1, 240 * 12):
        growth.look(value * 5_000, value)
        if value > 120:
            assert 60 <= growth.recent(value * 5_000) <= 120


def test_a_counter_stands_still_since_it_changed() -> None:
    still = Still(1_000, 5)
    still.look(9_000, 5)
    assert still.still_ms(9_000) == 8_000
    still.look(10_000, 6)
    assert still.still_ms(12_000) == 2_000
