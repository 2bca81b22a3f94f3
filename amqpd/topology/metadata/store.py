"""The metadata store's contract: ordered keys, compare-and-swap, a watch without gaps, leases.

What comes in: `MetadataTransaction`s (compares and operations on string keys). What goes out: `Committed` or
`CompareFailed`, `Snapshot`s, and a watch of `Event`s.
Rules: 1. One key space: a key has one value, that of the last put. 2. Revisions are integers that only grow; every
transaction that changed something has its own; nothing else may be read out of them. 3. `Committed` means that keys
without a lease are on stable storage. 4. A key with a lease lives as long as the lease: until its store is
closed, or its process is gone. A store must show it to the process that put it, and may show it to others (etcd does,
the embedded store does not). 5. Any error but `StoreFull`, `StoreBusy`, `StoreUnavailable`,
`OutcomeUnknown`, `Compacted`, `LeaseGone` and `ValueError` means that the outcome is unknown and the store is done
for: the node stops. `StoreUnavailable` and `OutcomeUnknown` come from a store that is reached over a network only. 6.
What such a store cannot carry out in one step (etcd takes 128 operations and 1.5 MiB), it carries out in several, in
the transaction's order.
Not here: the stores (`sqlite/store.py`, `etcd/store.py`), what the keys and values mean (`codec.py`).

The contract is a subset of etcd version 3 (etcd.io, "etcd API"): Txn with compares on mod_revision, a put with a
lease, Watch with start_revision = after + 1 and its compaction error, LeaseGrant, LeaseKeepAlive, LeaseRevoke.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from amqpd.errors import StorageFailure


class MetadataStoreError(StorageFailure):
    """The store failed, or is closed. The text is one sentence for the operator."""


class StoreDamaged(MetadataStoreError):
    """The stored metadata cannot be read."""


def unreadable_because(error: Exception) -> str:
    """The reason why a record cannot be read, in words, of what its reader raised."""
    if isinstance(error, json.JSONDecodeError):
        return "it is no JSON"
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    return str(error) or type(error).__name__


class StoreIncomplete(StoreDamaged):
    """The stored metadata can be read, and are less than what was committed."""


class NewerMetadataFormat(MetadataStoreError):
    """The stored metadata were written by a newer amqpd. Nothing was touched."""


class StoreClosed(MetadataStoreError):
    """The metadata store was closed, and takes no calls any more."""


class StoreFull(MetadataStoreError):
    """There is no space for the transaction: it had no effect, and may be tried again when there is."""


class StoreLacksDisks(StoreFull):
    """Too few of the disks that the store is on are left. As `StoreFull`, but nobody knows when there are more:
    the caller that asks for something to be put is told."""


class StoreBusy(MetadataStoreError):
    """Another process holds the store for longer than is waited: the call had no effect, and may be tried again."""


class StoreUnreached(MetadataStoreError):
    """Base of the two errors of a store over a network. Neither ends the node. `done` are the outcomes of the call's
    transactions before the one that it was raised for; those after it had no effect. `operations` of that one are
    done: a store may do a large one in parts."""

    def __init__(self, sentence: str, done: Sequence[Outcome] = (), operations: int = 0) -> None:
        super().__init__(sentence)
        self.done = list(done)
        self.operations = operations


class StoreUnavailable(StoreUnreached):
    """The store did not answer, and nothing happened, nor will: the call may be tried again."""


class StoreReplaced(StoreUnavailable):
    """The store that answers is not the one that was opened, or is in an older state: it was emptied, replaced or put
    back from a copy. It is not used any more, whatever it is later; the text says what was found, and the way out."""


class OutcomeUnknown(StoreUnreached):
    """The transaction was sent, and nobody knows whether it had its effect. The store's next transaction settles
    that before it has its own effect: the watch has reported it by then, or it will never happen."""


class Compacted(Exception):
    """The watch asks for revisions that the store does not keep any more: read everything again by `range`."""


class LeaseGone(Exception):
    """The lease does not exist (any more)."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of a transaction, which holds when the key's mod_revision is this one; 0 means that the key is
    absent, None that it is present, of whatever revision (in etcd's words: mod_revision > 0)."""

    key: str
    mod_revision: int | None = 0

    def holds(self, entry: MetadataEntry | None) -> bool:
        if self.mod_revision is None:
            return entry is not None
        return (entry.mod_revision if entry else 0) == self.mod_revision


@dataclass(frozen=True, slots=True)
class PutKey:
    """An operation that sets the key's value. `lease` 0 means: keep it until it is deleted."""

    key: str
    value: str
    lease: int = 0


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """An operation that removes the key; no effect (and no event) when it is absent."""

    key: str


Operation = PutKey | DeleteKey


def bytes_of(operations: Iterable[Operation]) -> int:
    """What keys and values take, in characters."""
    return sum(len(each.key) + (len(each.value) if isinstance(each, PutKey) else 0) for each in operations)


@dataclass(frozen=True, slots=True)
class MetadataTransaction:
    """All operations when all compares hold, else none. No key may be operated on twice."""

    compares: tuple[Compare, ...] = ()
    operations: tuple[Operation, ...] = ()

    def __post_init__(self) -> None:
        if len({operation.key for operation in self.operations}) != len(self.operations):
            raise ValueError("a transaction operates twice on one key")
        if not all(named.key for named in (*self.compares, *self.operations)):
            raise ValueError("an empty string is not a key")


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a transaction that took effect, or changed nothing. `revision` is the transaction's own, or
    the store's current one when the transaction changed nothing."""

    revision: int


@dataclass(frozen=True, slots=True)
class CompareFailed:
    """A compare did not hold. A reader that has seen `revision` has seen what it failed on."""

    revision: int


Outcome = Committed | CompareFailed


@dataclass(frozen=True, slots=True)
class MetadataEntry:
    """A key with its value, the revision that put it last, and its lease (0: none)."""

    key: str
    value: str
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All entries of a prefix, ascending by key, as they were at `revision`."""

    revision: int
    entries: list[MetadataEntry]

    @property
    def newest(self) -> int:
        """The revision of the newest change that made one of them; 0: there are none."""
        return max([entry.mod_revision for entry in self.entries], default=0)


@dataclass(frozen=True, slots=True)
class Event:
    """One revision: the operations that took effect, in the transaction's order."""

    revision: int
    operations: tuple[Operation, ...]


class MetadataStore(Protocol):
    """A metadata store, asynchronous, in one trio run. Calls that were begun in some order take effect in that
    order."""

    async def get(self, key: str) -> MetadataEntry | None: ...

    async def range(self, prefix: str) -> Snapshot:
        """Every entry whose key begins with `prefix` (all of them for the empty string), from one moment."""
        ...

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        """One transaction. Raises `LeaseGone` when an operation names an unknown lease."""
        ...

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        """Many transactions, each of which succeeds or conflicts on its own, in this order, a later one
        seeing the effects of an earlier one; with as few waits for stable storage as the store can. Raises
        `LeaseGone`, with no effect of any, when an operation names an unknown lease. When it is cancelled,
        the outcome is unknown."""
        ...

    def watch(self, after: int) -> AsyncIterator[Event]:
        """Every revision greater than `after`, ascending, without gaps and without end. Raises `Compacted`
        when some of them are gone, StoreClosed when the store is closed, MetadataStoreError when it
        failed."""
        ...

    async def refresh(self) -> int:
        """The store's current revision, after making sure that watches will report everything up to it."""
        ...

    async def grant_lease(self, ttl_s: float) -> int:
        """A new lease, of a number greater than 0, that ends when it is not kept alive for `ttl_s` seconds.
        (The leases of an embedded store cannot be parted from their process, and do not run out.)"""
        ...

    async def keep_alive(self, lease: int) -> None:
        """Raises LeaseGone, and StoreLacksDisks while nothing can be put."""
        ...

    async def identity(self) -> str:
        """32 hexadecimal digits that this store has had from its beginning, and no other store has."""
        ...

    async def journal(self) -> tuple[str, int] | None:
        """What `set_journal` was given last; None if it never was."""
        ...

    async def set_journal(self, identity: str, index: int) -> None:
        """Which journal this store belongs to, and how far that was, on stable storage when this returns."""
        ...

    async def dropped_queues(self) -> frozenset[int]:
        """The journal's numbers of queues without a lease whose keys were deleted, and what stands for deleted
        virtual hosts (`tombstones.py`), as long as they are not forgotten. One number stands for all levels
        of a queue."""
        ...

    async def forget_dropped(self, ids: Iterable[int], keep: int = 0) -> None:
        """The journal has nothing of these any more. They are forgotten soon: with the next transaction, or when
        there is none for a while. `keep`: the oldest of them only, so that this number is left of all."""
        ...

    async def keep_copies(self) -> None:
        """Keep a copy of everything as it is now, if it has changed since the last copy, and one older copy. A copy
        that cannot be made is logged, and is no error."""
        ...

    async def aclose(self) -> None:
        """Ends the leases that this store granted. Calls after it raise StoreClosed."""
        ...


def prefix_end(prefix: str) -> str | None:
    """The smallest string greater than every string that begins with `prefix`, by code points; None when
    there is none. (What etcd calls range_end.)"""
    for index in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[index]) + 1
        if code <= 0x10FFFF:
            # Surrogates are no characters and cannot be written as UTF-8.
            return prefix[:index] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
    return None
