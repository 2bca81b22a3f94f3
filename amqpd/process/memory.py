"""The memory of this process: how much it may use, and when malloc gives back to the system what it keeps.

What comes in: limits of the machine and of control groups; the time, and the processor time that the broker has used.
What goes out: bytes; calls of `give_back`.
Rules: 1. Memory is given back once after each stretch of work, and never while there is some: it may take 40 ms after
a large backlog of small messages, and what is reused at once is not worth giving back. 2. A broker that is never
quiet keeps its free memory, until the memory alarm asks for it.
Not here: the alarm (`alarms.py`), what leaves memory for the disk (`queues/paging.py`).

Measured with `python -m bench small-20m --scale 0.2`: 182 MB resident after the queue was drained, without this.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import trio

LOOK_S = 2.0
# Of one processor, between two looks.
QUIET_SHARE = 0.1
# Less work than this, some hundred thousand messages, leaves nothing worth a look.
WORK_S_MIN = 0.5


def memory_bytes(cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int:
    """The memory that this process may use: of the machine, or of the tightest of its control groups.

    In a container psutil sees the whole machine; the kernel kills at the group's limit."""
    total: int = psutil.virtual_memory().total
    limits = [total]
    for file in _limit_files(cgroups, membership):
        # "max" in version 2, a number near 2**63 in version 1: no limit.
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(file.read_text()))
    return min(limits)


def _limit_files(cgroups: Path, membership: Path) -> list[Path]:
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    files: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = cgroups / "memory" if controllers else cgroups
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        group = Path(path.lstrip("/"))
        # A limit of a parent binds too. The last parent is ".", the root, which in a container is its own
        # group.
        files += [base / each / name for each in (group, *group.parents)]
    return files


def give_memory_back() -> None:
    """Asks glibc to return free memory to the system.

    Without it, memory that was freed but kept by malloc could hold the alarm on for ever, with nothing left
    to free."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class FreeMemory:
    """Decides when unused memory goes back to the system, from the processor time that was used."""

    def __init__(self, now_s: float, used_s: float) -> None:
        """What was used before, to start, counts as work."""
        self._seen_s, self._seen_used_s = now_s, used_s
        self._given_used_s = 0.0

    def due(self, now_s: float, used_s: float) -> bool:
        """Whether it is to be given back now. Seconds of any clock, and of processor time since the process began."""
        quiet = used_s - self._seen_used_s < QUIET_SHARE * (now_s - self._seen_s)
        self._seen_s, self._seen_used_s = now_s, used_s
        if not quiet or used_s - self._given_used_s < WORK_S_MIN:
            return False
        self._given_used_s = used_s
        return True


async def return_free_memory(give_back: Callable[[], None] = give_memory_back) -> None:
    """Run until cancelled."""
    free = FreeMemory(trio.current_time(), time.thread_time())
    while True:
        await trio.sleep(LOOK_S)
        if free.due(trio.current_time(), time.thread_time()):
            # The interpreter's small objects are not malloc's, so most of what happens meanwhile does not wait.
            await trio.to_thread.run_sync(give_back)
