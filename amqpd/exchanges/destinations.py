"""A counted set of destinations: what is bound under one key.

What comes in: one `add` per binding, one `remove` per unbinding. What goes out: a tuple of the distinct
members.
Rules: 1. a member stays until every binding that named it is gone (the same queue may be bound twice under
one key, with other arguments); 2. members come out in the order in which they first came in; 3. the tuple is
built when it is asked for, then shared, so that ten thousand bindings in a row cost ten thousand steps, not
their square.
Not here: which bindings fall under one key (each exchange type decides that).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class CountedSet(Generic[T]):
    """A set of destinations that counts the bindings which hold each. `counts` maps each member to the number of
    bindings that hold it; read it, never write it."""

    __slots__ = ("_members", "counts")

    def __init__(self) -> None:
        self.counts: dict[T, int] = {}
        self._members: tuple[T, ...] | None = ()

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, member: T) -> None:
        held = self.counts.get(member, 0)
        self.counts[member] = held + 1
        if not held:
            self._members = None

    def remove(self, member: T) -> None:
        """Raises KeyError, and changes nothing, when the member is not there."""
        held = self.counts[member]
        if held > 1:
            self.counts[member] = held - 1
        else:
            del self.counts[member]
            self._members = None

    def members(self) -> tuple[T, ...]:
        if self._members is None:
            self._members = tuple(self.counts)
        return self._members
