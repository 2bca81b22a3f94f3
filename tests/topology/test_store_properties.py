"""Any sequence of calls: the memory store, two embedded stores on one file, and a plain dictionary agree."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    DeleteKey,
    Event,
    MetadataStore,
    MetadataTransaction,
    Operation,
    PutKey,
)
from tests.harness.etcd import EtcdProcess
from tests.topology.etcd_stores import etcd_stores, new_prefix
from tests.topology.etcd_stores import shared_etcd as shared_etcd
from tests.topology.memory_store import MemorySpace, MemoryStore

KEYS = st.sampled_from(["a", "a/b", "a/c", "b", "é"])


@dataclass(frozen=True)
class Commit:
    """A transaction before revisions and leases are known: `expected` says what it compares with."""

    store: int
    expected: tuple[tuple[str, str], ...]
    operations: tuple[tuple[str, str, str], ...]


EXPECTED = st.lists(st.tuples(KEYS, st.sampled_from(["absent", "present", "unchanged", "other"])), max_size=2)
OPERATIONS = st.lists(
    st.tuples(KEYS, st.sampled_from(["put", "leased", "delete"]), st.sampled_from("xyz")),
    max_size=3,
    unique_by=lambda operation: operation[0],
)
COMMITS = st.builds(Commit, st.integers(0, 1), EXPECTED.map(tuple), OPERATIONS.map(tuple))
# One step: transactions that one store takes together, or "the second store is closed and opened again".
STEPS = st.lists(st.lists(COMMITS, min_size=1, max_size=4) | st.none(), max_size=8)


@dataclass
class Model:
    """Keys of a lease are seen by their owner only, until somebody puts or deletes the key for good."""

    kept: dict[str, str] = field(default_factory=dict)
    leased: list[dict[str, str]] = field(default_factory=lambda: [{}, {}])

    def of(self, store: int) -> dict[str, str]:
        return {**self.kept, **self.leased[store]}

    def put(self, store: int, key: str, value: str) -> None:
        self.kept[key] = value
        for leased in self.leased:
            leased.pop(key, None)

    def lease(self, store: int, key: str, value: str) -> None:
        self.kept.pop(key, None)
        self.leased[store][key] = value

    def delete(self, store: int, key: str) -> None:
        if key in self.leased[store]:
            del self.leased[store][key]
        else:
            self.kept.pop(key, None)


class Run:
    """One implementation, driven by steps; `answers` is everything that it said, without revisions."""

    def __init__(self, stores: list[MetadataStore], leases: list[int]) -> None:
        self.stores = stores
        self.leases = leases
        self.answers: list[object] = []

    async def transact(self, store: int, commits: list[Commit]) -> None:
        entries = {entry.key: entry for entry in (await self.stores[store].range("")).entries}
        transactions = []
        for commit in commits:
            compares = []
            for key, expected in commit.expected:
                now = entries[key].mod_revision if key in entries else 0
                wanted = {"absent": 0, "present": None, "unchanged": now, "other": 2**80}[expected]
                compares.append(Compare(key, wanted))
            operations: list[Operation] = [
                DeleteKey(key) if kind == "delete" else PutKey(key, value, self.leases[store] * (kind == "leased"))
                for key, kind, value in commit.operations
            ]
            transactions.append(MetadataTransaction(tuple(compares), tuple(operations)))
        outcomes = await self.stores[store].transact_all(transactions)
        revisions = [outcome.revision for outcome in outcomes]
        assert revisions == sorted(revisions)
        self.answers.append([isinstance(outcome, Committed) for outcome in outcomes])
        for at in (0, 1):
            snapshot = await self.stores[at].range("")
            self.answers.append([(entry.key, entry.value, bool(entry.lease)) for entry in snapshot.entries])


def expected_answers(steps: list[list[Commit] | None]) -> list[object]:
    model, answers = Model(), []
    for step in steps:
        if step is None:
            model.leased[1].clear()
            continue
        store = step[0].store
        before, done = model.of(store), []
        touched: set[str] = set()
        for commit in step:
            now = model.of(store)
            holds = all(
                {
                    "absent": key not in now,
                    "present": key in now,
                    # A key that was absent is unchanged when it is absent again, whatever was there between.
                    "unchanged": (key in now and key not in touched) if key in before else key not in now,
                    "other": False,
                }[expected]
                for key, expected in commit.expected
            )
            done.append(holds)
            for key, kind, value in commit.operations if holds else ():
                if kind != "delete":
                    touched.add(key)
                {"put": model.put, "leased": model.lease}.get(kind, lambda *a: model.delete(*a[:2]))(
                    store, key, value
                )
        answers.append(done)
        for at in (0, 1):
            shown = model.of(at)
            answers.append([(key, shown[key], key in model.leased[at]) for key in sorted(shown)])
    return answers


async def run_sqlite(steps: list[list[Commit] | None], path: Path) -> list[object]:
    stores = [await SqliteStore.open(path, poll_s=3600) for _ in range(2)]
    run = Run(list(stores), [await store.grant_lease(10) for store in stores])
    watch, replayed, events = stores[0].watch(0), {}, []
    for step in steps:
        if step is None:
            await stores[1].aclose()
            stores[1] = await SqliteStore.open(path, poll_s=3600)
            run.stores[1], run.leases[1] = stores[1], await stores[1].grant_lease(10)
        else:
            await run.transact(step[0].store, step)
    # Replaying the watch from the beginning gives what the store holds.
    until = await stores[0].refresh()
    while (events[-1].revision if events else 0) < until:
        events.append(await anext(watch))
    assert [event.revision for event in events] == sorted({event.revision for event in events})
    for event in events:
        replay(event, replayed)
    assert replayed == {entry.key: entry.value for entry in (await stores[0].range("")).entries}
    for store in stores:
        await store.aclose()
    return run.answers


def replay(event: Event, onto: dict[str, str]) -> None:
    for operation in event.operations:
        if isinstance(operation, PutKey):
            onto[operation.key] = operation.value
        else:
            del onto[operation.key]


async def run_memory(steps: list[list[Commit] | None]) -> list[object]:
    store = MemoryStore(MemorySpace())
    run = Run([store, store], [await store.grant_lease(10)] * 2)
    watch, replayed, revision = store.watch(0), {}, 0
    for step in steps:
        assert step is not None
        await run.transact(0, step)
    while revision < await store.refresh():
        event = await anext(watch)
        revision = event.revision
        replay(event, replayed)
    assert replayed == {entry.key: entry.value for entry in (await store.range("")).entries}
    return run.answers


async def run_etcd(steps: list[list[Commit]], endpoint: str) -> list[object]:
    """As `run_memory`, on a key space of its own."""
    async with etcd_stores(endpoint, new_prefix()) as open_one:
        store = await open_one()
        run = Run([store, store], [await store.grant_lease(60)] * 2)
        watch, replayed, revision = store.watch(await store.refresh()), {}, 0
        for step in steps:
            await run.transact(0, step)
        last = await put_last(store)
        while revision < last:
            event = await anext(watch)
            revision = event.revision
            replay(event, replayed)
        assert replayed == {entry.key: entry.value for entry in (await store.range("")).entries}
        return run.answers


async def put_last(store: MetadataStore) -> int:
    return (await store.transact([], [PutKey("last", "")])).revision


@given(STEPS)
def test_two_embedded_stores_on_one_file_agree_with_a_dictionary(steps: list[list[Commit] | None]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        answers = trio.run(run_sqlite, steps, Path(directory) / "metadata.db")
    assert answers == expected_answers(steps)


@given(st.lists(st.lists(COMMITS, min_size=1, max_size=4), max_size=8))
def test_the_memory_store_agrees_with_a_dictionary_and_with_the_embedded_one(steps: list[list[Commit]]) -> None:
    alone = [[Commit(0, commit.expected, commit.operations) for commit in step] for step in steps]
    expected = expected_answers(list(alone))
    # Both of its "stores" are one, so both show the first one's keys.
    shown = [answer for at, answer in enumerate(expected) if at % 3 != 2]
    answers = trio.run(run_memory, list(alone))
    assert [answer for at, answer in enumerate(answers) if at % 3 != 2] == shown
    with tempfile.TemporaryDirectory() as directory:
        assert trio.run(run_sqlite, list(alone), Path(directory) / "metadata.db") == expected


# Each example is some hundred requests to a real etcd.
@settings(max_examples=10)
@given(st.lists(st.lists(COMMITS, min_size=1, max_size=4), max_size=8))
def test_the_store_in_etcd_agrees_with_a_dictionary(shared_etcd: EtcdProcess, steps: list[list[Commit]]) -> None:
    alone = [[Commit(0, commit.expected, commit.operations) for commit in step] for step in steps]
    expected = [answer for at, answer in enumerate(expected_answers(list(alone))) if at % 3 != 2]
    answers = trio.run(run_etcd, alone, shared_etcd.endpoint)
    assert [answer for at, answer in enumerate(answers) if at % 3 != 2] == expected


def test_the_model_tells_outcomes_apart() -> None:
    """The generator must reach both outcomes, else the properties above say nothing."""
    create = Commit(0, (("a", "absent"),), (("a", "put", "x"),))
    (done, *_) = expected_answers([[create, create]])
    assert done == [True, False]
    with pytest.raises(KeyError):
        expected_answers([[Commit(0, (("a", "no such expectation"),), ())]])
