"""A lane: what a confirm can wait for, known by one growing number.

What comes in: nothing. What goes out: a base class for what makes messages safe: a journal's source with its
replicas (`buffer.py`), a link to another node.
Rules: 1. Whatever is handed in while `gathering` has a value is decided when `reported` has reached that value. 2.
Decided means safe, except what was refused, and that was told before the number passed it. 3. A lane says nothing
about another lane: a slow one delays only what waits for it.
Not here: what waits (`session/confirms.py`, `session/durability.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Lane:
    """One lane on this node: the numbers up to which what confirms wait for was handed in, and is decided."""

    def __init__(self, gathering: int, reported: int) -> None:
        self.gathering = gathering
        """what is handed in now has this number; it only grows"""
        self.reported = reported
        """everything up to this number is decided; smaller than `gathering`"""
        self.lost = False
        """it has ended, and nobody will know what was handed to it"""
        self.lagging = False
        """too much of what was handed to it is not decided yet: publishers of its queues wait"""
        self.writes = False
        """it waits for what is written here: what needs no write does not wait for it"""
        self.journalled = True
        """what is handed in gathers in this node's journal; else another node makes it safe"""
        self.alone: Lanes = (self,)
        """the most frequent set of lanes, made once"""

    @abstractmethod
    def force(self) -> None:
        """Something waits for `gathering`: the lane is to report it even when nothing else is handed in."""


class JournalLane(Lane):
    """The lane of a source that is led here: its number is the journal's index, as far as it is committed."""

    def __init__(self, force: Callable[[], None], gathering: int, committed: int) -> None:
        """`force`: that of the journal."""
        super().__init__(gathering, committed)
        self.writes = True
        self._force = force

    def force(self) -> None:
        self._force()


Lanes = tuple[Lane, ...]
"""a set of lanes in the order in which they were added"""
NONE: Lanes = ()


def joined(lanes: Lanes, more: Lanes) -> Lanes:
    """All of both, each once."""
    if not lanes or lanes is more:
        return more
    for lane in more:
        if lane not in lanes:
            lanes = (*lanes, lane)
    return lanes
