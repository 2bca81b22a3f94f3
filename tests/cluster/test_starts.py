"""Starts that are killed or paused at every step, of one node, of two and of three: no disk counts as another one.

What is verified: at each call of the store and of the disk, before and after its effect, and with an effect that
comes when the process is gone; twice in a row; at all nodes at once; beside a store that stalls; at random, with
older copies of disks among them, which never count as what they are copies of.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.testing

from amqpd.cluster.claims import Claim
from amqpd.cluster.records import KnownRecord, MemberRecord, decode, encode, known_key, member_key
from amqpd.topology.metadata.store import PutKey
from tests.cluster.starts import (
    KILL_AFTER,
    KILLS,
    PAUSE_AFTER,
    PAUSE_S,
    PAUSES,
    Machine,
    Start,
    World,
)
from tests.harness.slow import slow
from tests.topology.memory_store import MemoryStore

FAULTS = (*KILLS, *PAUSES)
STEPS = ["grant", "get", "get", "keep", "transact", "get", "get", "range"]
IDS = ["as etcd", "by the contract"]
EITHER = pytest.mark.parametrize("etcd", [True, False], ids=IDS)
ETCD = pytest.mark.parametrize("etcd", [True, slow(False)], ids=IDS)


def in_a_world(scenario: Callable[[World], Awaitable[None]], *, etcd: bool) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await scenario(World(nursery, etcd=etcd))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def begun(world: World, name: str) -> Machine:
    """A node that was a member, and was killed; its lease has run out."""
    machine = Machine(name)
    start = Start(world, machine, {})
    assert await start.run()
    start.kill()
    await trio.sleep(PAUSE_S)
    return machine


async def comes_back(world: World, machine: Machine, *faults: Mapping[int, str]) -> list[Start]:
    """One start after the other, each with its faults; then one without, which becomes a member."""
    starts = [Start(world, machine, each) for each in (*faults, {})]
    for start in starts[:-1]:
        await start.run()
        assert not start.failure
        start.kill()
        if not world.etcd:
            await trio.sleep(PAUSE_S)  # else it waits for the lease, at the steps at which something is to happen
    assert await starts[-1].run(), starts[-1].failure
    return starts


async def is_known(world: World, machine: Machine, generation: int) -> None:
    """All records of it are of this disk, and its lease lives on."""
    await trio.sleep(2 * PAUSE_S)
    for key in (member_key(machine.name), known_key(machine.name)):
        record = decode(key, world.space.entries[key].value, 1)
        assert isinstance(record, MemberRecord | KnownRecord)
        assert record.generation == generation
    assert machine.claim.generation == generation


def test_the_steps_of_a_start_are_these() -> None:
    async def scenario(world: World) -> None:
        machine = await begun(world, "a")
        [start] = await comes_back(world, machine)
        assert start.steps == STEPS

    in_a_world(scenario, etcd=True)


@EITHER
@pytest.mark.parametrize("fault", FAULTS)
def test_a_start_that_is_killed_or_paused_at_any_step_keeps_its_generation(fault: str, etcd: bool) -> None:
    async def scenario(step: int, world: World) -> None:
        machine = await begun(world, "a")
        generation = machine.claim.generation
        await comes_back(world, machine, {step: fault})
        await is_known(world, machine, generation)

    for step in range(1, len(STEPS) + 1):
        in_a_world(partial(scenario, step), etcd=etcd)


@ETCD
@pytest.mark.parametrize(
    ("first", "second"),
    [pair if pair == (PAUSE_AFTER, KILL_AFTER) else slow(*pair) for pair in itertools.product(FAULTS, FAULTS)],
)
def test_so_does_one_that_meets_it_twice(first: str, second: str, etcd: bool) -> None:
    """In two starts that follow each other, or in the same one."""

    async def scenario(one: int, two: int, world: World) -> None:
        machine = await begun(world, "a")
        generation = machine.claim.generation
        *_, last = await comes_back(world, machine, {one: first}, {two: second})
        await is_known(world, machine, generation)
        last.kill()
        if first in PAUSES and one < two:
            await comes_back(world, machine, {one: first, two: second})
            await is_known(world, machine, generation)

    for one, two in itertools.product(range(1, len(STEPS) + 1), repeat=2):
        in_a_world(partial(scenario, one, two), etcd=etcd)


@ETCD
@pytest.mark.parametrize("stalls", [slow(False), True])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("nodes", [slow(2), 3])
def test_so_do_several_at_once_also_when_the_store_stalls(nodes: int, fault: str, stalls: bool, etcd: bool) -> None:
    async def scenario(step: int, world: World) -> None:
        machines = [await begun(world, name) for name in "abc"[:nodes]]
        generations = [machine.claim.generation for machine in machines]

        async def stall() -> None:
            await trio.sleep(PAUSE_S / 3)
            world.stall()

        async with trio.open_nursery() as starting:
            if stalls:
                starting.start_soon(stall)
            for machine in machines:
                starting.start_soon(comes_back, world, machine, {step: fault}, {step: fault}, {step + 1: fault})
        for machine, generation in zip(machines, generations, strict=True):
            await is_known(world, machine, generation)

    for step in range(1, len(STEPS) + 1):
        in_a_world(partial(scenario, step), etcd=etcd)


@ETCD
@pytest.mark.parametrize("fault", [KILL_AFTER, *map(slow, (*KILLS[:1], *KILLS[2:], *PAUSES))])
@pytest.mark.parametrize("copy", ["older", "emptied", "of the other start"])
def test_a_disk_that_lacks_something_counts_as_another_one_however_it_starts(
    copy: str, fault: str, etcd: bool
) -> None:
    async def scenario(step: int, world: World) -> None:
        machine = await begun(world, "a")
        older, known = machine.claim, machine.claim.generation
        for _ in range(1 if copy == "of the other start" else 3):
            for start in await comes_back(world, machine):
                start.kill()
        machine.claim = Claim() if copy == "emptied" else older
        await comes_back(world, machine, *[{step: fault}] * 5)
        assert machine.claim.generation != known
        await is_known(world, machine, machine.claim.generation)

    for step in range(1, len(STEPS) + 1):
        in_a_world(partial(scenario, step), etcd=etcd)


def test_of_two_copies_that_start_at_once_one_goes_on() -> None:
    """The other one has made its claim on its own disk, and was not first: it lacks what the first acknowledges."""

    async def scenario(world: World) -> None:
        machine = await begun(world, "a")
        copied = Machine("a", machine.claim)
        late = Start(world, copied, {STEPS.index("transact") + 1: KILLS[0]})
        assert not await late.run()
        for start in await comes_back(world, machine):
            start.kill()
        assert copied.claim.incarnation == machine.claim.incarnation
        await comes_back(world, copied)
        assert copied.claim.generation != machine.claim.generation

    in_a_world(scenario, etcd=True)


@EITHER
@pytest.mark.parametrize("fault", ["", *PAUSES])
def test_a_second_process_of_the_name_is_refused_and_the_first_is_unharmed(fault: str, etcd: bool) -> None:
    async def scenario(step: int, world: World) -> None:
        first = Start(world, await begun(world, "a"), {})
        assert await first.run()
        told = world.space.revision
        second = Start(world, Machine("a"), {step: fault})
        assert not await second.run()
        assert "another process is the member a of this cluster, at 127.0.0.1:5673" in second.failure
        assert "end that one, or give this node a node_name of its own" in second.failure
        await trio.sleep(2 * PAUSE_S)
        assert not first.failure
        assert world.space.revision == told, "nothing was put"

    for step in range(1, 4):
        in_a_world(partial(scenario, step), etcd=etcd)


@pytest.mark.parametrize("with_nonce", [False, True], ids=["of a version without nonces", "with them"])
def test_a_store_that_is_an_older_copy_makes_no_disk_another_one(with_nonce: bool) -> None:
    async def scenario(world: World) -> None:
        machine = await begun(world, "a")
        generation = machine.claim.generation
        older = KnownRecord("a", machine.claim.incarnation, generation, machine.claim.nonce if with_nonce else 0)
        for _ in range(3):
            for start in await comes_back(world, machine):
                start.kill()
        await MemoryStore(world.space).transact([], [known_put(older)])
        await comes_back(world, machine)
        await is_known(world, machine, generation)

    in_a_world(scenario, etcd=True)


def test_a_disk_of_a_version_without_nonces_goes_on() -> None:
    async def scenario(world: World) -> None:
        await MemoryStore(world.space).transact([], [known_put(KnownRecord("a", 6, 17))])
        machine = Machine("a", Claim(17, 6))
        await comes_back(world, machine)
        await is_known(world, machine, 17)
        # Back to that version, which leaves alone what it does not know; then forward again.
        await MemoryStore(world.space).transact([], [known_put(KnownRecord("a", 9, 17))])
        machine.claim = replace(machine.claim, incarnation=9)
        await comes_back(world, machine)
        await is_known(world, machine, 17)

    in_a_world(scenario, etcd=True)


def known_put(known: KnownRecord) -> PutKey:
    return PutKey(known_key(known.name), encode(known))


@pytest.mark.parametrize("seed", [1, 2, 3, *map(slow, range(4, 100))])
def test_at_random_a_disk_counts_as_what_it_is(seed: int) -> None:
    """Three nodes. Each process that was a member acknowledges something, on its disk alone. Now and then a disk is
    set back to a copy of it that was made while no process of it ran: it must count as another one then, if anything
    was acknowledged since."""
    chance, drawn = random.Random(seed), Counter[str]()

    async def node(world: World, name: str) -> None:
        machine = Machine(name)
        has: frozenset[int] = frozenset()
        copies: list[tuple[Claim, frozenset[int]]] = []
        acknowledged: dict[int, set[int]] = {}
        set_back = False
        for number in range(12):
            faults = {}
            for _ in range(chance.choice((0, 1, 1, 2))):
                faults[chance.randint(1, len(STEPS) + 2)] = chance.choice(FAULTS)
            before = machine.claim
            start = Start(world, machine, faults)
            member = await start.run()
            lacks = acknowledged.get(before.generation, set()) - has
            kept = machine.claim.generation == before.generation
            drawn[f"{'member' if member else 'not a member'}, kept {kept}, lacks {bool(lacks)}"] += 1
            assert kept or set_back or before.generation not in acknowledged, (number, faults, before, machine.claim)
            set_back = set_back and machine.claim == before
            if member:
                assert not (kept and lacks), (number, faults, before, machine.claim)
                has |= {number}
                acknowledged.setdefault(machine.claim.generation, set()).add(number)
                if chance.random() < 0.4:
                    await start.end()
            start.kill()
            await trio.sleep(chance.choice((0, 0, PAUSE_S)))
            copies.append((machine.claim, has))
            if chance.random() < 0.25:
                machine.claim, has = chance.choice(copies)
                set_back = True

    async def scenario(world: World) -> None:
        async def stall() -> None:
            while True:
                await trio.sleep(chance.uniform(5, 30))
                world.stall()

        async with trio.open_nursery() as nodes:
            nodes.start_soon(stall)
            async with trio.open_nursery() as living:
                for name in "abc":
                    living.start_soon(node, world, name)
            nodes.cancel_scope.cancel()

    in_a_world(scenario, etcd=seed % 2 == 0)
    print(dict(drawn))
