"""Consistent hashing with weights: which of several members a key belongs to.

What comes in: members with weights, and keys as numbers. What goes out: a member.
Theory of operation. A key falls into one of 65,536 slots, and in each slot the members race: a member's time is drawn
from the slot and its name alone, exponentially distributed with its weight as the rate, and the shortest wins
(weighted rendezvous hashing: Thaler and Ravishankar 1998, the weights as in Resch 2015). So a member wins slots in
proportion to its weight; one that comes takes slots only from others, in its proportion; one that goes leaves only
its own. No other slot moves, and the order in which they came does not matter.
A slot's winner is worked out when a key falls into it, and remembered: later only those that have come since then
race against it, and all only when the winner has gone. So a change costs nothing by itself, and a look-up no race
mostly.
Rules: equal members with equal weights give equal answers, in every process.
Not here: what is hashed (`consistent_hash.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from hashlib import blake2b
from math import log
from typing import Generic, TypeVar

from amqpd.exchanges.cache_memory import CacheMemory

T = TypeVar("T")

SLOTS = 1 << 16
# Slots are remembered in pages, made when a key falls into one: a thousand exchanges with some keys each must not
# have a thousand whole tables.
PAGE_SLOTS = 256
# For each slot two numbers of four bytes; and the arrays themselves.
PAGE_BYTES = PAGE_SLOTS * 8 + 300
# At most this many removed members stay in the list of the race, or as many as there are others; then it is rebuilt.
GONE_MAX = 64

_MASK = (1 << 64) - 1
# Odd constants without structure, of splitmix64 (Steele, Lea, Flood 2014).
_MIX_1, _MIX_2, _STEP = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15
_NOBODY = 0xFFFFFFFF


def digest(data: bytes) -> int:
    """64 bits that depend on all of `data`."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


class _Member(Generic[T]):
    __slots__ = ("gone", "seed", "value", "weight")

    def __init__(self, value: T, seed: int, weight: int) -> None:
        self.value = value
        self.seed = seed
        self.weight = float(weight)
        self.gone = False

    def time(self, slot: int) -> float:
        """What the member needs in this slot."""
        mixed = ((slot * _STEP + self.seed) & _MASK) * _MIX_1 & _MASK
        mixed = (mixed ^ mixed >> 29) * _MIX_2 & _MASK
        mixed ^= mixed >> 32
        return -log((mixed + 1) / 18446744073709551617.0) / self.weight


class _Page:
    """One page of neighbouring slots: for each the index of the winner in the race, and how many took part in it."""

    __slots__ = ("raced", "winners")

    def __init__(self) -> None:
        self.winners = array("I", [_NOBODY]) * PAGE_SLOTS
        self.raced = array("I", [0]) * PAGE_SLOTS


class HashSlots(Generic[T]):
    """Weighted members, and the one among them that a number belongs to (weighted rendezvous hashing)."""

    def __init__(self, name: Callable[[T], bytes]) -> None:
        """`name` tells the members apart for the hash."""
        self._name = name
        self._members: dict[T, _Member[T]] = {}
        self._race: list[_Member[T]] = []
        """in the order in which they came, those that have gone among them"""
        self._pages: dict[int, _Page] = {}
        self._memory: CacheMemory | None = None
        self.raced = 0
        """members that have taken part in a race so far, each as often as it did"""

    def set(self, member: T, weight: int) -> None:
        """The member takes part with this weight from now on; with 0 not any more."""
        before = self._members.pop(member, None)
        if before is not None:
            if before.weight == weight:
                self._members[member] = before
                return
            before.gone = True
        if weight:
            entry = _Member(member, digest(self._name(member)), weight)
            self._members[member] = entry
            self._race.append(entry)
        if len(self._race) - len(self._members) > max(GONE_MAX, len(self._members)):
            self._compact()

    def pick(self, key: int) -> T | None:
        """The member that the key belongs to; None when there are none."""
        race = self._race
        if not self._members:
            return None
        slot = key % SLOTS
        page = self._pages.get(slot // PAGE_SLOTS)
        if page is None:
            if self._memory is not None:
                self._memory.charge(self, PAGE_BYTES)
            page = self._pages[slot // PAGE_SLOTS] = _Page()
        at = slot % PAGE_SLOTS
        winner = page.winners[at]
        if page.raced[at] != len(race) or race[winner].gone:
            winner = page.winners[at] = self._run(slot, winner, page.raced[at])
            page.raced[at] = len(race)
        return race[winner].value

    def share_memory(self, memory: CacheMemory) -> None:
        """What is remembered of slots is charged there from now on, and may have to give way to others'."""
        self._memory = memory

    def forget(self) -> None:
        """Remember no slot, for `CacheMemory`: all are raced again when they are asked for."""
        self._pages.clear()

    def forget_all(self) -> None:
        """Remember no slot, and give the memory back."""
        if self._memory is not None:
            self._memory.release(self)
        self.forget()

    def _run(self, slot: int, winner: int, raced: int) -> int:
        race = self._race
        if winner == _NOBODY or race[winner].gone:
            first, best = 0, float("inf")
        else:
            first, best = raced, race[winner].time(slot)
        self.raced += len(race) - first
        for index in range(first, len(race)):
            member = race[index]
            if not member.gone:
                time = member.time(slot)
                # Two that draw the same: the one of the smaller name, whichever came first.
                if time < best or (time == best and self._before(member, race[winner])):
                    winner, best = index, time
        return winner

    def _before(self, one: _Member[T], other: _Member[T]) -> bool:
        return self._name(one.value) < self._name(other.value)

    def _compact(self) -> None:
        """Take those that have gone out of the race. Slots keep what they know of the others."""
        places: list[int] = []
        """for each of the old race, how many before it are still there"""
        kept: list[_Member[T]] = []
        for member in self._race:
            places.append(len(kept))
            if not member.gone:
                kept.append(member)
        places.append(len(kept))
        race = self._race
        for page in self._pages.values():
            # Where the winner has gone, all race again.
            for at, index in enumerate(page.winners):
                if index == _NOBODY or race[index].gone:
                    page.winners[at], page.raced[at] = _NOBODY, 0
                else:
                    page.winners[at], page.raced[at] = places[index], places[page.raced[at]]
        self._race = kept
