"""How long a call of the store goes on trying while etcd does not answer.

What comes in: a way to try once. What goes out: its result, or the last `StoreUnavailable` when the time has passed.
Rules: 1. The bound is on one transaction, or one page, whatever it has to wait for. 2. Between two tries it waits,
longer each time: a cluster that comes back is not met by everybody at once. 3. Time in which this process did not run
is not etcd's silence, and is not counted (`own_time.py`): after it is asked once more. 4. While a store is opened the
operator is told soon, and again from time to time (`telling`).
Not here: one try on every endpoint (`gateway.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from amqpd.topology.metadata.own_time import OwnTime, RanOut
from amqpd.topology.metadata.store import StoreUnavailable

# A new leader takes a second or two, a restart some seconds: what lasts longer the client is told of.
WAIT_S = 10.0
RETRY_S_MIN, RETRY_S_MAX = 0.05, 1.0

T = TypeVar("T")


class EtcdPatience(OwnTime):
    """The time for which one transaction or page is tried while etcd does not answer."""

    def __init__(self, wait_s: float, silence: Callable[[], StoreUnavailable]) -> None:
        """`silence`: says who was asked, should nobody have answered."""
        super().__init__(wait_s)
        self._silence = silence
        self._pause_s = RETRY_S_MIN

    async def pause(self) -> bool:
        """Wait before the next try; False, at once, when the time has passed."""
        if self.left_s <= self._pause_s:
            return False
        await trio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, RETRY_S_MAX)
        return True

    async def keep_trying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """For what may be done twice. Raises StoreUnavailable."""
        failure: StoreUnavailable | None = None
        while True:
            try:
                return await self.within(attempt)
            except StoreUnavailable as error:
                failure = error
            except RanOut:
                failure = failure or self._silence()
            if not await self.pause():
                raise failure


# A new leader of etcd takes a second or two: what takes longer somebody may have to look at.
FIRST_TOLD_S, TOLD_EACH_S_MAX = 2.0, 30.0


async def telling(act: Callable[[], Awaitable[T]], tell: Callable[[float], None]) -> T:
    """What it returns. `tell` is given how long that takes already. Raises what it raises."""
    failure: Exception | None = None

    async def wait() -> None:
        waited_s, pause_s = 0.0, FIRST_TOLD_S
        while True:
            await trio.sleep(pause_s)
            waited_s += pause_s
            tell(waited_s)
            pause_s = min(2 * pause_s, TOLD_EACH_S_MAX)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        try:
            result = await act()
        except Exception as error:  # noqa: BLE001 - raised again, and not as a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result
