"""How long a call of the store goes on trying while etcd does not answer.

What comes in: a way to try once. What goes out: its result, or the last `StoreUnavailable` when the time has passed.
Rules: 1. The bound is on one transaction, or one page, whatever it has to wait for. 2. Between two tries it waits,
longer each time: a cluster that comes back is not met by everybody at once.
Not here: one try on every endpoint (`gateway.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from amqpd.topology.metadata.store import StoreUnavailable

# A new leader takes a second or two, a restart some seconds: what lasts longer the client is told of.
WAIT_S = 10.0
RETRY_S_MIN, RETRY_S_MAX = 0.05, 1.0

T = TypeVar("T")


class Patience:
    """Of one transaction or page. `give_up_at` is trio's time."""

    def __init__(self, wait_s: float) -> None:
        self.give_up_at = trio.current_time() + wait_s
        self._pause_s = RETRY_S_MIN

    async def pause(self) -> bool:
        """Wait before the next try; False, at once, when the time has passed."""
        if trio.current_time() + self._pause_s >= self.give_up_at:
            return False
        await trio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, RETRY_S_MAX)
        return True

    async def keep_trying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """For what may be done twice. Raises StoreUnavailable."""
        failure = StoreUnavailable("the metadata store does not answer in time")
        while True:
            with trio.move_on_at(self.give_up_at):
                try:
                    return await attempt()
                except StoreUnavailable as error:
                    failure = error
            if not await self.pause():
                raise failure
