"""Nodes that share a store make no queue more than a virtual host's limit allows, and as many as it allows.

What is verified: declarations on several nodes at once, none of which has heard of the others yet; far from the
limit nothing is compared. Not verified here: what a client is told (`tests/flow/test_limits.py`).
"""

from __future__ import annotations

import pytest
import trio
import trio.testing

from amqpd.topology.metadata.queue_limits import NEAR, QueueLimits
from amqpd.topology.metadata.store import PutKey
from amqpd.topology.metadata.sync import TopologySync, transaction_of
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Change, ParameterRecord, Put, QueueRecord, VhostRecord
from tests.topology.memory_store import MemorySpace, MemoryStore

LIMIT, EACH = 20, 15


def limited(limit: int) -> list[Change]:
    return [Put(VhostRecord("/")), Put(ParameterRecord("/", "vhost-limits", "limits", {"max-queues": limit}))]


class Declaring:
    """A node: it counts, declares, and counts again when it is told to look again."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self.name = name
        self.topology = Topology()
        self.sync = TopologySync(store, self.topology, lambda changes: None, strict=False)
        self.made = self.refused = self.looks = self.on_the_way = 0

    def declare(self, number: int) -> None:
        self.looks += 1
        if len(self.topology.vhosts["/"].queues) + self.on_the_way >= LIMIT:
            self.refused += 1
            return
        self.on_the_way += 1
        record = QueueRecord("/", f"{self.name}{number}", number)
        self.sync.submit_nowait([Put(record, create=True)], lambda made: self.answered(number, made))

    def answered(self, number: int, made: bool) -> None:
        self.on_the_way -= 1
        if made:
            self.made += 1
        else:
            self.declare(number)


@pytest.mark.trio
async def test_all_nodes_together_make_exactly_as_many_as_there_may_be(nursery: trio.Nursery) -> None:
    space = MemorySpace()
    nodes = [Declaring(MemoryStore(space), name) for name in "abc"]
    await nodes[0].sync._store.transact([], transaction_of(limited(LIMIT)).operations)
    for node in nodes:
        await node.sync.start()
        nursery.start_soon(node.sync.run)
    for number in range(EACH):
        for node in nodes:
            node.declare(number)
    while sum(node.made + node.refused for node in nodes) < len(nodes) * EACH:
        await trio.testing.wait_all_tasks_blocked()
    for node in nodes:
        await node.sync.refresh()
        assert len(node.topology.vhosts["/"].queues) == LIMIT
    assert sum(node.made for node in nodes) == LIMIT
    assert max(node.looks for node in nodes) < 20 * EACH, "those that wait do not conflict with each other"


def test_far_from_the_limit_nothing_is_compared() -> None:
    topology = Topology()
    topology.apply(limited(NEAR + 2))
    limits = QueueLimits(topology)

    def guarded(*changes: Change) -> tuple[int, int]:
        found = limits.guarded(changes, transaction_of(changes), lambda made: None)
        assert found is not None
        keys = [each.key for each in found[0].operations if isinstance(each, PutKey)]
        return len(found[0].compares), sum(key.startswith("limits/") for key in keys)

    create = Put(QueueRecord("/", "q", 1), create=True)
    assert guarded(create) == (1, 1)
    assert guarded(Put(QueueRecord("/", "q", 1))) == (0, 0), "it is there already"
    assert guarded(Put(VhostRecord("v"), create=True)) == (1, 0)
    topology.apply([Put(QueueRecord("/", f"q{number}", number)) for number in range(2)])
    assert guarded(create) == (2, 1)
    topology.apply(limited(-1))
    assert guarded(create) == (1, 0)
