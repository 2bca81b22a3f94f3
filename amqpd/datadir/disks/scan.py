"""The scrub of several disks: each pass reads one of them, in turn, and what is wrong is repaired from the others.

What comes in: the disks. What goes out: what one scan says (`journal/sqlite/scrubbing.py`), as long as there is no
other disk that has the same.
Rules: 1. A disk on which damage is found is left behind as damaged, so it is copied again; not when it was copied
while its old file was read. 2. The last disk that has
everything is judged as that of a node with one is. 3. Blocking, and for one thread at a time. 4. A disk that does not
answer is left behind, and the pass has ended.
Not here: the task and its pace (`amqpd.scrub`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from amqpd.datadir.disks.group import CLOSE_S, DiskGroup
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.scrubbing import Scan, ScrubStep
from amqpd.storage.bounded import HANG_S, BoundedCalls, Unanswered, end_within
from amqpd.storage.page_cache import PageCache

T = TypeVar("T")
ENDED = ScrubStep(0, 0, 0, [], True)


class DisksScan:
    """The scrub's scan of several disks, one in each pass; it has the methods of `journal.sqlite.scrubbing.Scan`."""

    def __init__(self, group: DiskGroup) -> None:
        self._group = group
        self._number = -1
        self._scan: Scan | None = None
        self._disk: SqliteDisk | None = None
        """whose file is read: one that was repaired meanwhile has another one"""
        self._calls = [BoundedCalls(str(each.path)) for each in group.members]
        self._caches: dict[int, tuple[PageCache, int]] = {}
        """number -> the file's pages, and which file that is"""

    def begin(self) -> int:
        """A pass begins, of the next disk: how many bytes there are to read."""
        self.close()
        counting = self._group.reading() or [0]
        self._number = next((number for number in counting if number > self._number), counting[0])
        self._disk = self._group.members[self._number].disk
        nothing: tuple[Scan | None, int] = None, 0
        self._scan, total_bytes = self._ask(self._opened, nothing)
        return total_bytes

    def step(self) -> ScrubStep:
        """Reads the next step of the scan."""
        if self._scan is None:
            self.begin()
        if self._scan is None or not self._is_this():
            return ENDED
        step = self._ask(self._scan.step, ENDED)
        if not step.found:
            return step
        with self._group.changed:
            if not self._is_this():
                return ENDED
            if not self._group.others_count(self._number):
                return step
            self._group.leave(self._number, f"damage was found: {step.found[0].reason}", damaged=True)
        return ScrubStep(step.nbytes, step.rows, step.total_bytes, [], True)

    def close(self) -> None:
        """The connection; what is known of files' pages stays until the end."""
        scan, self._scan = self._scan, None
        if scan is not None:
            self._calls[self._number].put(scan.close)

    def end(self) -> None:
        """When all databases are closed."""
        for number, calls in enumerate(self._calls):
            cache = self._caches.get(number)
            calls.close(cache[0].close if cache is not None else lambda: None)
        end_within([lambda calls=calls: calls.ended(None) for calls in self._calls], CLOSE_S)  # type: ignore[misc]

    def _is_this(self) -> bool:
        """The disk counts, and has the file that is read."""
        return self._group.members[self._number].disk is self._disk and self._number in self._group.counting()

    def _ask(self, work: Callable[[], T], otherwise: T) -> T:
        """In the thread of the disk."""
        calls, number = self._calls[self._number], self._number

        def gives_up(waited_s: float) -> bool:
            return self._group.ending or (waited_s >= HANG_S and self._group.others_count(number))

        try:
            return calls.wait(calls.put(work), gives_up)
        except Unanswered as error:
            with self._group.changed:
                if self._is_this() and not self._group.ending:
                    self._group.leave(number, str(error))
            self.close()
            return otherwise

    def _opened(self) -> tuple[Scan | None, int]:
        number = self._number
        scan = Scan(self._group.members[number].path / JOURNAL, self._cache(number))
        return scan, scan.begin()

    def _cache(self, number: int) -> PageCache:
        """Of the file that is there now. An older one's is closed: no connection uses that file any more."""
        path = self._group.members[number].path / JOURNAL
        which = 0
        with suppress(OSError):
            which = os.stat(path).st_ino
        cache, before = self._caches.get(number, (None, -1))
        if cache is not None and before != which:
            cache.close()
            cache = None
        if cache is None:
            cache = PageCache(path)
        self._caches[number] = cache, which
        return cache
