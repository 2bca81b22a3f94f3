"""How far a fault reaches: what is met by a connection, a queue or a task of its own is contained there.

What comes in: exceptions that should not have been, where each was met, and whose it is. What goes out: each in the
log with its traceback, counted; or raised on, when nothing smaller than the node can go on after it.
Rules: 1. A fault of a connection ends that connection (541), one of a queue takes that queue out of service, one of a
task makes the task wait and begin again. 2. What the journal, the metadata store or the topology raises ends the
node: something that was promised may be broken. 3. No fault is silent.
Not here: what happens then (`connection.py`, `node/quarantine.py`, `process/supervision.py`); the table of all
boundaries is in docs/decisions/fault-containment.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amqpd.errors import NodeFailure, StorageFailure

# Nothing that raises these may go on.
ENDS_NODE = (NodeFailure, StorageFailure)

CONNECTION, QUEUE, TASK = "connection", "queue", "task"


class Faults:
    """Contains faults at the connection, queue or task that met them, and counts them. `bug` and `log` are those
    of `services.Services`."""

    def __init__(self, bug: Callable[[Exception], None], log: Callable[..., None]) -> None:
        self._bug = bug
        self._log = log
        self.counts: dict[str, int] = {CONNECTION: 0, QUEUE: 0, TASK: 0}
        """since the start, by what met them"""

    def contain(self, reach: str, name: str, error: Exception, **fields: Any) -> None:
        """The fault ends at the connection, queue or task (`reach`) of that name. Raises it again if it is one of the
        node."""
        if isinstance(error, ENDS_NODE):
            raise error
        self.counts[reach] += 1
        self._log("fault_contained", reach=reach, name=name, error=type(error).__name__, **fields)
        self._bug(error)
