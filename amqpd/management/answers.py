"""What a use case waits for that the node gives to a function: the answer of a change, a message read from the disk.

What comes in: the node's call. What goes out: its value, to the task that waits.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Answer(Generic[T]):
    """`give` is for the node, once; `wait` for the use case."""

    def __init__(self) -> None:
        self._given = trio.Event()
        self._values: list[T] = []

    def give(self, value: T) -> None:
        self._values.append(value)
        self._given.set()

    @property
    def given(self) -> bool:
        return bool(self._values)

    async def wait(self) -> T:
        await self._given.wait()
        return self._values[0]
