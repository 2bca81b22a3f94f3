"""What a queue is to this node at a moment: one state, and which may follow it.

What comes in: nothing. What goes out: the states; the table of what may follow.
Rules: 1. What is not in the table does not happen: `QueuePort.enter` raises. 2. Whether another node leads the queue
is no state (`QueuePort.is_remote`): such a queue may take messages, and one that this node leads may take none.
Not here: what leads from one to another (`node/queue_registry.py`, `node/quarantine.py`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class QueueState(Enum):
    """One of the states of a queue at this node."""

    SERVED = "served"
    """it takes messages, and gives them to consumers"""
    CRASHED = "crashed"
    """out of service after a bug in its own work, or because its record cannot be read"""
    PARKED = "parked"
    """an orphan: an operator has to say what becomes of its messages"""
    MOVED = "moved"
    """this node has led it, and another one leads it now, or none"""
    UNREACHED = "unreached"
    """another node leads it, or none, and this node does not bring messages there"""
    DELETED = "deleted"
    """it is in the topology no more"""


SERVED: Final = QueueState.SERVED
"""At hand: it is compared with for each run of messages."""
AWAY: Final = (QueueState.MOVED, QueueState.UNREACHED)

FOLLOWING: Final[dict[QueueState, frozenset[QueueState]]] = {
    QueueState.SERVED: frozenset({QueueState.CRASHED, QueueState.PARKED, QueueState.MOVED, QueueState.DELETED}),
    QueueState.CRASHED: frozenset({QueueState.MOVED, QueueState.DELETED}),
    QueueState.PARKED: frozenset({QueueState.DELETED}),
    QueueState.MOVED: frozenset({QueueState.DELETED}),
    QueueState.UNREACHED: frozenset({QueueState.DELETED}),
    QueueState.DELETED: frozenset({QueueState.DELETED}),
}
"""A deletion may fail half way and be finished by who meets that."""
