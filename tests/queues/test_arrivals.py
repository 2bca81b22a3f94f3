"""When the messages of a segment came: what cutting and joining segments leaves of it."""

from __future__ import annotations

from amqpd.queues.arrivals import COARSE_MS, ArrivalTimes


def test_a_segment_that_lost_all_its_later_arrivals_takes_new_ones() -> None:
    arrivals = ArrivalTimes(1000)
    arrivals.add(5, 1000 + COARSE_MS)
    assert arrivals.cut_from(3).at(2) == 1000 + COARSE_MS
    arrivals.add(3, 1000 + 5 * COARSE_MS)
    arrivals.extend(4, ArrivalTimes(1000 + 9 * COARSE_MS))
    assert [arrivals.at(offset) for offset in range(5)] == [1000] * 3 + [1000 + 5 * COARSE_MS] + [
        1000 + 9 * COARSE_MS
    ]


def test_arrivals_are_exact_to_the_millisecond_until_they_are_made_coarse() -> None:
    arrivals = ArrivalTimes(1000)
    for offset in range(1, 61):
        arrivals.add(offset, 1000 + offset)
    assert [arrivals.at(offset) for offset in (0, 1, 59, 60, 99)] == [1000, 1001, 1059, 1060, 1060]
    coarse = arrivals.coarse()
    assert coarse is not None
    assert [coarse.at(offset) for offset in (0, 19, 20, 39, 60)] == [1000, 1000, 1020, 1020, 1060]
    assert ArrivalTimes(1000).coarse() is None
