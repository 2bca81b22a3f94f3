"""A transaction that is more than etcd takes at once: its parts, whose turns are between them, what is said of it.

Not verified: that parts are in the transaction's order (`test_store_etcd.py`).
"""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from amqpd.management.errors import Unavailable
from amqpd.management.metadata.live import _said_how_far
from amqpd.topology.metadata.codec import encode_key
from amqpd.topology.metadata.etcd.patience import EtcdPatience
from amqpd.topology.metadata.etcd.transactions import PART_NAMED_MAX, PART_OPERATIONS_MAX, parts_of
from amqpd.topology.metadata.store import (
    Committed,
    CompareFailed,
    MetadataTransaction,
    OutcomeUnknown,
    StoreUnavailable,
)
from amqpd.topology.metadata.sync import transaction_of
from amqpd.topology.metadata.tombstones import is_numbered
from amqpd.vocabulary.records import BindingRecord, Change, ExchangeRecord, Key, Put, QueueRecord, VhostRecord
from tests.harness.etcd import EtcdProcess
from tests.topology.etcd_stores import etcd_stores, new_prefix
from tests.topology.etcd_stores import shared_etcd as shared_etcd
from tests.topology.test_store import values

EXCHANGE = ExchangeRecord("/", "x", "direct")
QUEUES = [QueueRecord("/", f"q{number}", number) for number in range(200)]
BINDINGS = [BindingRecord("/", "x", queue.name, "queue", "k") for queue in QUEUES]
THERE: list[Change] = [Put(VhostRecord("/")), Put(EXCHANGE), *map(Put, QUEUES)]
BOUND: list[Change] = [Put(each, create=True) for each in BINDINGS]
ENDS: list[Key] = [("vhost", "/"), EXCHANGE.key, *(queue.key for queue in QUEUES)]


def test_what_is_bound_is_compared_where_it_is_bound() -> None:
    wanted = transaction_of(BOUND, requires=ENDS)
    parts = list(parts_of(wanted))
    assert [each for part in parts for each in part.operations] == list(wanted.operations)
    ends = {encode_key(binding.key): encode_key(queue.key) for binding, queue in zip(BINDINGS, QUEUES, strict=True)}
    for part in parts:
        compared = {compare.key for compare in part.compares}
        assert len(compared) <= PART_NAMED_MAX
        assert compared >= {ends[each.key] for each in part.operations} | {encode_key(EXCHANGE.key)}


NAMES = st.integers(0, 300).map(str)


@given(st.lists(NAMES, unique=True), st.lists(NAMES, unique=True), st.sampled_from(["queue", "binding", "k"]))
def test_any_transaction_is_whole_in_its_parts(put: list[str], required: list[str], kind: str) -> None:
    def record(name: str) -> QueueRecord | BindingRecord | ExchangeRecord:
        if kind == "queue":
            return QueueRecord("/", name, 1)
        return (
            BindingRecord("/", "x", name, "queue", "k") if kind == "binding" else ExchangeRecord("/", name, "fanout")
        )

    changes = [Put(record(name), create=bool(int(name) % 2)) for name in put]
    wanted = transaction_of(changes, requires=[("queue", "/", name) for name in required])
    parts = list(parts_of(wanted))
    assert [each for part in parts for each in part.operations] == list(wanted.operations)
    assert {each for part in parts for each in part.compares} == set(wanted.compares)
    for part in parts:
        named = {each.key for each in (*part.operations, *part.compares)}
        assert len(part.operations) <= PART_OPERATIONS_MAX
        assert len(named) + sum(is_numbered(each.key) for each in part.operations) <= PART_NAMED_MAX
    if len({each.key for each in (*wanted.operations, *wanted.compares)}) <= PART_OPERATIONS_MAX:
        assert len(parts) == 1


@pytest.mark.trio
async def test_bindings_of_very_many_queues_that_are_there_are_put(shared_etcd: EtcdProcess) -> None:
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        store = await open_one()
        there = transaction_of(THERE)
        await store.transact(there.compares, there.operations)
        bound = transaction_of(BOUND, requires=ENDS)
        assert isinstance(await store.transact(bound.compares, bound.operations), Committed)
        assert len(await values(store)) == len(THERE) + len(BOUND)
        assert isinstance(await store.transact(bound.compares, bound.operations), CompareFailed)
        lacking = transaction_of([], requires=[*ENDS, ("queue", "/", "none")])
        assert isinstance(await store.transact(lacking.compares, ()), CompareFailed)


@pytest.mark.trio
async def test_others_have_their_turns_between_the_parts(
    shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        store = await open_one()
        execute, parts, answered_after = store._execute_part, [0], list[int]()

        async def ask() -> None:
            await store.get("a")
            answered_after.append(parts[0])

        async def executed(part: MetadataTransaction, patience: EtcdPatience) -> Committed | CompareFailed:
            parts[0] += 1
            if parts[0] == 1:
                nursery.start_soon(ask)
                while not store._order.statistics().tasks_waiting:
                    await trio.lowlevel.checkpoint()
            return await execute(part, patience)

        monkeypatch.setattr(store, "_execute_part", executed)
        wanted = transaction_of(THERE)
        await store.transact(wanted.compares, wanted.operations)
        assert answered_after == [1]
        assert parts[0] > 3


@pytest.mark.trio
async def test_what_was_done_of_a_large_one_is_said(
    shared_etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with etcd_stores(shared_etcd.endpoint, new_prefix()) as open_one:
        store = await open_one()
        execute, wanted = store._execute_part, transaction_of(BOUND)

        async def executed(part: MetadataTransaction, patience: EtcdPatience) -> Committed | CompareFailed:
            if BINDINGS[-1].key[4] in {each.key.split("/")[5] for each in part.operations}:
                raise StoreUnavailable("etcd is away")
            return await execute(part, patience)

        monkeypatch.setattr(store, "_execute_part", executed)
        with pytest.raises(OutcomeUnknown, match="etcd is away; a part of a large change is done") as raised:
            await store.transact(wanted.compares, wanted.operations)
        assert raised.value.operations == 180
        said = "180 of 200 changes were made: ask for the same again"
        with pytest.raises(Unavailable, match=said), _said_how_far(0, len(BOUND)):
            raise raised.value
        assert len(await values(store)) == 180
