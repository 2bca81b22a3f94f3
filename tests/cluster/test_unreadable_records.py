"""One record of the store that nobody can read stops what it is about, and nothing else.

What is verified: a lie in each field of each kind of record, and text that is none, leave every other record as it
was and are named; a leader stops the source of such a record and goes on when it can be read again; a node puts its
own records again. Not verified here: records of the topology (`tests/topology/test_reading.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from amqpd.cluster.forgetting import MemberKept, forget
from amqpd.cluster.overview import sentences, unreadable_rows
from amqpd.cluster.records import (
    ClusterRecord,
    DesiredSetRecord,
    KnownRecord,
    encode,
    key_of,
    known_key,
    member_key,
    source_key,
)
from amqpd.cluster.roster import Roster
from amqpd.peers.entry import EPOCH_MAX, START, Vote
from amqpd.peers.messages import Ballot
from amqpd.replication.log import Log
from amqpd.replication.replica import Replica, Replicas
from amqpd.replication.take_over import Phase, SourceRecord, TakeOver
from amqpd.topology.metadata.store import DeleteKey, Event, MetadataEntry, PutKey, Snapshot
from tests.cluster.directories import joined, member_record, source_record
from tests.cluster.forwarders import World
from tests.topology.memory_store import MemorySpace, MemoryStore

LIES: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 1 << 62, (1 << 63) - 1, 1 << 64, "", "x" * 5000, "\x00", "9", [], [None], {}),
    *([{"name": "a", "generation": 1}] * 2, ["a", "a"], [["a"]], {"epoch": 1}, [[]] * 100),
)
TEXTS = ("", "no JSON", "[]", "null", "7", '"text"', "[" * 50_000, '{"a": NaN}', "\ufffd")
RECORDS: tuple[ClusterRecord, ...] = (
    member_record("a@x"),
    KnownRecord("a@x", 1, 1),
    source_record(7),
    DesiredSetRecord(7, ("a@x", "b@x"), "b@x"),
)
OTHERS: tuple[ClusterRecord, ...] = (
    member_record("b@x"),
    KnownRecord("b@x", 1, 1),
    source_record(8),
    DesiredSetRecord(8, ("a@x",)),
)


def lies(record: ClusterRecord) -> Iterator[str]:
    """Values that may be in the place of the record's: each field missing or another one, at each depth."""
    plain = json.loads(encode(record))
    for name in plain:
        yield json.dumps({key: value for key, value in plain.items() if key != name})
        for lie in LIES:
            yield json.dumps({**plain, name: lie})
    for name in plain.get("leader", {}) if isinstance(plain.get("leader"), dict) else ():
        for lie in LIES:
            yield json.dumps({**plain, "leader": {**plain["leader"], name: lie}})
    if isinstance(record, SourceRecord):
        for name in plain["members"][0]:
            for lie in LIES:
                yield json.dumps({**plain, "members": [{**plain["members"][0], name: lie}]})
    yield from TEXTS


def contents(roster: Roster) -> dict[str, Any]:
    return {name: getattr(roster, name) for name in ("members", "known", "records", "desired_sets")}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_lie_in_a_record_leaves_all_others_as_they_are(record: ClusterRecord) -> None:
    key = key_of(record)
    others = [MetadataEntry(key_of(each), encode(each), 1) for each in OTHERS]
    without = Roster()
    without.load(Snapshot(1, others))
    named = 0
    for value in lies(record):
        read, heard = Roster(), Roster()
        read.load(Snapshot(2, sorted([*others, MetadataEntry(key, value, 2)], key=lambda each: each.key)))
        heard.load(Snapshot(1, [*others, MetadataEntry(key, encode(record), 1)]))
        changed = heard.apply(Event(2, (PutKey(key, value),)))
        assert contents(read) == contents(heard)
        assert read.unreadable == heard.unreadable
        if read.unreadable:
            named += 1
            assert contents(read) == contents(without), value[:100]
            assert key in read.unreadable[key]
            assert len(read.unreadable[key]) < 300
            assert changed.unreadable == {key}
            assert encode(record) != value
        heard.apply(Event(3, (PutKey(key, encode(record)),)))
        assert not heard.unreadable
        heard.apply(Event(4, (PutKey(key, "x"),)))
        heard.apply(Event(5, (DeleteKey(key),)))
        assert not heard.unreadable
        assert contents(heard) == contents(without)
    assert named > len(LIES)


def test_what_cannot_be_read_is_said_in_a_sentence() -> None:
    roster = Roster()
    roster.load(Snapshot(1, [MetadataEntry(source_key(7), "x", 1), MetadataEntry(member_key("b@x"), "[]", 1)]))
    assert [(row["source"], row["key"]) for row in unreadable_rows(roster)] == [
        (None, "cluster/member/b@x"),
        (7, "cluster/source/7"),
    ]
    said = sentences(roster, [], now_ms=0)
    assert any("cluster/source/7" in each and "source 7 is stopped" in each for each in said)


def test_an_epoch_from_which_nobody_could_go_on_is_not_gone_on_from() -> None:
    record = source_record(1, epoch=EPOCH_MAX + 1)
    roster = Roster()
    roster.load(Snapshot(1, [MetadataEntry(source_key(1), encode(record), 1)]))
    assert "epoch" in roster.unreadable[source_key(1)]
    attempt = TakeOver("a@x", 1, Replicas([Replica(1, Log(START))]), source_record(1))
    attempt.begin()
    lie = Ballot(False, Vote((1 << 63) - 1, "z", 1), (0, 0), 2)
    assert attempt.would("b@x", lie) is None
    assert attempt.phase is Phase.ASKING
    assert "says that it has voted for epoch" in attempt.distrusted
    assert attempt.vote.epoch == 2


def test_a_leader_stops_the_source_and_leads_it_again_when_its_record_can_be_read() -> None:
    world = World()
    world.new_source(1, "a")
    world.new_source(2, "a")
    for machine in world.machines.values():
        machine.forwarder.record_unreadable(1, "the metadata's record cluster/source/1 cannot be read (x)")
    assert list(world["a"].forwarder.led_sources.sources) == [2]
    world.wait(10.0)
    assert [len(machine.forwarder.led_sources.sources) for machine in world.machines.values()] == [1, 0, 0]
    put = world.swap(world.records[1])
    assert put is not None
    world.wait(10.0)
    assert sum(1 in machine.forwarder.led_sources.sources for machine in world.machines.values()) == 1


@pytest.mark.trio
@pytest.mark.parametrize("value", ["no JSON", '{"incarnation": 9223372036854775807, "generation": 1}'])
async def test_a_node_starts_and_lives_whatever_its_own_records_say(value: str, nursery: trio.Nursery) -> None:
    space = MemorySpace()
    store = MemoryStore(space)
    await store.transact([], [PutKey(key, value) for key in (member_key("a@x"), known_key("a@x"))])
    member = await joined(nursery, store, member_record("a@x"))
    me = member.directory.me
    assert me.generation != 1, "it may be another disk than the one that is meant"

    async def told_of(key: str, times: int) -> None:
        await member.until(lambda _: sum(key in each.unreadable for each in member.told) == times)

    for key in (member_key("a@x"), known_key("a@x")):
        member.told.clear()
        await store.transact([], [PutKey(key, value)])
        await told_of(key, 2)
        assert not member.directory.roster.unreadable
        assert member.directory.roster.members["a@x"] == me


@pytest.mark.trio
async def test_a_swap_of_a_record_that_cannot_be_read_is_lost(nursery: trio.Nursery) -> None:
    store = MemoryStore(MemorySpace())
    member = await joined(nursery, store, member_record("a@x"))
    await store.transact([], [PutKey(source_key(1), "x")])
    assert await member.directory.swaps.swap(source_record()) is None


@pytest.mark.trio
async def test_who_may_be_in_a_set_that_cannot_be_read_is_not_forgotten() -> None:
    store = MemoryStore(MemorySpace())
    known = KnownRecord("b@x", 1, 1)
    await store.transact([], [PutKey(key_of(known), encode(known)), PutKey(source_key(1), "x")])
    with pytest.raises(MemberKept, match=r"cluster/source/1 cannot be read"):
        await forget(store, "b@x")
