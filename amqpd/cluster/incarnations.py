"""What a disk is known by in the cluster: its last claim (`claims.py`), among the journal's names.

What comes in: the disk; the directory. What goes out: what the disk has of its last claim; a claim, on the disk; the
end of an incarnation, on the disk and in the metadata store.
Rules: 1. A claim is on the disk before it is put into the store, so before anything is acknowledged. 2. The end of a
process that stops in order is an incarnation of its own, on the disk first: a copy of the disk that was made before
it goes on where the store is already, and so is another disk. What a process acknowledges after that, its copies'
answers, it says from its disk of now. 3. A full disk gives up its reserve for a claim: a node starts on a full disk,
to let its consumers empty it.
Not here: which generation counts (`claims.py`), a process that is killed: its disk and a copy from its last
incarnation look alike (docs/decisions/membership.md).
"""

from __future__ import annotations

from functools import partial

import structlog
import trio

from amqpd.cluster.claims import Claim
from amqpd.cluster.directory import Directory
from amqpd.errors import StartupError, StorageFailure
from amqpd.journal.errors import DiskFull
from amqpd.journal.sqlite.node_disk import NodeDisk
from amqpd.journal.sqlite.schema import GENERATION, INCARNATION, SOURCE
from amqpd.topology.metadata.store import MetadataStoreError

NONCE, UPON = "nonce", "claimed_upon"

log = structlog.get_logger(component="cluster")


def of(disk: NodeDisk) -> Claim:
    """The last claim, as far as the disk knows."""
    kept = disk.names
    # Every start is an epoch of the local source, whether it becomes a member or not: only a disk of a version that
    # kept no incarnation is judged by it.
    incarnation = int(kept.get(INCARNATION) or disk.head(SOURCE).epoch - 1)
    incarnation_upon, nonce_upon = (int(each) for each in (kept.get(UPON) or "0 0").split())
    return Claim(
        int(kept.get(GENERATION) or 0), incarnation, int(kept.get(NONCE) or 0), (incarnation_upon, nonce_upon)
    )


async def keep(disk: NodeDisk, threads: trio.CapacityLimiter, claim: Claim) -> None:
    """On the disk. `threads`: of the journal's writer. Raises StartupError on a full disk, StorageFailure."""
    try:
        await _write(disk, threads, claim)
    except DiskFull:
        await trio.to_thread.run_sync(disk.release_reserve, limiter=threads)
        try:
            await _write(disk, threads, claim)
        except DiskFull as error:
            raise StartupError(
                f"this node cannot join its cluster: {error}; make space, and start it again"
            ) from error


async def end(disk: NodeDisk, directory: Directory, threads: trio.CapacityLimiter) -> None:
    """The process is about to end in order. What the disk does not take is not said to the store either, and keeps
    nothing else from being written."""
    try:
        await _write(disk, threads, directory.ending)
        await directory.end_incarnation()
    except (DiskFull, StorageFailure, MetadataStoreError) as error:
        log.warning("an older copy of this disk would not be noticed at the next start", reason=str(error))


def names(claim: Claim) -> dict[str, str]:
    """What a disk keeps of it; `of` reads it."""
    return {
        GENERATION: str(claim.generation),
        INCARNATION: str(claim.incarnation),
        NONCE: str(claim.nonce),
        UPON: " ".join(map(str, claim.upon)),
    }


async def _write(disk: NodeDisk, threads: trio.CapacityLimiter, claim: Claim) -> None:
    await trio.to_thread.run_sync(partial(disk.set_names, **names(claim)), limiter=threads)
