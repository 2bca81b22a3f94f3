"""The journal's tasks: one that commits, one that reads back.

What comes in: the pure buffer, and a `Disk`. What goes out: durable numbers; rows.
Rules: 1. Group commit: while a transaction is on its way to the disk the next one gathers; there is no timer. 2. A
commit whose outcome is unknown is never tried again: the exception ends the node. 3. A disk that is full has written
nothing: publishers wait (an alarm), and the same transaction is tried again until there is room.
Not here: what a transaction is made of (`buffer.py`), SQL (`sqlite.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import structlog
import trio

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.errors import DiskFull
from amqpd.journal.records import Disk, Row, Transaction

# How long after a full disk refused a transaction it is tried again: an operator's `rm` is noticed at once.
FULL_RETRY_S = 0.25
DELETE_IDLE_S = 1.0
# One read of a backlog: some milliseconds of deliveries, and several rows.
READ_BYTES = 1024 * 1024

_log = structlog.get_logger("amqpd.journal")


class JournalWriter:
    def __init__(
        self,
        buffer: JournalBuffer,
        disk: Disk,
        on_durable: Callable[[int], None],
        on_full: Callable[[bool], None],
    ) -> None:
        self._buffer = buffer
        self._disk = disk
        self._on_durable = on_durable
        self._on_full = on_full
        self._work = trio.Event()
        self._limiter = trio.CapacityLimiter(1)
        self._busy = False
        self._idle = trio.Event()

    def want_commit(self) -> None:
        """There is something to write."""
        if not self._busy:
            self._work.set()

    async def run(self) -> None:
        """Commit what gathers, until cancelled; a commit that is under way is waited for."""
        buffer = self._buffer
        while True:
            # What is settled leaves the disk with later transactions; when none comes, by itself, but not at once,
            # or a publisher that waits for each confirm would wait for that too.
            with trio.move_on_after(DELETE_IDLE_S if buffer.deletable else math.inf):
                await self._work.wait()
            self._work = trio.Event()
            self._busy = True
            while buffer.pending or buffer.deletable:
                transaction = buffer.take()
                await self._commit(transaction)
                buffer.committed(transaction.index)
                self._on_durable(transaction.index)
                if not buffer.pending:
                    break
            self._busy = False
            self._idle.set()
            self._idle = trio.Event()

    async def _commit(self, transaction: Transaction) -> None:
        full = False
        while True:
            try:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._disk.commit, transaction, limiter=self._limiter)
            except DiskFull as error:
                if not full:
                    _log.error("disk_full", reason=str(error), retry_s=FULL_RETRY_S)
                    full = True
                    self._on_full(True)
                await trio.sleep(FULL_RETRY_S)
            else:
                if full:
                    _log.info("disk_has_room")
                    self._on_full(False)
                return

    async def flush(self) -> None:
        """Return when nothing waits to be written (shutdown)."""
        while self._busy or self._buffer.pending:
            self.want_commit()
            await self._idle.wait()


class BacklogReader:
    """Reads rows back in the order in which they were asked for, one read at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._wishes: deque[tuple[int, int, int, Callable[[list[Row]], None]]] = deque()
        self._work = trio.Event()

    def read(self, queue_id: int, first_seq: int, last_seq: int, answer: Callable[[list[Row]], None]) -> None:
        self._wishes.append((queue_id, first_seq, last_seq, answer))
        self._work.set()

    async def run(self) -> None:
        limiter = trio.CapacityLimiter(1)
        while True:
            await self._work.wait()
            self._work = trio.Event()
            while self._wishes:
                queue_id, first_seq, last_seq, answer = self._wishes.popleft()
                answer(
                    await trio.to_thread.run_sync(
                        self._disk.read, queue_id, first_seq, last_seq, READ_BYTES, limiter=limiter
                    )
                )
