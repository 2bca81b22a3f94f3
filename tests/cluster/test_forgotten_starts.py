"""A node that was forgotten and is started again: the others say so, for some time, in one sentence a name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amqpd.cluster.forgetting import forget, readmit
from amqpd.cluster.forgotten_starts import RECENT_S, forgotten_start_sentence, note_start, recent_starts
from amqpd.cluster.overview import problems, sentences
from amqpd.cluster.records import (
    PREFIX,
    ForgottenRecord,
    ForgottenStartRecord,
    KnownRecord,
    encode,
    forgotten_start_key,
    key_of,
    known_key,
)
from amqpd.cluster.roster import Roster
from amqpd.topology.metadata.store import DeleteKey, Event, PutKey
from tests.cluster.directories import member_record
from tests.topology.memory_store import MemorySpace, MemoryStore

pytestmark = pytest.mark.trio
C = replace(member_record("c@x"), host="::1", port=5680)


@pytest.fixture
def clock() -> list[int]:
    """What time it is, in seconds since the epoch."""
    return [1_000_000]


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore(MemorySpace())
    await store.transact([], [PutKey(known_key("c@x"), encode(KnownRecord("c@x", 3, 9)))])
    await forget(store, "c@x")
    return store


async def seen(store: MemoryStore) -> Roster:
    roster = Roster()
    roster.load(await store.range(PREFIX))
    return roster


async def test_every_node_says_who_asks_from_where_how_often_and_the_way_out(
    store: MemoryStore, clock: list[int]
) -> None:
    assert recent_starts(await seen(store), clock[0] * 1000) == []
    await note_start(store, C, clock[0] * 1000)
    [once] = recent_starts(await seen(store), clock[0] * 1000)
    assert forgotten_start_sentence(once) == (
        "node c@x at [::1]:5680 was taken out of the cluster (amqpd cluster forget), was started since, and is "
        "refused: end it there, or let it in as it is (amqpd cluster readmit c@x), or empty its data directory, "
        "which makes a new node of it"
    )
    for _ in range(2):
        clock[0] += 60
        await note_start(store, C, clock[0] * 1000)
    roster = await seen(store)
    [now] = recent_starts(roster, clock[0] * 1000)
    assert now == ForgottenStartRecord("c@x", "::1", 5680, 1_000_000_000, 1_000_120_000, 3)
    assert "was started 3 times since" in forgotten_start_sentence(now)
    assert f"{forgotten_start_sentence(now)}." in sentences(roster, [], now_ms=clock[0] * 1000)
    assert problems(roster, [], now_ms=clock[0] * 1000) == [f"{forgotten_start_sentence(now)}."]


async def test_it_is_said_for_some_time_after_the_last_start_and_counted_anew_then(
    store: MemoryStore, clock: list[int]
) -> None:
    await note_start(store, C, clock[0] * 1000)
    clock[0] += RECENT_S - 1
    assert recent_starts(await seen(store), clock[0] * 1000)
    clock[0] += 1
    assert not recent_starts(await seen(store), clock[0] * 1000)
    clock[0] += 1
    await note_start(store, C, clock[0] * 1000)
    assert [(each.since_ms, each.starts) for each in recent_starts(await seen(store), clock[0] * 1000)] == [
        (clock[0] * 1000, 1)
    ]


async def test_it_is_said_no_more_of_a_node_that_was_let_in_or_of_a_new_disk_of_its_name(
    store: MemoryStore, clock: list[int]
) -> None:
    await note_start(store, C, clock[0] * 1000)
    await store.transact([], [PutKey(known_key("c@x"), encode(KnownRecord("c@x", 1, 5)))])
    assert not recent_starts(await seen(store), clock[0] * 1000), "a new disk has the name"
    await forget(store, "c@x")
    assert await store.get(forgotten_start_key("c@x")) is None, "what the disk before asked is over"
    await note_start(store, C, clock[0] * 1000)
    await readmit(store, "c@x")
    assert await store.get(forgotten_start_key("c@x")) is None
    roster = Roster()
    roster.load(await store.range(PREFIX))
    assert not recent_starts(roster, clock[0] * 1000)


async def test_a_note_that_cannot_be_read_is_put_again(store: MemoryStore, clock: list[int]) -> None:
    await store.transact([], [PutKey(forgotten_start_key("c@x"), '{"host": 7}')])
    assert forgotten_start_key("c@x") in (await seen(store)).unreadable
    await note_start(store, C, clock[0] * 1000)
    assert [each.starts for each in recent_starts(await seen(store), clock[0] * 1000)] == [1]


async def test_a_roster_hears_of_each_start(store: MemoryStore, clock: list[int]) -> None:
    roster = Roster()
    note = ForgottenStartRecord("c@x", "10.0.0.3", 5680, 1, 1_000_000_000, 2)
    roster.load(await store.range(PREFIX))
    assert isinstance(roster.forgotten["c@x"], ForgottenRecord)
    changed = roster.apply(Event(roster.revision + 1, (PutKey(key_of(note), encode(note)),)))
    assert changed.forgotten_starts == {"c@x"}
    assert changed
    assert recent_starts(roster, clock[0] * 1000) == [note]
    changed = roster.apply(Event(roster.revision + 1, (DeleteKey(forgotten_start_key("c@x")),)))
    assert changed.forgotten_starts == {"c@x"}
    assert recent_starts(roster, clock[0] * 1000) == []
