"""A few places for much work, shared fairly: whoever floods only delays himself.

What comes in: "may I?", under a name. What goes out: a turn, in order within a name, and round and round
among names.
Rules: 1. At most `places` turns at once, at most `waiting_max` waiting under one name. 2. A free place
never waits while somebody wants it.
Not here: what is done in a turn (`logins.py`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class TooManyWaiting(Exception):
    """There is no room to wait under this name."""


class Turns:
    def __init__(self, places: int, waiting_max: int) -> None:
        self._free = places
        self._waiting_max = waiting_max
        # The next name to get a turn is the first.
        self._waiting: OrderedDict[str, deque[trio.Event]] = OrderedDict()

    @asynccontextmanager
    async def take(self, name: str) -> AsyncIterator[None]:
        """Raises TooManyWaiting at once."""
        await self._wait_turn(name)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait_turn(self, name: str) -> None:
        if self._free:
            self._free -= 1
            return
        queue = self._waiting.setdefault(name, deque())
        if len(queue) >= self._waiting_max:
            raise TooManyWaiting
        mine = trio.Event()
        queue.append(mine)
        try:
            await mine.wait()
        except trio.Cancelled:
            if mine.is_set():
                self._pass_on()
            else:
                queue.remove(mine)
                if not queue:
                    del self._waiting[name]
            raise

    def _pass_on(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        name, queue = self._waiting.popitem(last=False)
        queue.popleft().set()
        if queue:
            self._waiting[name] = queue
