"""A task beside the messages that fails begins again, after a pause that grows; what ends the node is raised on."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from amqpd.errors import NodeFailure
from amqpd.faults import Faults
from amqpd.journal.errors import DiskFailure
from amqpd.process.supervision import GOOD_S, PAUSE_S_MAX, PAUSE_S_MIN, supervised


class Told:
    def __init__(self) -> None:
        self.bugs: list[Exception] = []
        self.logged: list[dict[str, Any]] = []
        self.faults = Faults(self.bugs.append, lambda event, **fields: self.logged.append({"event": event, **fields}))


def run(task: Any, told: Told) -> float:
    """Seconds that it took until the task returned."""

    async def main() -> float:
        begun = trio.current_time()
        await supervised(task, "samples", told.faults)
        return trio.current_time() - begun

    return trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    "error", [ValueError("v"), MemoryError(), OSError(5, "I/O"), RecursionError(), OverflowError()]
)
def test_a_task_begins_again_after_a_pause(error: Exception) -> None:
    told, calls = Told(), []

    async def task() -> None:
        calls.append(trio.current_time())
        if len(calls) < 3:
            raise error

    assert run(task, told) == PAUSE_S_MIN + 2 * PAUSE_S_MIN
    assert told.bugs == [error, error]
    assert told.faults.counts["task"] == 2
    assert told.logged[0] == {
        "event": "fault_contained",
        "reach": "task",
        "name": "samples",
        "error": type(error).__name__,
        "again_in_s": PAUSE_S_MIN,
    }


def test_the_pause_has_a_bound_and_is_short_again_after_a_good_time() -> None:
    told, pauses, ended = Told(), [], [0.0]

    async def task() -> None:
        pauses.append(trio.current_time() - ended[0])
        if len(pauses) == 20:
            await trio.sleep(GOOD_S)
        ended[0] = trio.current_time()
        if len(pauses) < 22:
            raise ValueError

    run(task, told)
    assert max(pauses[1:]) == PAUSE_S_MAX
    assert pauses[20] == PAUSE_S_MIN


@pytest.mark.parametrize("failure", [NodeFailure("the node"), DiskFailure("the disk")])
def test_what_ends_the_node_is_raised_on(failure: Exception) -> None:
    told = Told()

    async def task() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inner)

    async def inner() -> None:
        raise failure

    with pytest.raises((type(failure), ExceptionGroup)):
        run(task, told)
    assert not told.bugs


def test_a_task_that_is_cancelled_ends() -> None:
    told = Told()

    async def main() -> None:
        with trio.move_on_after(5):
            await supervised(trio.sleep_forever, "samples", told.faults)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert not told.bugs
