"""Long walks in short steps, so that the broker goes on in between.

What comes in: things, as many as there are; what is to be made of each. What goes out: the same as in one go.
Rules: 1. After `TURN_S` whatever else waits has its turn: it goes by time, because a thing costs what it costs. 2. A
walk goes over a copy of references, which is one fast call, and looks again at what may have gone by the time of its
turn. 3. Where things are passed over, a step is told of these too, as None.
Not here: what is walked over (`figures/inventory.py`, `admin/amqpd_admin/walks.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

import trio

T = TypeVar("T")
R = TypeVar("R")

TURN_S = 0.001
# Sorted in one go: about a millisecond. Many more are sorted in such runs, which are merged.
SORTED_AT_ONCE = 500


class WalkPace:
    """The pace of one long walk: other tasks have their turn after each `TURN_S`."""

    def __init__(self) -> None:
        self._until = trio.current_time() + TURN_S

    async def step(self) -> None:
        """To be called for each thing."""
        if trio.current_time() >= self._until:
            await self.rest()

    async def rest(self) -> None:
        """Everything else goes first now."""
        await trio.lowlevel.checkpoint()
        self._until = trio.current_time() + TURN_S


async def each(things: Iterable[T | None], make: Callable[[T], R | None], pace: WalkPace | None = None) -> list[R]:
    """What is made of the things, in their order; without what is None."""
    pace, found = pace or WalkPace(), []
    for thing in things:
        await pace.step()
        made = None if thing is None else make(thing)
        if made is not None:
            found.append(made)
    return found


async def in_order(
    things: Sequence[T], key: Callable[[T], Any], *, reverse: bool = False, first: int | None = None
) -> list[T]:
    """As `sorted`; with `first`, no more than that number of them."""
    pace = WalkPace()
    runs: list[list[tuple[Any, T]]] = []
    for begin in range(0, len(things), SORTED_AT_ONCE):
        run = await each(things[begin : begin + SORTED_AT_ONCE], lambda thing: (key(thing), thing), pace)
        run.sort(key=itemgetter(0), reverse=reverse)
        runs.append(run)
    merged = islice(heapq.merge(*runs, key=itemgetter(0), reverse=reverse), first)
    return await each(merged, itemgetter(1), pace)
