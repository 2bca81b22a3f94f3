"""When Python looks for cycles of dead objects: seldom, and when there is something to be found.

What comes in: how many connections and queues have ended. What goes out: collections.
Rules: 1. A full collection walks through everything that lives, some 70 ms with a million messages waiting, and
nothing else happens meanwhile; Python's own thresholds made one every few seconds. 2. Messages, runs and deliveries
are in no cycles; connections and queues are, and are counted. 3. What waits to be collected is bounded by that count.
Not here: what ends them (`node.py`).

Measured with `python -m bench ttl-million --scale 0.4`: with Python's thresholds, full collections of 65 to 80 ms.
"""

from __future__ import annotations

import gc

import trio

from amqpd.node import Node

# Net new objects before the youngest are looked at, and so many of these before the older ones are.
THRESHOLDS = (50_000, 20, 20)
# A connection with a few channels is some 20 kB, a queue 5 kB.
ENDED_MAX = 1_000
LOOK_S = 5.0


async def collect_garbage(node: Node) -> None:
    """Run until cancelled. What exists now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    seen = node.ended
    while True:
        await trio.sleep(LOOK_S)
        if node.ended - seen >= ENDED_MAX:
            seen = node.ended
            gc.collect()
