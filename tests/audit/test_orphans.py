"""What the log has of messages whose queue is unknown: they stand there until they are moved or deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from amqpd.journal.records import Row
from amqpd.management.control.commands import orphan_streams
from amqpd.management.damage.orphan_operations import OrphanOperations
from amqpd.node.orphans import Orphan
from amqpd.vocabulary.audit_levels import COUNTS, FULL, OFF
from amqpd.vocabulary.records import QueueRecord
from tests.audit.reading import told
from tests.audit.recorded import RecordedHarness

pytestmark = pytest.mark.trio


def read(harness: RecordedHarness) -> Any:
    class Reader:
        def read(self, queue_id: int, first_seq: int, last_seq: int, answer: Callable[[list[Row]], None]) -> None:
            answer([row for row in harness.rows[queue_id].values() if row.first_seq >= first_seq])

    return Reader()


def parked(harness: RecordedHarness, count: int = 3) -> Orphan:
    """A queue with messages was lost with the metadata."""
    client = harness.client()
    client.declare("q", durable=True)
    for _ in range(count):
        client.publish(b"x", "q", delivery_mode=2)
    harness.log_rows()
    harness.loses = lambda record: isinstance(record, QueueRecord)
    harness.restart()
    harness.loses = lambda record: False
    (orphan,) = harness.node.orphans
    return orphan


async def done(harness: RecordedHarness, act: str, **request: Any) -> None:
    operations = OrphanOperations(harness.node, read(harness), harness.step)
    (orphan,) = harness.node.orphans
    async for _ in orphan_streams(operations)[f"orphans {act}"]({"id": str(orphan.id), **request}):
        pass


OF_QUEUE = ("event", "reason", "vhost", "queue", "queue_id", "epoch", "first", "count")


async def test_they_stand_there_without_a_name_and_leave_as_moved() -> None:
    harness = RecordedHarness()
    orphan = parked(harness)
    assert told(harness.log_rows("standing"), *OF_QUEUE) == [
        ("standing", "recovered", None, None, orphan.id, 2, 3, 0),
        ("standing", None, None, None, orphan.id, 1, 0, 3),
    ]
    client = harness.client()
    client.declare("new", durable=True)
    harness.log_rows()
    new_id = harness.node.queues["/", "new"].record.id
    await done(harness, "adopt", queue="new")
    rows = harness.log_rows("published", "routed", "moved", "purged")
    moved = [row for row in rows if row["event"] == "moved"]
    assert told(moved, *OF_QUEUE) == [("moved", None, None, None, orphan.id, 1, at, 1) for at in range(3)]
    routed = [row for row in rows if row["event"] == "routed"]
    assert told(routed, "queue", "queue_id", "reason") == [("new", new_id, "moved")] * 3
    assert told(moved, "publication") == told(routed, "publication")
    harness.restart()
    assert orphan.id not in [row["queue_id"] for row in harness.log_rows("standing")]


async def test_what_is_deleted_is_purged_by_an_operator() -> None:
    harness = RecordedHarness()
    orphan = parked(harness)
    harness.log_rows()
    await done(harness, "delete", yes=True)
    rows = harness.log_rows("purged", "moved", "acked")
    assert told(rows, *OF_QUEUE) == [("purged", "operator", None, None, orphan.id, 1, 0, 3)]


async def test_what_an_operator_did_is_an_act() -> None:
    harness = RecordedHarness()
    orphan = parked(harness)
    harness.client().declare("new", durable=True)
    harness.acts()
    await done(harness, "export")
    await done(harness, "adopt", queue="new")
    acts = harness.acts()
    assert told(acts, "event", "user", "vhost", "object") == [
        ("orphan_exported", "rmq-cli", None, f"orphan {orphan.id}"),
        ("orphan_adopted", "rmq-cli", "/", f"orphan {orphan.id}"),
    ]
    about = {"count": 3, "left": 0, "stopped": None, "to_queue": "new", "to_vhost": "/"}
    assert json.loads(acts[1]["detail"]) == about


@pytest.mark.parametrize(("level", "vhosts", "recorded"), [(OFF, {"v": FULL}, True), (COUNTS, {"v": OFF}, False)])
async def test_whose_virtual_host_is_not_known_has_the_strongest_level(
    level: Any, vhosts: dict[str, Any], recorded: bool
) -> None:
    harness = RecordedHarness(level, **vhosts)
    orphan = parked(harness)
    assert (orphan.recorded_share > 0) is recorded
