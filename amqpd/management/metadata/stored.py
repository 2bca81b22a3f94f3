"""The metadata of a data directory, for processes other than the broker's: the command line.

What comes in: a data directory. What goes out: a `ManagedMetadata` on its store.
Rules: 1. The store is opened for each call and closed after it. 2. A broker that runs on the directory is only told
to look, when the changes are committed; without one they are made all the same. 3. What a node has on several
directories only one process writes: its broker, which is asked, or this one, with the lock of the directory that has
most, when most of them are there.
Not here: what is changed (the use cases), the metadata inside of a broker (`live.py`).
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import trio

from amqpd.datadir.disk_record import has_record, inside_of
from amqpd.datadir.lock import open_data_directory
from amqpd.errors import StartupError
from amqpd.management.control import socket as control
from amqpd.management.control.metadata_commands import RunningStore
from amqpd.management.errors import Conflict, ManagementError, Unavailable
from amqpd.management.metadata.interface import OVERTAKEN, ROUNDS_MAX, ManagedMetadata, Planner
from amqpd.topology.metadata.bootstrap import bootstrap
from amqpd.topology.metadata.codec import PREFIX, decode_record, encode_key, encode_record
from amqpd.topology.metadata.reading import RecordReader, records_of
from amqpd.topology.metadata.sqlite.glance import glance
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    DeleteKey,
    MetadataStore,
    MetadataStoreError,
    MetadataTransaction,
    Operation,
    Outcome,
    Snapshot,
    StoreDamaged,
)
from amqpd.topology.metadata.sync import transaction_of
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    BindingRecord,
    Change,
    ExchangeRecord,
    Key,
    ParameterRecord,
    PermissionRecord,
    Put,
    QueueRecord,
    Record,
    TopicPermissionRecord,
    UnreadableQueue,
    UserRecord,
    VhostRecord,
)

FILE_NAME = "metadata.db"
# A larger plan is cut here, at whatever stands there. A broker applies a transaction in parts, at some 15,000 changes
# a second.
CHANGES_A_TRANSACTION = 10_000
# A millisecond.
CHANGES_ENCODED_AT_ONCE = 100
# Of leftovers, in one transaction.
SWEPT_AT_ONCE = 100
# How long the running broker may take to look; it needs milliseconds.
REFRESH_TIMEOUT_S = 60.0
# A busy broker answers between two ticks.
ANSWER_TIMEOUT_S = 60.0
# Changes of transient things in one command of the control socket: at most this number, or this number of characters:
# its line holds 4 MiB.
TRANSIENTS_A_COMMAND = 500
CHARACTERS_A_COMMAND = 1 << 20


class Keys(Protocol):
    """The methods of a `MetadataStore` that changes are made with."""

    async def range(self, prefix: str) -> Snapshot: ...

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome: ...


OpenStore = Callable[[], AbstractAsyncContextManager[MetadataStore]]
OfUser = PermissionRecord | TopicPermissionRecord
PLACES = VhostRecord | UserRecord | ExchangeRecord | QueueRecord


class StoredMetadata(ManagedMetadata):
    """The metadata of a data directory, for a process other than the broker's. It blocks while it reads, writes
    and waits for the broker: such a process has nothing else to do."""

    def __init__(self, data_dir: Path, elsewhere: OpenStore | None = None) -> None:
        """`elsewhere`: opens the metadata store when it is not in the data directory."""
        self._data_dir = data_dir
        self._elsewhere = elsewhere

    async def read(self, *, whole: bool = False) -> Topology:
        live = await self._live(whole)
        async with self._opened() as store:
            return topology_of(await store.range(PREFIX), live, strict=self._elsewhere is None)[0]

    async def change(self, plan: Planner, *, whole: bool = False) -> None:
        live = await self._live(whole)
        async with self._opened() as store:
            await _commit(store, plan, live, strict=self._elsewhere is None)
        self._refresh()

    async def sweep(self) -> None:
        async with self._opened() as store:
            await sweep(store)
        self._refresh()

    async def transients(self) -> list[Record] | None:
        rows = control.rows(self._data_dir, "transients list", timeout_s=ANSWER_TIMEOUT_S)
        try:
            return None if rows is None else [decode_record(row["key"], row["record"]) for row in rows]
        except StoreDamaged as error:
            # A field table of 256 KiB and more is not listed.
            raise Unavailable(f"what is not durable in the running broker cannot be read: {error}") from None

    async def change_transients(self, changes: Sequence[Change]) -> None:
        for request in commands_of(changes):
            if control.call(self._data_dir, "transients change", request, ANSWER_TIMEOUT_S) is None:
                raise Unavailable("the broker ended during the import: transient things are missing")

    async def _live(self, wanted: bool) -> list[Record]:
        return (await self.transients() or []) if wanted else []

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Keys]:
        """Raises Unavailable, also for what fails inside."""
        data_dir = self._data_dir
        if self._elsewhere is not None:
            try:
                async with self._elsewhere() as store:
                    yield store
            except MetadataStoreError as error:
                raise Unavailable(str(error)) from error
            return
        if not (data_dir / FILE_NAME).exists():
            missing = "has no metadata.db" if data_dir.is_dir() else "does not exist"
            raise Unavailable(
                f"data directory {data_dir} {missing}: name the broker's with --data-dir, "
                f"or let the broker make it (amqpd serve --data-dir {data_dir}); if its definitions are in an etcd "
                "cluster, give this command the broker's settings too (amqpd --config FILE, AMQPD_CONFIG or "
                "AMQPD_CLUSTER_STORE)"
            )
        with ExitStack() as locked:
            if has_record(data_dir):
                running = RunningStore(data_dir)
                if running.answers():
                    yield running
                    return
                data_dir = _with_most(data_dir)
                try:
                    locked.enter_context(open_data_directory(data_dir))
                except StartupError as error:
                    raise Unavailable(str(error)) from error
            async with _embedded(data_dir / FILE_NAME) as embedded:
                yield embedded

    def _refresh(self) -> None:
        try:
            control.call(self._data_dir, "refresh", timeout_s=REFRESH_TIMEOUT_S)
        except ManagementError as error:
            raise Unavailable(f"it is stored, but the running broker did not take it over: {error}") from error


@asynccontextmanager
async def _embedded(path: Path) -> AsyncIterator[Keys]:
    """Raises Unavailable, also for what fails inside."""
    try:
        embedded = await SqliteStore.open(path)
        try:
            await bootstrap(embedded)
            yield embedded
        finally:
            await embedded.aclose()
    except MetadataStoreError as error:
        raise Unavailable(str(error)) from error


def _with_most(data_dir: Path) -> Path:
    """Of several directories of a stopped node the one that has all definitions. Raises Unavailable."""
    inside, listed = inside_of(data_dir)
    there = {each: seen for each in inside if (seen := glance(each / FILE_NAME)) is not None and seen.identity}
    if len(there) <= listed // 2:
        raise Unavailable(
            f"{len(there)} of the {listed} data directories of this node have its definitions, "
            f"{listed // 2 + 1} are needed: bring the others back, or start the broker"
        )
    return max(there, key=lambda each: (there[each].revision, -inside.index(each)))


async def sweep(store: Keys) -> None:
    """Delete what has no place any more (`leftovers`). Raises Conflict."""
    for _ in range(ROUNDS_MAX):
        snapshot = await store.range(PREFIX)
        left = list((await trio.to_thread.run_sync(_leftovers_in, snapshot)).items())
        done = True
        for first in range(0, len(left), SWEPT_AT_ONCE):
            some = left[first : first + SWEPT_AT_ONCE]
            # Not where its place has come back meanwhile: it may be somebody's new one.
            compares = [Compare(encode_key(place), 0) for place in dict.fromkeys(place for _, place in some)]
            outcome = await store.transact(compares, [DeleteKey(encode_key(key)) for key, _ in some])
            done = done and isinstance(outcome, Committed)
        if done:
            return
    raise Conflict(OVERTAKEN)


def _leftovers_in(snapshot: Snapshot) -> dict[Key, Key]:
    return leftovers(records_of(snapshot))


def leftovers(records: Iterable[Record]) -> dict[Key, Key]:
    """What belongs to a virtual host or a user, or binds an exchange or a queue, that is not among the records: its
    key, and that of what is not there."""
    records = list(records)
    there = {record.key for record in records if isinstance(record, PLACES)}
    found: dict[Key, Key] = {}
    for record in records:
        missing = next((key for key in _places(record) if key not in there), None)
        if missing is not None:
            found[record.key] = missing
    return found


def _places(record: Record) -> Iterator[Key]:
    if isinstance(record, VhostRecord | UserRecord) or (isinstance(record, ParameterRecord) and not record.vhost):
        return
    yield "vhost", record.vhost
    if isinstance(record, OfUser):
        yield "user", record.user
    if isinstance(record, BindingRecord):
        yield "exchange", record.vhost, record.source
        yield record.destination_type, record.vhost, record.destination


async def _commit(store: Keys, plan: Planner, live: Sequence[Record], *, strict: bool) -> None:
    for _ in range(ROUNDS_MAX):
        topology, revisions = topology_of(await store.range(PREFIX), live, strict=strict)
        planned = plan(topology)
        for some in _parts(planned.changes, CHARACTERS_A_COMMAND if isinstance(store, RunningStore) else None):
            if not await transact(store, some, planned.requires, revisions):
                break
        else:
            return
    raise Conflict(OVERTAKEN)


def _parts(changes: Sequence[Change], characters_max: int | None) -> Iterator[Sequence[Change]]:
    """Each of one transaction."""
    first = characters = 0
    for at, each in enumerate(changes):
        if characters_max is not None:
            characters += len(encode_record(each.record)) if isinstance(each, Put) else 0
        if at + 1 - first == CHANGES_A_TRANSACTION or characters >= (characters_max or math.inf):
            yield changes[first : at + 1]
            first, characters = at + 1, 0
    if first < len(changes):
        yield changes[first:]


async def transact(
    store: Keys, changes: Sequence[Change], requires: Iterable[Key], revisions: dict[str, int]
) -> bool:
    """Whether it was committed: what is written had these revisions still, and what is required was there."""
    encode = partial(_transaction, changes, requires, revisions)
    # Away from the loop when it is much: a broker may wait for it.
    wanted = await trio.to_thread.run_sync(encode) if len(changes) > CHANGES_ENCODED_AT_ONCE else encode()
    return isinstance(await store.transact(wanted.compares, wanted.operations), Committed)


def _transaction(
    changes: Sequence[Change], requires: Iterable[Key], revisions: dict[str, int]
) -> MetadataTransaction:
    wanted = transaction_of(changes, requires=requires)
    compares = {compare.key: compare for compare in wanted.compares}
    for each in changes:
        if isinstance(each, Put):
            key = encode_key(each.record.key)
            compares[key] = Compare(key, revisions.get(key, 0))
    return replace(wanted, compares=tuple(compares.values()))


def topology_of(
    snapshot: Snapshot, live: Sequence[Record] = (), *, strict: bool = False
) -> tuple[Topology, dict[str, int]]:
    """What is stored and what lives beside it, and the revisions of what is stored; of what a `RunningStore` tells
    without a value, that only. What cannot be read is left out,
    and logged; raises StoreDamaged if it is strict."""
    reader = RecordReader(strict=strict)
    told = Snapshot(snapshot.revision, [entry for entry in snapshot.entries if entry.value])
    stored = [each for each in reader.read_all(reader.in_order(told)) if not isinstance(each, UnreadableQueue)]
    topology = Topology()
    topology.apply([Put(record) for record in [*stored, *live]])
    return topology, {entry.key: entry.mod_revision for entry in snapshot.entries}


def commands_of(changes: Iterable[Change]) -> Iterator[dict[str, list[Any]]]:
    """The changes in their order, as the arguments of commands that fit in a line of the control socket each."""
    request: dict[str, list[Any]] = {"put": [], "delete": []}
    count = characters = 0
    for each in changes:
        if isinstance(each, Put):
            text = encode_record(each.record)
            request["put"].append({"key": encode_key(each.record.key), "record": text})
            characters += len(text)
        else:
            request["delete"].append(encode_key(each.key))
        count += 1
        if count == TRANSIENTS_A_COMMAND or characters >= CHARACTERS_A_COMMAND:
            yield request
            request = {"put": [], "delete": []}
            count = characters = 0
    if count:
        yield request
