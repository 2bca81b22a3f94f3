"""The journal in the data directory and a metadata store in etcd are opened as a pair.

What comes in: a data directory, locked; how etcd is reached; a task in which the store can run. What goes out: both,
open, or StartupError with one sentence.
Rules: 1. What the journal knows of its metadata store is compared with the store that answers, before a message is
touched: one that was emptied, is another one, or is older than it was, is no reason to delete messages. 2. With
`accept_loss` the messages of queues that the store lacks are parked as orphans, as with an older metadata.db, and
other nodes are told of an older copy by a new generation of the store, whether or not it is accepted. 3. A node notes
its journal under the journal's own identity: others use the same store.
Not here: the embedded store (`opening.py`), what does not fit (`pairing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog
import trio

from amqpd.datadir.only_one import claim_scope
from amqpd.datadir.opening import METADATA_DB, Pair, opened
from amqpd.datadir.pairing import (
    METADATA,
    METADATA_REVISION,
    WAY_OUT,
    JournalFacts,
    MetadataFacts,
    is_older_copy,
    misfits,
)
from amqpd.errors import StartupError
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.node_disk import NodeDisk
from amqpd.topology.metadata.etcd.gateway import EtcdAccess
from amqpd.topology.metadata.etcd.store import EtcdStore
from amqpd.topology.metadata.store import MetadataStoreError

# Where all machines begin at once, etcd's begin with them. Less than a supervisor gives a start (systemd: 90 s).
OPEN_S = 60.0

log = structlog.get_logger(component="opening")


async def open_cluster_pair(
    directory: Path,
    *,
    access: EtcdAccess,
    name: str,
    running: trio.Nursery,
    accept_loss: bool,
    keep_free_bytes: int = 0,
    open_disk: Callable[[], NodeDisk] | None = None,
    found: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> Pair:
    """`name`: of the cluster of amqpd in etcd. `running`: where the store follows etcd until it is closed.
    `open_disk`: of a node with several directories. `found`: told the journal's names before anything is written,
    raises StartupError. Raises StartupError."""
    if (directory / METADATA_DB).exists():
        raise StartupError(
            f"cluster_store is set, and {directory / METADATA_DB} has definitions: export them "
            "(amqpd definitions export), move the file away and import them again"
        )
    make = open_disk or partial(SqliteDisk, directory, keep_free_bytes=keep_free_bytes, accept_loss=accept_loss)
    # The directory is locked: no other process has this journal.
    disk = await opened(trio.to_thread.run_sync(make), directory)
    store = EtcdStore(access, f"{name}/", disk.names["identity"], alone=True, machine=claim_scope(), open_s=OPEN_S)
    try:
        found(disk.names)
        await opened(running.start(store.run), directory)
        lost = await opened(_misfits(disk, store, access), directory)
        await opened(trio.to_thread.run_sync(disk.examine), directory)
        older = is_older_copy(disk.names, await store.identity(), store.found_revision)
        if lost and not accept_loss:
            if older:
                with suppress(MetadataStoreError):
                    await _begin_generation(disk, store)
            raise StartupError(f"{lost[0]}; {WAY_OUT}")
        for sentence in (*disk.accepted, *lost):
            log.warning("the loss of messages is accepted", what=sentence)
        if older:
            await opened(_begin_generation(disk, store), directory)
    except BaseException:
        disk.forsake()
        await store.aclose()
        raise
    pair = Pair(disk, store, leased_bits=0)
    pair.suspect = bool(lost)
    return pair


async def _begin_generation(disk: NodeDisk, store: EtcdStore) -> None:
    """What is written to an older copy soon makes it look whole, and other nodes may know more of it, too."""
    await store.begin_generation(disk.names[METADATA], int(disk.names.get(METADATA_REVISION, "0")))


async def _misfits(disk: NodeDisk, store: EtcdStore, access: EtcdAccess) -> list[str]:
    journal = JournalFacts(str(disk.path), disk.names["identity"], disk.index, disk.names)
    # A new journal is a new node, which has no messages of the queues that others made.
    there = MetadataFacts(
        str(access), await store.identity(), store.found_revision, await store.journal(), queues=False
    )
    return misfits(journal, there)
