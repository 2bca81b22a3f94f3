"""Why a node that was serving cannot go on with its disk, in one sentence.

What comes in: what ended the node, maybe a group of many exceptions; its data directory. What goes out: what the disk
said first; None when it was not the disk.
Rules: 1. What fails because the disk failed is not the reason. 2. A disk that cannot be read is not called damaged.
Not here: what ends a node (`faults.py`), the exit code (`errors.py`).
"""

from __future__ import annotations

from pathlib import Path

from amqpd.errors import StorageFailure, find_failure, leaves, reasons
from amqpd.journal.records import JournalDamaged
from amqpd.storage.probe import disk_error
from amqpd.topology.metadata.store import StoreBusy, StoreClosed, StoreDamaged, StoreFull, StoreUnreached


def disk_reason(error: BaseException, directory: Path) -> str | None:
    """What the disk said first: tasks that met it later, and what could not be closed after it, say less. None when
    there is a failure that says it already, or none at all."""
    others = [leaf for leaf in leaves(error) if isinstance(leaf, Exception)]
    if find_failure(error) is not None or not others:
        return None
    # These are dealt with where they are met: one that something else came up after is not the reason of it.
    dealt_with = (StoreClosed, StoreFull, StoreBusy, StoreUnreached)
    found = [each for each in reasons(error) if isinstance(each, StorageFailure) and not isinstance(each, dealt_with)]
    found += [leaf for leaf in others if isinstance(leaf, StorageFailure)]
    if not found:
        return None
    looks_damaged = isinstance(found[0], (JournalDamaged, StoreDamaged))
    return (disk_error(directory) if looks_damaged else None) or str(found[0])
