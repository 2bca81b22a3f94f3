"""How far a fault reaches: what is met by a connection, a queue or a task of its own is contained there.

What comes in: exceptions that should not have been, where each was met, and whose it is. What goes out: each in the
log with its traceback, counted; or raised on, when nothing smaller than the node can go on after it.
Rules: 1. A fault of a connection ends that connection (541), one of a queue takes that queue out of service, one of a
task makes the task wait and begin again. 2. What the journal, the metadata store or the topology raises ends the
node: something that was promised may be broken. 3. No fault is silent.
Not here: what happens then (`connection.py`, `quarantine.py`, `supervision.py`); the table of all boundaries is in
ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from amqpd.errors import NodeFailure, find_failure, leaves, reasons
from amqpd.journal.errors import DiskFailure
from amqpd.journal.records import JournalDamaged
from amqpd.storage.probe import disk_error
from amqpd.topology.store import MetadataStoreError, StoreBusy, StoreClosed, StoreDamaged, StoreFull

# What the journal and the metadata store raise when the node cannot go on.
_DISK = (DiskFailure, JournalDamaged, MetadataStoreError)
# Nothing that raises these may go on.
ENDS_NODE = (NodeFailure, *_DISK)

CONNECTION, QUEUE, TASK = "connection", "queue", "task"


class Faults:
    """`bug` and `log` are those of `world.Services`."""

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


def disk_reason(error: BaseException, directory: Path) -> str | None:
    """What the disk said first: tasks that met it later, and what could not be closed after it, say less. None when
    there is a failure that says it already, or none at all."""
    others = [leaf for leaf in leaves(error) if isinstance(leaf, Exception)]
    if find_failure(error) is not None or not others:
        return None
    # These are dealt with where they are met: one that something else came up after is not the reason of it.
    dealt_with = (StoreClosed, StoreFull, StoreBusy)
    found = [each for each in reasons(error) if isinstance(each, _DISK) and not isinstance(each, dealt_with)]
    found += [leaf for leaf in others if isinstance(leaf, _DISK)]
    if not found:
        return None
    looks_damaged = isinstance(found[0], (JournalDamaged, StoreDamaged))
    return (disk_error(directory) if looks_damaged else None) or str(found[0])
