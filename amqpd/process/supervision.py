"""Tasks that begin again after a failure: what is beside the messages must not end them.

What comes in: a task that is meant to run for ever. What goes out: the same; its failures in the log, counted.
Rules: 1. A failure of the task is logged with its traceback, and the task begins again after a pause: 1 s at first,
twice as much each time, 60 s at most; after ten minutes without one it is 1 s again. 2. What ends the node ends it
from here too (`faults.ENDS_NODE`).
Not here: tasks that move messages (pump, journal, metadata store): those end the node.

Rejected: tenacity. It retries calls; a task that runs for ever needs its first pause again after a good time, and
groups of exceptions looked into, which would be most of this again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from amqpd.errors import leaves
from amqpd.faults import ENDS_NODE, TASK, Faults

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
# After this long without a failure the next one is a first one.
GOOD_S = 600.0


async def supervised(task: Callable[[], Awaitable[object]], name: str, faults: Faults) -> None:
    """Run the task until it returns, or is cancelled."""
    pause_s = PAUSE_S_MIN
    while True:
        begun = trio.current_time()
        try:
            await task()
            return
        except Exception as error:  # noqa: BLE001 - the task's own; faults reports it
            contain(error, name, faults, pause_s)
        if trio.current_time() - begun >= GOOD_S:
            pause_s = PAUSE_S_MIN
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


def contain(error: Exception, name: str, faults: Faults, pause_s: float) -> None:
    """Report what the task raised, maybe a group. Raises it when something in it ends the node."""
    if any(isinstance(leaf, ENDS_NODE) for leaf in leaves(error)):
        raise error
    faults.contain(TASK, name, error, again_in_s=pause_s)
