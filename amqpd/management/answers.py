"""What a use case waits for that the node gives to a function: the answer of a change, a message read from the disk.

What comes in: the node's call, or an error in what it led to. What goes out: its value or its error, to the task that
waits.
Rules: what goes wrong is the waiting task's, not the node's that calls: unless it is the node's end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from amqpd.faults import ENDS_NODE

T = TypeVar("T")


class NodeAnswer(Generic[T]):
    """The answer of the node for which a use case waits. `give` and `fail` are for the node's side, one of them,
    once; `wait` for the use case."""

    def __init__(self) -> None:
        self._given = trio.Event()
        self._values: list[T] = []
        self._error: Exception | None = None

    def give(self, value: T) -> None:
        self._values.append(value)
        self._given.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._given.set()

    def guarded(self, step: Callable[..., None]) -> Callable[..., bool]:
        """The step, for the node to call; what it raises is the answer. It is always done: True."""

        def call(*results: Any) -> bool:
            try:
                step(*results)
            except ENDS_NODE:
                raise
            except Exception as error:  # noqa: BLE001 - raised on by `wait`
                self.fail(error)
            return True

        return call

    async def wait(self) -> T:
        """Raises what it failed with."""
        await self._given.wait()
        if self._error is not None:
            raise self._error
        return self._values[0]
