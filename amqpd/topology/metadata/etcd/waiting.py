"""Tells an operator soon that etcd does not answer while a store is opened, and again from time to time.

What comes in: what is waited for; a sentence about who does not answer. What goes out: lines, one after two seconds,
the next ones after twice as long each, up to a bound.
Not here: how long it is tried (`patience.py`), a store that is open (`feed.py` says that once).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

# A new leader of etcd takes a second or two: what takes longer somebody may have to look at.
FIRST_TOLD_S, TOLD_EACH_S_MAX = 2.0, 30.0

T = TypeVar("T")


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
