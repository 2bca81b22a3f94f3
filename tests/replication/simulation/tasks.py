"""Tasks on simulated time: as much of trio as the journal's writer and the reads of a forwarder's disk use.

What comes in: coroutines of `amqpd.journal.writer` and `amqpd.cluster.own_disk`, as they ship. What goes out: their
steps, as events of the clock; what they have done in threads, when the disk is done with it.
Rules: 1. A task goes on in an event of its own, never inside of the call that wakes it, as with trio. 2. A thread
works on while its process is stopped, and its task hears of it later. 3. Tasks of a process that has ended do not go
on; whether what a thread did then is on the disk, the process's disk says (`machine.py`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from amqpd.cluster import own_disk
from amqpd.journal import writer
from tests.replication.simulation.clock import Clock

Thread = Callable[[Callable[..., Any], tuple[Any, ...], Callable[[Any, BaseException | None], None]], None]


class TimeIsUp(BaseException):
    """Of a scope of `move_on_after`."""


class Task:
    """One coroutine. `run`: an event of its process; `thread`: does a call while the task waits, and calls with what
    came of it."""

    current: Task

    def __init__(
        self,
        clock: Clock,
        run: Callable[[Callable[[], None]], None],
        thread: Thread,
        coroutine: Coroutine[DesiredSet, Any, Any],
    ) -> None:
        self.clock = clock
        self.thread = thread
        self._run = run
        self._coroutine = coroutine
        self.turn = 0
        """counts what it waited for: who wakes it says for which one"""

    def wake(self, turn: int, value: Any = None, error: BaseException | None = None) -> None:
        """Soon, unless it goes on for another reason before."""
        self.clock.at(self.clock.now_ms, lambda: self._run(lambda: self._step(turn, value, error)))

    def begin(self) -> None:
        self._step(0, None, None)

    def _step(self, turn: int, value: Any, error: BaseException | None) -> None:
        if turn != self.turn:
            return
        self.turn += 1
        Task.current = self
        try:
            desired_set = self._coroutine.send(value) if error is None else self._coroutine.throw(error)
        except StopIteration:
            self.turn = -1
        else:
            desired_set.begin(self)


class DesiredSet:
    """What a task waits for."""

    def __init__(self, begin: Callable[[Task], None]) -> None:
        self.begin = begin

    def __await__(self) -> Generator[DesiredSet, Any, Any]:
        return (yield self)


class Event:
    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[tuple[Task, int]] = []

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for task, turn in waiting:
            task.wake(turn)

    async def wait(self) -> None:
        if not self._is_set:
            await DesiredSet(lambda task: self._waiting.append((task, task.turn)))


class Scope:
    """That of `move_on_after`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._error = TimeIsUp()
        self._left = self.cancelled_caught = False

    def __enter__(self) -> Scope:
        task = Task.current
        if self._seconds < math.inf:
            task.clock.at(task.clock.now_ms + self._seconds * 1000, lambda: self._ends(task))
        return self

    def _ends(self, task: Task) -> None:
        if not self._left:
            task.wake(task.turn, error=self._error)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self._left = True
        self.cancelled_caught = error is self._error
        return self.cancelled_caught


async def _sleep(seconds: float) -> None:
    def begin(task: Task) -> None:
        turn = task.turn
        task.clock.at(task.clock.now_ms + seconds * 1000, lambda: task.wake(turn))

    await DesiredSet(begin)


def _run_sync(work: Callable[..., Any], *arguments: Any, limiter: Any = None) -> Awaitable[Any]:
    def begin(task: Task) -> None:
        turn = task.turn
        task.thread(work, arguments, lambda value, error: task.wake(turn, value, error))

    return _awaited(DesiredSet(begin))


async def _awaited(desired_set: DesiredSet) -> Any:
    return await desired_set


class _Limiter:
    def __init__(self, tokens: int) -> None:
        self.borrowed_tokens = 0


def _cancel_scope(*, shield: bool) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def on_simulated_time(clock: Clock) -> Iterator[None]:
    """The modules that have tasks run on this clock meanwhile."""
    simulated = SimpleNamespace(
        Event=Event,
        CapacityLimiter=_Limiter,
        CancelScope=_cancel_scope,
        move_on_after=Scope,
        lowlevel=SimpleNamespace(checkpoint=partial(_sleep, 0)),
        sleep=_sleep,
        to_thread=SimpleNamespace(run_sync=_run_sync),
    )
    with (
        patch.object(writer, "trio", simulated),
        patch.object(own_disk, "trio", simulated),
        patch.object(writer, "perf_counter", lambda: clock.now_s),
    ):
        yield
