"""When memory that malloc keeps for us goes back to the system: after work, when it is quiet.

What comes in: the time, and the processor time that the broker has used. What goes out: calls of `give_back`.
Rules: 1. Once after each stretch of work, and never while there is some: it may take 40 ms after a large backlog of
small messages, and what is reused at once is not worth giving back. 2. A broker that is never quiet keeps its free
memory, until the memory alarm asks for it.
Not here: the alarm (`alarms.py`), what leaves memory for the disk (`queues/paging.py`).

Measured with `python -m bench small-20m --scale 0.2`: 182 MB resident after the queue was drained, without this.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from amqpd.process.alarms import give_memory_back

LOOK_S = 2.0
# Of one processor, between two looks.
QUIET_SHARE = 0.1
# Less work than this, some hundred thousand messages, leaves nothing worth a look.
WORK_S_MIN = 0.5


class FreeMemory:
    """Decides when unused memory goes back to the system, from the processor time that was used."""

    def __init__(self, now_s: float, used_s: float) -> None:
        """What was used before, to start, counts as work."""
        self._seen_s, self._seen_used_s = now_s, used_s
        self._given_used_s = 0.0

    def due(self, now_s: float, used_s: float) -> bool:
        """Whether it is to be given back now. Seconds of any clock, and of processor time since the process began."""
        quiet = used_s - self._seen_used_s < QUIET_SHARE * (now_s - self._seen_s)
        self._seen_s, self._seen_used_s = now_s, used_s
        if not quiet or used_s - self._given_used_s < WORK_S_MIN:
            return False
        self._given_used_s = used_s
        return True


async def return_free_memory(give_back: Callable[[], None] = give_memory_back) -> None:
    """Run until cancelled."""
    free = FreeMemory(trio.current_time(), time.thread_time())
    while True:
        await trio.sleep(LOOK_S)
        if free.due(trio.current_time(), time.thread_time()):
            # The interpreter's small objects are not malloc's, so most of what happens meanwhile does not wait.
            await trio.to_thread.run_sync(give_back)
