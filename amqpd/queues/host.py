"""What a queue asks of the node that it lives in.

What comes in: nothing. What goes out: `Host`, for the parts of a queue; `DispatchingHost`, for what is
dispatched; `QueueHost`, for the queue itself.
Rules: a queue never looks at other queues, exchanges or connections.
Not here: what the node does then (`amqpd/node/node.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run
from amqpd.queues.transit import Transit

QueueOf = TypeVar("QueueOf", contravariant=True)
Released = tuple[int, int, str]
"""of a run whose delay has passed: how many of its messages left, from the first on; their publication in the audit
log, 0 if that does not record; if not all did, the queue that the next one waits for, or "": it may go at once"""


class Host(Protocol):
    """The node, as the parts of a queue see it, whichever queue asks."""

    journal: JournalBuffer
    now_ms: int
    """milliseconds since the epoch; never goes back within a run"""
    work_left: int
    """what queues may still do in this tick, in the unit of `flow/turns.py`: whatever does work for each message
    charges it here, and stops once it is 0 or less, to be looked at `again` in the next tick"""

    def later(self, steps: Iterator[None]) -> None:
        """Carry out these steps, in order: the first of them now, the others as ticks have time for them."""
        ...

    def log(self, event: str, **fields: Any) -> None: ...


class DispatchingHost(Host, Protocol[QueueOf]):
    """The node, as what it dispatches sees it."""

    def again(self, queue: QueueOf) -> None:
        """Dispatch it in the next tick: it has more to do than there was time for."""
        ...

    def wake(self, queue: QueueOf, at_ms: int) -> None:
        """Dispatch it when that time has come."""
        ...


class QueueHost(DispatchingHost[QueueOf], Protocol[QueueOf]):
    """The node, as one of its queues sees it."""

    def dead_letter(
        self, queue: QueueOf, run: Run, low: int, high: int, reason: str, transit: Transit | None = None
    ) -> tuple[int, int]:
        """Dead-letter messages low..high-1 of the run; how many of them may leave the queue, from the first on,
        and the dead letters' publication in the audit log, 0 if that does not record or nothing was published. What
        goes to queues that other nodes lead goes in the `transit` that is given, and stays until that has arrived:
        LATER in place of the publication. Without one it does not go."""
        ...

    def keep_dead_letters(self, queue: QueueOf, run: Run, low: int, high: int, reason: str) -> None:
        """`dead_letter` has said that these stay where they are, and they are nowhere: they were refused. Their
        dead letters are kept until they can go."""
        ...

    def holds_lease(self, source: int) -> bool:
        """As the leader of this source the node may still deliver to a consumer that must be the only one."""
        ...

    def end_queue(self, queue: QueueOf) -> None:
        """It ends by its own rules."""
        ...
