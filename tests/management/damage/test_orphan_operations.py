"""What an operator does with orphans, step by step: on disk, in the queue that adopts them, and after a crash."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest
import structlog.testing
from pamqp import commands

from amqpd.journal.records import Row
from amqpd.management.control.commands import orphan_streams
from amqpd.management.damage.orphan_operations import OrphanOperations
from amqpd.management.errors import Conflict, ManagementError
from amqpd.node.orphans import Orphan
from amqpd.vocabulary.journal_numbers import delayed_id
from amqpd.vocabulary.records import ExchangeRecord, QueueRecord
from tests.harness.harness import Client, Harness, publish_bytes

pytestmark = pytest.mark.trio


class Rig:
    """A node that has lost its queues, and the operations on it. The disk answers two rows at a time."""

    def __init__(self, count: int = 23, *, automatic: bool = True, **options: Any) -> None:
        self.harness = Harness()
        client: Client = self.harness.client()
        client.declare("q", durable=True, **options)
        for first in range(0, count, 5):
            numbers = range(first, min(count, first + 5))
            client.raw(b"".join(publish_bytes(b"%04d" % number, "q", delivery_mode=2) for number in numbers))
        self.lose()
        self.damaged: set[int] = set()
        """first numbers of rows"""
        self.before_answer: Callable[[], None] = lambda: None
        self.harness.automatic = automatic

    def lose(self) -> None:
        """The node dies, and its queues are forgotten."""
        self.harness.loses = lambda record: isinstance(record, QueueRecord)
        self.restart()
        self.harness.loses = lambda record: False

    def restart(self) -> None:
        self.harness.restart()
        self.operations = OrphanOperations(self.harness.node, self, self.run_effects)
        self.client = self.harness.client() if self.harness.automatic else None

    def run_effects(self) -> None:
        if self.harness.node.journal._forced:
            self.harness.step()
        else:
            self.harness.reads += self.harness.node.tick()

    def read(self, queue_id: int, first_seq: int, last_seq: int, answer: Callable[[list[Row]], None]) -> None:
        rows = self.harness.rows.get(queue_id, {})
        found = [row for first, row in sorted(rows.items()) if first <= last_seq and row.last_seq >= first_seq][:2]
        self.before_answer()
        answer([self.spoilt(row) if row.first_seq in self.damaged else row for row in found])

    def spoilt(self, row: Row) -> Row:
        reason = f"messages {row.first_seq}..{row.last_seq} are damaged"
        return Row(row.queue_id, row.first_seq, row.last_seq, b"\x00no publish", damage=reason)

    @property
    def orphan(self) -> Orphan:
        (orphan,) = self.harness.node.orphans
        return orphan

    async def do(self, act: str, **wanted: Any) -> list[dict[str, Any]]:
        wanted = {"id": str(self.orphan.id), **wanted} if len(self.harness.node.orphans) == 1 else wanted
        return [row async for page in orphan_streams(self.operations)[f"orphans {act}"](wanted) for row in page]

    def bodies(self, queue: str = "new") -> list[int]:
        """What is in the queue, in order; it is empty then."""
        assert self.client is not None
        self.client.consume(queue, tag=queue, no_ack=True)
        self.harness.step()
        return [int(body) for body in self.client.bodies()]


async def test_the_list_says_where_the_first_message_was_published() -> None:
    rig = Rig(3)
    (row,) = await rig.do("list")
    assert (row["messages"], row["bytes"], row["exchange"], row["routing_key"]) == (3, 12, "", "q")
    assert (row["id"], row["busy"], row["damage"], row["persistent"]) == (str(rig.orphan.id), "", None, True)
    rig.damaged = {0}
    assert (await rig.do("list"))[0]["damage"] == "messages 0..2 are damaged"


async def test_adopting_gives_all_back_in_order_behind_what_is_there() -> None:
    rig = Rig()
    assert rig.client is not None
    rig.client.declare("new", durable=True)
    rig.client.publish(b"9999", "new", delivery_mode=2)
    queue_id = rig.orphan.id
    with structlog.testing.capture_logs() as logged:
        done = (await rig.do("adopt", queue="new"))[-1]
    assert done == {"count": 23, "left": 0, "stopped": None}
    assert [(each["event"], each["count"], each["to_queue"]) for each in logged] == [
        ("orphan adopted by an operator", 23, "new")
    ]
    assert not rig.harness.node.orphans
    assert not rig.harness.rows.get(queue_id)
    rig.restart()
    assert not rig.harness.node.orphans
    assert rig.bodies() == [9999, *range(23)]


async def test_a_crash_at_any_commit_of_an_adoption_loses_and_doubles_nothing() -> None:
    """Each message is in the orphan or in the queue: adopted, killed, and adopted again, all come out once."""
    left: set[int] = set()
    for crash_at in range(8):
        rig = Rig()
        assert rig.client is not None
        rig.client.declare("new", durable=True)
        commits = 0
        commit = rig.harness.commit

        def counted(commit: Callable[[], None] = commit, crash_at: int = crash_at) -> None:
            nonlocal commits
            commits += 1
            if commits > crash_at:
                raise InterruptedError
            commit()

        rig.harness.commit = counted  # type: ignore[method-assign]
        # Each row is followed by a commit: the most that there may be.
        rig.run_effects = rig.harness.step  # type: ignore[method-assign]
        rig.operations = OrphanOperations(rig.harness.node, rig, rig.run_effects)
        finished = False
        try:
            await rig.do("adopt", queue="new")
            finished = True
        except InterruptedError:
            pass
        rig.harness.commit = commit  # type: ignore[method-assign]
        rig.restart()
        if not finished and rig.harness.node.orphans:
            left.add(rig.orphan.ready_count)
            await rig.do("adopt", queue="new")
        assert rig.bodies() == list(range(23)), f"killed at commit {crash_at}"
    assert left == {23, 18, 13, 8, 3}


async def test_a_queue_that_takes_no_more_leaves_the_rest_for_another_time() -> None:
    rig = Rig()
    assert rig.client is not None
    rig.client.declare("new", durable=True, arguments={"x-max-length": 8, "x-overflow": "reject-publish"})
    done = (await rig.do("adopt", queue="new"))[-1]
    assert (done["count"], done["left"]) == (8, 15)
    assert done["stopped"] == "the queue 'new' takes no more: make space in it, and adopt the rest"
    rig.restart()
    assert rig.orphan.ready_count == 15
    assert rig.client is not None
    rig.client.declare("more", durable=True)
    assert (await rig.do("adopt", queue="more"))[-1]["count"] == 15
    assert (rig.bodies(), rig.bodies("more")) == (list(range(8)), list(range(8, 23)))


async def test_a_priority_queue_comes_back_with_its_priorities() -> None:
    rig = Rig(0, arguments={"x-max-priority": 9})
    assert rig.client is not None
    rig.client.declare("q", durable=True, arguments={"x-max-priority": 9})
    for number in range(12):
        rig.client.publish(b"%d" % number, "q", delivery_mode=2, priority=number % 3)
    rig.lose()
    ids = rig.orphan.ids
    assert len(ids) == 3
    assert rig.client is not None
    rig.client.declare("new", durable=True, arguments={"x-max-priority": 9})
    assert (await rig.do("adopt", queue="new"))[-1]["count"] == 12
    assert not any(rig.harness.rows.get(queue_id) for queue_id in ids)
    assert rig.bodies() == [2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9]


async def test_adopting_stops_at_a_damaged_row() -> None:
    rig = Rig()
    assert rig.client is not None
    rig.client.declare("new", durable=True)
    rig.damaged = {10}
    done = (await rig.do("adopt", queue="new"))[-1]
    assert (done["count"], done["left"]) == (10, 13)
    assert done["stopped"].startswith(
        "messages 10..14 are damaged: the rest stays parked, and `amqpd orphans export`"
    )
    assert rig.orphan.busy == ""
    rig.restart()
    assert rig.orphan.ready_count == 13
    assert rig.bodies() == list(range(10))


async def test_an_export_has_all_that_can_be_read_and_changes_nothing() -> None:
    rig = Rig()
    rig.damaged = {10}
    rows = await rig.do("export")
    lines = "".join(row["text"] for row in rows[:-1]).splitlines()
    assert rows[-1] == {"count": 18, "damaged": 1, "missing": 5}
    found = [json.loads(line) for line in lines]
    assert [int(each["payload"]) for each in found if "payload" in each] == [*range(10), *range(15, 23)]
    assert (found[0]["id"], found[0]["exchange"], found[0]["routing_key"]) == (0, "", "q")
    assert (found[0]["properties"], found[0]["payload_encoding"]) == ({"delivery_mode": 2}, "string")
    (damaged,) = (each for each in found if "damage" in each)
    assert (damaged["damage"], damaged["ids"]) == ("messages 10..14 are damaged", [[10, 14]])
    assert b64decode(damaged["raw"]) == b"\x00no publish"
    assert rig.orphan.ready_count == 23


async def test_a_large_body_and_one_that_is_no_text_are_exported_whole() -> None:
    rig = Rig(0)
    assert rig.client is not None
    rig.client.declare("q", durable=True)
    large, binary = b"\xc3\xa4" * 200_000, bytes(range(256)) * 2_000
    for body in (large, binary):
        rig.client.publish(body, "q", delivery_mode=2, headers={"n": 1})
    rig.lose()
    rows = await rig.do("export")
    assert all(len(json.dumps(row)) < 256 << 10 for row in rows)
    found = [json.loads(line) for line in "".join(row.get("text", "") for row in rows).splitlines()]
    assert [each["payload_encoding"] for each in found] == ["string", "base64"]
    assert (found[0]["payload"].encode(), b64decode(found[1]["payload"])) == (large, binary)
    assert found[0]["properties"]["headers"] == {"n": 1}


async def test_deleting_needs_a_yes_and_is_durable() -> None:
    rig = Rig()
    queue_id = rig.orphan.id
    assert await rig.do("delete") == [{"count": 23}]
    assert rig.harness.rows[queue_id]
    assert await rig.do("delete", yes=True) == [{"count": 23}]
    assert not rig.harness.rows.get(queue_id)
    assert not rig.harness.node.orphans
    rig.restart()
    assert not rig.harness.node.orphans


async def test_what_cannot_be_done_is_one_sentence() -> None:
    rig = Rig()
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("adopt", {"id": "7"}, "there is no orphan 7: `amqpd orphans list`"),
        ("export", {"id": "x"}, "there is no orphan x"),
        ("delete", {"id": "", "yes": True}, "there is no orphan "),
        ("adopt", {"queue": "none"}, "there is no queue 'none' in virtual host '/': declare it first"),
        ("adopt", {"queue": "q", "vhost": "none"}, "there is no queue 'q' in virtual host 'none'"),
        ("adopt", {}, "say which queue"),
        ("adopt", {"delayed": True}, "is not what is left of the delayed messages of virtual host '/'"),
        ("adopt", {"delayed": True, "vhost": "none"}, "there is no virtual host 'none'"),
    ]
    for act, wanted, sentence in cases:
        with pytest.raises(ManagementError, match=sentence):
            await rig.do(act, **wanted)
    assert rig.orphan.ready_count == 23


async def test_delayed_messages_wait_again_when_there_is_an_exchange_for_them() -> None:
    rig = Rig(0)
    assert rig.client is not None
    later = commands.Exchange.Declare(
        exchange="later", durable=True, exchange_type="x-delayed-message", arguments={"x-delayed-type": "direct"}
    )
    rig.client.declare("q", durable=True)
    rig.client.call(later, commands.Exchange.DeclareOk)
    rig.client.publish(b"7", "new", exchange="later", delivery_mode=2, headers={"x-delay": 1_000})
    rig.client.publish(b"x", "q", delivery_mode=2)
    rig.harness.loses = lambda record: isinstance(record, QueueRecord | ExchangeRecord)
    rig.restart()
    rig.harness.loses = lambda record: False
    rig.harness.node.now_ms = 2_000
    wanted = {"id": str(delayed_id(Harness.identity.id, "/")), "delayed": True}
    with pytest.raises(Conflict, match="no exchange of the type x-delayed-message"):
        await rig.do("adopt", **wanted)
    assert rig.client is not None
    rig.client.call(later, commands.Exchange.DeclareOk)
    rig.client.declare("new", durable=True)
    rig.client.call(commands.Queue.Bind(queue="new", exchange="later", routing_key="new"), commands.Queue.BindOk)
    assert await rig.do("adopt", **wanted) == [{"count": 1, "left": 0, "stopped": None}]
    rig.harness.step()
    assert rig.bodies() == [7]
    assert [orphan.ready_count for orphan in rig.harness.node.orphans] == [1]


async def test_one_thing_at_a_time_is_done_with_an_orphan() -> None:
    rig = Rig()
    pages = orphan_streams(rig.operations)["orphans export"]({"id": str(rig.orphan.id)})
    await anext(pages)
    with pytest.raises(Conflict, match="is just being exported: try again"):
        await rig.do("delete", yes=True)
    assert (await rig.do("list"))[0]["busy"] == "exported"
    await pages.aclose()
    assert (await rig.do("delete", yes=True)) == [{"count": 23}]


async def test_nothing_is_adopted_while_memory_is_short() -> None:
    rig = Rig()
    assert rig.client is not None
    rig.client.declare("new", durable=True)
    rig.harness.node.alarms.put("memory", "watch", True, 0)
    done = (await rig.do("adopt", queue="new"))[-1]
    sentence = "the memory alarm is on: nothing is adopted until it is off"
    assert done == {"count": 0, "left": 23, "stopped": sentence}
    assert rig.orphan.ready_count == 23
    assert rig.orphan.busy == ""


async def test_a_row_that_is_no_messages_is_damage() -> None:
    rig = Rig()
    assert rig.client is not None
    rig.client.declare("new", durable=True)
    rig.harness.rows[rig.orphan.id][5].data = b"no frames"
    assert (await rig.do("export"))[-1] == {"count": 18, "damaged": 1, "missing": 5}
    done = (await rig.do("adopt", queue="new"))[-1]
    assert (done["count"], done["left"]) == (5, 18)
    assert done["stopped"].startswith(f"messages 5..9 of queue {rig.orphan.id} are not messages: ")
    assert "are not messages" in (await rig.do("list"))[0]["damage"]


async def test_a_row_that_is_missing_is_damage_and_does_not_end_the_node() -> None:
    rig = Rig()
    assert rig.client is not None
    rig.client.declare("new", durable=True)
    for first in (10, 20):
        del rig.harness.rows[rig.orphan.id][first]
    assert (await rig.do("export"))[-1] == {"count": 15, "damaged": 2, "missing": 8}
    done = (await rig.do("adopt", queue="new"))[-1]
    assert (done["count"], done["left"]) == (10, 13)
    assert done["stopped"].startswith(f"the row with message 10 of queue {rig.orphan.id} is missing in the journal:")
