"""What the journal has to know of a stretch of messages that becomes one of its rows.

What comes in: nothing. What goes out: `PendingRow`, the base of `queues.segment.Segment`.
Rules: 1. Messages first..last of the queue, of which `left` are not settled. 2. What is added to it until its
transaction is cut is in that transaction; then it is `sealed`. 3. A compiled class and no Protocol: acknowledgements
meet it.
Not here: what else a queue keeps with it (`queues/segment.py`), rows as they are on the disk (`records.py`).
"""

from __future__ import annotations

from abc import abstractmethod

from amqpd.kernel import Run


class PendingRow:
    """A stretch of messages that becomes a row of the journal. `__init__` is the subclass's: all attributes have
    to be set."""

    __slots__ = ("first", "index", "last", "left", "nbytes", "persistent", "published_ms", "runs", "sealed", "stored")

    first: int
    last: int
    left: int
    """messages that are not settled"""
    runs: list[Run] | None
    """None when the bodies are on disk only"""
    nbytes: int
    """of the frames of the runs held in memory"""
    persistent: bool
    published_ms: int
    """when its first message came, in ms since the epoch"""
    sealed: bool
    """no more runs may be added: the journal has taken it, or it is not the last one"""
    stored: bool
    """the journal has written it, or is writing it: what is settled must be recorded"""
    index: int
    """the journal transaction that holds it; meaningful with `stored`"""

    @property
    @abstractmethod
    def whole(self) -> bool:
        """Nothing in it is settled."""

    @abstractmethod
    def settled_ranges(self) -> list[tuple[int, int]]:
        """The settled messages as (first, last) sequence numbers, both included."""

    @abstractmethod
    def packed_deadlines(self) -> bytes:
        """When its messages expire, as the row says it; empty for never."""
