"""Starts of a cluster's processes that are killed or paused at any step, over a store in memory whose leases run out.

What comes in: which process, on which disk, what happens to it at which step. What goes out: whether it became a
member, and as what; how many steps there were.
Rules: 1. A step is a call of the store or of the disk. 2. A process that is paused does nothing; its leases run out
meanwhile. One that is killed does nothing any more; what it sent may arrive later. 3. Time is trio's, which the test
makes jump. 4. `etcd`: a lease that ran out is granted again with what it held, as `EtcdStore` does it, and a start
ends the leases of an earlier process of its disk; else as the contract says, `LeaseGone`.
Not here: what a member does (`tests/replication/simulation/`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TypeVar

import trio

from amqpd.cluster.claims import Claim
from amqpd.cluster.directory import LEASE_S, Directory
from amqpd.cluster.records import MemberRecord
from amqpd.errors import StartupError, find_failure
from amqpd.topology.metadata.store import (
    LeaseGone,
    MetadataEntry,
    MetadataTransaction,
    Outcome,
    PutKey,
    Snapshot,
    StoreUnreached,
)
from tests.topology.memory_store import MemorySpace, MemoryStore

# What happens at a step.
KILL_BEFORE, KILL_AFTER, KILL_IN_FLIGHT = "killed before", "killed after", "killed, and it arrives later"
PAUSE_BEFORE, PAUSE_AFTER = "paused before", "paused after"
KILLS = (KILL_BEFORE, KILL_AFTER, KILL_IN_FLIGHT)
PAUSES = (PAUSE_BEFORE, PAUSE_AFTER)
PAUSE_S = 1.7 * LEASE_S
STALL_S = 2 * LEASE_S
# A start waits for five leases of an earlier process.
GIVE_UP_S = 60

T = TypeVar("T")


class World:
    """The store's side, and what goes on in it while no process looks."""

    def __init__(self, nursery: trio.Nursery, *, etcd: bool) -> None:
        self.space = MemorySpace()
        self.etcd = etcd
        self.deadlines: dict[int, float] = {}
        """by lease"""
        self.nursery = nursery
        self.stalled_until = -math.inf
        self._store = MemoryStore(self.space)
        self.numbers = count(1000)
        nursery.start_soon(self._end_leases)

    async def _end_leases(self) -> None:
        while True:
            await trio.sleep(LEASE_S / 4)
            if trio.current_time() < self.stalled_until:
                continue  # as etcd: nothing of it runs
            self.end_leases({lease for lease, at in self.deadlines.items() if at <= trio.current_time()})

    def end_leases(self, leases: set[int]) -> None:
        for lease in leases:
            self.deadlines.pop(lease, None)
        self._store._end_leases(leases)

    def stall(self) -> None:
        self.stalled_until = trio.current_time() + STALL_S

    async def answers(self) -> None:
        await _passed(lambda: self.stalled_until)


@dataclass
class Machine:
    """A name and a disk, of one process after the other."""

    name: str
    claim: Claim = field(default_factory=Claim)
    leases: set[int] = field(default_factory=set)
    """of its processes"""


class Start:
    """One process, from its first step until it is killed or ended."""

    def __init__(self, world: World, machine: Machine, faults: Mapping[int, str]) -> None:
        self.world = world
        self.machine = machine
        self.faults = faults
        self.steps: list[str] = []
        self.told = 0
        self.failure: str = ""
        self.directory: Directory | None = None
        self._joined = trio.Event()
        self._scope, self._ending = trio.CancelScope(), trio.CancelScope()
        self._runs_at = -math.inf

    async def run(self) -> bool:
        """Whether it became a member; it goes on in the world's nursery then, until `kill`."""
        done = trio.Event()

        async def live() -> None:
            try:
                with self._scope:
                    await self._live()
            finally:
                done.set()

        self.world.nursery.start_soon(live)
        with trio.fail_after(GIVE_UP_S):
            async with trio.open_nursery() as waiting:

                async def wait(event: trio.Event) -> None:
                    await event.wait()
                    waiting.cancel_scope.cancel()

                waiting.start_soon(wait, done)
                waiting.start_soon(wait, self._joined)
        return self._joined.is_set() and not done.is_set()

    async def _live(self) -> None:
        if self.world.etcd:
            self.world.end_leases(self.machine.leases)
        machine, world = self.machine, self.world
        me = MemberRecord(machine.name, 0, 0, "127.0.0.1", 5673)

        def on_change(_: object) -> None:
            self.told += 1

        numbers = partial(next, world.numbers)
        self.directory = Directory(
            *(_Store(self), me, machine.claim, self._keep, on_change), draw=numbers, draw_nonce=numbers
        )
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.directory.run)
                await self._goes_on()
                self._joined.set()
        except (StoreUnreached, StartupError, ExceptionGroup) as error:
            failure = find_failure(error)
            if failure is None:
                raise
            self.failure = failure.sentence

    async def end(self) -> None:
        """In order, if it is not killed meanwhile: what the disk has, then what the store knows."""
        assert self.directory is not None
        with self._ending:
            await self._keep(self.directory.ending)
            await self.directory.end_incarnation()
        self.kill()

    def kill(self) -> None:
        self._scope.cancel()
        self._ending.cancel()

    async def _keep(self, claim: Claim) -> None:
        async def write() -> None:
            self.machine.claim = claim

        await self.step("keep", write)

    async def step(self, name: str, effect: Callable[[], Awaitable[T]], *, waits: bool = False) -> T:
        """`waits`: for the store."""
        self.steps.append(name)
        fault = self.faults.get(len(self.steps), "")
        if fault == KILL_BEFORE:
            await self._die()
        elif fault == KILL_IN_FLIGHT and waits:
            self.world.nursery.start_soon(self._later, effect)
            await self._die()
        elif fault == PAUSE_BEFORE:
            self._runs_at = trio.current_time() + PAUSE_S
        await self._goes_on()
        if waits:
            await self.world.answers()
        result = await effect()
        if fault in (KILL_AFTER, KILL_IN_FLIGHT):  # a disk has no way that is longer than its process
            await self._die()
        elif fault == PAUSE_AFTER:
            self._runs_at = trio.current_time() + PAUSE_S
        await self._goes_on()
        return result

    async def _goes_on(self) -> None:
        await _passed(lambda: self._runs_at)

    async def _die(self) -> None:
        self.kill()
        await trio.sleep_forever()

    async def _later(self, effect: Callable[[], Awaitable[object]]) -> None:
        await trio.sleep(LEASE_S / 3)
        try:
            await effect()
        except LeaseGone:
            return  # its process has nobody that hears of it


async def _passed(time: Callable[[], float]) -> None:
    """It is that time, which may be put off meanwhile."""
    waits_for = -math.inf
    while waits_for < (now := time()):
        waits_for = now
        await trio.sleep_until(now)


class _Store(MemoryStore):
    """What one process sees."""

    def __init__(self, start: Start) -> None:
        super().__init__(start.world.space)
        self._start = start
        self._world = start.world
        self._held: dict[int, dict[str, PutKey]] = {}

    async def get(self, key: str) -> MetadataEntry | None:
        return await self._start.step("get", partial(super().get, key), waits=True)

    async def range(self, prefix: str) -> Snapshot:
        return await self._start.step("range", partial(super().range, prefix), waits=True)

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        async def transact() -> list[Outcome]:
            for each in transactions:
                for put in each.operations:
                    if isinstance(put, PutKey) and put.lease:
                        await self._renew(put.lease)
                        self._held[put.lease][put.key] = put
            return await MemoryStore.transact_all(self, transactions)

        return await self._start.step("transact", transact, waits=True)

    async def grant_lease(self, ttl_s: float) -> int:
        async def grant() -> int:
            lease = await MemoryStore.grant_lease(self, ttl_s)
            self._held[lease] = {}
            self._start.machine.leases.add(lease)
            self._world.deadlines[lease] = trio.current_time() + ttl_s
            return lease

        return await self._start.step("grant", grant, waits=True)

    async def keep_alive(self, lease: int) -> None:
        # No step: when it comes is a matter of time.
        await self._start._goes_on()
        await self._world.answers()
        await self._renew(lease)

    async def _renew(self, lease: int) -> None:
        """In etcd's way or by the contract."""
        if lease not in self._world.deadlines:
            if not self._world.etcd:
                self._leases.discard(lease)
                raise LeaseGone(f"lease {lease}")
            missing = [put for put in self._held[lease].values() if put.key not in self._space.entries]
            self._world.deadlines[lease] = trio.current_time() + LEASE_S
            self._space.execute(MetadataTransaction((), tuple(missing)))
        self._world.deadlines[lease] = trio.current_time() + LEASE_S
