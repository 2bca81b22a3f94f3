"""What a forwarder reads of its own disk: logs and states of sources, for itself and for others.

What comes in: questions. What goes out: what the disk has when everything that was handed to it by then is on it.
Rules: 1. One read at a time, in a thread; beside it, one of what a take-over has won, which has a bound in time. 2. A
state is read part by part, as fast as it is taken.
Not here: what is written (`amqpd.journal.writer`), what it is for (`runner.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog
import trio

from amqpd.cluster.records import SOURCES
from amqpd.cluster.shell import OwnLog
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.errors import DisksLost
from amqpd.journal.records import Recovered
from amqpd.journal.sqlite.node_disk import NodeDisk
from amqpd.journal.writer import JournalWriter
from amqpd.peers.entry import LogEntry, Position
from amqpd.peers.messages import SnapshotPart
from amqpd.replication.log import Log
from amqpd.replication.replica import Replica, Replicas

FETCH_BYTES_MAX = 1 << 20
PART_S = 0.005
"""between two parts of a state: of some hundred kB"""
AGAIN_S = 0.25
STATE_AGAIN_S = 1.0
"""After a state that could not be read: until then the same peer does not ask for it, which would make the same disk
read it once for each answer."""

log = structlog.get_logger(component="cluster")

Found = TypeVar("Found")


class OwnDisk:
    """Reads logs and states of sources from the disk of one node, for the node itself and for its peers."""

    def __init__(self, disk: NodeDisk, journal: JournalBuffer, writer: JournalWriter) -> None:
        self._disk = disk
        # From the start: a process may hear that all that it has is committed, and be sent nothing after that.
        journal.replicates = True
        self._journal = journal
        self._writer = writer
        self._stored = trio.Event()
        self._reads = trio.CapacityLimiter(1)
        self._own_logs = trio.CapacityLimiter(1)

    def stored(self) -> None:
        """More transactions are on it."""
        self._stored.set()
        self._stored = trio.Event()

    async def log_entries(self, source: int, after: Position) -> list[LogEntry]:
        """As many as go with one message."""
        return await self._read(partial(self._disk.log_entries, source, after, FETCH_BYTES_MAX))

    async def own_log(self, source: int, base: Position) -> OwnLog:
        """What stands above the base."""

        def read() -> OwnLog:
            return OwnLog(self._disk.log_entries(source, base, 1 << 62), self._disk.head(source).reserved)

        await self._all_on_disk()
        return await self._read(read, self._own_logs)

    async def queues_of(self, source: int) -> Recovered:
        """As a leader builds them."""

        def read() -> Recovered:
            recovered = self._disk.recovered_of([source])
            # Here, where nobody waits for it: it takes as long as there are rows.
            recovered.standing()
            return recovered

        await self._all_on_disk()
        return await self._read(read)

    async def send_state(
        self,
        state: SnapshotPart,
        sends: Callable[[SnapshotPart], bool],
        failed: Callable[[], None],
        wait_capacity: Callable[[], Awaitable[None]],
    ) -> None:
        """Gives `sends` what the disk has of it, part by part. `wait_capacity`: returns when the link takes more."""
        # What is known to be committed may be on its way to the disk.
        await self._all_on_disk()
        try:
            await self._send_parts(state, sends, wait_capacity)
        except ValueError as error:
            log.warning("state that is asked for cannot be read", source=state.source, reason=str(error))
            await trio.sleep(STATE_AGAIN_S)
            failed()

    async def _send_parts(
        self, state: SnapshotPart, sends: Callable[[SnapshotPart], bool], wait_capacity: Callable[[], Awaitable[None]]
    ) -> None:
        parts = await self._read(partial(self._disk.state_parts, state.source, state.after, state.base))
        part, first = await self._next(parts), True
        while part is not None:
            following = await self._next(parts)
            if not sends(replace(state, part=part, first=first, last=following is None)):
                break
            part, first = following, False
            # What else there is to be read and sent goes in between; and a peer that is slow is not sent more than it
            # takes: a link over which too much waits is closed, and the state would begin again, for ever.
            await trio.sleep(PART_S)
            await wait_capacity()

    async def _next(self, parts: Iterator[bytes]) -> bytes | None:
        """Asked once: an iterator that has failed has ended, and would be taken for all of the state."""

        def read() -> bytes | None:
            try:
                return next(parts, None)
            except DisksLost as error:
                raise ValueError(str(error)) from error

        return await self._read(read)

    async def _read(self, read: Callable[[], Found], limiter: trio.CapacityLimiter | None = None) -> Found:
        while True:
            try:
                return await trio.to_thread.run_sync(read, limiter=limiter or self._reads)
            except DisksLost:  # of several disks none has everything yet
                await trio.sleep(AGAIN_S)

    async def _all_on_disk(self) -> None:
        """All that was handed to the disk by now is on it, however much others hand in meanwhile."""
        journal = self._journal
        index = journal.index if journal.gathered else journal.index - 1
        if journal.stored_index < index:
            self._writer.want_commit()
        while journal.stored_index < index:
            await self._stored.wait()


def replicas_of(disk: NodeDisk) -> Replicas:
    """Of all sources: one of which the disk has nothing is empty."""
    found = {each.source: each for each in disk.replicas()}
    return Replicas(
        Replica(source, Log(found[source].base, found[source].tail), found[source].vote)
        if source in found
        else Replica(source, Log((0, 0)))
        for source in range(1, SOURCES + 1)
    )
