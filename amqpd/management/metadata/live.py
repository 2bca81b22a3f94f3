"""The metadata of a running broker, for use cases inside of it.

What comes in: plans. What goes out: the changes, committed to the broker's own store and applied.
Rules: 1. A plan is made of what the node knows, and committed only if nobody else has written the same meanwhile:
other processes use the store too. 2. What is committed has been applied when `change` returns. 3. A store that is
full or busy, or does not answer, refuses; any other failure of it is the node's end.
Not here: what is changed (the use cases), the metadata of a data directory (`stored.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import trio

from amqpd.management import pacing
from amqpd.management.control.metadata_commands import store_refusals
from amqpd.management.errors import Conflict, Unavailable
from amqpd.management.metadata import transients
from amqpd.management.metadata.interface import OVERTAKEN, ROUNDS_MAX, ManagedMetadata, Plan, Planner
from amqpd.management.metadata.stored import (
    CHANGES_A_TRANSACTION,
    TRANSIENTS_A_COMMAND,
    sweep,
    topology_of,
    transact,
)
from amqpd.management.running import Running
from amqpd.topology.metadata.codec import PREFIX, encode_key
from amqpd.topology.metadata.store import MetadataStore, StoreBusy, StoreFull, StoreUnreached
from amqpd.topology.metadata.sync import TopologySync
from amqpd.topology.state import Topology
from amqpd.vocabulary.caller import Caller
from amqpd.vocabulary.records import Change, Delete, Key, Put, Record

# About a millisecond.
EXPECTED_AT_ONCE = 500


class LiveMetadata(ManagedMetadata):
    """The metadata of a running broker. `sync` keeps the node's topology equal to `store`, and is running."""

    def __init__(self, on: Running, store: MetadataStore, sync: TopologySync, by: Caller | None = None) -> None:
        """`by`: who asks for the changes, for the audit log."""
        self._by = by
        self._on = on
        self._store = store
        self._sync = sync

    def asked_by(self, user: str, address: str) -> LiveMetadata:
        return LiveMetadata(self._on, self._store, self._sync, Caller(user, address))

    async def read(self, *, whole: bool = False) -> Topology:
        return self._on.node.topology

    async def change(self, plan: Planner, *, whole: bool = False) -> None:
        topology = self._on.node.topology
        with store_refusals():
            for _ in range(ROUNDS_MAX):
                revisions = await self._revisions(plan(topology).changes)
                # From here on the topology has all that these revisions say, and whatever changes more is refused.
                await self._sync.refresh()
                planned = plan(topology)
                if await self._commit(planned, revisions):
                    return
        raise Conflict(OVERTAKEN)

    async def sweep(self) -> None:
        with store_refusals():
            await sweep(self._store)
            await self._sync.refresh()

    def aside(self) -> LiveMetadata:
        return AsideMetadata(self._on, self._store, self._sync, self._by)

    async def transients(self) -> list[Record] | None:
        pace, found = pacing.WalkPace(), []
        for record in transients.listed(self._on):
            await pace.step()
            found.append(record)
        return found

    async def change_transients(self, changes: Sequence[Change]) -> None:
        for first in range(0, len(changes), TRANSIENTS_A_COMMAND):
            await transients.change(self._on, changes[first : first + TRANSIENTS_A_COMMAND])

    @asynccontextmanager
    async def _expected(self, changes: Sequence[Change]) -> AsyncIterator[None]:
        """What takes effect of these meanwhile is the caller's doing."""
        done: list[Callable[[bool], None]] = []
        try:
            if self._by is not None:
                for at in range(0, len(changes), EXPECTED_AT_ONCE):
                    some = changes[at : at + EXPECTED_AT_ONCE]
                    done.append(self._on.node.acts.expect(some, self._by, lambda made: None))
                    await trio.lowlevel.checkpoint()
            yield
        finally:
            with trio.CancelScope(shield=True):
                for each in done:
                    each(True)
                    await trio.lowlevel.checkpoint()

    async def _revisions(self, changes: Sequence[Change]) -> dict[str, int]:
        """Of what would be written, as the store has it now; 0 for what it has not."""
        keys = [encode_key(each.record.key) for each in changes if isinstance(each, Put)]
        entries = [(key, await self._store.get(key)) for key in keys]
        return {key: 0 if entry is None else entry.mod_revision for key, entry in entries}

    async def _commit(self, planned: Plan, revisions: dict[str, int]) -> bool:
        changes = planned.changes
        if not all(encode_key(each.record.key) in revisions for each in changes if isinstance(each, Put)):
            return False
        return await self._commit_parts(planned, revisions)

    async def _commit_parts(self, planned: Plan, revisions: dict[str, int]) -> bool:
        """`revisions` are those of all that is put."""
        changes = planned.changes
        for first in range(0, len(changes), CHANGES_A_TRANSACTION):
            some = changes[first : first + CHANGES_A_TRANSACTION]
            async with self._expected(some):
                with _said_how_far(first, len(changes)):
                    if not await transact(self._store, some, planned.requires, revisions):
                        return False
                    # Whose doing it is is told when it is applied.
                    await self._sync.refresh()
        return True


class AsideMetadata(LiveMetadata):
    """Reads a copy of the store, and plans on that, in a thread: as long as it takes, the node goes on."""

    async def read(self, *, whole: bool = False) -> Topology:
        with store_refusals():
            return (await self._copy())[0]

    async def change(self, plan: Planner, *, whole: bool = False) -> None:
        with store_refusals():
            for _ in range(ROUNDS_MAX):
                topology, revisions = await self._copy()
                planned = await trio.to_thread.run_sync(_planned, plan, topology, revisions)
                await self._sync.refresh()
                planned = await _with_bindings(self._on.node.topology, planned)
                if await self._commit_parts(planned, revisions):
                    return
        raise Conflict(OVERTAKEN)

    async def _copy(self) -> tuple[Topology, dict[str, int]]:
        """What is not durable is in it: the node's own store has that, too."""
        snapshot = await self._store.range(PREFIX)
        return await trio.to_thread.run_sync(topology_of, snapshot)


def _planned(plan: Planner, topology: Topology, revisions: dict[str, int]) -> Plan:
    """In a thread. `revisions` has what is put then, too."""
    planned = plan(topology)
    for each in planned.changes:
        if isinstance(each, Put):
            revisions.setdefault(encode_key(each.record.key), 0)
    return planned


async def _with_bindings(topology: Topology, planned: Plan) -> Plan:
    """What was bound since the copy was made to an exchange or a queue that is removed goes along."""
    removed = await trio.to_thread.run_sync(lambda: [each for each in planned.changes if isinstance(each, Delete)])
    if not removed:
        return planned
    pace, late = pacing.WalkPace(), dict[Key, None]()
    gone = {each.key for each in removed}
    for key in gone:
        await pace.step()
        vhost = topology.vhosts.get(key[1])
        if vhost is not None and key[0] in ("queue", "exchange"):
            bound = vhost.bindings_to("queue" if key[0] == "queue" else "exchange", key[2])
            left = vhost.bindings_from(key[2]) if key[0] == "exchange" else ()
            late |= dict.fromkeys(binding.key for binding in (*bound, *left) if binding.key not in gone)
    return replace(planned, changes=[*map(Delete, late), *planned.changes])


@contextmanager
def _said_how_far(done: int, total: int) -> Iterator[None]:
    """Many changes are several transactions; those before the one that failed stay."""
    try:
        yield
    except (StoreBusy, StoreFull, StoreUnreached) as error:
        done += error.operations if isinstance(error, StoreUnreached) else 0
        if not done:
            raise
        so = f"{done:,} of {total:,} changes were made: ask for the same again when it is mended"
        raise Unavailable(f"{error}; {so}") from error
