"""What a node has open of its data directories, from the lock to the last connection.

What comes in: settings; whether the operator accepts losses. What goes out: `OpenNode`, for as long as it is used.
Rules: 1. A node with one directory opens it as such, and the package `disks` is not imported. 2. The locks are let go
last, when everything is closed and space is held for the next start. 3. What is lost of the only directory is not
closed (`datadir/presence.py`); of several it is left behind, and repaired.
Not here: what is done with it (`broker.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from amqpd.backup.restore import refuse_unfinished
from amqpd.config import Settings
from amqpd.datadir.disk_record import RECORD, has_record, read_record
from amqpd.datadir.lock import open_data_directory
from amqpd.datadir.opening import Pair, open_pair
from amqpd.datadir.presence import Presence, unless_lost
from amqpd.datadir.reserves import hold_all
from amqpd.errors import StartupError
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.own_names import own_names
from amqpd.journal.sqlite.schema import GENERATION
from amqpd.journal.sqlite.scrubbing import Scan
from amqpd.management.control.socket import ControlServer
from amqpd.process.alarms import DISK_HYSTERESIS
from amqpd.scrub import ScrubScan
from amqpd.storage.page_cache import PageCache
from amqpd.vocabulary.store_address import parse_store_address

if TYPE_CHECKING:
    from amqpd.datadir.disks.opening import OpenDisks
    from amqpd.datadir.disks.watch import DisksWatch


class OpenNode:
    """The data directories of one node, locked and open; `open_node` makes it."""

    def __init__(
        self, directory: Path, pair: Pair, scan: ScrubScan, presence: Presence | None, watch: DisksWatch | None
    ) -> None:
        self.directory = directory
        """for what is kept once: the audit log, messages that were set aside"""
        self.pair = pair
        self.scan = scan
        """what the scrub reads"""
        self._presence = presence
        self._watch = watch

    async def watch_directory(self, stop: trio.Event) -> None:
        """Until cancelled. Raises NodeFailure when the only data directory is lost."""
        if self._presence is not None:
            await self._presence.run(stop)

    async def watch_disks(self) -> None:
        """Until cancelled: several disks are repaired."""
        if self._watch is not None:
            await self._watch.run()

    async def run_control(
        self, control: ControlServer, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept commands in each data directory."""
        if self._watch is None:
            await control.run(self.directory, task_status)
        else:
            await self._watch.run_control(control.run, task_status)

    def free_bytes(self) -> int:
        """Of the disk; of several, what most of them have. It answers at once."""
        return shutil.disk_usage(self.directory).free if self._watch is None else self._watch.free_bytes()

    def facts(self) -> dict[str, list[str]]:
        """For `amqpd status`: of each directory of several, how it is."""
        return {} if self._watch is None else {"data_directories": self._watch.directory_texts()}

    def directory_rows(self) -> list[dict[str, Any]]:
        """Of each directory of several that is not in use (`DisksWatch.rows`)."""
        return [] if self._watch is None else self._watch.rows()


def open_node(
    settings: Settings, *, accept_loss: bool, found: Callable[[Mapping[str, str]], None] = lambda _: None
) -> AbstractAsyncContextManager[OpenNode]:
    """`found`: told the journal's names before it is opened, if they can be read so, and again before anything of it,
    or of a store, is written. Both raise StartupError."""
    directories = settings.directories
    if len(directories) > 1:
        return _open_several(settings, list(directories), found, accept_loss=accept_loss)
    return _open_one(settings, directories[0], found, accept_loss=accept_loss)


@asynccontextmanager
async def _open_one(
    settings: Settings, path: Path, found: Callable[[Mapping[str, str]], None], *, accept_loss: bool
) -> AsyncIterator[OpenNode]:
    with open_data_directory(path) as directory:
        refuse_unfinished(directory.path)
        # A copy of a running node's directory lacks what that one has written since: whose it is comes first.
        if names := await trio.to_thread.run_sync(own_names, directory.path / JOURNAL):
            found(names)
        alone = refuse_one_of_several(directory.path, accept_loss=accept_loss)
        # The store's own task, if it has one, ends behind what closes it.
        async with AsyncExitStack() as around, AsyncExitStack() as stack:
            stack.callback(hold_all, directory.path)  # when both files are closed
            page_cache = stack.enter_context(PageCache(directory.path / JOURNAL))
            directory.say("it starts, and opens the journal and the metadata")
            alone_opening = partial(open_pair, say=directory.say)
            opening = await _cluster_opening(settings, around) if settings.cluster_store else alone_opening
            keep = _keep_free_bytes(settings)
            pair = await opening(directory.path, accept_loss=accept_loss, keep_free_bytes=keep, found=found)
            if accept_loss and (alone or pair.disk.accepted):
                _forget_generation(pair)
            stack.callback(pair.disk.close)
            stack.push_async_callback(pair.store.aclose)
            presence = Presence(directory.path)
            with unless_lost(presence, stack, pair.disk, pair.store):
                directory.say("it starts, and makes its queues of what the journal has, or ends")
                yield OpenNode(path, pair, Scan(pair.disk.path, page_cache), presence, None)
                directory.say("it ends")


@asynccontextmanager
async def _open_several(
    settings: Settings, paths: list[Path], found: Callable[[Mapping[str, str]], None], *, accept_loss: bool
) -> AsyncIterator[OpenNode]:
    from amqpd.datadir.disks.opening import open_disks_of, pair_on_disks
    from amqpd.datadir.disks.scan import DisksScan
    from amqpd.datadir.disks.watch import DisksWatch

    for path in paths:
        with suppress(OSError):  # it is not used
            refuse_unfinished(path)
    keep = _keep_free_bytes(settings)
    async with AsyncExitStack() as around, AsyncExitStack() as stack:
        disks = await open_disks_of(paths, accept_loss=accept_loss, keep_free_bytes=keep, found=found)
        stack.callback(_close, disks)
        scan = DisksScan(disks.group)
        stack.callback(scan.end)
        stack.callback(disks.disk.close)
        found(disks.disk.names)
        if settings.cluster_store:
            opening = await _cluster_opening(settings, around)
            pair = await opening(paths[0], accept_loss=accept_loss, open_disk=lambda: disks.disk)
        else:
            pair = await pair_on_disks(disks, accept_loss=accept_loss)
        if accept_loss and pair.disk.accepted:
            _forget_generation(pair)
        stack.push_async_callback(pair.store.aclose)
        watch = DisksWatch(disks)
        await trio.to_thread.run_sync(watch.begin)
        yield OpenNode(disks.directory, pair, scan, None, watch)


def _forget_generation(pair: Pair) -> None:
    """Of what the disk lacks now leaders are not to believe that it has it: in a cluster a new one is drawn."""
    pair.disk.note(**{GENERATION: ""})


def refuse_one_of_several(directory: Path, *, accept_loss: bool) -> bool:
    """Alone it may lack what was confirmed. Whether it is one, and the operator accepts it. Raises StartupError."""
    if not has_record(directory):
        return False
    record = read_record(directory)
    if accept_loss:
        (directory / RECORD).unlink()
        return True
    others = "others" if record is None else ", ".join(each.path for each in record.list.disks)
    raise StartupError(
        f"{directory} is one of several data directories of a node ({others}): name all of them with --data-dir, or "
        "start once with --accept-loss to go on with this one alone"
    )


def _close(disks: OpenDisks) -> None:
    """What is held for the next start, and the locks. A disk that hangs is not waited for."""

    def close(at: int) -> None:
        with suppress(OSError):  # the disk fails, and is not written any more
            hold_all(disks.paths[at])
        disks.let_go(at)

    disks.close_each(close)


def _keep_free_bytes(settings: Settings) -> int:
    """Before the disk's alarm is raised, and after it has ended."""
    return int(settings.disk_free_bytes_min * DISK_HYSTERESIS)


async def _cluster_opening(settings: Settings, around: AsyncExitStack) -> Callable[..., Awaitable[Any]]:
    """What opens the pair when the metadata are in a cluster's store, which runs as long as what is `around`. Raises
    StartupError."""
    try:
        from amqpd.datadir.cluster import open_cluster_pair  # its HTTP client: only when it is needed
        from amqpd.process.cluster_store import access_of
    except ModuleNotFoundError as error:
        raise StartupError(
            f"cluster_store needs {error.name}, which is not installed: pip install '.[etcd]' in a checkout of amqpd"
        ) from error
    access, name = access_of(settings), parse_store_address(settings.cluster_store).name
    running = await around.enter_async_context(trio.open_nursery())
    return partial(open_cluster_pair, access=access, name=name, running=running)
