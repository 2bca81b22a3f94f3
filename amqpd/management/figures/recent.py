"""The last of what goes by, kept for those who look on: lines of the log, acts.

What comes in: things, from any thread. What goes out: those behind a number.
Rules: 1. Numbers begin at 1, and each thing has the one after that of the thing before it: who was told a number asks
for what came since, and sees by the next one whether something was missed. 2. There is a bound to how many are kept,
and to their size.
Not here: what the things are (`process/logs.py`, `amqpd/audit/`), who may look.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from itertools import islice
from threading import Lock
from typing import Any, Generic, TypeVar

from amqpd.management.running import Running

T = TypeVar("T")


class Recent(Generic[T]):
    """The last things that went by, at most `count_max` whose sizes together are at most `size_max`; the last one
    in any case."""

    def __init__(self, count_max: int, size_max: int) -> None:
        self._count_max = count_max
        self._size_max = size_max
        self._things: deque[tuple[T, int]] = deque()
        self._size = 0
        self._last = 0
        self._lock = Lock()

    @property
    def last(self) -> int:
        """The number of the last one; 0 before there is any."""
        return self._last

    def add(self, thing: T, size: int) -> None:
        with self._lock:
            self._things.append((thing, size))
            self._size += size
            self._last += 1
            while len(self._things) > self._count_max or (self._size > self._size_max and len(self._things) > 1):
                self._size -= self._things.popleft()[1]

    def after(self, number: int) -> list[tuple[int, T]]:
        """What is kept with a higher number, and the numbers. A number that none can have yet is of another run of
        the broker: everything is after it."""
        with self._lock:
            first = self._last - len(self._things) + 1
            passed = max(0, number + 1 - first) if number <= self._last else 0
            kept = islice(self._things, passed, None)
            return [(first + passed + at, thing) for at, (thing, _) in enumerate(kept)]


ACTS_MAX = 1000
CHARACTERS_MAX = 1 << 20

Row = dict[str, Any]


def recent_acts(on: Running) -> Recent[Row]:
    """They gather from now on; who asked for that before gets no more of them. Columns as in the audit log's files,
    `time` in ISO 8601."""
    recent: Recent[Row] = Recent(ACTS_MAX, CHARACTERS_MAX)

    def add(columns: dict[str, Any]) -> None:
        moment = datetime.fromtimestamp(columns["time"] / 1_000_000, UTC)
        row = {**columns, "time": moment.isoformat(timespec="microseconds")}
        recent.add(row, sum(len(str(value)) for value in row.values()))

    on.node.acts.watch(add)
    return recent
