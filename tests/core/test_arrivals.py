"""When the messages of a segment came: what cutting and joining segments leaves of it."""

from __future__ import annotations

from amqpd.queues.arrivals import ARRIVAL_MS, Arrivals


def test_a_segment_that_lost_all_its_later_arrivals_takes_new_ones() -> None:
    arrivals = Arrivals(1000)
    arrivals.add(5, 1000 + ARRIVAL_MS)
    assert arrivals.cut_from(3).at(2) == 1000 + ARRIVAL_MS
    arrivals.add(3, 1000 + 5 * ARRIVAL_MS)
    arrivals.extend(4, Arrivals(1000 + 9 * ARRIVAL_MS))
    assert [arrivals.at(offset) for offset in range(5)] == [1000] * 3 + [1000 + 5 * ARRIVAL_MS] + [
        1000 + 9 * ARRIVAL_MS
    ]
