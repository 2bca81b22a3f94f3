"""What stands in a queue, said at once: what the books of an incarnation begin and end with.

What comes in: queues with books. What goes out: records, a header and the stretches behind it.
Rules: 1. One anchor is one row of records without anything else in between. 2. Also an empty queue is said to be
empty.
Not here: what happens in between (`audit/book.py`), when an anchor is due (`coverage.py`, `files/log.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqpd.audit.kinds import PERSISTENT, STANDING
from amqpd.audit.recorder import Recorder

if TYPE_CHECKING:
    from amqpd.audit.coverage.audited import Audited


def anchor(recorder: Recorder, queue: Audited, kind: int) -> None:
    """`kind`: one of `kinds.ANCHOR_...`. A queue without books says nothing."""
    buffer, time_us = recorder.buffer, recorder.now()
    for level in queue.levels():
        book = level.store.book
        if book is None:
            continue
        stretches = [
            (epoch, first, last, PERSISTENT if persistent else 0)
            for low, high, persistent in level.backlog.standing()
            for epoch, first, last in book.stretches(low, high)
        ]
        name = book.name_of(book.epoch)
        buffer.urgent = True
        buffer.put(kind, 0, 1, time_us, book.next, 0, 0, name, 0, 0, 0, len(stretches))
        for epoch, first, last, flags in stretches:
            buffer.put(STANDING, flags, 1, time_us, first, last - first + 1, 0, book.name_of(epoch))
