"""The journal's tasks: one that commits, one that reads back.

What comes in: the pure buffer, and a `Disk`. What goes out: durable numbers; rows.
Rules: 1. Group commit: while a transaction is on its way to the disk the next one gathers. 2. A commit whose outcome
is unknown is never tried again: the exception ends the node. 3. A disk that is full has written nothing: publishers
wait (an alarm), and the same transaction is tried again until there is space. 4. A transaction that has nothing is
not given to the disk: who waits for it waits for other nodes only.
Not here: what a transaction is made of (`buffer.py`), SQL (`sqlite/disk.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from traceback import clear_frames
from typing import Any, cast

import structlog
import trio

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.commit_timing import LeaderTiming, Promptness
from amqpd.journal.disk import Disk, SourcesDisk
from amqpd.journal.errors import DiskFull, DisksLost
from amqpd.journal.records import Row
from amqpd.journal.transaction import JournalTransaction
from amqpd.replication.replica import Write

# How long after a full disk refused a transaction it is tried again: an operator's `rm` is noticed at once.
FULL_RETRY_S = 0.25
HOUSEKEEPING_IDLE_S = 1.0
# After this long without a commit the file shrinks to what is in it.
RESTING_S = 60.0
# After a commit on the thread not more is left to the caller of `commit_now`, or committed by the loop's thread: a
# hundred small messages.
LEFT_BYTES_MAX = 32 << 10
# Payloads are made on the loop when not more is in them: it takes a tenth of a millisecond, as a turn of the thread
# does.
ENTERED_HERE_BYTES_MAX = 64 << 10
# One read of a backlog: some milliseconds of deliveries, and several rows.
READ_BYTES = 1024 * 1024

_log = structlog.get_logger("amqpd.journal")


class JournalWriter:
    """Commits what has gathered, one transaction after the other, and tells when each is on stable storage."""

    def __init__(
        self,
        buffer: JournalBuffer,
        disk: Disk,
        on_durable: Callable[[int], None],
        on_full: Callable[[bool], None],
        full: bool = False,
        left_to_caller: Callable[[], bool] = lambda: False,
        cut: Callable[[int, dict[int, bytes]], list[Write]] = lambda index, payloads: [],
        alone: Callable[[], bool] = lambda: False,
        on_unusable: Callable[[dict[int, str]], None] | None = None,
    ) -> None:
        """`full`: the disk is, as opening the metadata has found; the journal's reserve may be held all the same.
        `left_to_caller`: asked after a commit of `run`; True: what gathers by then is left to `commit_now`, or to
        `want_commit`, one of which will be called soon. `cut`: given, before each transaction of a node that is a
        leader, its index and the payloads of entries, by source (none, if it has nothing of them); makes entries of
        them, sends them, and gives what is to be written. Called on the loop; a source that this node has left since
        is not among them (`JournalBuffer.leave`). The disk is a `SourcesDisk` then. `alone`: asked by `run` before
        a brief commit; True: it may keep the loop's thread, since nobody else has anything to do. A turn of another
        thread takes about as long as the commit, and of each replica it would be in what a confirm waits for.
        `on_unusable`: told on the loop, before the transaction is, which sources were left out of it and why, as what
        another node has sent cannot be written; None: that ends the node."""
        self._buffer = buffer
        self._disk = disk
        self._on_durable = on_durable
        self._on_full = on_full
        self._left_to_caller = left_to_caller
        self._cut = cut
        self._alone = alone
        self._on_unusable = on_unusable
        self._work = trio.Event()
        self.threads = trio.CapacityLimiter(1)
        self._full = full
        self._reserve_released = False
        self._flushed: trio.Event | None = None
        """somebody waits until nothing is left to commit"""
        self._given = buffer.index - 1
        """the last transaction that the disk has"""
        self._refused: JournalTransaction | None = None
        """by a full disk, when it was to be committed at once"""
        self._committing = self._resting = False
        """a transaction is on its way to the disk; housekeeping has nothing left to do"""
        self._shrunk = False
        """nor has what it does after a long rest"""
        self._rests_since = math.inf
        self._kept_thread = False
        """the last commit of `run` did"""
        self._prompt_at = -math.inf
        self._timing = LeaderTiming(buffer)
        self._puts_off = False
        """`run` waits with the next transaction"""
        self._waiting: trio.CancelScope | None = None
        """in which `run` waits for work"""
        self._promptness = Promptness()
        """of commits on the caller's thread"""

    def want_commit(self) -> None:
        """There is something to write."""
        if not self._committing and not (self._puts_off and self._timing.wait_until(now := perf_counter()) > now):
            self._work.set()

    def commit_now(self) -> bool:
        """Commit what gathers on the caller's thread, and tell it. It calls when nobody else has anything to do, and
        is back after little more than a sync of the disk. False: that would take longer, so `run` does it. Raises
        what `Disk.commit` raises."""
        began = perf_counter()
        if self._buffer.led_sources and self._waits(began):
            return True
        if (
            self._committing
            or self._full
            or self._refused is not None
            or self.threads.borrowed_tokens
            or not self._is_quick(began)
        ):
            self.want_commit()
            return False
        self._timing.cut()
        transaction = self._take()
        passes = self._passes(transaction)
        if self._on_unusable is not None:
            transaction.own = frozenset()
        if transaction.entries or self._buffer.led_sources:
            self._send(transaction, self._encoded(transaction))
        if passes and not transaction.writes:
            self._prompt_at = began
        elif not self._commit_promptly(transaction, began):
            self._refused = transaction
            self.want_commit()
            return False
        if self._resting:
            self._work.set()
        self._tell(transaction)
        return True

    def _waits(self, now_s: float) -> bool:
        """The next transaction is put off (`LeaderTiming`), and `run` will see to it."""
        wait_s = self._timing.wait_until(now_s) - now_s
        if wait_s <= 0 or self._committing or self._flushed is not None or self._refused is not None:
            return False
        if not self._puts_off:
            if self._waiting is None:
                return False
            # To wake it, so that it sleeps again, would take as long as what it waits for.
            self._waiting.deadline = min(self._waiting.deadline, trio.current_time() + wait_s)
        return True

    def _is_quick(self, now_s: float) -> bool:
        """A commit of what gathers may keep its caller's thread."""
        return self._promptness.expected(now_s) and self._buffer.small and self._disk.prompt

    def _is_for_caller(self) -> bool:
        """After a commit of `run`: what has gathered is so little that somebody waits for each of its messages. Those
        of a client that sends many at a time are better read while the thread commits."""
        buffer = self._buffer
        if not buffer.pending or self._full or buffer.gathered_bytes > LEFT_BYTES_MAX or buffer.led_sources:
            return False
        return self._is_quick(perf_counter())

    async def run(self) -> None:
        """Commit what gathers, until cancelled; a commit that is under way is waited for."""
        if self._full:
            self._tell_full("it was full at the start")
        left = False
        while True:
            await self._wait_for_work(left)
            left, self._work = False, trio.Event()
            while self._pending and not left:
                if not await self._is_put_off():
                    await self._commit_next()
                    if self._kept_thread:
                        # Nobody else has had a turn.
                        await trio.lowlevel.checkpoint()
                # Where clients wait for each commit there is always a next one, and each takes longer here.
                left = self._is_for_caller() and self._left_to_caller()

    async def _is_put_off(self) -> bool:
        """Where that spares its replicas something (`LeaderTiming`): then it has waited, and is to ask again."""
        if not self._buffer.led_sources or self._flushed is not None or self._refused is not None:
            return False
        now_s = perf_counter()
        until_s = self._timing.wait_until(now_s)
        if until_s <= now_s:
            self._timing.cut()
            return False
        self._puts_off, self._work = True, trio.Event()
        with trio.move_on_after(until_s - now_s):
            await self._work.wait()
        self._puts_off = False
        return True

    def _take(self) -> JournalTransaction:
        transaction = self._buffer.take()
        transaction.after = self._given
        return transaction

    def _passes(self, transaction: JournalTransaction) -> bool:
        """It was just taken, and has nothing for the disk. What is known to be committed goes with one that has."""
        if self._full or not transaction.writes_nothing:
            return False
        for source, position in transaction.committed.items():
            self._buffer.note_committed(source, position)
        transaction.committed = {}
        return True

    async def _commit_next(self, *, rests: bool = False) -> None:
        """`rests`: also if it only tells the disk what is committed."""
        nbytes, refused = self._buffer.gathered_bytes, self._refused
        transaction, self._refused = refused or self._take(), None
        self._committing, self._kept_thread = True, False
        passes = refused is None and not rests and self._passes(transaction)
        if self._on_unusable is not None:
            transaction.own = frozenset()
        if refused is None and (transaction.entries or self._buffer.led_sources):
            little = nbytes <= ENTERED_HERE_BYTES_MAX or not transaction.entries
            payloads = self._encoded(transaction) if little else await self._in_thread(self._encoded, transaction)
            self._send(transaction, payloads)
        if passes and not transaction.writes:
            self._kept_thread = True
        else:
            brief = refused is None and nbytes <= LEFT_BYTES_MAX and transaction.is_brief
            if not (brief and self._alone() and self._commit_here(transaction)):
                await self._commit(transaction)
            self._given = transaction.index
        self._committing = False
        self._tell(transaction)

    def _commit_here(self, transaction: JournalTransaction) -> bool:
        """On the thread of the loop, where that is not for long; False: it is not done."""
        began = perf_counter()
        if self._full or self.threads.borrowed_tokens or not (self._promptness.expected(began) and self._disk.prompt):
            return False
        self._kept_thread = self._commit_promptly(transaction, began)
        return self._kept_thread

    def _commit_promptly(self, transaction: JournalTransaction, began: float) -> bool:
        """On the thread of the caller. False: the disk is full, and nothing was written."""
        try:
            self._disk.commit(transaction, housekeeping=False)
        except DiskFull as error:
            _forget_locals(error)
            return False
        self._given = transaction.index
        self._prompt_at = perf_counter()
        self._promptness.took(began, self._prompt_at)
        return True

    def _encoded(self, transaction: JournalTransaction) -> list[bytes]:
        """The payloads of its entries; where they are much, in a thread."""
        if not transaction.entries:
            return []
        return list(map(cast("SourcesDisk", self._disk).payload, transaction.entries))

    def _send(self, transaction: JournalTransaction, payloads: list[bytes]) -> None:
        """What it has of leaders here, to their peers, as far as they are those that it had when it was taken."""
        entries, transaction.entries = transaction.entries, []
        mine: dict[int, bytes] = {}
        led_sources = self._buffer.led_sources
        for entry, payload in zip(entries, payloads, strict=True):
            led = led_sources.get(entry.source)
            if led is not None and led.epoch == entry.epoch:
                mine[entry.source] = payload
        if self._on_unusable is not None:
            transaction.own = frozenset(mine)
        transaction.writes = [*transaction.writes, *self._cut(transaction.index, mine)]

    @property
    def _pending(self) -> bool:
        return self._buffer.pending or self._refused is not None

    def _tell(self, transaction: JournalTransaction) -> None:
        if transaction.unusable and self._on_unusable is not None:  # before anything is said of what was left out
            self._on_unusable(transaction.unusable)
        self._buffer.stored(transaction.index)
        # Without replicas, what is stored is committed.
        self._buffer.committed(transaction.index)
        self._on_durable(transaction.index)
        if self._flushed is not None and not self._pending:
            self._flushed.set()
            self._flushed = None

    async def _wait_for_work(self, left: bool) -> None:
        """Return when there is something to commit that is not, or not any more, `left` to others. What is settled
        leaves the disk with later transactions; when none comes, by itself, but not at once: a publisher that waits
        for each confirm would wait for that too."""
        self._resting = self._shrunk = False
        while left or not self._pending:
            with trio.move_on_after(self._rest_s) as self._waiting:
                await self._work.wait()
            waiting, self._waiting = self._waiting, None
            self._work, left = trio.Event(), False
            if self._pending or not waiting.cancelled_caught:
                self._resting = self._shrunk = False
            elif self._resting and self._buffer.deletable and not self._buffer.held:
                # What was written with replicas is known to be committed later, and nobody wakes this for it.
                await self._commit_next(rests=True)
                self._resting = self._shrunk = False
            elif self._resting:
                if not self._shrunk and perf_counter() >= self._rests_since + RESTING_S:
                    self._shrunk = not await self._step(rests=True)
            elif perf_counter() >= self._prompt_at + HOUSEKEEPING_IDLE_S:
                if self._buffer.deletable and not self._buffer.held:
                    await self._commit_next(rests=True)
                # Between the last step and here the pump may have committed something that leaves the disk later.
                more = await self._step() or self._buffer.deletable
                self._resting, self._rests_since = not more, perf_counter()

    @property
    def _rest_s(self) -> float:
        """How long nobody wants a commit until there is housekeeping to do."""
        if not self._resting or self._buffer.replicates:
            return HOUSEKEEPING_IDLE_S
        return math.inf if self._shrunk else RESTING_S

    async def _step(self, rests: bool = False) -> bool:
        """Housekeeping until there is something to commit; whether some is left."""
        step = partial(self._disk.vacuum_step, rests=True) if rests else self._disk.vacuum_step
        try:
            while await self._in_thread(step):
                if self._pending:
                    return True
        except DiskFull:
            return True
        if self._full:
            await self._end_shortage()
        return self._full

    async def _commit(self, transaction: JournalTransaction) -> None:
        while True:
            try:
                await self._in_thread(self._disk.commit, transaction)
            except DiskFull as error:
                _forget_locals(error)
                if not self._full:
                    self._full = True
                    self._tell_full(str(error), "too few disks" if isinstance(error, DisksLost) else "disk full")
                if self._reserve_released:
                    await trio.sleep(FULL_RETRY_S)
                # Each time: a log that was copied into the database is begun again, and takes no space then.
                self._reserve_released = True
                await self._in_thread(self._disk.release_reserve)
            else:
                if self._full:
                    await self._end_shortage()
                return

    def _tell_full(self, reason: str, what: str = "disk full") -> None:
        _log.error(f"{what}: publishers wait, consumers go on", reason=reason, retry_s=FULL_RETRY_S)
        self._on_full(True)

    async def _end_shortage(self) -> None:
        """Publishers go on when the reserve is held again."""
        if await self._in_thread(self._disk.restore_reserve):
            self._full = self._reserve_released = False
            _log.info("the disk has space again")
            self._on_full(False)

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        # A thread cannot be stopped in the middle: the task that is cancelled waits for it.
        with trio.CancelScope(shield=True):
            return await trio.to_thread.run_sync(work, *arguments, limiter=self.threads)

    async def flush(self) -> None:
        """Return when nothing waits to be written (shutdown)."""
        while self._committing or self._pending:
            if self._flushed is None:
                self._flushed = trio.Event()
            self.want_commit()
            await self._flushed.wait()


class BacklogReader:
    """Reads rows back in the order in which they were asked for, one read at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.threads = trio.CapacityLimiter(1)
        self._requests: deque[tuple[int, int, int, Callable[[list[Row]], None]]] = deque()
        self._work = trio.Event()

    def read(self, queue_id: int, first_seq: int, last_seq: int, answer: Callable[[list[Row]], None]) -> None:
        self._requests.append((queue_id, first_seq, last_seq, answer))
        self._work.set()

    @property
    def busy(self) -> bool:
        """Somebody waits for rows."""
        return bool(self._requests or self.threads.borrowed_tokens)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            self._work = trio.Event()
            while self._requests:
                queue_id, first_seq, last_seq, answer = self._requests.popleft()
                answer(await self._read(queue_id, first_seq, last_seq))

    async def _read(self, queue_id: int, first_seq: int, last_seq: int) -> list[Row]:
        while True:
            try:
                return await trio.to_thread.run_sync(
                    self._disk.read, queue_id, first_seq, last_seq, READ_BYTES, limiter=self.threads
                )
            except DisksLost as error:
                # The watch of the disks says why, and publishers wait for the same reason.
                _forget_locals(error)
                await trio.sleep(FULL_RETRY_S)


def _forget_locals(error: BaseException | None) -> None:
    """Of the calls that failed. They hold the rows of this try as they were joined, some megabytes, and belong to
    cycles with frames of trio's, which a broker without new objects does not collect for long."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__
