"""What an operator does about damaged messages: listed, deleted, moved around, exported, set aside; and the files."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from pamqp import commands

from amqpd.management.control.commands import damage_streams
from amqpd.management.damage import damaged_rows
from amqpd.management.damage.damaged_rows import DamagedRows
from amqpd.management.errors import BadArgument, NotFound, Unavailable
from amqpd.management.messages.operations import MessageOperations
from tests.harness.invariants import check_node
from tests.management.messages.test_operations import OperatedNode

Basic = commands.Basic
pytestmark = pytest.mark.trio
WHY = "a byte of it is not what was written"


class Damaged(OperatedNode):
    """After a restart: `q` with 60 messages on disk only, five in a row, some of the rows damaged."""

    def __init__(self, data_dir: Path, rows: Sequence[int], filled: int = 60) -> None:
        super().__init__()
        if filled:
            self.fill(filled)
        queue_id = self.queue().record.id
        firsts = sorted(self.harness.rows.get(queue_id, {}))
        self.harness.damaged = {(queue_id, firsts[row]): WHY for row in rows}
        self.harness.restart()
        self.harness.step()
        self.client = self.harness.client()
        self.messages = MessageOperations(self.harness.node, self, self.run_effects)
        self.damaged = DamagedRows(self.harness.node, self, self.run_effects, data_dir)

    async def do(self, what: str, **wanted: Any) -> list[dict[str, Any]]:
        streams = damage_streams(self.damaged)
        pages = streams[f"message {what}"]({"vhost": "/", "queue": "q", "yes": True, **wanted})
        return [row async for page in pages for row in page]

    def consumed(self) -> list[int]:
        self.client.consume("q", no_ack=True)
        self.client.take(Basic.Cancel)
        return [int(body) for body in self.client.bodies()]


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def kept(row: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """The bytes, and the facts beside them."""
    file = Path(row["file"])
    return file.read_bytes(), json.loads(file.with_suffix(".json").read_bytes())


async def test_a_list_has_what_is_damaged_without_bodies(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [2, 5])
    listed = await operated.list(count=100, body=4)
    assert [row["id"] for row in listed] == [row["position"] - 1 for row in listed] == list(range(60))
    for row in listed:
        if row["id"] // 5 in (2, 5):
            assert (row["state"], row["damage"], row["payload"]) == ("ready, damaged", WHY, "")
        else:
            assert (row["state"], row["payload"]) == ("ready", f"{row['id']:04}")
    assert [fields["first"] for event, fields in operated.harness.logged if event == "queue_fenced"] == [10, 25]
    await operated.list(count=100)
    assert len([event for event, _ in operated.harness.logged if event == "queue_fenced"]) == 2, "told once"
    assert [row["id"] for row in await operated.list(headers=[["tenant", "old"]])] == [5, 15, 35, 45, 55]


async def test_what_is_damaged_is_deleted_by_its_numbers(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [2])
    assert operated.consumed() == list(range(10))
    reads = operated.reads
    assert (await operated.act("delete", ids=[[10, 14]]))["count"] == 5
    assert operated.reads == reads
    assert [event for event, _ in operated.harness.logged].count("queue_fence_cleared") == 1
    assert operated.consumed() == list(range(15, 60))
    check_node(operated.harness.node)


async def test_what_nobody_knew_to_be_damaged_is_deleted_too(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [2])
    assert (await operated.act("delete", ids=[[8, 12]]))["count"] == 5
    assert [row["id"] for row in await operated.list(count=9)] == [*range(8), 13]
    assert (await operated.act("delete", all=True))["count"] == 55


async def test_a_condition_holds_of_nothing_damaged(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [1])
    assert (await operated.act("delete", headers=[["tenant", "old"]]))["count"] == 5, (
        "5, which is one, is not known to be"
    )
    assert operated.consumed() == list(range(5))


async def test_a_move_ends_at_what_is_damaged(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [2])
    done = await operated.act("move", all=True)
    assert (done["count"], done["full"], list(done["damaged"])) == (10, False, [10, 14])
    assert len(await operated.ids("other")) == 10
    done = await operated.act("move", ids=[[20, 29]])
    assert done["count"] == 10, "it was said which"
    assert "damaged" not in done


async def test_the_bytes_are_exported(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [2])
    operated.consumed()
    about, *pieces = await operated.do("export")
    assert (about["first_id"], about["last_id"], about["reason"], about["queue"]) == (10, 14, WHY, "q")
    assert b"".join(b64decode(piece["data"]) for piece in pieces) == b"\0damaged"
    assert not files(tmp_path)
    assert operated.queue().backlog.ready == 50


async def test_one_of_several_is_chosen(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [2, 4])
    await operated.list(count=100)
    with pytest.raises(BadArgument, match=r"10 to 14, 20 to 24: choose one with --id"):
        await operated.do("export")
    assert (await operated.do("export", ids=[[22, 22]]))[0]["first_id"] == 20


async def test_what_is_set_aside_is_in_files_and_the_queue_goes_on(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [2, 5])
    assert operated.consumed() == list(range(10))
    [row] = await operated.do("quarantine", yes=False)
    assert (row["count"], row["first_id"], row["last_id"], row["file"]) == (5, 10, 14, None)
    assert not files(tmp_path)
    with structlog.testing.capture_logs() as logged:
        [row] = await operated.do("quarantine")
    file = Path(row["file"])
    assert file.parent == tmp_path / "quarantine"
    data, facts = kept(row)
    assert data == b"\0damaged"
    assert (facts["vhost"], facts["queue"], facts["reason"]) == ("/", "q", WHY)
    assert facts["not_settled"] == [[10, 14]]
    assert logged[-1]["event"] == "damaged messages set aside by an operator"
    assert not operated.harness.node.journal.pending, "it is on disk that they have left"
    assert operated.consumed() == list(range(15, 25))
    assert len(await operated.do("quarantine")) == 1
    assert operated.consumed() == list(range(30, 60))
    check_node(operated.harness.node)


async def test_nothing_leaves_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operated = Damaged(tmp_path, [0])
    operated.consumed()

    def failing(file: Path, data: bytes) -> None:
        if file.suffix == ".json":
            raise OSError(28, "No space left on device")
        file.write_bytes(data)

    monkeypatch.setattr(damaged_rows, "_write", failing)
    with pytest.raises(Unavailable, match=r"No space left on device; they\s+stay in the queue"):
        await operated.do("quarantine")
    assert operated.queue().backlog.ready == 60
    assert not files(tmp_path / "quarantine")


async def test_what_can_be_read_after_all_is_back_in_line(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [2])
    assert operated.consumed() == list(range(10))
    operated.harness.damaged.clear()
    assert (await operated.do("quarantine", yes=False))[0]["whole"]
    [row] = await operated.do("quarantine")
    assert row["whole"]
    assert operated.consumed() == list(range(10, 60))
    assert not files(tmp_path)


async def test_damage_that_nobody_knows_is_looked_for_by_id(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [2])
    with pytest.raises(NotFound, match="no damage is known in the queue 'q'"):
        await operated.do("quarantine")
    with pytest.raises(NotFound, match="no damage is known"):
        await operated.do("quarantine", ids=[[20, 30]])
    assert (await operated.do("quarantine", ids=[[12, 12]]))[0]["count"] == 5
    assert operated.consumed() == [*range(10), *range(15, 60)]


async def test_a_row_that_is_missing_is_set_aside_as_nothing(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [])
    rows = operated.harness.rows[operated.queue().record.id]
    del rows[10]
    assert operated.consumed() == list(range(10))
    [row] = await operated.do("quarantine")
    assert (row["count"], row["first_id"], row["last_id"]) == (5, 10, 14)
    assert kept(row)[0] == b""
    assert operated.consumed() == list(range(15, 60))


async def test_delayed_messages_are_set_aside_too(tmp_path: Path) -> None:
    operated = Damaged(tmp_path, [], 0)
    delayed = {"exchange_type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}}
    operated.client.call(
        commands.Exchange.Declare(exchange="later", durable=True, **delayed), commands.Exchange.DeclareOk
    )
    operated.client.publish(b"x", "", "later", headers={"x-delay": 1000})
    store = operated.harness.node.delayed["/"]
    operated.harness.damaged = {(store.record.id, 0): WHY}
    operated.harness.restart()
    operated.harness.node.now_ms = 5000
    operated.harness.step()
    operated.damaged = DamagedRows(operated.harness.node, operated, operated.run_effects, tmp_path)
    [row] = await operated.do("quarantine", queue="", delayed=True)
    assert row["count"] == 1
    assert kept(row)[1]["queue"] == "delayed messages"
    assert operated.harness.node.delayed["/"].backlog.ready == 0


async def test_files_are_never_overwritten(tmp_path: Path) -> None:
    first = damaged_rows.keep_row(tmp_path, "1-2-3", b"a", {})
    second = damaged_rows.keep_row(tmp_path, "1-2-3", b"b", {"reason": "x"})
    assert kept({"file": first})[0] == b"a"
    data, facts = kept({"file": second})
    assert (data, facts["reason"]) == (b"b", "x")
    assert [os.stat(each).st_mode & 0o777 for each in (first, first.parent)] == [0o600, 0o700]
