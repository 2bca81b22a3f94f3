"""The scrub of several disks: each pass reads one of them, in turn, and what is wrong is repaired from the others.

What comes in: the disks. What goes out: what one scan says (`journal/sqlite/scrubbing.py`), as long as there is no
other disk that has the same.
Rules: 1. A disk on which damage is found is left behind as damaged, so it is copied again. 2. The last disk that has
everything is judged as that of a node with one is. 3. Blocking, and for one thread at a time.
Not here: the task and its pace (`amqpd.scrub`).
"""

from __future__ import annotations

import os
from contextlib import suppress

from amqpd.datadir.disks.group import DiskGroup
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.scrubbing import Scan, Step
from amqpd.storage.page_cache import PageCache


class DisksScan:
    """See `Scan`."""

    def __init__(self, group: DiskGroup) -> None:
        self._group = group
        self._number = -1
        self._scan: Scan | None = None
        self._caches: dict[int, tuple[PageCache, int]] = {}
        """number -> the file's pages, and which file that is"""

    def begin(self) -> int:
        """A pass begins, of the next disk: how many bytes there are to read."""
        self.close()
        counting = self._group.reading() or [0]
        self._number = next((number for number in counting if number > self._number), counting[0])
        path = self._group.members[self._number].path / JOURNAL
        self._scan = Scan(path, self._cache())
        return self._scan.begin()

    def step(self) -> Step:
        """Read on."""
        if self._scan is None:
            self.begin()
        assert self._scan is not None
        if self._number not in self._group.counting():
            return Step(0, 0, 0, [], True)
        step = self._scan.step()
        if step.found and len(self._group.counting()) > 1:
            self._group.leave(self._number, f"damage was found: {step.found[0].reason}", damaged=True)
            return Step(step.nbytes, step.rows, step.total_bytes, [], True)
        return step

    def close(self) -> None:
        """The connection; what is known of files' pages stays until the end."""
        if self._scan is not None:
            self._scan.close()
            self._scan = None

    def end(self) -> None:
        """When all databases are closed."""
        for cache, _ in self._caches.values():
            cache.close()

    def _cache(self) -> PageCache:
        """Of the file that is there now. An older one's is closed: no connection uses that file any more."""
        path = self._group.members[self._number].path / JOURNAL
        which = 0
        with suppress(OSError):
            which = os.stat(path).st_ino
        cache, before = self._caches.get(self._number, (None, -1))
        if cache is not None and before != which:
            cache.close()
            cache = None
        if cache is None:
            cache = PageCache(path)
        self._caches[self._number] = cache, which
        return cache
