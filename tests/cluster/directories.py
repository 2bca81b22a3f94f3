"""Directories over a metadata store, for tests: members of one cluster, in one process.

What comes in: stores. What goes out: a `Member`: its directory, which runs, and what it was told; `Disk`, which keeps
its claims; `Unsure`, a store that does not always say what it did.
Not here: stores (`tests/topology/etcd_stores.py`), starts that are killed and paused (`test_starts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import trio

from amqpd.cluster.claims import Claim
from amqpd.cluster.directory import Directory
from amqpd.cluster.records import KnownRecord, MemberRecord
from amqpd.cluster.roster import Changed
from amqpd.peers.entry import Vote
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import (
    DeleteKey,
    MetadataStore,
    MetadataTransaction,
    Outcome,
    OutcomeUnknown,
    Snapshot,
    StoreBusy,
    StoreReplaced,
    StoreUnavailable,
)
from tests.topology.memory_store import MemorySpace, MemoryStore

HOST = "127.0.0.1"


def member_record(name: str, incarnation: int = 1, generation: int = 1) -> MemberRecord:
    return MemberRecord(name, incarnation, generation, HOST, 5673, "", "", "1.0", nonce=incarnation)


def known_record(member: MemberRecord, incarnation: int | None = None) -> KnownRecord:
    """As it puts it."""
    return KnownRecord(
        member.name, member.incarnation if incarnation is None else incarnation, member.generation, member.nonce
    )


def source_record(source: int = 1, leader: str = "a@x", epoch: int = 1, revision: int = 0) -> SourceRecord:
    return SourceRecord(source, Vote(epoch, leader, 1), ("a@x", "b@x", "c@x"), (1, 2, 3), revision)


async def end_lease(store: MetadataStore, lease: int) -> None:
    """What holds the lease goes, as when its process has ended."""
    held = [entry.key for entry in (await store.range("")).entries if entry.lease == lease]
    await store.transact([], [DeleteKey(key) for key in held])


class Unsure(MemoryStore):
    """What is in `fates` happens to the next transactions; `away`: nothing answers; `replaced`: another one does."""

    def __init__(self, space: MemorySpace) -> None:
        super().__init__(space)
        self.fates: list[str] = []
        self.away = False
        self.replaced = ""
        self.calls = 0

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        self.calls += 1
        fate = self.fates.pop(0) if self.fates else "done"
        if fate == "busy":
            raise StoreBusy("another process holds it")
        if fate == "unavailable" or self.away:
            raise StoreUnavailable("it does not answer")
        outcomes = await super().transact_all(transactions) if fate != "lost" else []
        if fate != "done":
            raise OutcomeUnknown("the answer was lost")
        return outcomes

    async def keep_alive(self, lease: int) -> None:
        if self.replaced:
            raise StoreReplaced(self.replaced)
        if self.away:
            raise StoreUnavailable("it does not answer")
        await super().keep_alive(lease)

    async def range(self, prefix: str) -> Snapshot:
        if self.away:
            raise StoreUnavailable("it does not answer")
        return await super().range(prefix)


@dataclass
class Disk:
    """The last claim on it."""

    claim: Claim

    async def keep(self, claim: Claim) -> None:
        await trio.lowlevel.checkpoint()
        self.claim = claim


@dataclass
class Member:
    """`told`: each change that it was told, in order. `scope`: cancel it, and nobody keeps its lease alive."""

    directory: Directory
    scope: trio.CancelScope
    disk: Disk
    told: list[Changed] = field(default_factory=list)
    news: trio.Event = field(default_factory=trio.Event)

    def on_change(self, changed: Changed) -> None:
        self.told.append(changed)
        self.news.set()
        self.news = trio.Event()

    async def until(self, holds: Callable[[Directory], object]) -> None:
        while not holds(self.directory):
            await self.news.wait()


def drawing(first: int = 100) -> Callable[[], int]:
    numbers = count(first)
    return lambda: next(numbers)


async def joined(
    nursery: trio.Nursery,
    store: MetadataStore,
    record: MemberRecord,
    lease_s: float = 2.0,
    disk: Disk | None = None,
) -> Member:
    """A member, as soon as it is one: as in the record, of a disk whose last process was of the incarnation before,
    unless its `disk` is given."""
    told: list[Member] = []
    disk = disk or Disk(Claim(record.generation, record.incarnation - 1))
    directory = Directory(
        store,
        record,
        disk.claim,
        disk.keep,
        lambda changed: told[0].on_change(changed),
        lease_s=lease_s,
        draw=drawing(),
        draw_nonce=drawing(record.nonce),
    )
    member = Member(directory, trio.CancelScope(), disk)
    told.append(member)

    async def run(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with member.scope:
            await directory.run(task_status)

    await nursery.start(run)
    return member


async def gone(store: MetadataStore, record: MemberRecord, nursery: trio.Nursery) -> Disk:
    """The disk of a node that was a member, and has ended."""
    member = await joined(nursery, store, record)
    member.scope.cancel()
    await end_lease(store, member.directory._lease)
    return member.disk
