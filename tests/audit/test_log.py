"""The log of a node from its first row to its last, over incarnations: what begins one, what ends it, what was
lost."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from amqpd.audit.coverage.coverage import Coverage
from amqpd.audit.files import incarnations
from amqpd.audit.files.log import COUNTS_S, AuditLog
from amqpd.audit.recorder import Recorder
from amqpd.errors import StartupError
from amqpd.setting_tables import AuditSettings
from tests.audit.disk import Disk
from tests.audit.reading import only, rows_below, told
from tests.harness.harness import Harness

pytestmark = pytest.mark.trio


class LoggedHarness(Harness):
    """A node whose log is in a folder."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = AuditSettings(node="n", **settings)
        super().__init__()
        self.log_.begin(self.node)

    def audit(self) -> tuple[Recorder | None, Coverage | None]:
        self.log_ = AuditLog(self.folder, self.settings, lambda: 1_795_348_800_000_000, lambda _: None)
        return self.log_.recorder, self.log_.coverage

    def _apply(self, changes: Any) -> None:
        # Acts on the topology are not what is asked for here.
        acts, self.node.acts._recorder = self.node.acts._recorder, Recorder(lambda: 0)
        super()._apply(changes)
        self.node.acts._recorder = acts


async def test_an_incarnation_begins_with_started_and_ends_with_anchors_and_stopped(tmp_path: Path) -> None:
    for _ in range(2):
        harness = LoggedHarness(tmp_path, level="full")
        harness.client().declare("q")
        await harness.log_.end(True)
    rows = rows_below(tmp_path / "audit" / "events")
    assert [(row["incarnation"], row["event"]) for row in rows] == [
        (incarnation, event)
        for incarnation in (1, 2)
        for event in ("started", "connection_opened", "standing", "stopped")
    ]
    assert [json.loads(row["detail"])["orderly"] for row in only(rows, "started")] == [True, True]


@pytest.mark.parametrize("flushed", [True, False])
async def test_an_end_says_whether_the_journal_has_all_of_it(tmp_path: Path, flushed: bool) -> None:
    """Else what the log tells of may be undone, as by a kill."""
    await LoggedHarness(tmp_path).log_.end(flushed)
    (stopped,) = only(rows_below(tmp_path / "audit" / "events"), "stopped")
    assert json.loads(stopped["detail"]) == {"flushed": flushed}


async def test_an_incarnation_that_was_cut_off_is_not_said_to_have_ended_in_order(tmp_path: Path) -> None:
    LoggedHarness(tmp_path)
    await LoggedHarness(tmp_path).log_.end(True)
    rows = rows_below(tmp_path / "audit" / "events")
    assert [json.loads(row["detail"])["orderly"] for row in only(rows, "started")] == [True, False]
    assert not only(rows, "gap")


async def test_after_a_power_cut_there_may_be_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LoggedHarness(tmp_path)
    monkeypatch.setattr(incarnations, "_BOOT", tmp_path / "another")
    await LoggedHarness(tmp_path).log_.end(True)
    (gap,) = only(rows_below(tmp_path / "audit" / "events"), "gap")
    assert (gap["reason"], json.loads(gap["detail"])["incarnation"]) == ("power", 1)


async def test_an_incarnation_that_ended_without_room_is_a_gap_in_the_next_one(tmp_path: Path) -> None:
    harness = LoggedHarness(tmp_path, level="full")
    harness.log_.writer._begin_gap(OSError(28, "No space left on device"))
    await harness.log_.end(True)
    await LoggedHarness(tmp_path, level="full").log_.end(True)
    rows = rows_below(tmp_path / "audit" / "events")
    assert told(only(rows, "started", "stopped", "gap"), "incarnation", "event", "reason") == [
        *((1, "started", None), (2, "started", None), (2, "gap", "disk_full"), (2, "stopped", None)),
    ]
    assert set(json.loads(only(rows, "gap")[0]["detail"])) == {"incarnation", "from"}


async def test_an_incarnation_that_begins_on_a_full_disk_begins_with_a_gap(tmp_path: Path, disk: Disk) -> None:
    """And the next one has nothing to say of it."""
    await LoggedHarness(tmp_path, level="full").log_.end(True)
    disk.space = 0
    harness = LoggedHarness(tmp_path, level="full")
    status = await harness.log_.handlers["audit status"]({})
    assert (status["incarnation"], status["gap_since"] is None) == (2, False)
    client = harness.client()
    client.declare("q", durable=True)
    client.publish(b"in the gap", "q", delivery_mode=2)
    assert (await harness.log_.handlers["audit flush"]({}))["waiting"] == 0
    disk.space = 1 << 20
    assert (await harness.log_.handlers["audit flush"]({}))["waiting"] == 0
    client.publish(b"behind it", "q", delivery_mode=2)
    await harness.log_.end(True)
    await LoggedHarness(tmp_path, level="full").log_.end(True)
    rows = [row for row in rows_below(tmp_path / "audit" / "events") if row["incarnation"] > 1]
    assert told(rows, "incarnation", "event", "reason", "count") == [
        *((2, "started", None, 1), (2, "gap", "disk_full", 1)),
        *((2, "standing", "gap", 0), (2, "standing", None, 1)),
        *((2, "published", None, 1), (2, "routed", None, 1)),
        *((2, "standing", "stopped", 0), (2, "standing", None, 2), (2, "stopped", None, 1)),
        *((3, "started", None, 1), (3, "stopped", None, 1)),
    ]
    assert [json.loads(row["detail"])["orderly"] for row in only(rows, "started")] == [True, True]
    assert json.loads(only(rows, "gap")[0]["detail"])["from"] == status["gap_since"]


async def test_a_first_incarnation_that_has_no_space_for_the_folder_begins_with_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuses)
        harness = LoggedHarness(tmp_path, level="full")
    assert harness.log_.writer.full
    assert not (tmp_path / "audit").exists()
    harness.log_.writer._end_gap()
    await harness.log_.end(True)
    rows = rows_below(tmp_path / "audit" / "events")
    assert told(rows, "event", "reason") == [("started", None), ("gap", "disk_full"), ("stopped", None)]


@pytest.mark.parametrize("orderly", [False, True])
async def test_an_incarnation_that_never_found_space_is_a_gap_in_the_next_one(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, orderly: bool
) -> None:
    await LoggedHarness(tmp_path).log_.end(True)
    disk.space = 0
    for _ in range(2):
        # No row of it was ever written, so its number may be that of the next one.
        harness = LoggedHarness(tmp_path)
        assert harness.log_.incarnation.number == 2
        if orderly:
            await harness.log_.end(True)
    disk.space = 1 << 20
    monkeypatch.setattr(incarnations, "_BOOT", tmp_path / "another")
    await LoggedHarness(tmp_path).log_.end(True)
    rows = rows_below(tmp_path / "audit" / "events")
    assert told(rows, "incarnation", "event", "reason") == [
        *((1, "started", None), (1, "stopped", None)),
        *((2, "started", None), (2, "gap", "disk_full"), (2, "stopped", None)),
    ]


async def test_what_the_incarnation_before_lost_is_said_behind_the_gap(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    LoggedHarness(tmp_path).log_.writer._begin_gap(OSError(28, "No space left on device"))
    monkeypatch.setattr(incarnations, "_BOOT", tmp_path / "another")
    disk.space = 0
    harness = LoggedHarness(tmp_path)
    disk.space = 1 << 20
    await harness.log_.handlers["audit flush"]({})
    await harness.log_.end(True)
    rows = [row for row in rows_below(tmp_path / "audit" / "events") if row["incarnation"] == 2]
    assert told(rows, "event", "reason") == [
        *(("started", None), ("gap", "power"), ("gap", "disk_full"), ("gap", "disk_full"), ("stopped", None)),
    ]
    details = [json.loads(row["detail"]) for row in only(rows, "gap")]
    assert [detail.get("incarnation") for detail in details] == [1, 1, None]


@pytest.mark.parametrize("place", ["", "spool", "events", "incarnations.json", "spool/gap"])
@pytest.mark.parametrize("kind", ["file", "folder"])
async def test_nothing_that_is_damaged_keeps_the_node_from_starting(tmp_path: Path, place: str, kind: str) -> None:
    harness = LoggedHarness(tmp_path, level="full")
    harness.client().declare("q", durable=True)
    await harness.log_.end(True)
    path = tmp_path / "audit" / place
    if path.exists():
        path.rename(tmp_path / "taken away")
    path.write_text("nonsense") if kind == "file" else path.mkdir()
    for _ in range(2):
        await LoggedHarness(tmp_path, level="full").log_.end(True)
    rows = [row for row in rows_below(tmp_path / "audit" / "events") if row["event"] in ("started", "gap")]
    expected = {"file": ["gap"], "folder": [] if place in ("", "spool", "events") else ["gap"]}[kind]
    assert [row["event"] for row in rows][-2 - len(expected) :] == ["started", *expected, "started"]


async def test_what_else_stands_in_the_way_of_the_log_is_one_sentence(tmp_path: Path, disk: Disk) -> None:
    disk.space, disk.error = 0, errno.EIO
    with pytest.raises(
        StartupError, match=r"cannot write the audit log in .*: Input/output error; make it"
    ) as caught:
        LoggedHarness(tmp_path)
    assert "\n" not in str(caught.value)


async def test_figures_are_written_each_minute(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    harness = LoggedHarness(tmp_path)
    client = harness.client()
    client.declare("q")
    client.publish(b"x", "q")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(harness.log_.run)
        await trio.sleep(COUNTS_S + 1)
        client.publish(b"x", "q")
        await trio.sleep(COUNTS_S)
        nursery.cancel_scope.cancel()
    await harness.log_.end(True)
    counted = only(rows_below(tmp_path / "audit" / "events"), "counted")
    assert told(counted, "queue", "detail", "count", "user") == 2 * [
        ("q", "accepted", 1, None),
        (None, "published", 1, "guest"),
        (None, "published_bytes", 1, "guest"),
    ]


async def test_the_control_socket_is_told_how_it_is(tmp_path: Path) -> None:
    harness = LoggedHarness(tmp_path, level="full")
    harness.client().declare("q")
    status = await harness.log_.handlers["audit status"]({})
    assert (status["incarnation"], status["level"], status["queues_recorded"], status["gap_since"]) == (
        1,
        "full",
        1,
        None,
    )
    flushed = await harness.log_.handlers["audit flush"]({})
    assert flushed["waiting"] == 0
    assert told(rows_below(Path(flushed["folder"])), "event") == [("started",), ("connection_opened",)]
    await harness.log_.end(True)
