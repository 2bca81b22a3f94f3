"""What a queue asks of the node that it lives in.

What comes in: nothing. What goes out: `QueueHost`.
Rules: a queue never looks at other queues, exchanges or connections.
Not here: what the node does then (`amqpd/node.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run

if TYPE_CHECKING:
    from amqpd.queues.queue import Queue


class QueueHost(Protocol):
    journal: JournalBuffer
    now_ms: int
    """milliseconds since the epoch; never goes back within a run"""
    letters_left: int
    """no more dead letters or delayed messages in this tick once it is 0 or less: who has more asks to be woken at
    once"""

    def bury(self, queue: Queue, run: Run, low: int, high: int, reason: str) -> int:
        """Dead-letter messages low..high-1 of the run; how many of them may leave the queue, from the first on."""
        ...

    def wake(self, queue: Queue, at_ms: int) -> None:
        """Dispatch the queue when that time has come."""
        ...

    def end_queue(self, queue: Queue) -> None:
        """Its time is over by its own rules."""
        ...

    def log(self, event: str, **fields: Any) -> None: ...
