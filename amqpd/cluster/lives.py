"""What a disk is known by in the cluster: its generation, and the last life on it, among the journal's names.

What comes in: the disk; the directory. What goes out: the life and the generation of a process that starts; both on
the disk; the end of a life, on the disk and in the metadata store.
Rules: 1. What the store counts is on the disk before anything is acknowledged. 2. The end of a process that stops in
order is a life of its own, on the disk first: a copy of the disk that was made before it goes on where the store is
already, and so is another disk (`directory.py`). What a process acknowledges after that, its copies' answers, it says
from its disk of now.
Not here: which generation counts (`directory.py`), a process that is killed: its disk and a copy from its last life
look alike (docs/decisions/membership.md).
"""

from __future__ import annotations

from functools import partial

import structlog
import trio

from amqpd.cluster.directory import Directory, drawn_generation
from amqpd.cluster.records import MemberRecord
from amqpd.errors import StorageFailure
from amqpd.journal.errors import DiskFull
from amqpd.journal.sqlite.node_disk import NodeDisk
from amqpd.journal.sqlite.schema import SOURCE
from amqpd.topology.metadata.store import MetadataStoreError

GENERATION, LIFE = "generation", "life"

log = structlog.get_logger(component="cluster")


def of(disk: NodeDisk) -> tuple[int, int]:
    """The life of a process that starts on it, and its generation, as far as the disk knows."""
    life = max(disk.head(SOURCE).epoch, int(disk.names.get(LIFE) or 0) + 1)
    return life, int(disk.names.get(GENERATION) or drawn_generation())


async def keep(disk: NodeDisk, me: MemberRecord, threads: trio.CapacityLimiter) -> None:
    """On the disk. `threads`: of the journal's writer."""
    await _write(disk, threads, me.generation, me.life)


async def end(disk: NodeDisk, directory: Directory, threads: trio.CapacityLimiter) -> None:
    """The process is about to end in order. What the disk does not take is not said to the store either, and keeps
    nothing else from being written."""
    try:
        await _write(disk, threads, directory.me.generation, directory.me.life + 1)
        await directory.end_life()
    except (DiskFull, StorageFailure, MetadataStoreError) as error:
        log.warning("an older copy of this disk would not be noticed at the next start", reason=str(error))


async def _write(disk: NodeDisk, threads: trio.CapacityLimiter, generation: int, life: int) -> None:
    names = {GENERATION: str(generation), LIFE: str(life)}
    await trio.to_thread.run_sync(partial(disk.set_names, **names), limiter=threads)
