"""`storage/bounded.py`: calls that may never come back.

What is verified: who calls waits for the bound only; a disk that hangs holds one thread, however often it is asked;
what was given up never begins; after the end nothing is taken, and what is to be done last is done last.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from amqpd.storage.bounded import BoundedCalls, Unanswered, end_within

from ..harness.hanging import Hang

SHORT_S = 0.05
LONG_S = 30.0


@pytest.fixture
def calls() -> Iterator[BoundedCalls]:
    found = BoundedCalls("disk")
    yield found
    found.close()
    assert found.ended(LONG_S)


def test_answers_and_errors_come_back(calls: BoundedCalls) -> None:
    assert calls.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        calls.call(lambda: 1 // 0)
    assert calls.call(lambda: calls.call(lambda: 8)) == 8, "it waits for itself"


def test_a_disk_that_hangs_holds_one_thread(calls: BoundedCalls) -> None:
    hang = Hang()
    done: list[int] = []
    hanging = calls.put(hang(lambda: done.append(0)))
    hang.wait_called()
    before = threading.active_count()
    for number in range(1, 20):
        with pytest.raises(Unanswered, match="disk did not answer"):
            calls.call(lambda number=number: done.append(number), SHORT_S)  # type: ignore[misc]
    assert threading.active_count() == before
    assert calls.busy_s() > 0
    hang.let_go()
    calls.wait(hanging, lambda waited_s: waited_s > LONG_S)
    calls.call(lambda: done.append(100), LONG_S)
    assert done == [0, 100], "what was given up has begun"
    assert not calls.busy_s()


def test_the_last_thing_is_done_when_the_disk_answers() -> None:
    calls, hang = BoundedCalls("disk"), Hang()
    done: list[str] = []
    calls.put(hang(lambda: done.append("first")))
    hang.wait_called()
    waits = calls.put(lambda: done.append("never"))
    calls.close(lambda: done.append("last"))
    with pytest.raises(Unanswered, match="not open any more"):
        calls.wait(waits, lambda _: False)
    with pytest.raises(Unanswered):
        calls.put(lambda: None)
    assert not calls.ended(0)
    hang.let_go()
    assert calls.ended(LONG_S)
    assert done == ["first", "last"]


def test_what_does_not_end_is_left() -> None:
    hang, done = Hang(), threading.Event()
    assert not end_within([done.set, hang(lambda: None)], SHORT_S)
    assert done.is_set()
    hang.let_go()
    assert end_within([done.set], LONG_S)
