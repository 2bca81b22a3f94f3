"""The journal and the definitions on several directories, opened as a pair.

What comes in: the directories. What goes out: `Pair`, as of one directory (`datadir/opening.py`), or StartupError.
Rules: 1. The same is compared as there, of a journal and definitions that have everything.
Not here: which directories these are (`opening.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import structlog
import trio

from amqpd.datadir.disks.mirrored_file import open_definitions
from amqpd.datadir.disks.opening import OpenDisks, open_disks
from amqpd.datadir.opening import METADATA_DB, Pair, misfits_of, opened
from amqpd.datadir.pairing import WAY_OUT
from amqpd.errors import StartupError
from amqpd.topology.metadata.sqlite.store import SqliteStore

log = structlog.get_logger(component="opening")


async def open_disks_of(
    paths: list[Path], *, accept_loss: bool, keep_free_bytes: int, found: Callable[[Mapping[str, str]], None]
) -> OpenDisks:
    """See `open_disks`. Raises StartupError."""
    make = partial(open_disks, paths, accept_loss=accept_loss, keep_free_bytes=keep_free_bytes, found=found)
    return await trio.to_thread.run_sync(make)


async def pair_on_disks(disks: OpenDisks, *, accept_loss: bool) -> Pair:
    """Raises StartupError."""
    lost = await trio.to_thread.run_sync(misfits_of, disks.disk, disks.directory / METADATA_DB)
    if lost and not accept_loss:
        raise StartupError(f"{lost[0]}; {WAY_OUT}")
    for sentence in (*disks.disk.accepted, *lost):
        log.warning("the loss of messages is accepted", what=sentence)
    store = await opened(SqliteStore.on(partial(open_definitions, disks.group)), disks.directory)
    pair = Pair(disks.disk, store)
    pair.suspect = bool(lost or disks.definitions_lost)
    return pair
