"""Waiting: awake first, asleep then, and never longer than both."""

from __future__ import annotations

import os
import select

import pytest

from amqpd.transport import readiness
from amqpd.transport.readiness import SLEEP_S, busy_wait_s, next_events


class Looks:
    """An epoll object on which something is ready at the look of that number."""

    def __init__(self, ready_at: int) -> None:
        self.waits: list[float] = []
        self._ready_at = ready_at

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        self.waits.append(timeout)
        return [(7, select.EPOLLIN)] if len(self.waits) == self._ready_at else []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at it takes a microsecond."""
    ticks = iter(range(1_000_000))
    monkeypatch.setattr(readiness, "perf_counter", lambda: next(ticks) / 1_000_000)


@pytest.mark.usefixtures("clock")
def test_what_comes_soon_is_found_without_sleeping() -> None:
    epoll = Looks(ready_at=30)
    assert next_events(epoll, 0.0001) == [(7, select.EPOLLIN)]  # type: ignore[arg-type]
    assert epoll.waits == [0] * 30


@pytest.mark.usefixtures("clock")
def test_then_it_sleeps_and_comes_back_without_events() -> None:
    epoll = Looks(ready_at=0)
    assert next_events(epoll, 0.0001) == []  # type: ignore[arg-type]
    assert epoll.waits[-1] == SLEEP_S
    assert 0 < len(epoll.waits[:-1]) <= 100
    assert set(epoll.waits[:-1]) == {0}


def test_without_a_busy_wait_it_sleeps_at_once() -> None:
    epoll = Looks(ready_at=1)
    assert next_events(epoll, 0.0) == [(7, select.EPOLLIN)]  # type: ignore[arg-type]
    assert epoll.waits == [SLEEP_S]


@pytest.mark.parametrize(("processors", "expected"), [({0}, 0.0), ({0, 3}, 0.0001)])
def test_a_single_processor_is_left_to_the_others(
    monkeypatch: pytest.MonkeyPatch, processors: set[int], expected: float
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: processors)
    assert busy_wait_s(100) == expected
