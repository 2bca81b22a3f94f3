"""The event exchange is in the store after each start that wants it, and nothing else is changed."""

from __future__ import annotations

import pytest
import trio

from amqpd.topology.metadata.bootstrap import bootstrap, make_event_exchange
from amqpd.topology.metadata.codec import PREFIX
from amqpd.topology.metadata.reading import records_of
from amqpd.topology.metadata.sync import transaction_of
from amqpd.topology.plans import EVENT_EXCHANGE, PREDECLARED_EXCHANGES
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Delete, ExchangeRecord, Put, VhostRecord
from tests.topology.memory_store import MemorySpace, MemoryStore

pytestmark = pytest.mark.trio


async def topology_of(store: MemoryStore) -> Topology:
    topology = Topology()
    topology.apply([Put(record) for record in records_of(await store.range(PREFIX))])
    return topology


async def test_it_is_a_durable_internal_topic_exchange() -> None:
    store = MemoryStore(MemorySpace())
    assert await bootstrap(store, "/") is True
    state = (await topology_of(store)).vhosts["/"].exchanges[EVENT_EXCHANGE]
    assert state.record == ExchangeRecord("/", EVENT_EXCHANGE, "topic", durable=True, internal=True)


async def test_without_the_setting_there_is_none() -> None:
    store = MemoryStore(MemorySpace())
    await bootstrap(store)
    assert EVENT_EXCHANGE not in (await topology_of(store)).vhosts["/"].exchanges


async def test_a_later_start_makes_it_in_a_store_that_is_old() -> None:
    store = MemoryStore(MemorySpace())
    await bootstrap(store)
    assert await bootstrap(store, "/") is False
    assert EVENT_EXCHANGE in (await topology_of(store)).vhosts["/"].exchanges


async def test_a_virtual_host_that_is_missing_is_made_whole() -> None:
    store = MemoryStore(MemorySpace())
    await bootstrap(store, "ops")
    topology = await topology_of(store)
    assert len(topology.vhosts["ops"].exchanges) == len(PREDECLARED_EXCHANGES) + 1
    assert EVENT_EXCHANGE not in topology.vhosts["/"].exchanges


async def test_what_is_there_stays_as_it_is() -> None:
    store = MemoryStore(MemorySpace())
    kept = [Put(VhostRecord("/", "mine")), Put(ExchangeRecord("/", EVENT_EXCHANGE, "topic", arguments={"a": 1}))]
    await store.transact([], transaction_of(kept).operations)
    before = (await store.range(PREFIX)).revision
    await make_event_exchange(store, "/")
    after = await store.range(PREFIX)
    assert (after.revision, {record.key: record for record in records_of(after)}) == (
        before,
        {change.record.key: change.record for change in kept},
    )


async def test_of_two_nodes_that_start_at_once_one_makes_it() -> None:
    space = MemorySpace()
    one, two = MemoryStore(space), MemoryStore(space)
    await bootstrap(one)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_event_exchange, one, "ops")
        nursery.start_soon(make_event_exchange, two, "ops")
    assert EVENT_EXCHANGE in (await topology_of(two)).vhosts["ops"].exchanges


async def test_when_only_the_exchange_is_gone_the_next_start_makes_it_again() -> None:
    store = MemoryStore(MemorySpace())
    await bootstrap(store, "/")
    await store.transact([], transaction_of([Delete(("exchange", "/", EVENT_EXCHANGE))]).operations)
    await bootstrap(store, "/")
    assert EVENT_EXCHANGE in (await topology_of(store)).vhosts["/"].exchanges
