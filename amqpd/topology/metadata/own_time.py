"""A bound on waiting that counts the time in which this process ran, and no other.

What comes in: seconds; what is waited for. What goes out: its result, or `RanOut`.
Rules: 1. The time is counted in pieces, and of a piece that took longer only its own length: a process that was
stopped (SIGSTOP, a debugger, a machine that was suspended or had no processor time for it) did not hear what was
answered meanwhile, and blames nobody for that. 2. What was done when the time ran out counts as done.
Not here: what is tried again, and how often (`etcd/patience.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

# Long enough that a busy machine counts nearly all of its time, short enough that a bound of seconds is one.
PIECE_S = 1.0
# For an operator, when that is the reason.
DID_NOT_RUN = "this process did not run: it or its machine was stopped, or had no processor time"

T = TypeVar("T")


class RanOut(Exception):
    """A bound of `OwnTime` has passed."""


class OwnTime:
    """A bound on waiting that counts only the time in which this process ran, from its making on, for one task at
    a time."""

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds
        self._counted_at = trio.current_time()

    @property
    def left_s(self) -> float:
        """Zero, or less: it ran out. To be asked at least once in a piece: what is between is counted as one."""
        now = trio.current_time()
        self._left_s -= min(now - self._counted_at, PIECE_S)
        self._counted_at = now
        return self._left_s

    async def within(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Its result. Raises RanOut; it was cancelled then, and what it raises."""
        results: list[T] = []
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_out, nursery.cancel_scope)
            try:
                results.append(await attempt())
            except Exception as error:  # noqa: BLE001 - raised again, and not as a group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not results:
            raise RanOut
        return results[0]

    async def _run_out(self, scope: trio.CancelScope) -> None:
        while (left_s := self.left_s) > 0:  # noqa: ASYNC110 - it is the time that is waited for
            await trio.sleep(min(left_s, PIECE_S))
        scope.cancel()
