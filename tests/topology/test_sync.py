"""The topology follows the store, and answers come after what they answer was applied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.security.authentication.passwords import verify_password
from amqpd.topology.metadata import sync as sync_module
from amqpd.topology.metadata.bootstrap import bootstrap
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import (
    Committed,
    DeleteKey,
    MetadataStore,
    MetadataStoreError,
    MetadataTransaction,
    Outcome,
    PutKey,
    StoreDamaged,
    StoreFull,
)
from amqpd.topology.metadata.sync import CHANGES_AT_ONCE, TopologySync, transaction_of
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    BindingRecord,
    Change,
    Delete,
    ExchangeRecord,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    UserRecord,
    VhostRecord,
)
from tests.topology.etcd_stores import etcd_stores, new_prefix
from tests.topology.etcd_stores import shared_etcd as shared_etcd
from tests.topology.memory_store import MemorySpace, MemoryStore
from tests.topology.samples import routed

pytestmark = pytest.mark.trio

QUEUE = QueueRecord("/", "q", 1)
HOST = Put(VhostRecord("/"))


class Node:
    """A topology kept by a `TopologySync`, and everything that it said, in order."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.topology = Topology()
        self.said: list[object] = []
        self.sync = TopologySync(store, self.topology, self.said.append)

    def submit(self, name: str, *changes: Change) -> None:
        self.sync.submit_nowait(changes, lambda done: self.said.append((name, done)))

    async def ask(self, *changes: Change, requires: Sequence[tuple[str, ...]] = ()) -> bool:
        answers: list[bool] = []
        answered = trio.Event()

        def resume(done: bool) -> None:
            answers.append(done)
            answered.set()

        self.sync.submit_nowait(changes, resume, requires)
        assert not answers
        await answered.wait()
        return answers[0]

    def queue(self, name: str) -> QueueRecord | None:
        return self.topology.vhosts["/"].queues.get(name)


@asynccontextmanager
async def running(store: MetadataStore) -> AsyncIterator[Node]:
    node = Node(store)
    await node.sync.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.sync.run)
        yield node
        nursery.cancel_scope.cancel()


async def write(store: MetadataStore, *changes: Change) -> None:
    made = transaction_of(changes)
    assert isinstance(await store.transact(made.compares, made.operations), Committed)


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    if request.param == "etcd":
        async with etcd_stores(request.getfixturevalue("shared_etcd").endpoint, new_prefix()) as open_one:
            store: MetadataStore = await open_one()
            await write(store, HOST)
            yield store
        return
    store = MemoryStore()
    if request.param == "sqlite":
        store = await SqliteStore.open(tmp_path / "metadata.db", poll_s=3600)
    await write(store, HOST)
    yield store
    await store.aclose()


async def test_start_loads_everything_in_one_batch_virtual_hosts_first(store: MetadataStore) -> None:
    binding = BindingRecord("/", "x", "q", "queue", "k")
    policy = PolicyRecord("/", "p", "q", "all", {"expires": 1})
    parameter = ParameterRecord("/", "vhost-limits", "limits", {"max-queues": 1})
    records = [QUEUE, policy, binding, ExchangeRecord("/", "x", "direct"), UserRecord("u"), parameter]
    await write(store, *map(Put, records))
    await store.transact([], [PutKey("system/other", "not a record")])
    node = Node(store)
    await node.sync.start()
    (batch,) = node.said
    assert isinstance(batch, list)
    assert [change.record.key[0] for change in batch] == [
        *("vhost", "user", "parameter", "policy", "exchange", "queue", "binding")
    ]
    assert routed(node.topology.vhosts["/"], "x", "k") == ("q",)


async def test_a_submission_is_applied_before_it_is_answered(store: MetadataStore) -> None:
    async with running(store) as node:
        node.said.clear()
        node.submit("declare", Put(QUEUE, create=True))
        await node.ask()
        assert node.said == [[Put(QUEUE)], ("declare", True)]
        assert node.queue("q") == QUEUE
        assert await store.get("topology/queue/%2F/q/") is not None


async def test_create_is_refused_when_the_key_is_there_and_the_topology_knows_it(
    store: MetadataStore,
) -> None:
    async with running(store) as node:
        node.submit("first", Put(QUEUE, create=True))
        node.submit("second", Put(QueueRecord("/", "q", 2), create=True), Put(UserRecord("no")))
        assert await node.ask(Put(QueueRecord("/", "q", 3), create=True)) is False
        assert node.said[-2:] == [("first", True), ("second", False)]
        assert node.queue("q") == QUEUE
        assert not node.topology.users


async def test_submissions_take_effect_in_their_order(store: MetadataStore) -> None:
    async with running(store) as node:
        for number in range(50):
            node.submit("delete", Delete(QUEUE.key))
            node.submit("declare", Put(QueueRecord("/", "q", number), create=True))
        assert await node.ask() is True
        assert [answer for answer in node.said if isinstance(answer, tuple)] == [
            ("delete", True),
            ("declare", True),
        ] * 50
        assert node.queue("q") == QueueRecord("/", "q", 49)


async def test_of_several_changes_of_one_key_the_last_counts(store: MetadataStore) -> None:
    async with running(store) as node:
        assert await node.ask(Put(QUEUE, create=True))
        newer = QueueRecord("/", "q", 2)
        assert await node.ask(Delete(QUEUE.key), Put(newer, create=True))
        assert node.queue("q") == newer
        assert await node.ask(Put(QUEUE), Delete(QUEUE.key))
        assert node.queue("q") is None


async def test_a_change_without_effect_is_answered(store: MetadataStore) -> None:
    async with running(store) as node:
        assert await node.ask(Delete(QUEUE.key)) is True
        assert await node.ask() is True


async def test_required_keys_must_be_there(store: MetadataStore) -> None:
    binding = Put(BindingRecord("/", "amq.direct", "q", "queue", "k"), create=True)
    async with running(store) as node:
        assert await node.ask(binding, requires=[QUEUE.key]) is False
        assert not list(node.topology.vhosts["/"].bindings())
        assert await node.ask(Put(QUEUE, create=True))
        assert await node.ask(binding, requires=[QUEUE.key]) is True


async def test_records_that_are_not_durable_end_with_the_node(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "metadata.db")
    await write(store, HOST)
    async with running(store) as node:
        assert await node.ask(Put(QUEUE), Put(QueueRecord("/", "transient", 2, durable=False)))
        assert set(node.topology.vhosts["/"].queues) == {"q", "transient"}
    await store.aclose()
    store = await SqliteStore.open(tmp_path / "metadata.db")
    async with running(store) as node:
        assert set(node.topology.vhosts["/"].queues) == {"q"}
    await store.aclose()


async def test_refresh_brings_what_another_process_changed(store: MetadataStore, tmp_path: Path) -> None:
    async with running(store) as node:
        other: MetadataStore = store
        if isinstance(store, SqliteStore):
            other = await SqliteStore.open(tmp_path / "metadata.db")
        await write(other, Put(UserRecord("u")))
        await node.sync.refresh()
        assert "u" in node.topology.users
        # A refusal, too, comes after what stood in its way, here without a refresh.
        await write(other, Put(QUEUE))
        assert await node.ask(Put(QueueRecord("/", "q", 2), create=True)) is False
        assert node.queue("q") == QUEUE
        if other is not store:
            await other.aclose()


class CountingStore(MemoryStore):
    """Knows how many transactions each commit had."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        self.commits.append(len(transactions))
        return await super().transact_all(transactions)


async def test_thousands_of_submissions_of_some_clients_delay_another_by_two_commits() -> None:
    store = CountingStore()
    await write(store, HOST)
    node = Node(store)
    await node.sync.start()
    greedy, before = [f"c{number}" for number in range(6)], len(store.commits)
    answered: dict[str, int] = {}

    def submit(owner: str, name: str) -> None:
        def resume(done: bool) -> None:
            assert done
            answered[name] = len(store.commits) - before

        node.sync.submit_nowait([Put(QueueRecord("/", name, len(answered)), create=True)], resume, (), owner)

    for number in range(2_047):
        for owner in greedy:
            submit(owner, f"{owner}.{number}")
    submit("victim", "v")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.sync.run)
        await node.sync.flush()
        nursery.cancel_scope.cancel()
    assert answered["v"] <= 2
    assert len(answered) == 6 * 2_047 + 1
    # And the others share what is left, in order, in full commits.
    for owner in greedy:
        turns = [answered[f"{owner}.{number}"] for number in range(2_047)]
        assert turns == sorted(turns)
    assert max(store.commits[before:-1]) == min(store.commits[before:-1]) == sync_module.TRANSACTIONS_A_COMMIT


async def test_deletions_go_first_but_not_before_what_they_delete() -> None:
    node = Node(MemoryStore())
    await node.sync.start()
    node.sync.submit_nowait([HOST], lambda _: None, (), "a")
    for number in range(200):
        node.sync.submit_nowait([Put(QueueRecord("/", f"q{number}", number))], lambda _: None, (), "a")
    node.submit("unknown", Delete(QueueRecord("/", "other", 1).key))
    node.submit("known", Delete(QueueRecord("/", "q150", 1).key))
    node.sync.submit_nowait([Put(QueueRecord("/", "q150", 7))], lambda _: None, (), "b")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.sync.run)
        await node.sync.flush()
        nursery.cancel_scope.cancel()
    assert ("unknown", True) in node.said
    assert len(node.topology.vhosts["/"].queues) == 200
    found = node.queue("q150")
    assert found is not None
    assert found.id == 7


async def test_what_cannot_be_stored_is_refused_at_once() -> None:
    node = Node(MemoryStore())
    await node.sync.start()
    deep: dict[str, object] = {}
    for _ in range(500):
        deep = {"a": deep}
    with pytest.raises(AMQPPreconditionFailed):
        node.submit("deep", Put(ExchangeRecord("/", "x", "direct", arguments=deep)))


class FaultyStore(MemoryStore):
    """Raises what is in `faults` instead of committing, one a call."""

    def __init__(self, *faults: Exception) -> None:
        super().__init__()
        self.faults = list(faults)

    async def transact_all(self, transactions: Sequence[MetadataTransaction]) -> list[Outcome]:
        if self.faults:
            await trio.lowlevel.checkpoint()
            raise self.faults.pop(0)
        return await super().transact_all(transactions)


async def test_a_full_disk_makes_submissions_wait(autojump_clock: trio.testing.MockClock) -> None:
    async with running(FaultyStore(StoreFull("full"), StoreFull("full"))) as node:
        node.submit("one", HOST)
        assert await node.ask(Put(QUEUE)) is True
        assert ("one", True) in node.said
        assert node.queue("q") == QUEUE


async def test_a_failed_store_raises_out_of_run_and_nothing_is_answered() -> None:
    node = Node(FaultyStore(MetadataStoreError("the disk is gone")))
    await node.sync.start()
    node.submit("one", HOST)
    with pytest.RaisesGroup(pytest.RaisesExc(MetadataStoreError, match="the disk is gone")):
        await node.sync.run()
    assert node.said == []


async def test_a_closed_store_raises_out_of_run() -> None:
    store = MemoryStore()
    node = Node(store)
    await node.sync.start()
    with pytest.RaisesGroup(MetadataStoreError, allow_unwrapped=False, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.sync.run)
            await trio.testing.wait_all_tasks_blocked()
            await store.aclose()


async def test_a_record_that_cannot_be_read_raises(store: MetadataStore) -> None:
    await store.transact([], [PutKey("topology/vhost/a/", "{")])
    with pytest.raises(StoreDamaged):
        await Node(store).sync.start()


async def test_a_node_that_fell_behind_reads_everything_anew(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path, poll_s=3600)
    other = await SqliteStore.open(path, history_revisions_max=2)
    binding = BindingRecord("/", "amq.direct", "q", "queue", "k")
    await write(store, HOST, Put(QUEUE), Put(UserRecord("old")), Put(binding), Put(UserRecord("kept")))
    policy, parameter = PolicyRecord("/", "p", "", "all", {"expires": 1}), ParameterRecord("", "", "name", "old")
    await write(store, Put(policy), Put(parameter), Put(ParameterRecord("/", "shovel", "gone", 1)))
    async with running(store) as node:
        transient = QueueRecord("/", "transient", 9, durable=False)
        assert await node.ask(Put(transient))
        for number in range(10):
            await write(other, Put(QueueRecord("/", f"q{number}", number)))
        await write(other, Delete(("user", "old")), Delete(binding.key), Put(QueueRecord("/", "q", 2)))
        renamed = ParameterRecord("", "", "name", "new")
        await write(other, Delete(policy.key), Put(renamed), Delete(("parameter", "/", "shovel", "gone")))
        node.said.clear()
        await node.sync.refresh()
        assert set(node.topology.vhosts["/"].queues) == {"q", "transient", *(f"q{n}" for n in range(10))}
        assert set(node.topology.users) == {"kept"}
        assert not list(node.topology.vhosts["/"].bindings())
        assert node.queue("q") == QueueRecord("/", "q", 2)
        assert node.topology.global_parameters == {("", "name"): renamed}
        assert (node.topology.vhosts["/"].parameters, node.topology.vhosts["/"].policies.records()) == ({}, [])
        (batch,) = node.said
        assert isinstance(batch, list)
        assert Put(transient) not in batch
        assert await node.ask(Put(QueueRecord("/", "after", 3), create=True))
    await store.aclose()
    await other.aclose()


async def test_everything_is_read_again_in_parts_between_which_others_run(tmp_path: Path) -> None:
    """With a hundred thousand queues the loop stood still for longer than a lease lives."""
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path, poll_s=3600)
    other = await SqliteStore.open(path, history_revisions_max=2)
    await write(store, HOST, *(Put(QueueRecord("/", f"old{number}", number)) for number in range(500)))
    async with running(store) as node:
        await write(other, *(Put(QueueRecord("/", f"new{number}", 500 + number)) for number in range(500)))
        for number in range(5):
            await write(
                other, *(Delete(("queue", "/", f"old{each}")) for each in range(100 * number, 100 * number + 100))
            )
        seen: set[int] = set()
        done = trio.Event()

        async def look() -> None:
            while not done.is_set():
                seen.add(len(node.topology.vhosts["/"].queues))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await node.sync.refresh()
            assert set(node.topology.vhosts["/"].queues) == {f"new{number}" for number in range(500)}
            done.set()
        assert len(seen & set(range(0, 501, CHANGES_AT_ONCE))) > 3
        assert all(isinstance(each, list) and len(each) <= CHANGES_AT_ONCE for each in node.said[1:])
    await store.aclose()
    await other.aclose()


async def test_bootstrap_happens_once_in_the_lifetime_of_a_store() -> None:
    space = MemorySpace()
    one, two = MemoryStore(space), MemoryStore(space)
    made: list[bool] = []

    async def first(store: MemoryStore) -> None:
        made.append(await bootstrap(store))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first, one)
        nursery.start_soon(first, two)
    assert sorted(made) == [False, True]
    async with running(one) as node:
        assert set(node.topology.vhosts) == {"/"}
        assert "amq.topic" in node.topology.vhosts["/"].exchanges
        guest = node.topology.users["guest"]
        assert guest.tags == ("administrator",)
        assert verify_password(guest.password_hash, b"guest")
        assert node.topology.permissions["/", "guest"] == PermissionRecord("guest", "/", ".*", ".*", ".*")
    await one.transact([], [DeleteKey("topology/user/guest/")])
    assert await bootstrap(two) is False
    assert await two.get("topology/user/guest/") is None


async def test_a_large_transaction_is_applied_in_parts_between_which_others_run(store: MetadataStore) -> None:
    """Five thousand bindings that go with one queue took 80 ms, and nobody was served meanwhile."""
    async with running(store) as node:
        seen: list[int] = []
        answered = trio.Event()

        async def look() -> None:
            while not answered.is_set():
                seen.append(len(node.topology.vhosts["/"].queues))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            queues = [Put(QueueRecord("/", f"q{number}", number), create=True) for number in range(1_000)]
            assert await node.ask(*queues)
            # The answer comes when all of it has taken effect.
            assert len(node.topology.vhosts["/"].queues) == 1_000
            answered.set()
        # Tasks that are ready run in any order, so not each part is seen.
        assert {CHANGES_AT_ONCE, 2 * CHANGES_AT_ONCE, 3 * CHANGES_AT_ONCE} & set(seen)
