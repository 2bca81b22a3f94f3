"""The Sublist: which of many topic patterns match a routing key (after NATS, server/sublist.go).

What comes in: `insert` and `remove` of (pattern, value), `match` of a routing key. What goes out: the values
whose patterns match, each once.
Theory of operation. Patterns live in three places: literal ones in a dict by their whole text, `#` alone in
one list, all others in a trie (`trie.py`) with a branch per word. A bounded cache of results stands in front.
Rules: 1. a value stays until every pattern that brought it is removed; 2. a match visits at most words x
nodes, however many `#` there are; 3. a cached result is never older than the last change that could alter it:
a change of a wildcard pattern starts a new generation, a change of a literal one drops that one key; 4. empty
results are cached too; 5. a cache that does not pay is passed by for a while (NATS issues 941 and 4341: with
many different keys its cache cost more than it saved).
Not here: the walk (`trie.py`), AMQP bindings (`topic.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from sys import getsizeof
from typing import Generic

from amqpd.exchanges.cache_memory import CacheMemory
from amqpd.exchanges.destinations import CountedSet, T
from amqpd.exchanges.patterns import HASH, is_literal, normal_form, words_of
from amqpd.exchanges.trie import STEP_VISITS, Trie

# NATS's slCacheMax: enough for the keys that are hot at one time, small enough to be thrown away at each
# bind.
CACHE_ENTRIES_MAX = 1024
# Results are tuples of references, so a cache full of wide ones would be large: 2 MiB are a thousand results of 200
# queues.
CACHE_BYTES_MAX = 2 * 1024 * 1024
# What a result takes beside its key and its references: its place in the dictionary, and the tuple.
RESULT_BYTES = 160
# A full cache is emptied, oldest first, to this fraction, so that the sweep is rare (NATS: 1024 to 256).
CACHE_SWEEP_KEPT = 0.25
# The hit rate is judged after this number of misses: twice the cache, or a cold start would be
# condemned.
JUDGED_MISSES = 2048
# Below this rate the misses cost more than the hits save. Measured on the benchmark's pattern set:
# remembering a result costs 350-500 ns, a hit saves 1,100-2,600 ns, so the balance is between 0.13 and 0.3.
HIT_RATE_MIN = 0.2
# Matches that pass a bad cache by before it gets another chance.
BYPASSED_MATCHES = 65_536


class Sublist(Generic[T]):
    """The topic patterns of an exchange with their values, in a trie behind a cache of matches.
    `cache_entries_max=0` means no cache."""

    def __init__(self, cache_entries_max: int = CACHE_ENTRIES_MAX) -> None:
        self.generation = 0
        self._literals: dict[str, CountedSet[T]] = {}
        self._everything: CountedSet[T] = CountedSet()
        self.trie: Trie[T] = Trie()
        """of the patterns with wildcards; to be looked at only"""
        self._changes = 0
        self._cache_entries_max = cache_entries_max
        self._cache: dict[str, tuple[T, ...]] = {}
        self._cache_generation = 0
        self._cache_bytes = 0
        self._memory: CacheMemory | None = None
        self._judged_hits = 0
        self._judged_misses = 0
        self._bypass_left = 0

    def insert(self, pattern: str, value: T) -> None:
        words = normal_form(pattern)
        if is_literal(words):
            bound = self._literals.get(pattern)
            if bound is None:
                bound = self._literals[pattern] = CountedSet()
            bound.add(value)
            self._uncache(pattern)
        else:
            (self._everything if words == [HASH] else self.trie.create(words)).add(value)
            self.generation += 1
        self._changes += 1

    def remove(self, pattern: str, value: T) -> None:
        """Raises KeyError, and changes nothing, when this pattern does not hold this value."""
        words = normal_form(pattern)
        if is_literal(words):
            bound = self._literals[pattern]
            bound.remove(value)
            if not bound:
                del self._literals[pattern]
            self._uncache(pattern)
        else:
            if words == [HASH]:
                self._everything.remove(value)
            else:
                self.trie.remove(words, value)
            self.generation += 1
        self._changes += 1

    def match(self, key: str) -> tuple[T, ...]:
        if self._cache_generation == self.generation:
            cached = self._cache.get(key)
            if cached is not None:
                self._judged_hits += 1
                return cached
        return self._missed(key)

    def _missed(self, key: str) -> tuple[T, ...]:
        if not self.trie.nodes:
            # A dict look-up is all that there is to do; a cache in front of a dict is a second dict.
            literal = self._literals.get(key)
            if literal is None:
                return self._everything.members()
            return merged([literal, self._everything]) if self._everything else literal.members()
        result = self._find(key)
        self._remember(key, result)
        return result

    def match_in_steps(self, key: str) -> Iterator[tuple[T, ...]]:
        """As `match`: empty results while it goes on, then the result."""
        words = words_of(key)
        if len(words) * self.trie.nodes <= STEP_VISITS or (
            self._cache_generation == self.generation and key in self._cache
        ):
            yield self.match(key)
            return
        changes = self._changes
        found = self._whole(key)
        for _ in self.trie.collect_in_steps(words, found):
            yield ()
        result = merged(found)
        if changes == self._changes:
            self._remember(key, result)
        yield result

    def _find(self, key: str) -> tuple[T, ...]:
        found = self._whole(key)
        for _ in self.trie.collect_in_steps(words_of(key), found):
            pass
        return merged(found)

    def _whole(self, key: str) -> list[CountedSet[T]]:
        """What needs no walk: the key itself, and everything."""
        found: list[CountedSet[T]] = []
        literal = self._literals.get(key)
        if literal is not None:
            found.append(literal)
        if self._everything:
            found.append(self._everything)
        return found

    # -- the cache

    @property
    def cached(self) -> int:
        """Results that are remembered."""
        return len(self._cache) if self._cache_generation == self.generation else 0

    def share_memory(self, memory: CacheMemory) -> None:
        """What the cache holds is charged there from now on, and may have to give way to other exchanges'."""
        self._memory = memory

    def forget(self) -> None:
        """Empty the cache, for `CacheMemory`."""
        self._cache.clear()
        self._cache_bytes = 0
        self._cache_generation = self.generation

    def _remember(self, key: str, result: tuple[T, ...]) -> None:
        if self._bypass_left:
            self._bypass_left -= 1
            return
        if not self._cache_entries_max:
            return
        if self._cache_generation != self.generation:
            self.forget_all()
        self._judged_misses += 1
        if self._judged_misses >= JUDGED_MISSES and not self._pays():
            self.forget_all()
            self._bypass_left = BYPASSED_MATCHES
            return
        nbytes = _bytes_of(key, result)
        if self._memory is not None:
            self._memory.charge(self, nbytes)
        self._cache[key] = result
        self._cache_bytes += nbytes
        if len(self._cache) > self._cache_entries_max or self._cache_bytes > CACHE_BYTES_MAX:
            self._sweep()

    def _pays(self) -> bool:
        pays = self._judged_hits >= HIT_RATE_MIN * (self._judged_hits + self._judged_misses)
        self._judged_hits = self._judged_misses = 0
        return pays

    def _sweep(self) -> None:
        entries_kept = int(self._cache_entries_max * CACHE_SWEEP_KEPT)
        bytes_kept = int(CACHE_BYTES_MAX * CACHE_SWEEP_KEPT)
        for key in list(islice(self._cache, max(0, len(self._cache) - entries_kept))):
            self._uncache(key)
        while self._cache_bytes > bytes_kept:
            self._uncache(next(iter(self._cache)))

    def _uncache(self, key: str) -> None:
        cached = self._cache.pop(key, None)
        if cached is not None:
            nbytes = _bytes_of(key, cached)
            self._cache_bytes -= nbytes
            if self._memory is not None:
                self._memory.release(self, nbytes)

    def forget_all(self) -> None:
        """Empty the cache, and give its memory back."""
        if self._memory is not None:
            self._memory.release(self)
        self.forget()


def _bytes_of(key: str, result: tuple[T, ...]) -> int:
    return RESULT_BYTES + getsizeof(key) + 8 * len(result)


def merged(sets: list[CountedSet[T]]) -> tuple[T, ...]:
    """The members of all, each once; a single set gives its own shared tuple."""
    if len(sets) == 1:
        return sets[0].members()
    union: dict[T, int] = {}
    for one in sets:
        union.update(one.counts)
    return tuple(union)
