"""What caches of many owners hold in memory together, in bytes.

What comes in: a cache, and how many bytes it has just begun to hold. What goes out: `forget` of the caches that must
give way.
Rules: 1. Everything that a cache holds for a client is charged here, and taken off when the cache is emptied. 2.
Above the bound the caches that were not added to for longest are emptied, whole: what a cache holds can be worked
out again, so no client is refused anything. 3. A cache that is alone above the bound is emptied itself.
Not here: what is remembered (`publishing/routing.py`, `exchanges/sublist.py`, `exchanges/hash_slots.py`), the bound
of a single cache, which each has for itself.
"""

from __future__ import annotations

from typing import Protocol


class Cache(Protocol):
    """A cache, as the memory that it is charged to knows it."""

    def forget(self) -> None:
        """Empty the cache. What it held is not charged any more: do not call `release` for it."""
        ...


class CacheMemory:
    """The bytes of all caches together: above `bytes_max`, the cache that grew least recently is emptied."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.nbytes = 0
        self._held: dict[Cache, int] = {}
        """the cache that was not added to for longest first"""

    def held_by(self, cache: Cache) -> int:
        return self._held.get(cache, 0)

    def charge(self, cache: Cache, nbytes: int) -> None:
        """The cache holds `nbytes` more. It may be emptied by this call, with what it has just added: so charge
        first, add later."""
        self._held[cache] = self._held.pop(cache, 0) + nbytes
        self.nbytes += nbytes
        while self.nbytes > self.bytes_max:
            longest_quiet = next(iter(self._held))
            if longest_quiet is cache:
                # No other cache is left: what was just charged is about to be added, and stays.
                kept = min(nbytes, self._held[cache])
                self.release(cache)
                cache.forget()
                self._held[cache] = kept
                self.nbytes += kept
                return
            self.release(longest_quiet)
            longest_quiet.forget()

    def release(self, cache: Cache, nbytes: int | None = None) -> None:
        """The cache gave back `nbytes`; None: all that it held."""
        held = self._held.get(cache)
        if held is None:
            return
        left = 0 if nbytes is None else held - nbytes
        self.nbytes -= held - left
        if left > 0:
            self._held[cache] = left
        else:
            del self._held[cache]
