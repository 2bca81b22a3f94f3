"""What the store of a cluster has of the topology and nobody can read stops no node.

What is verified: a lie in each field of each kind of record is read as something harmless, or left out and named; a
queue of which that is so keeps its name and is out of service; the topology that was read before stays.
Not verified here: the local store, whose file is damaged then (`test_store_damage.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges import Message
from amqpd.topology.metadata.codec import RECORDS, encode_key, encode_record
from amqpd.topology.metadata.reading import RecordReader
from amqpd.topology.metadata.store import DeleteKey, PutKey, StoreDamaged
from amqpd.topology.metadata.sync import TopologySync, transaction_of
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    BindingRecord,
    Change,
    ExchangeRecord,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    Record,
    TopicPermissionRecord,
    UnreadableQueue,
    UserRecord,
    VhostRecord,
)
from tests.topology.memory_store import MemorySpace, MemoryStore
from tests.topology.samples import routed_message

EACH: tuple[Record, ...] = (
    VhostRecord("/"),
    UserRecord("u", "hash", ("administrator",)),
    PermissionRecord("u", "/", ".*", ".*", ".*"),
    TopicPermissionRecord("u", "/", "e", ".*", ".*"),
    ParameterRecord("/", "c", "p", 1),
    PolicyRecord("/", "p", ".*", "all", {"max-length": 5}),
    PolicyRecord("/", "o", ".*", "queues", {"max-length": 5}, operator=True),
    *(ExchangeRecord("/", kind, kind) for kind in ("direct", "topic", "headers", "fanout", "x-consistent-hash")),
    QueueRecord("/", "q", 1, source=3),
    BindingRecord("/", "headers", "q", "queue", "k", arguments={"x-match": "all"}, arguments_key="1"),
    BindingRecord("/", "topic", "direct", "exchange", "k"),
    BindingRecord("/", "x-consistent-hash", "q", "queue", "1"),
)
LIES: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 257, 1 << 63, 1 << 200, "", "x" * 5000, "\x00\udcff", "*(", [], [None], {}),
    *({"$table": 1}, {"$float": "x"}, {"$datetime": "0"}, {"x-match": 5}, {"x-max-priority": -1}),
    *({"x-queue-type": 5}, {"max-length": "x"}, [{"$bytes": "?"}]),
)
TEXTS = ("", "no JSON", "[]", "null", "7", "{}", "[" * 50_000, '{"vhost": "/"}')


def lies(record: Record) -> Iterator[str]:
    plain = json.loads(encode_record(record))
    for name in plain:
        yield json.dumps({key: value for key, value in plain.items() if key != name})
        for lie in LIES:
            yield json.dumps({**plain, name: lie})
    yield json.dumps({**plain, "newer": 1})
    yield from TEXTS


def routes(topology: Topology) -> list[tuple[str, ...]]:
    vhost = topology.vhosts["/"]
    return [routed_message(vhost, name, Message(("1",), {"a": 1})) for name in list(vhost.exchanges)]


@pytest.mark.parametrize("record", EACH, ids=lambda record: "-".join(record.key)[:40])
def test_a_lie_in_a_record_is_harmless_or_named(record: Record) -> None:
    key, named, topology = encode_key(record.key), 0, Topology()
    topology.apply([Put(each) for each in EACH])
    for value in lies(record):
        reader = RecordReader(strict=False)
        read = reader.read(key, value)
        if reader.unreadable:
            named += 1
            assert key in reader.unreadable[key]
            assert len(reader.unreadable[key]) <= 403
            assert "hash" not in reader.unreadable[key].replace("consistent-hash", "").replace("password_hash", "")
        if read is not None:
            topology.apply([Put(read)])
            if "/" in topology.vhosts:
                routes(topology)
                topology.policy_of("queue", "/", "q")
        assert isinstance(read, UnreadableQueue) == (isinstance(record, QueueRecord) and bool(reader.unreadable))
    assert named > len(TEXTS)


@pytest.mark.parametrize(
    "key", ["topology/", "topology/else/a/", "topology/queue/a/", "topology/vhost/a/b/", "topology/%"]
)
def test_a_key_of_no_record_is_named(key: str) -> None:
    reader = RecordReader(strict=False)
    assert list(reader.changes_of([PutKey(key, "x"), DeleteKey(key)], lambda _: False)) == []
    with pytest.raises(StoreDamaged):
        RecordReader(strict=True).read(key, "x")


class Followed:
    """A topology over a store in memory that others write, too."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.topology = Topology()
        self.told: list[Change] = []
        self.sync = TopologySync(store, self.topology, self.told.extend, strict=False)

    async def put(self, *changes: PutKey | DeleteKey) -> None:
        await self.store.transact([], changes)
        await self.sync.refresh()


def as_put(record: Record, value: str = "") -> PutKey:
    return PutKey(encode_key(record.key), value or encode_record(record))


@pytest.mark.trio
async def test_a_node_starts_and_goes_on_whatever_a_record_says(nursery: Any) -> None:
    store = MemoryStore(MemorySpace())
    await store.transact([], transaction_of([Put(each) for each in EACH]).operations)
    queue, exchange = EACH[12], EACH[7]
    assert isinstance(queue, QueueRecord)
    assert isinstance(exchange, ExchangeRecord)
    salvaged = encode_record(queue).replace('"durable":true', '"durable":7')
    await store.transact([], [as_put(queue, salvaged), as_put(exchange, "x"), PutKey("topology/else/", "?")])
    followed = Followed(store)
    await followed.sync.start()
    stands_in = followed.topology.vhosts["/"].queues["q"]
    assert isinstance(stands_in, UnreadableQueue)
    assert (stands_in.id, stands_in.source) == (1, 3)
    assert exchange.name not in followed.topology.vhosts["/"].exchanges
    assert len(followed.sync.unreadable) == 3
    with pytest.raises(AMQPPreconditionFailed, match="cannot be read"):
        followed.sync.submit_nowait([Put(exchange, create=True)], lambda done: None)
    nursery.start_soon(followed.sync.run)
    await followed.put(as_put(exchange), as_put(queue), DeleteKey("topology/else/"))
    assert followed.topology.vhosts["/"].queues["q"] == queue
    assert exchange.name in followed.topology.vhosts["/"].exchanges
    assert followed.sync.unreadable == []
    # What was read before stays; what is new and cannot be read has its name.
    new = QueueRecord("/", "new", 9)
    await followed.put(*(PutKey(encode_key(each.key), "x") for each in [*EACH, new]))
    assert followed.topology.vhosts["/"].queues["q"] == queue
    assert isinstance(followed.topology.vhosts["/"].queues["new"], UnreadableQueue)
    assert len(followed.sync.unreadable) == len(EACH) + 1
    await followed.put(*(DeleteKey(encode_key(each.key)) for each in [*EACH, new]))
    assert not followed.topology.vhosts
    assert followed.sync.unreadable == []


@pytest.mark.trio
async def test_the_local_store_is_damaged_then() -> None:
    store = MemoryStore(MemorySpace())
    await store.transact([], [PutKey(encode_key(("vhost", "/")), "x")])
    sync = TopologySync(store, Topology(), lambda changes: None)
    with pytest.raises(StoreDamaged):
        await sync.start()


def test_kinds_are_all_here() -> None:
    assert {each.key[0] for each in EACH} == set(RECORDS)
