"""Token buckets: the burst, the rate, and what is owed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqpd.flow.quotas import LOOK_MS, TokenBucket


def test_a_bucket_is_full_at_first_and_never_fuller() -> None:
    bucket = TokenBucket(rate=10, burst=50, now_ms=0)
    assert bucket.available(0) == 50
    assert bucket.available(1_000_000) == 50


def test_tokens_come_back_at_the_rate_to_the_millisecond() -> None:
    bucket = TokenBucket(rate=3, burst=3, now_ms=0)
    bucket.take(3, 0)
    assert bucket.available(333) == 0
    assert bucket.available(334) == 1
    assert bucket.available(999) == 2
    assert bucket.available(1000) == 3


def test_what_is_owed_is_paid_back_first() -> None:
    bucket = TokenBucket(rate=100, burst=100, now_ms=0)
    bucket.take(1000, 0)
    assert bucket.available(0) == -900
    assert bucket.available(8_999) == -1
    assert bucket.available(9_010) == 1


def test_the_burst_is_at_least_what_comes_between_two_looks() -> None:
    assert TokenBucket(rate=1000, burst=1, now_ms=0).burst == 1000 * LOOK_MS // 1000
    assert TokenBucket(rate=1, burst=1, now_ms=0).burst == 1


def test_other_limits_count_from_now_on_and_debts_stay() -> None:
    bucket = TokenBucket(rate=10, burst=10, now_ms=0)
    bucket.resize(rate=100, burst=1000, now_ms=0)
    assert bucket.available(0) == 10
    assert bucket.available(100_000) == 1000
    bucket.resize(rate=100, burst=20, now_ms=100_000)
    assert bucket.available(100_000) == 20
    bucket.take(30, 100_000)
    bucket.resize(rate=10, burst=10, now_ms=100_000)
    assert bucket.available(100_000) == -10
    assert bucket.available(102_000) == 10


@given(
    rate=st.integers(1, 10_000),
    burst=st.integers(1, 10_000),
    steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 5_000)), max_size=40),
)
def test_never_more_than_the_burst_and_the_rate_allow(rate: int, burst: int, steps: list[tuple[int, int]]) -> None:
    """In any stretch of time from the first to the last take: at most the burst, what came in the time, and the last
    take, which may be owed."""
    bucket, now, taken, last = TokenBucket(rate, burst, 0), 0, 0, 0
    for passed, wanted in steps:
        now += passed
        if bucket.available(now) > 0:
            bucket.take(wanted, now)
            taken, last = taken + wanted, wanted
        assert taken - last <= bucket.burst + now * rate / 1000
        assert bucket.available(now) <= bucket.burst
