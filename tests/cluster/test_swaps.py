"""Swaps of sources' records: together, one by one, and when the store does not say what it did."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio
import trio.testing

from amqpd.cluster import swaps
from amqpd.cluster.records import DesiredSetRecord, encode, source_key
from amqpd.cluster.swaps import SWAPS_AT_ONCE, Swaps
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import Compare, Operation, Outcome, PutKey, StoreUnavailable
from tests.cluster.directories import Unsure, source_record
from tests.topology.memory_store import MemorySpace, MemoryStore

pytestmark = pytest.mark.trio


@pytest.fixture
def space() -> MemorySpace:
    return MemorySpace()


@pytest.mark.parametrize(
    "fates", [["answer lost"], ["lost"], ["answer lost", "unavailable"], ["lost", "busy", "lost", "answer lost"]]
)
async def test_an_unknown_outcome_is_settled_by_a_second_swap(
    space: MemorySpace, autojump_clock: trio.testing.MockClock, fates: list[str]
) -> None:
    store = Unsure(space)
    tried = Swaps(store)
    store.fates, store.calls = list(fates), 0
    record = await tried.swap(source_record())
    assert record is not None
    assert record == await tried.read(1)
    assert store.calls == len(fates) + 1


@pytest.mark.parametrize("fates", [["answer lost"], ["lost"], ["lost", "busy", "answer lost"]])
async def test_a_desired_set_of_which_it_is_not_known_whether_it_went_has_gone_in_the_end(
    space: MemorySpace, autojump_clock: trio.testing.MockClock, fates: list[str]
) -> None:
    store = Unsure(space)
    tried = Swaps(store)
    desired_set = await tried.swap(DesiredSetRecord(1, ("a", "b")))
    assert desired_set is not None
    store.fates = list(fates)
    assert await tried.drop(desired_set)
    assert (await MemoryStore(space).range("")).entries == []


async def test_a_desired_set_that_was_changed_meanwhile_stays(space: MemorySpace) -> None:
    tried = Swaps(MemoryStore(space))
    desired_set = await tried.swap(DesiredSetRecord(1, ("a", "b")))
    assert desired_set is not None
    changed = await tried.swap(replace(desired_set, leader="b"))
    assert changed is not None
    assert not await tried.drop(desired_set)
    assert await tried.swap(replace(changed, leader="a")) is not None


async def test_a_swap_that_happened_and_was_swapped_away_is_lost(
    space: MemorySpace, autojump_clock: trio.testing.MockClock
) -> None:
    store, other = Unsure(space), MemoryStore(space)
    tried = Swaps(store)
    store.fates = ["answer lost"]
    swapped: list[object] = []

    async def swap() -> None:
        swapped.append(await tried.swap(source_record()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(swap)
        await trio.sleep(swaps.RETRY_S / 2)
        assert await tried.read(1) is not None
        await other.transact([], [PutKey(source_key(1), encode(source_record(leader="b@x", epoch=2)))])
    assert swapped == [None]


@pytest.mark.parametrize(
    ("fates", "words", "seconds"),
    [
        (["unavailable"], "^it does not answer$", 0),
        (["busy"], "^another process holds it$", 0),
        (["lost"] + ["unavailable"] * 100, "whether the record was put is not known$", swaps.SWAP_S),
        (["lost"] * 100, "whether the record was put is not known$", swaps.SWAP_S),
    ],
)
async def test_a_swap_ends_within_a_bound(
    space: MemorySpace,
    autojump_clock: trio.testing.MockClock,
    fates: list[str],
    words: str,
    seconds: float,
) -> None:
    store = Unsure(space)
    tried = Swaps(store)
    store.fates = fates
    began = trio.current_time()
    with pytest.raises(StoreUnavailable, match=words):
        await tried.swap(source_record())
    assert seconds - 1 <= trio.current_time() - began <= seconds


class Callers:
    """Each swaps one record, all at once; what came of it by source."""

    def __init__(self, tried: Swaps, records: list[SourceRecord]) -> None:
        self.tried = tried
        self.records = records
        self.outcomes: dict[int, SourceRecord | StoreUnavailable | None] = {}
        self.scopes = {record.source: trio.CancelScope() for record in records}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for record in self.records:
                nursery.start_soon(self._swap, record)
                # In this order.
                await trio.testing.wait_all_tasks_blocked()

    async def _swap(self, record: SourceRecord) -> None:
        with self.scopes[record.source]:
            try:
                self.outcomes[record.source] = await self.tried.swap(record)
            except StoreUnavailable as error:
                self.outcomes[record.source] = error


async def stored(space: MemorySpace) -> dict[int, SourceRecord | None]:
    reader = Swaps(MemoryStore(space))
    return {source: found for source in range(1, 201) if (found := await reader.read(source)) is not None}


class Held(Unsure):
    """The first transaction waits for `go`, and what comes meanwhile waits for that."""

    def __init__(self, space: MemorySpace) -> None:
        super().__init__(space)
        self.go = trio.Event()

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        await self.go.wait()
        return await super().transact(compares, operations)


async def run_held(store: Held, callers: Callers, cancelled: int = 0) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(callers.run)
        await trio.testing.wait_all_tasks_blocked(0.01)
        store.calls = 0
        if cancelled:
            callers.scopes[cancelled].cancel()
            await trio.testing.wait_all_tasks_blocked(0.01)
        store.go.set()


async def test_what_waits_goes_together(space: MemorySpace) -> None:
    store = Held(space)
    callers = Callers(Swaps(store), [source_record(source) for source in range(1, 200)])
    await run_held(store, callers)
    assert callers.outcomes == await stored(space)
    assert len(callers.outcomes) == 199
    assert store.calls == 1 + -(-198 // SWAPS_AT_ONCE)


async def test_of_those_that_go_together_only_the_one_that_was_late_is_refused(space: MemorySpace) -> None:
    store = Held(space)
    await MemoryStore(space).transact([], [PutKey(source_key(3), encode(source_record(3, "b@x")))])
    callers = Callers(Swaps(store), [source_record(source) for source in range(1, 6)])
    await run_held(store, callers)
    now = await stored(space)
    assert now[3] == replace(source_record(3, "b@x"), revision=1)
    assert callers.outcomes == {**now, 3: None}


async def test_two_swaps_of_one_source_do_not_go_together(space: MemorySpace) -> None:
    store = Held(space)
    tried = Swaps(store)
    outcomes: list[SourceRecord | None] = []

    async def swap(epoch: int) -> None:
        outcomes.append(await tried.swap(source_record(epoch=epoch)))

    async with trio.open_nursery() as nursery:
        for epoch in (1, 2, 3):
            nursery.start_soon(swap, epoch)
            await trio.testing.wait_all_tasks_blocked()
        store.go.set()
    assert outcomes == [(await stored(space))[1], None, None]


@pytest.mark.parametrize("cancelled", [1, 2, 5])
async def test_who_gives_up_leaves_the_others_to_the_next(space: MemorySpace, cancelled: int) -> None:
    store = Held(space)
    callers = Callers(Swaps(store), [source_record(source) for source in range(1, 6)])
    await run_held(store, callers, cancelled)
    now = await stored(space)
    assert callers.outcomes == now
    assert set(now) == {1, 2, 3, 4, 5} - {cancelled}


async def test_the_one_that_carries_out_the_others_may_give_up(
    space: MemorySpace, autojump_clock: trio.testing.MockClock
) -> None:
    """2 has carried out all others once, to an unknown end, when it is cancelled."""
    store = Held(space)
    store.fates = ["done", "answer lost", "done"]
    callers = Callers(Swaps(store), [source_record(source) for source in range(1, 6)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(callers.run)
        await trio.testing.wait_all_tasks_blocked(0.01)
        store.go.set()
        await trio.sleep(swaps.RETRY_S / 2)
        callers.scopes[2].cancel()
    now = await stored(space)
    assert set(now) == {1, 2, 3, 4, 5}
    assert callers.outcomes == {source: now[source] for source in (1, 3, 4, 5)}


@pytest.mark.parametrize(
    ("fates", "words"), [(["unavailable"], "^it does not answer$"), (["lost"] * 100, "is not known$")]
)
async def test_all_that_go_together_are_told_why_it_failed(
    space: MemorySpace, autojump_clock: trio.testing.MockClock, fates: list[str], words: str
) -> None:
    store = Held(space)
    store.fates = ["done", *fates]
    callers = Callers(Swaps(store), [source_record(source) for source in range(1, 6)])
    began = trio.current_time()
    await run_held(store, callers)
    assert trio.current_time() - began <= swaps.SWAP_S + 1
    assert callers.outcomes.pop(1) == (await stored(space))[1]
    assert [isinstance(failure, StoreUnavailable) for failure in callers.outcomes.values()] == [True] * 4
    assert all(re.search(words, str(failure)) for failure in callers.outcomes.values())
