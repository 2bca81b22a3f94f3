"""The embedded metadata store: one SQLite file, used by any number of processes of one machine at once.

What comes in, what goes out: see `topology/metadata/store.py`.
Rules: 1. Group commit: transactions that gathered while the last commit ran go into one SQLite transaction,
and each of them still commits or conflicts on its own. 2. Every SQLite transaction first reads what other
processes committed since, so events are published in revision order. 3. Keys with a lease live in this
process's memory: they cost no fsync and no other process sees them. A revision is therefore the file's
revision and, in its low bits, the number of leased transactions since; revisions of the file are the same
in all processes. 4. After an error nothing is tried again (an fsync that failed once says nothing the
second time).
Not here: what is done to the file in the thread (`sqlite_file.py`), opening it (`database.py`), watches
(`topology/metadata/events.py`).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from amqpd.topology.metadata.events import EventWatch, WatchHistory
from amqpd.topology.metadata.sqlite.batch import LEASED_BITS, CommitRequest
from amqpd.topology.metadata.sqlite.copies import keep_copy
from amqpd.topology.metadata.sqlite.sqlite_file import HISTORY_REVISIONS_MAX, SqliteFile
from amqpd.topology.metadata.store import (
    Compacted,
    Compare,
    Event,
    LeaseGone,
    MetadataEntry,
    MetadataStoreError,
    MetadataTransaction,
    Operation,
    Outcome,
    PutKey,
    Snapshot,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreUnreached,
)
from amqpd.topology.metadata.tombstones import oldest

# How often other processes' changes are looked for: one PRAGMA, about 0.1 ms with its way to a thread and
# back.
POLL_S = 0.25

T = TypeVar("T")


class StoreFile(Protocol):
    """The file that a store works with (`SqliteFile`, which see), or equal files on several disks. One thread at a
    time."""

    identity: str
    accepted: list[str]
    events: list[Event]
    missed_until: int | None
    one_of_several: bool

    @property
    def path(self) -> Path: ...

    @property
    def revision(self) -> int: ...

    def get(self, key: str) -> MetadataEntry | None: ...

    def range(self, prefix: str) -> Snapshot: ...

    def refresh(self) -> int: ...

    def look(self) -> None: ...

    def past(self, after: int, until: int) -> list[Event]: ...

    def commit(self, calls: Sequence[CommitRequest]) -> list[Outcome]: ...

    def require_disks(self) -> None: ...

    def dropped(self) -> dict[int, int]: ...

    def forget(self, ids: Iterable[int]) -> None: ...

    def journal(self) -> tuple[str, int] | None: ...

    def set_journal(self, identity: str, index: int) -> None: ...

    def close(self) -> None: ...


class SqliteStore:
    """A metadata store in one SQLite file, or in equal files on several disks; it has the methods of
    `store.MetadataStore`, and `open` makes it."""

    def __init__(self, file: StoreFile, poll_s: float) -> None:
        self._file = file
        self._poll_s = poll_s
        self._history = WatchHistory(file.revision)
        self.threads = trio.CapacityLimiter(1)
        self._turn = trio.Lock()
        self._gathered: list[CommitRequest] = []
        self._leases: set[int] = set()
        self._lease_numbers = itertools.count(1)
        self._copied = -1
        self._failure: MetadataStoreError | None = None

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        accept_loss: bool = False,
        poll_s: float = POLL_S,
        history_revisions_max: int = HISTORY_REVISIONS_MAX,
    ) -> SqliteStore:
        """Create or migrate the file at `path` when necessary. With `accept_loss`, go on with what is there when that
        is less than what was committed. Raises NewerMetadataFormat, StoreDamaged, MetadataStoreError."""
        return await cls.on(lambda: SqliteFile(path, history_revisions_max, accept_loss), poll_s)

    @classmethod
    async def on(cls, make: Callable[[], StoreFile], poll_s: float = POLL_S) -> SqliteStore:
        """On what this opens, in a thread. Raises as `open`."""
        return cls(await trio.to_thread.run_sync(make), poll_s)

    @property
    def accepted(self) -> list[str]:
        """What was lost when it was opened with `accept_loss`, and where the rest is kept: sentences."""
        return self._file.accepted

    async def get(self, key: str) -> MetadataEntry | None:
        return await self._call(lambda: self._file.get(key))

    async def range(self, prefix: str) -> Snapshot:
        return await self._call(lambda: self._file.range(prefix))

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        return (await self.transact_all([MetadataTransaction(tuple(compares), tuple(operations))]))[0]

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        for each in transactions:
            for operation in each.operations:
                if isinstance(operation, PutKey) and operation.lease and operation.lease not in self._leases:
                    raise LeaseGone(f"lease {operation.lease}")
        return await self._gather(CommitRequest(list(transactions)))

    def watch(self, after: int) -> EventWatch:
        return EventWatch(
            self._history,
            after,
            poll_s=self._poll_s,
            catch_up=self._poll,
            backlog=lambda after: self._call(lambda: self._file.past(after, self._history.begun_at)),
        )

    async def refresh(self) -> int:
        return await self._call(self._file.refresh)

    async def grant_lease(self, ttl_s: float) -> int:
        self._check_usable()
        await trio.lowlevel.checkpoint()
        lease = next(self._lease_numbers)
        self._leases.add(lease)
        return lease

    async def keep_alive(self, lease: int) -> None:
        self._check_usable()
        await trio.lowlevel.checkpoint()
        if lease not in self._leases:
            raise LeaseGone(f"lease {lease}")
        self._file.require_disks()

    async def identity(self) -> str:
        self._check_usable()
        await trio.lowlevel.checkpoint()
        return self._file.identity

    async def journal(self) -> tuple[str, int] | None:
        return await self._call(self._file.journal)

    async def set_journal(self, identity: str, index: int) -> None:
        await self._call(lambda: self._file.set_journal(identity, index))

    async def dropped_queues(self) -> frozenset[int]:
        return frozenset(await self._call(self._file.dropped))

    async def forget_dropped(self, ids: Iterable[int], keep: int = 0) -> None:
        numbers = set(ids)
        if keep:
            numbers = set(oldest(await self._call(self._file.dropped), numbers, keep))
        await self._call(lambda: self._file.forget(numbers))

    async def keep_copies(self) -> None:
        self._check_usable()
        revision = self._file.revision >> LEASED_BITS
        if revision == self._copied:
            return
        # Beside the turns of others: it reads by a connection of its own. Where the disk may hang for ever it goes on
        # when nobody waits for it; else it has ended before the file is closed.
        abandon = self._file.one_of_several
        if await trio.to_thread.run_sync(keep_copy, self._file.path, abandon_on_cancel=abandon):
            self._copied = revision

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):
            async with self._turn:
                if isinstance(self._failure, StoreClosed):
                    return
                self._fail(StoreClosed(f"{self._file.path} was closed"))
                await trio.to_thread.run_sync(self._file.close, limiter=self.threads)

    async def _gather(self, call: CommitRequest) -> list[Outcome]:
        """The one that gets its turn first commits for all that wait."""
        self._check_usable()
        self._gathered.append(call)
        try:
            async with self._turn:
                if not call.done:
                    self._check_usable()
                    calls, self._gathered = self._gathered, []
                    # A commit that has begun ends, for the others' sake.
                    with trio.CancelScope(shield=True):
                        await self._commit(calls)
        finally:
            if call in self._gathered:
                self._gathered.remove(call)
        if call.outcomes is None:
            assert call.failure is not None
            raise call.failure
        return call.outcomes

    async def _commit(self, calls: list[CommitRequest]) -> None:
        try:
            outcomes = deque(await self._run(lambda: self._file.commit(calls)))
        except (StoreFull, StoreBusy, StoreUnreached) as failure:
            for each in calls:
                each.done, each.failure = True, failure
            return
        for each in calls:
            each.outcomes = [outcomes.popleft() for _ in each.transactions]
            each.done = True

    async def _poll(self) -> None:
        # Should a commit be running, it looks for others' changes itself.
        if not self._turn.locked():
            with suppress(StoreBusy, StoreUnreached):  # the next look comes soon
                await self._call(self._file.look)

    async def _call(self, work: Callable[[], T]) -> T:
        async with self._turn:
            self._check_usable()
            with trio.CancelScope(shield=True):
                result = await self._run(work)
        return result

    async def _run(self, work: Callable[[], T]) -> T:
        """Work on the file in a thread, then publish the events that it saw or made."""
        try:
            result = await trio.to_thread.run_sync(work, limiter=self.threads)
        except (Compacted, StoreFull, StoreBusy, StoreUnreached):
            raise
        except MetadataStoreError as error:
            self._fail(error)
            raise
        except BaseException as error:
            self._fail(MetadataStoreError(f"the metadata store failed ({error!r})"))
            raise
        finally:
            self._publish()
        return result

    def _publish(self) -> None:
        if self._file.missed_until is not None:
            self._history.reset(self._file.missed_until)
            self._file.missed_until = None
        if self._file.events:
            self._history.publish(self._file.events)
            self._file.events = []

    def _fail(self, failure: MetadataStoreError) -> None:
        self._failure = failure
        self._history.fail(failure)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
