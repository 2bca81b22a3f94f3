"""Tells the operator which expressions of permissions and policies were given up, because they took too long.

What comes in: what `topology/expressions.py` has given up. What goes out: a line in the log for each.
Not here: when one is given up (`topology/expressions.py`).
"""

from __future__ import annotations

import structlog
import trio

from amqpd.topology.expressions import given_up

LOOK_S = 2.0

log = structlog.get_logger(component="expressions")


async def tell_given_up() -> None:
    """Runs until it is cancelled."""
    told = 0
    while True:
        for pattern in given_up()[told:]:
            log.warning(
                "a pattern takes too long, and matches nothing from now on: write it simpler", pattern=pattern
            )
            told += 1
        await trio.sleep(LOOK_S)
