"""What tests of memory bounds count with: sizes, limits that do not bind, and the bytes that a block leaves behind.

What comes in: a block of code. What goes out: bytes that were allocated in it and are still there.
Rule: tracemalloc counts, which knows nothing of the broker's own accounting.
Not here: resident memory of a whole broker (`tests/faults/test_memory.py`).
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from amqpd.queues.queue import Queue
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Harness

KIB, MIB = 1024, 1024 * 1024
# As the pump reads.
RECEIVE_BYTES = 256 * KIB
ROOMY = Limits(queue_memory_bytes=1024 * MIB, backlog_memory_bytes=1024 * MIB, outbox_bytes_max=1024 * MIB)


@contextmanager
def traced() -> Iterator[list[int]]:
    """The number of bytes that are allocated in the block and still there at its end."""
    gc.collect()
    # What other tests left in this process is not looked at again: that may take longer than the test.
    gc.freeze()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    result: list[int] = []
    try:
        yield result
        gc.collect()
        result.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
        gc.unfreeze()


def queue_of(harness: Harness, name: str = "q") -> Queue:
    return harness.node.queues["/", name]
