"""What commands delete leaves the journal's numbers behind, as what clients delete does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.sync import transaction_of
from amqpd.vocabulary.journal_numbers import vhost_number
from amqpd.vocabulary.records import Change, Put, QueueRecord


def dropped(data_dir: Path, changes: Sequence[Change] = ()) -> frozenset[int]:
    """After the changes."""

    async def look() -> frozenset[int]:
        store = await SqliteStore.open(data_dir / "metadata.db")
        await store.transact([], transaction_of(changes).operations)
        found = await store.dropped_queues()
        await store.aclose()
        return found

    return trio.run(look)


def test_a_virtual_host_s_queues_are_recorded_as_deleted(data_dir: Path, ok: Callable[..., str]) -> None:
    ok("vhost", "add", "orders")
    queues = [Put(QueueRecord(vhost, "q", number)) for number, vhost in ((5, "/"), (6, "orders"))]
    assert dropped(data_dir, queues) == frozenset()
    ok("vhost", "delete", "orders")
    assert dropped(data_dir) == {6, vhost_number("orders")}
