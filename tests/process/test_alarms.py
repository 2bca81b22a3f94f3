"""The alarms: the pure decision, the loop around it, the memory of a cgroup."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
import trio
import trio.testing

from amqpd.config import Settings
from amqpd.process.alarms import (
    POLL_S_ALARM,
    POLL_S_MAX,
    POLL_S_MIN,
    AlarmKind,
    AlarmLimits,
    Readings,
    ShortageWatch,
    decide,
    limits_from,
    next_look_s,
)
from amqpd.process.memory import give_memory_back, memory_bytes
from amqpd.setting_types import GIB, MIB

LIMITS = AlarmLimits(resident_bytes_max=1000, disk_free_bytes_min=100)
NONE: frozenset[AlarmKind] = frozenset()
DISK: frozenset[AlarmKind] = frozenset({"disk"})


@pytest.mark.parametrize(
    ("resident", "free", "before", "after"),
    [
        (1000, 100, NONE, set()),
        (1001, 100, NONE, {"memory"}),
        (1000, 99, NONE, {"disk"}),
        (5000, 0, NONE, {"memory", "disk"}),
        (1000, 100, frozenset({"memory", "disk"}), {"disk"}),
        (0, 124, DISK, {"disk"}),
        (0, 125, DISK, set()),
        (0, 124, NONE, set()),
    ],
)
def test_decide(resident: int, free: int, before: frozenset[AlarmKind], after: set[AlarmKind]) -> None:
    assert decide(Readings(resident, free), LIMITS, before) == after


def test_an_alarm_with_limit_zero_is_off() -> None:
    assert decide(Readings(0, 0), AlarmLimits(1000, 0), NONE) == set()


def test_the_nearer_the_limit_the_sooner_the_next_look() -> None:
    limits = AlarmLimits(10 * GIB, 50_000_000)
    assert next_look_s(Readings(0, 100 * GIB), limits) == POLL_S_MAX
    assert next_look_s(Readings(0, 50_000_001), limits) == POLL_S_MIN
    assert next_look_s(Readings(10 * GIB - 1_000_000_000, 100 * GIB), limits) == 0.5
    assert next_look_s(Readings(0, 50_000_000), limits) == POLL_S_ALARM
    assert next_look_s(Readings(11 * GIB, 100 * GIB), limits) == POLL_S_ALARM


def test_the_watermark_in_bytes() -> None:
    assert limits_from(Settings(memory_high_watermark=GIB)).resident_bytes_max == GIB
    half = limits_from(Settings(memory_high_watermark=0.5)).resident_bytes_max
    assert half == memory_bytes() // 2
    assert half <= psutil.virtual_memory().total // 2


def cgroup(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "64000\n"}),
        ("0::/a/b\n", {"a/b/memory.max": "64000\n", "a/memory.max": "128000\n"}),
        # In a container: the path is the host's, the mounted root is the container's own group.
        ("0::/system.slice/x\n", {"memory.max": "64000\n"}),
        (
            "5:cpu,cpuacct:/a\n4:memory:/a\n",
            {
                "memory/a/memory.limit_in_bytes": "64000\n",
                "memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
            },
        ),
    ],
)
def test_the_memory_of_the_tightest_control_group(membership: str, files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "membership").write_text(membership)
    assert memory_bytes(cgroup(tmp_path / "fs", files), tmp_path / "membership") == 64000


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path, tmp_path / "missing") == psutil.virtual_memory().total


class Scripted(ShortageWatch):
    """A watch with readings from a list; the last one stays."""

    def __init__(self, data_dir: Path, readings: list[Readings]) -> None:
        self.changes: list[tuple[AlarmKind, bool]] = []
        settings = Settings(data_dir=data_dir, memory_high_watermark=GIB, disk_free_bytes_min=MIB)
        super().__init__(settings, lambda kind, on: self.changes.append((kind, on)), lambda _: None, lambda: 0)
        self._script = readings

    def read(self) -> Readings:
        return self._script.pop(0) if len(self._script) > 1 else self._script[0]


CALM = Readings(0, GIB)


@pytest.mark.trio
async def test_it_tells_changes_only_and_looks_at_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    full = Readings(0, MIB // 2)
    alarms = Scripted(tmp_path, [full, full, Readings(2 * GIB, GIB), CALM])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        await trio.testing.wait_all_tasks_blocked()
        assert alarms.changes == [("disk", True)]
        assert alarms.on == {"disk"}
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert alarms.changes == [
        ("disk", True),
        ("disk", False),
        ("memory", True),
        ("memory", False),
    ]
    assert alarms.on == set()


@pytest.mark.trio
async def test_it_looks_often_while_an_alarm_is_on(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    alarms = Scripted(tmp_path, [Readings(2 * GIB, GIB), CALM])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarms.run)
        await trio.sleep(POLL_S_ALARM * 0.99)
        assert alarms.on == {"memory"}
        await trio.sleep(POLL_S_ALARM * 0.02)
        assert alarms.on == set()
        nursery.cancel_scope.cancel()


def test_while_memory_is_short_what_malloc_keeps_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alarms = Scripted(tmp_path, [Readings(2 * GIB, GIB), Readings(2 * GIB, GIB), CALM])
    looks: list[frozenset[AlarmKind]] = []
    real = give_memory_back

    def counted() -> None:
        looks.append(alarms.on)
        real()

    monkeypatch.setattr("amqpd.process.alarms.give_memory_back", counted)
    for _ in range(4):
        alarms.look()
    assert looks == [{"memory"}, {"memory"}]


def test_real_readings(tmp_path: Path) -> None:
    statistics = os.statvfs(tmp_path)
    free = statistics.f_bavail * statistics.f_frsize
    readings = ShortageWatch(Settings(data_dir=tmp_path), lambda *_: None, lambda _: None, lambda: free).read()
    assert MIB < readings.resident_bytes < memory_bytes()
    assert readings.disk_free_bytes == free
