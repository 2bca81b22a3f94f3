"""The memory and disk alarms: when to stop taking publishes.

What comes in: the memory and free disk space of this machine, looked at again and again. What goes out:
`on_change(kind, on)` at each change, kind "memory" or "disk"; the broker then stops reading from publishers
and tells them (connection.blocked).
Rules: 1. `decide` is pure: readings and limits in, alarms out. 2. The disk alarm goes off only well above the
level where it went on, or it would flap with each row that is deleted.
Not here: what is blocked (`session/intake.py`), what leaves memory for the disk (`queues/`), a commit that finds the
disk full all the same (`journal/sqlite/reserve.py`).

While publishers wait, consumers go on, and each ack is a record in the journal: a full disk would turn "no
new messages" into "no progress at all", because deleting needs space first (SQLite's WAL).
`disk_free_bytes_min` is that space.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

import psutil
import structlog
import trio

from amqpd.config import Settings
from amqpd.process.memory import give_memory_back, memory_bytes

AlarmKind = Literal["memory", "disk"]
OnChange = Callable[[AlarmKind, bool], None]

# A fast disk, or loopback publishers, fill this much in a second. The next look comes when half of the
# reserve could be gone, but not sooner than 50 ms (the default disk_free_bytes_min takes as long to fill),
# nor later than 2 s. While an alarm is on nothing fills quickly, and publishers wait for it to go off: 0.25 s.
FILL_BYTES_PER_S = 1_000_000_000
POLL_S_MIN, POLL_S_MAX, POLL_S_ALARM = 0.05, 2.0, 0.25
# Free space has to come back by a quarter more than the limit: more than a WAL that is truncated gives back
# for a moment.
DISK_HYSTERESIS = 1.25

log = structlog.get_logger(component="alarms")


@dataclass(frozen=True, slots=True)
class Readings:
    """Memory and free disk space at one moment, in bytes."""

    resident_bytes: int
    disk_free_bytes: int


@dataclass(frozen=True, slots=True)
class AlarmLimits:
    """The limits of memory and of free disk space at which the alarms begin, in bytes."""

    resident_bytes_max: int
    disk_free_bytes_min: int


def decide(readings: Readings, limits: AlarmLimits, on: frozenset[AlarmKind]) -> frozenset[AlarmKind]:
    """The alarms that are on after these readings, given those that are on now."""
    result: set[AlarmKind] = set()
    if readings.resident_bytes > limits.resident_bytes_max:
        result.add("memory")
    enough = limits.disk_free_bytes_min * (DISK_HYSTERESIS if "disk" in on else 1)
    if readings.disk_free_bytes < enough:
        result.add("disk")
    return frozenset(result)


def next_look_s(readings: Readings, limits: AlarmLimits) -> float:
    """Seconds until half of the smaller reserve could be used up."""
    headroom = min(
        limits.resident_bytes_max - readings.resident_bytes,
        readings.disk_free_bytes - limits.disk_free_bytes_min,
    )
    if headroom <= 0:
        return POLL_S_ALARM
    return min(POLL_S_MAX, max(POLL_S_MIN, headroom / 2 / FILL_BYTES_PER_S))


class ShortageWatch:
    """Looks at memory and disk while `run` runs."""

    def __init__(
        self,
        settings: Settings,
        on_change: OnChange,
        on_space: Callable[[int], None],
        free_bytes: Callable[[], int],
    ) -> None:
        """`on_space` is told at each look how much of the disk is free beside `disk_free_bytes_min`. `free_bytes`
        answers at once."""
        self._free_bytes = free_bytes
        self._on_change = on_change
        self._on_space = on_space
        self._process = psutil.Process()
        self._resident_bytes = self._disk_free_bytes = 0
        self.on: frozenset[AlarmKind] = frozenset()
        self.limits = limits_from(settings)

    @property
    def seen(self) -> tuple[int, int]:
        """At the last look: memory of the process, free space, in bytes."""
        return self._resident_bytes, self._disk_free_bytes

    def facts(self) -> dict[str, int]:
        """Free space at the last look, and where the alarms begin."""
        return {"disk_free_bytes": self._disk_free_bytes, **asdict(self.limits)}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            readings = self.look()
            await trio.sleep(next_look_s(readings, self.limits))

    def look(self) -> Readings:
        """One look: calls `on_change` for what changed."""
        readings = self.read()
        if "memory" in self.on:
            give_memory_back()
        self._on_space(readings.disk_free_bytes - self.limits.disk_free_bytes_min)
        on = decide(readings, self.limits, self.on)
        kind: AlarmKind
        for kind in sorted(on ^ self.on):
            (log.warning if kind in on else log.info)(
                f"{kind} alarm {'on: publishers wait' if kind in on else 'off'}",
                resident_bytes=readings.resident_bytes,
                resident_bytes_max=self.limits.resident_bytes_max,
                disk_free_bytes=readings.disk_free_bytes,
                disk_free_bytes_min=self.limits.disk_free_bytes_min,
            )
            self._on_change(kind, kind in on)
            self.on ^= {kind}
        return readings

    def read(self) -> Readings:
        """Two system calls of microseconds; on a local disk, statfs(2) answers from memory, so it needs no
        thread."""
        try:
            self._resident_bytes = self._process.memory_info().rss
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            # It is read from a file in /proc. What was seen last holds while descriptors are short.
            log.warning("memory not looked at", reason=error.strerror)
        # A directory that is gone ends the node (`datadir/presence.py`): until then, what was seen last.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._disk_free_bytes = self._free_bytes()
        return Readings(self._resident_bytes, self._disk_free_bytes)


def limits_from(settings: Settings) -> AlarmLimits:
    """The settings in bytes of this machine."""
    watermark = settings.memory_high_watermark
    fraction = isinstance(watermark, float)
    return AlarmLimits(int(watermark * memory_bytes()) if fraction else int(watermark), settings.disk_free_bytes_min)
