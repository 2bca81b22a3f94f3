"""When Python looks for cycles of dead objects: a little at a time, and through everything only while that is short.

What comes in: how many connections have ended. What goes out: collections.
Rules: 1. A collection walks through the objects that it looks at, and nothing else happens meanwhile: 85 ns each
where most are deliveries, 600 ns where most are tasks that wait. So young ones are looked at fifty thousand at a
time, and those that have outlived that only when it is asked for. Python counts what came less what went; the pump
asks for the young by the work that it did and the changes that it saw, because where as many go as come a million
would be young. 2. Messages, deliveries, queues and channels are in no cycles; connections are, and are counted: when
enough have ended, a full collection is asked for. 3. While a full one would take so long that clients notice,
estimated by what each object took last time, it waits until more have ended; what waits to be collected is bounded by
that count.
Not here: what ends them (`node/node.py`).

Measured with a hundred thousand consumers and half a million entries of ledgers: a full collection of these 600,000
objects takes 50 ms, one of a hundred thousand young ones 12 ms. What exists at the start, 94,000 objects with large
tables, would add 65 ms.
"""

from __future__ import annotations

import gc
import time

import trio

from amqpd.node.node import Node

# Net new objects before the youngest are looked at, then how often that is done before the older ones are: 50,000 at
# most. The last number keeps Python from full collections of its own.
THRESHOLDS = (10_000, 4, 1_000_000_000)
# What is left of a connection is some 4 kB.
ENDED_MAX = 1_000
# What a full collection that comes as often as that may take of the processor.
COLLECTION_S_MAX = 0.025
# What it takes for each old object, before one was seen.
OBJECT_S = 170e-9
# With more of them it comes when this number has ended: 200 MB at most wait for it.
ENDED_MANY_MAX = 50_000
# Of fewer, what the rest of a collection takes would be taken for theirs.
OBJECTS_MIN = 10_000
LOOK_S = 5.0

_OLD = 2


async def collect_garbage(node: Node) -> None:
    """Run until cancelled. What exists now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    seen, object_s = node.ended, OBJECT_S
    while True:
        await trio.sleep(LOOK_S)
        ended = node.ended - seen
        if ended < ENDED_MAX:
            continue
        # Counting takes a tenth of the time of a collection, and comes no more often.
        objects = len(gc.get_objects(_OLD))
        if ended >= ENDED_MANY_MAX or objects * object_s <= COLLECTION_S_MAX:
            seen, began = node.ended, time.thread_time()
            gc.collect()
            object_s = (time.thread_time() - began) / max(objects, OBJECTS_MIN)
