"""Looking at messages, deleting and moving them, step by step: what happens in between, on disk and in the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest
import structlog.testing

from amqpd.journal.records import Row
from amqpd.management.control.commands import message_streams
from amqpd.management.errors import BadArgument, ManagementError, Unavailable
from amqpd.management.messages.operations import MessageOperations
from amqpd.management.messages.requests import MessagesRequest
from amqpd.management.operators import Operator
from amqpd.queues.backlog import Backlog
from amqpd.queues.browsing import EVERY
from amqpd.queues.contents import Condition
from amqpd.queues.paging import MISSING
from amqpd.queues.queue import Queue
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, publish_bytes

pytestmark = pytest.mark.trio
SMALL = Limits(queue_memory_bytes=2000, backlog_memory_bytes=2000, small_queue_bytes=500)
OLD = {"tenant": "old"}


class OperatedNode:
    """A node with the queues `q` and `other`, and an operator. `before_answer` runs before a read is answered."""

    def __init__(self) -> None:
        self.harness = Harness(SMALL)
        self.client: Client = self.harness.client()
        for name in ("q", "other"):
            self.client.declare(name, durable=True)
        self.reads = 0
        self.before_answer: Callable[[], None] = lambda: None
        self.messages = MessageOperations(self.harness.node, self, self.run_effects)

    def run_effects(self) -> None:
        """A tick. The journal commits when somebody waits for it: the later, the more goes into one transaction."""
        if self.harness.node.journal._forced:
            self.harness.step()
        else:
            self.harness.reads += self.harness.node.tick()

    def queue(self, name: str = "q") -> Queue:
        return self.harness.node.queues["/", name]

    def fill(self, count: int, old: Sequence[int] = range(5, 1000, 10)) -> OperatedNode:
        """Some have the header; five are a row, and all that can be is on disk only."""
        for first in range(0, count, 5):
            frames = b""
            for number in range(first, first + 5):
                headers = {"headers": OLD} if number in old else {}
                frames += publish_bytes(b"%04d" % number, "q", delivery_mode=2, **headers)
            self.client.raw(frames)
        backlog = self.queue().backlog
        assert isinstance(backlog, Backlog)
        self.queue().messages.shrink(0)
        assert any(segment.runs is None and segment.size > 20 for segment in backlog.store.segments)
        return self

    def check_settled(self) -> None:
        """What the journal was told of is in one row, or whole rows (see `JournalTransaction.settled`)."""
        rows = [row for each in self.harness.transactions for row in each.rows]
        for settled in (settled for each in self.harness.transactions for settled in each.settled):
            touched = [
                row
                for row in rows
                if row.queue_id == settled.queue_id
                and row.first_seq <= settled.last_seq
                and row.last_seq >= settled.first_seq
            ]
            assert len(touched) == 1 or all(
                settled.first_seq <= row.first_seq and row.last_seq <= settled.last_seq for row in touched
            ), f"{settled} goes over the edges of rows"

    def read(self, queue_id: int, first_seq: int, last_seq: int, answer: Callable[[list[Row]], None]) -> None:
        """Two rows at a time, so that a stretch takes several reads."""
        self.reads += 1
        found = self.harness.rows_of(queue_id, first_seq, last_seq)
        self.before_answer()
        answer(found[:2])

    async def ids(self, queue: str = "q") -> list[int]:
        return [row["id"] for row in await self.list(queue=queue, count=1000)]

    async def list(self, **wanted: Any) -> list[dict[str, Any]]:
        pages = message_streams(self.messages)["message list"]({"vhost": "/", "queue": "q", **wanted})
        return [row async for page in pages for row in page]

    async def act(self, act: str, **wanted: Any) -> dict[str, Any]:
        stream = message_streams(self.messages)[f"message {act}"]
        pages = stream({"vhost": "/", "queue": "q", "yes": True, "to_queue": "other", **wanted})
        done = [row async for page in pages for row in page][-1]
        self.check_settled()
        return done


async def test_a_look_leaves_the_queue_as_it_was() -> None:
    operated = OperatedNode().fill(100)
    backlog = operated.queue().backlog
    assert isinstance(backlog, Backlog)
    before = (
        [(each.first, each.last, each.runs is None) for each in backlog.store.segments],
        backlog.store.memory_bytes,
    )
    rows = await operated.list(headers=[["tenant", "old"]], body=10)
    assert [(row["id"], row["position"], row["payload"]) for row in rows] == [
        (number, number + 1, f"{number:04}") for number in range(5, 100, 10)
    ]
    assert (
        [(each.first, each.last, each.runs is None) for each in backlog.store.segments],
        backlog.store.memory_bytes,
    ) == before
    assert operated.reads >= 10
    assert [row["id"] for row in await operated.list(**{"from": 61, "count": 3})] == [60, 61, 62]


async def test_what_is_consumed_while_it_is_read_is_not_in_the_list() -> None:
    operated = OperatedNode().fill(60)
    operated.before_answer = lambda: operated.client.consume("q", no_ack=True) if operated.reads == 3 else None
    rows = await operated.list(count=100)
    assert 0 < len(rows) < 60
    assert operated.queue().backlog.ready == 0
    assert [row["id"] for row in rows] == list(range(len(rows)))


async def test_deleting_by_id_reads_only_the_edges() -> None:
    operated = OperatedNode().fill(100)
    done = await operated.act("delete", ids=[[11, 13], [32, 77]])
    assert (done["count"], done["first_id"], done["last_id"]) == (49, 11, 77)
    assert operated.reads <= 4
    left = [*range(11), *range(14, 32), *range(78, 100)]
    assert await operated.ids() == left
    operated.harness.restart()
    again = OperatedNode.__new__(OperatedNode)
    again.harness, again.reads, again.before_answer = operated.harness, 0, lambda: None
    again.messages = MessageOperations(operated.harness.node, again, again.run_effects)
    assert await again.ids() == left


async def test_deleting_by_header_takes_no_others() -> None:
    operated = OperatedNode().fill(60)
    assert (await operated.act("delete", headers=[["tenant", "old"]], yes=False))["count"] == 6
    assert len(await operated.ids()) == 60
    assert (await operated.act("delete", headers=[["tenant", "old"]], count=2))["count"] == 2
    assert [each for each in range(60) if each not in await operated.ids()] == [5, 15]


async def test_what_is_deleted_by_header_may_go_over_the_edges_of_rows() -> None:
    operated = OperatedNode().fill(60, range(18, 43))
    assert (await operated.act("delete", headers=[["tenant", "old"]]))["count"] == 25
    assert await operated.ids() == [*range(18), *range(43, 60)]


async def test_moving_keeps_the_order_and_stops_at_a_count() -> None:
    operated = OperatedNode().fill(80)
    done = await operated.act("move", **{"from": 12, "count": 51})
    assert (done["count"], done["full"]) == (51, False)
    assert await operated.ids() == [*range(11), *range(62, 80)]
    moved = [row["payload"] for row in await operated.list(queue="other", count=100, body=4)]
    assert moved == [f"{number:04}" for number in range(11, 62)]


async def test_what_is_moved_is_in_one_queue_or_the_other_wherever_the_journal_was_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("amqpd.management.messages.operations.MOVED_BYTES_MAX", 1000)
    operated = OperatedNode().fill(80)
    transactions, other = operated.harness.transactions, operated.queue("other").record.id
    before, in_other = len(transactions), set()
    await operated.act("move", all=True)
    for kept in range(before, len(transactions) + 1):
        # What a node finds that dies after this many of them.
        written = [row for each in transactions[:kept] for row in each.rows]
        settled = {
            (each.queue_id, seq)
            for transaction in transactions[:kept]
            for each in transaction.settled
            for seq in range(each.first_seq, each.last_seq + 1)
        }
        assert sum(row.last_seq - row.first_seq + 1 for row in written) - len(settled) == 80
        in_other.add(sum(row.last_seq - row.first_seq + 1 for row in written if row.queue_id == other))
    assert {0, 80} < in_other, "in several transactions"


async def test_nothing_is_moved_while_the_disk_is_short() -> None:
    operated = OperatedNode().fill(50)
    operated.harness.node.alarms.put("disk", "watch", True, 0)
    with pytest.raises(Unavailable, match="the disk alarm is on"):
        await operated.act("move", all=True)
    assert len(await operated.ids()) == 50
    assert (await operated.act("delete", all=True))["count"] == 50, "but operated can be made"


async def test_who_leaves_stops_it_and_the_log_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqpd.management.messages.operations.LIFE_SIGN_S", -1.0)
    operated = OperatedNode().fill(60)
    with structlog.testing.capture_logs() as logged:
        wanted = MessagesRequest("/", "q", 1, 1000, EVERY, Condition(), dry_run=False, to_vhost="/", to_queue="other")
        async with aclosing(operated.messages.move(wanted, Operator(uid=7))) as pages:
            async for page in pages:
                so_far = page[-1]["count"]
                break
    assert 0 < so_far < 60
    [entry] = logged
    assert (entry["event"], entry["count"], entry["queue"]) == ("messages moved by an operator", so_far, "q")
    assert (entry["to_queue"], entry["uid"], entry["first_id"]) == ("other", 7, 0)
    assert (len(await operated.ids()), len(await operated.ids("other"))) == (60 - so_far, so_far)


async def test_a_row_that_is_missing_is_damage() -> None:
    operated = OperatedNode().fill(60)
    rows = operated.harness.rows[operated.queue().record.id]
    for first in [first for first in rows if 20 < first < 40]:
        del rows[first]
    listed = await operated.list(count=100)
    assert [row["id"] for row in listed] == list(range(60))
    damaged = [row for row in listed if row["state"] == "ready, damaged"]
    assert {row["damage"] for row in damaged} == {MISSING}
    assert [row["id"] for row in damaged] == list(range(damaged[0]["id"], 40))


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"queue": 1}, "queue must be a text"),
        ({"queue": "none"}, "there is no queue 'none' in virtual host '/'"),
        ({"count": 0}, "count must be a number, 1 or more"),
        ({"ids": [[5, 2]]}, "5-2 is no range of ids"),
        ({"ids": ["x"]}, "ids must be pairs of numbers"),
        ({"headers": [["a"]]}, "headers must be pairs"),
        ({"state": "gone"}, "a state is ready, unacked or all"),
        ({"body": 1 << 20}, "at most 65536 bytes"),
    ],
)
async def test_a_request_that_makes_no_sense_is_a_sentence(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ManagementError, match=sentence):
        await OperatedNode().list(**wanted)


async def test_acts_say_which_messages() -> None:
    with pytest.raises(BadArgument, match="say which messages"):
        await OperatedNode().act("delete")
    with pytest.raises(BadArgument, match="name another one"):
        await OperatedNode().act("move", all=True, to_queue="q")
