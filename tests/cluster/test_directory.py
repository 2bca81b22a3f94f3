"""A directory: on every store what all of them do, then on a store in memory what only that can be made to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from amqpd.cluster import directory
from amqpd.cluster.claims import Claim
from amqpd.cluster.directory import LEASE_S, LEASES_WAITED, START_S
from amqpd.cluster.forgetting import MemberKept, forget, readmit
from amqpd.cluster.forgotten_starts import recent_starts
from amqpd.cluster.records import (
    PREFIX,
    DesiredSetRecord,
    KnownRecord,
    encode,
    forgotten_start_key,
    known_key,
    member_key,
    source_key,
)
from amqpd.cluster.roster import Changed, Roster
from amqpd.errors import NodeFailure, NotYet, StartupError, find_failure
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import (
    DeleteKey,
    MetadataEntry,
    MetadataStore,
    MetadataTransaction,
    Operation,
    Outcome,
    PutKey,
    StoreUnavailable,
)
from tests.cluster.directories import (
    Disk,
    Unsure,
    drawing,
    end_lease,
    gone,
    joined,
    known_record,
    member_record,
    source_record,
)
from tests.topology.etcd_stores import shared_etcd as shared_etcd
from tests.topology.memory_store import MemorySpace, MemoryStore
from tests.topology.test_store import Stores
from tests.topology.test_store import stores as stores

pytestmark = pytest.mark.trio
A, B = member_record("a@x"), member_record("b@x", generation=2)


@pytest.fixture
async def store(stores: Stores) -> MetadataStore:
    return await stores()


@pytest.fixture
def space() -> MemorySpace:
    return MemorySpace()


async def test_a_member_hears_of_itself_before_it_has_started(store: MetadataStore, nursery: trio.Nursery) -> None:
    await store.transact([], [PutKey("topology/x", "?"), PutKey("cluster/newer", "?")])
    member = await joined(nursery, store, A)
    assert member.told == [Changed(frozenset({"a@x"}), frozenset({"a@x"}))]
    assert dict(member.directory.roster.members) == {"a@x": A}
    assert dict(member.directory.roster.known) == {"a@x": known_record(A)}
    assert member.directory.me == A


async def test_a_swap_is_carried_out_once(store: MetadataStore, nursery: trio.Nursery) -> None:
    member = await joined(nursery, store, A)
    swaps = member.directory.swaps
    first = await swaps.swap(source_record())
    assert first is not None
    assert first == replace(source_record(), revision=first.revision)
    assert [await swaps.read(1), await swaps.read(2)] == [first, None]
    assert await swaps.swap(source_record(epoch=2)) is None, "the key is there"
    assert await swaps.swap(replace(first, revision=first.revision + 1)) == first, "it is there as desired"
    second = await swaps.swap(replace(source_record(epoch=2), revision=first.revision))
    assert second is not None
    assert second.revision > first.revision
    assert await swaps.swap(replace(source_record(epoch=3), revision=first.revision)) is None
    await member.directory.refresh()
    assert dict(member.directory.roster.records) == {1: second}
    assert [change.sources for change in member.told[1:]] == [{1}, {1}]


async def test_several_swaps_at_once_have_one_winner(store: MetadataStore, nursery: trio.Nursery) -> None:
    member = await joined(nursery, store, A)
    won = []

    async def swap(epoch: int) -> None:
        if (record := await member.directory.swaps.swap(source_record(epoch=epoch))) is not None:
            won.append(record)

    async with trio.open_nursery() as swapping:
        for epoch in range(1, 6):
            swapping.start_soon(swap, epoch)
    [record] = won
    assert await member.directory.swaps.read(1) == record


async def test_a_key_that_somebody_deleted_is_put_again(store: MetadataStore, nursery: trio.Nursery) -> None:
    member = await joined(nursery, store, A)
    await store.transact([], [DeleteKey(member_key("a@x")), DeleteKey(known_key("a@x"))])
    await member.until(lambda _: len(member.told) == 3)
    assert [bool(change.members) for change in member.told] == [True, True, True]
    assert dict(member.directory.roster.members) == {"a@x": A}
    assert dict(member.directory.roster.known) == {"a@x": known_record(A)}


# What an embedded store does not show to other processes

BETWEEN = pytest.mark.parametrize("stores", ["memory", "etcd"], indirect=True)


@BETWEEN
async def test_two_directories_see_each_other(stores: Stores, nursery: trio.Nursery) -> None:
    first = await joined(nursery, await stores(), A)
    second = await joined(nursery, await stores(), B)
    await first.until(lambda it: len(it.roster.members) == 2)
    assert dict(first.directory.roster.members) == dict(second.directory.roster.members) == {"a@x": A, "b@x": B}
    record = await second.directory.swaps.swap(source_record(leader="b@x"))
    await first.until(lambda it: it.roster.records)
    await second.until(lambda it: it.roster.records)
    assert first.directory.roster.records[1] == second.directory.roster.records[1] == record
    assert await first.directory.swaps.swap(source_record()) is None


@BETWEEN
async def test_a_member_that_ends_in_order_is_gone_at_once(stores: Stores, nursery: trio.Nursery) -> None:
    ending = await stores()
    first, second = await joined(nursery, await stores(), A), await joined(nursery, ending, B)
    await first.until(lambda it: len(it.roster.members) == 2)
    second.scope.cancel()
    await ending.aclose()
    await first.until(lambda it: len(it.roster.members) == 1)
    assert dict(first.directory.roster.known) == {"a@x": known_record(A), "b@x": known_record(B)}


@BETWEEN
async def test_one_name_is_one_process(
    stores: Stores, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "LEASES_WAITED", 0.2)
    await joined(nursery, await stores(), A)
    with pytest.raises(
        StartupError, match=r"another process is the member a@x of this cluster, at 127.0.0.1:5673, incarnation 1"
    ):
        await joined(nursery, await stores(), replace(A, generation=9, nonce=9))


@BETWEEN
async def test_the_name_of_one_that_ends_meanwhile_is_waited_for(stores: Stores, nursery: trio.Nursery) -> None:
    ending = await stores()
    first = await joined(nursery, ending, A)

    async def end() -> None:
        first.scope.cancel()
        await trio.sleep(0.1)
        await ending.aclose()

    nursery.start_soon(end)
    second = await joined(nursery, await stores(), replace(A, nonce=2), disk=first.disk)
    assert second.directory.me == replace(A, incarnation=2, nonce=2)


@BETWEEN
@pytest.mark.parametrize("key", [member_key("a@x"), known_key("a@x")])
async def test_who_finds_another_process_under_its_name_ends(stores: Stores, key: str) -> None:
    other = replace(A, incarnation=7, nonce=7)
    value = encode(other if key == member_key("a@x") else KnownRecord("a@x", 7, 1))

    async def live() -> None:
        async with trio.open_nursery() as nursery:
            await joined(nursery, await stores(), A)
            await (await stores()).transact([], [PutKey(key, value)])
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    failure = find_failure(caught.value)
    assert isinstance(failure, NodeFailure)
    assert "another process is a@x in this cluster now" in failure.sentence


# Generations


@pytest.mark.parametrize(
    ("change", "drawn"),
    [
        ({}, False),  # it goes on
        ({"incarnation": 4, "nonce": 4, "upon": (3, 3)}, True),  # a copy, which was started when the original was
        ({"incarnation": 3, "nonce": 3, "upon": (2, 2)}, True),  # an older state of the disk
        ({"generation": 2, "incarnation": 8, "nonce": 8}, True),  # emptied, or one that was replaced once
    ],
)
async def test_a_disk_that_is_not_what_it_was_gets_a_new_generation(
    space: MemorySpace, nursery: trio.Nursery, change: dict[str, Any], drawn: bool
) -> None:
    ended = MemoryStore(space)
    before = await joined(nursery, ended, replace(A, incarnation=5, nonce=5))
    before.scope.cancel()
    await ended.aclose()
    disk = Disk(replace(before.disk.claim, **change))
    now = await joined(nursery, MemoryStore(space), replace(A, nonce=6), disk=disk)
    incarnation = max(disk.claim.incarnation, 6)
    expected = replace(A, incarnation=incarnation, generation=100 if drawn else 1, nonce=6)
    assert now.directory.me == now.directory.roster.members["a@x"] == expected
    assert now.directory.roster.known["a@x"] == known_record(expected)
    assert (now.disk.claim.generation, now.disk.claim.incarnation) == (expected.generation, expected.incarnation)


@pytest.mark.parametrize("copied", [False, True], ids=["the disk itself", "a copy of its last incarnation"])
async def test_a_copy_of_a_disk_from_before_its_node_was_stopped_gets_a_new_generation(
    space: MemorySpace, nursery: trio.Nursery, copied: bool
) -> None:
    ended = MemoryStore(space)
    before = await joined(nursery, ended, replace(A, incarnation=5))
    disk = Disk(before.disk.claim)
    if not copied:
        await disk.keep(before.directory.ending)
    await before.directory.end_incarnation()
    await before.until(lambda directory: directory.roster.known["a@x"].incarnation == 6)
    before.scope.cancel()
    await ended.aclose()
    now = await joined(nursery, MemoryStore(space), replace(A, nonce=7), disk=disk)
    assert now.directory.me.generation == (100 if copied else 1)
    assert now.directory.me.incarnation == 7


class Overtaken(MemoryStore):
    """A read of one key takes long, and finds what there is then."""

    def __init__(self, space: MemorySpace) -> None:
        super().__init__(space)
        self.key = ""
        self.reads, self.goes_on = trio.Event(), trio.Event()

    async def get(self, key: str) -> MetadataEntry | None:
        if key == self.key:
            self.key = ""
            self.reads.set()
            await self.goes_on.wait()
        return await super().get(key)


async def test_a_process_that_ends_while_its_lost_key_is_put_again_finds_nobody_in_its_place(
    space: MemorySpace, nursery: trio.Nursery
) -> None:
    store = Overtaken(space)
    member = await joined(nursery, store, A)
    store.key = known_key("a@x")
    await MemoryStore(space).transact([], [DeleteKey(member_key("a@x"))])
    await store.reads.wait()
    await member.directory.end_incarnation()
    store.goes_on.set()
    await trio.testing.wait_all_tasks_blocked()
    assert member.directory.roster.known["a@x"].incarnation == A.incarnation + 1


async def test_the_end_of_an_incarnation_is_put_also_when_another_record_got_ahead(
    space: MemorySpace, nursery: trio.Nursery
) -> None:
    class Ahead(MemoryStore):
        async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
            if ahead:
                await MemoryStore(space).transact([], [PutKey(*ahead.pop())])
            return await super().transact_all(transactions)

    ahead: list[tuple[str, str]] = []
    member = await joined(nursery, Ahead(space), A)
    ahead.append((known_key("a@x"), encode(known_record(A))))
    await member.directory.end_incarnation()
    assert member.directory.roster.known["a@x"].incarnation == A.incarnation + 1


async def test_generations_are_positive_and_differ() -> None:
    drawn = {directory.drawn_number() for _ in range(100)}
    assert len(drawn) == 100
    assert min(drawn) > 0
    assert max(drawn) < 1 << 63


# A store that does not answer, or loses a lease


@pytest.mark.parametrize("fate", ["answer lost", "lost"])
async def test_to_become_a_member_may_take_two_tries(space: MemorySpace, nursery: trio.Nursery, fate: str) -> None:
    store = Unsure(space)
    await store.transact([], [PutKey(known_key("a@x"), encode(KnownRecord("a@x", 5, 1)))])
    store.fates = [fate]
    member = await joined(nursery, store, A)
    assert member.directory.me.generation == 100
    assert member.directory.roster.members["a@x"] == member.directory.me


async def test_a_member_does_not_begin_without_its_store(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """It is asked for a minute, then a supervisor may try again."""
    store = Unsure(space)
    store.away = True
    with pytest.raises(NotYet, match="it does not answer; it was asked for 60 s") as ended:
        await joined(nursery, store, A)
    assert ended.value.exit_code == 75
    assert START_S <= trio.current_time() < START_S + 10


async def test_a_start_goes_on_when_its_store_answers_again(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    store = Unsure(space)
    store.away = True

    async def come_back() -> None:
        await trio.sleep(START_S / 2)
        store.away = False

    nursery.start_soon(come_back)
    with structlog.testing.capture_logs() as lines:
        member = await joined(nursery, store, A)
    assert member.directory.roster.members.keys() == {A.name}
    told = [line for line in lines if line["event"].startswith("the start waits for the metadata store")]
    assert all(line["reason"] == "it does not answer" for line in told)
    assert 3 < len(told) < 10, "repeated, and not each half second"


async def test_a_lost_lease_is_granted_again(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    store = Unsure(space)
    first = await joined(nursery, store, A)
    second = await joined(nursery, MemoryStore(space), B)
    await first.until(lambda it: len(it.roster.members) == 2)
    store.away = True
    entry = await store.get(member_key("a@x"))
    assert entry is not None
    store._end_leases({entry.lease})
    await second.until(lambda it: "a@x" not in it.roster.members)
    await trio.sleep(60)
    assert "a@x" not in second.directory.roster.members
    store.away = False
    await second.until(lambda it: "a@x" in it.roster.members)
    assert first.directory.me == second.directory.roster.members["a@x"] == A


async def test_a_key_that_is_put_again_with_a_lost_answer_is_there(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    store = Unsure(space)
    member = await joined(nursery, store, A)
    store.fates = ["done", "answer lost", "unavailable"]
    await store.transact([], [DeleteKey(member_key("a@x"))])
    await member.until(lambda it: len(member.told) == 3)
    await trio.sleep(10)
    assert dict(member.directory.roster.members) == {"a@x": A}


async def test_a_reader_that_is_too_far_behind_reads_again(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    store = Unsure(space)
    member = await joined(nursery, store, A)
    other = MemoryStore(space)
    gone = await joined(nursery, other, B)
    await member.until(lambda it: len(it.roster.members) == 2)
    record = await member.directory.swaps.swap(source_record(2))
    await member.until(lambda it: it.roster.records)
    operations: list[Operation] = [DeleteKey(source_key(2)), PutKey(source_key(1), encode(source_record()))]
    gone.scope.cancel()
    # What the log of this store has not told, it does not tell.
    space.histories.remove(store._history)
    await other.transact([], operations)
    await other.aclose()
    store.away = True
    store._history.reset(space.revision)
    await trio.sleep(5)
    it_has = len(member.directory.roster.members), member.directory.roster.records[2]
    assert it_has == (2, record), "what was heard last"
    store.away = False
    await member.until(lambda it: len(it.roster.members) == 1)
    assert list(member.directory.roster.records) == [1]
    assert member.told[-1] == Changed(frozenset({"b@x"}), frozenset(), frozenset({1, 2}))


async def test_an_exception_of_the_callback_ends_it(space: MemorySpace) -> None:
    def fail(changed: Changed) -> None:
        if changed.sources:
            raise ZeroDivisionError

    disk = Disk(Claim())
    tried = directory.Directory(MemoryStore(space), A, disk.claim, disk.keep, fail, draw=drawing())

    async def live() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(tried.run)
            await tried.swaps.swap(source_record())
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert caught.group_contains(ZeroDivisionError)


async def test_the_embedded_store_serves_one_process_alone(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Its members do not see each other: keys with a lease are in the process."""
    first, second = [await SqliteStore.open(tmp_path / "metadata.db", poll_s=0.01) for _ in range(2)]
    one, two = await joined(nursery, first, A), await joined(nursery, second, B)
    record = await one.directory.swaps.swap(source_record())
    await two.until(lambda it: it.roster.records)
    assert two.directory.roster.records[1] == record
    assert list(two.directory.roster.members) == ["b@x"]
    assert set(two.directory.roster.known) == {"a@x", "b@x"}
    nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        await first.aclose()
        await second.aclose()


async def test_a_desired_set_is_heard_of_by_all_and_goes_when_it_is_fulfilled(
    stores: Stores, nursery: trio.Nursery
) -> None:
    member = await joined(nursery, await stores(), A)
    desired_set = await member.directory.swaps.swap(DesiredSetRecord(3, ("a@x", "b@x"), "b@x"))
    assert desired_set is not None
    await member.until(lambda it: it.roster.desired_sets)
    assert dict(member.directory.roster.desired_sets) == {3: desired_set}
    assert await member.directory.swaps.swap(DesiredSetRecord(3)) is None, "another one is there"
    waiting = await member.directory.swaps.swap(replace(desired_set, reason="b@x does not live"))
    assert waiting is not None
    assert not await member.directory.swaps.drop(desired_set), "it is another one by now"
    assert await member.directory.swaps.drop(waiting)
    await member.until(lambda it: not it.roster.desired_sets)
    assert [change.desired_sets for change in member.told[1:]] == [{3}, {3}, {3}]
    assert await member.directory.swaps.drop(waiting), "it is gone, as was asked for"


# A process that was stopped


class Stopped(MemoryStore):
    """The process that uses it is stopped for so long while it waits for its next answer."""

    def __init__(self, space: MemorySpace, clock: trio.testing.MockClock) -> None:
        super().__init__(space)
        self.clock = clock
        self.stopped_s = 0.0

    async def get(self, key: str) -> MetadataEntry | None:
        stopped_s, self.stopped_s = self.stopped_s, 0.0
        self.clock.jump(stopped_s)
        return await super().get(key)


async def test_time_in_which_it_was_stopped_does_not_say_that_another_process_renews_its_lease(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    before = MemoryStore(space)
    lease = await before.grant_lease(LEASE_S)
    await before.transact([], [PutKey(member_key(A.name), encode(A), lease)])
    store = Stopped(space, autojump_clock)
    store.stopped_s = 2 * LEASES_WAITED * LEASE_S

    async def run_out() -> None:
        await trio.sleep(store.stopped_s + LEASE_S)
        await end_lease(before, lease)

    nursery.start_soon(run_out)
    member = await joined(
        nursery,
        store,
        replace(A, incarnation=A.incarnation + 1),
        disk=Disk(Claim(A.generation, A.incarnation, A.nonce)),
    )
    assert member.directory.me.generation == A.generation


async def test_a_lease_that_ran_out_while_it_was_stopped_is_said_with_its_setting(
    space: MemorySpace, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    with structlog.testing.capture_logs() as lines:
        await joined(nursery, MemoryStore(space), A)
        await trio.sleep(LEASE_S)
        assert lines == []
        autojump_clock.jump(10)
        await trio.sleep(LEASE_S)
    [line] = lines
    assert line["event"].startswith("this node's lease ran out: others may have taken it for gone")
    assert line["reason"].startswith("this process did not run")
    assert line["cluster_lease_s"] == LEASE_S
    assert 10 <= line["silent_s"] < 11


# Nodes that were forgotten


async def test_a_node_that_was_forgotten_is_refused_until_it_is_let_in_again(
    store: MetadataStore, nursery: trio.Nursery
) -> None:
    disk = await gone(store, A, nursery)
    await forget(store, A.name)
    claimed = disk.claim
    for _ in range(2):
        with pytest.raises(
            StartupError, match=f"amqpd cluster readmit {A.name} and start it; .* empty data directory"
        ):
            await joined(nursery, store, A, disk=disk)
    assert disk.claim == claimed, "nothing was claimed"
    roster = Roster()
    roster.load(await store.range(PREFIX))
    assert [(each.name, each.starts) for each in recent_starts(roster, 0)] == [(A.name, 2)], "the others are told"
    assert await store.get(member_key(A.name)) is None
    await readmit(store, A.name)
    member = await joined(nursery, store, A, disk=disk)
    assert member.directory.me.generation == claimed.generation
    with pytest.raises(MemberKept, match="no node a@x was forgotten"):
        await readmit(store, A.name)


class Noteless(MemoryStore):
    """What is asked of the note does not come, or fails if it is `told` why."""

    told = ""

    async def get(self, key: str) -> MetadataEntry | None:
        if key == forgotten_start_key(A.name) and self.told:
            raise StoreUnavailable(self.told)
        if key == forgotten_start_key(A.name):
            await trio.sleep_forever()
        return await super().get(key)


@pytest.mark.parametrize("told", ["etcd is away", ""])
async def test_a_store_that_goes_away_does_not_keep_up_the_end_of_a_node_that_was_forgotten(
    space: MemorySpace, nursery: trio.Nursery, told: str, autojump_clock: trio.testing.MockClock
) -> None:
    store = Noteless(space)
    store.told = told
    disk = await gone(store, A, nursery)
    await forget(store, A.name)
    refused = pytest.raises(StartupError, match="amqpd cluster readmit")
    with structlog.testing.capture_logs() as logs, trio.fail_after(directory.ASK_S + 1), refused:
        await joined(nursery, store, A, disk=disk)
    said = [each["reason"] for each in logs if each["event"].startswith("the other nodes are not told")]
    assert said == [told or "the metadata store does not answer"]


async def test_an_empty_disk_with_a_forgotten_name_is_a_new_member_also_when_its_first_start_was_killed(
    store: MetadataStore, nursery: trio.Nursery
) -> None:
    old = await gone(store, A, nursery)
    await forget(store, A.name)
    new = Disk(Claim(7, 1, 9))  # on the disk, and never put
    member = await joined(nursery, store, A, disk=new)
    assert member.directory.me.generation == 7
    member.scope.cancel()
    await end_lease(store, member.directory._lease)
    await forget(store, A.name)
    for disk in (old, new):
        with pytest.raises(StartupError, match="amqpd cluster readmit"):
            await joined(nursery, store, A, disk=disk)
    assert (await joined(nursery, store, A, disk=Disk(Claim()))).directory.me.generation not in (A.generation, 7)


async def test_a_node_that_is_forgotten_while_it_is_cut_off_from_the_store_ends(
    space: MemorySpace, autojump_clock: trio.testing.MockClock
) -> None:
    other = MemoryStore(space)

    async def cut_off_and_forgotten() -> None:
        async with trio.open_nursery() as nursery:
            store = Unsure(space)
            member = await joined(nursery, store, A)
            store.away = True
            await other.transact([], [DeleteKey(member_key(A.name))])
            await forget(other, A.name)
            store.away = False
            await member.until(lambda it: False)

    with pytest.raises(ExceptionGroup) as ended:
        await cut_off_and_forgotten()
    failure = find_failure(ended.value)
    assert isinstance(failure, NodeFailure)
    assert "out of the cluster (amqpd cluster forget)" in failure.sentence
    assert await other.get(forgotten_start_key(A.name)) is not None, "who is refused is said to the others"
    assert await other.get(known_key(A.name)) is None
