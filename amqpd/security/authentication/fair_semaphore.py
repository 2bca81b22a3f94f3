"""A few places for much work, shared fairly: an address that floods delays only itself.

What comes in: "may I?", under a name, from an address. What goes out: a turn, in order within a name, round and
round among the names of an address, and among addresses.
Rules: 1. At most `places` turns at once, at most `waiting_max` waiting from one address. 2. No place is
free while a log-in waits.
Not here: what is done in a turn (`logins.py`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class TooManyWaiting(Exception):
    """The number of those that wait under one name has reached its bound."""


class FairSemaphore:
    """A number of places for concurrent work; those that wait get them in turns, by address and then by name."""

    def __init__(self, places: int, waiting_max: int) -> None:
        self._free = places
        self._waiting_max = waiting_max
        # The next address to get a turn is the first, and so is the next of its names.
        self._waiting: OrderedDict[str, OrderedDict[str, deque[trio.Event]]] = OrderedDict()
        self._counts: Counter[str] = Counter()
        """how many wait, by address"""

    @asynccontextmanager
    async def take(self, name: str, address: str = "") -> AsyncIterator[None]:
        """Raises TooManyWaiting at once."""
        await self._wait_turn(name, address)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait_turn(self, name: str, address: str) -> None:
        if self._free:
            self._free -= 1
            return
        if self._counts[address] >= self._waiting_max:
            raise TooManyWaiting
        names = self._waiting.setdefault(address, OrderedDict())
        queue = names.setdefault(name, deque())
        mine = trio.Event()
        queue.append(mine)
        self._counts[address] += 1
        try:
            await mine.wait()
        except trio.Cancelled:
            if mine.is_set():
                self._pass_on()
            else:
                queue.remove(mine)
                if not queue:
                    del names[name]
                self._left(address, names)
            raise

    def _pass_on(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        address, names = self._waiting.popitem(last=False)
        name, queue = names.popitem(last=False)
        queue.popleft().set()
        if queue:
            names[name] = queue
        self._waiting[address] = names  # behind the others
        self._left(address, names)

    def _left(self, address: str, names: OrderedDict[str, deque[trio.Event]]) -> None:
        """One that waited from there does so no longer."""
        self._counts[address] -= 1
        if not names:
            del self._waiting[address], self._counts[address]
