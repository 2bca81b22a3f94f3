"""The deliveries of one channel that its client has not settled yet: the kernel's third function.

What comes in: deliveries, in the order of their tags; ranges of tags. What goes out: ranges of queue positions.
Rules: 1. An entry is a stretch of tags that belongs to one stretch of sequence numbers of one queue and one
consumer, so a batch costs one entry. 2. Entries are in tag order. 3. An unknown tag is reported, never guessed.
Not here: what settling means (`channels.py`, `queues/`).

Source: AMQP 0-9-1 section 3.1.8; delivery tags are scoped to the channel.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amqpd.consumers import Consumer
    from amqpd.queues.queue import Queue


class Delivered:
    """`size` deliveries: tags from `tag` on, sequence numbers of `queue` from `seq` on; `consumer` is None for
    basic.get. Never changed."""

    __slots__ = ("consumer", "queue", "seq", "size", "tag")

    def __init__(self, tag: int, size: int, seq: int, queue: Queue, consumer: Consumer | None) -> None:
        self.tag = tag
        self.size = size
        self.seq = seq
        self.queue = queue
        self.consumer = consumer


class Unacked:
    def __init__(self) -> None:
        self._entries: list[Delivered] = []
        self._start = 0
        """entries before it are settled: taking them off the front one by one would be quadratic"""
        self.count = 0

    def __iter__(self) -> Iterator[Delivered]:
        """In the order of their tags."""
        return iter(self._entries[self._start :])

    @property
    def oldest(self) -> Delivered | None:
        return self._entries[self._start] if self.count else None

    def add(self, tag: int, count: int, seq: int, queue: Queue, consumer: Consumer | None) -> None:
        entries = self._entries
        self.count += count
        if len(entries) > self._start:
            last = entries[-1]
            if (
                last.queue is queue
                and last.consumer is consumer
                and last.tag + last.size == tag
                and last.seq + last.size == seq
            ):
                entries[-1] = Delivered(last.tag, last.size + count, last.seq, queue, consumer)
                return
        entries.append(Delivered(tag, count, seq, queue, consumer))

    def settle(self, first: int, last: int) -> tuple[list[Delivered], int | None]:
        """Take out the tags first..last: (what they stand for, the first of them that is unknown or None). What
        stands before the unknown one is taken out."""
        taken: list[Delivered] = []
        entries = self._entries
        while first <= last:
            index = self._find(first)
            if index is None:
                self._count_off(taken)
                return taken, first
            entry = entries[index]
            end = min(last, entry.tag + entry.size - 1)
            part, rest = _cut(entry, first, end)
            taken.append(part)
            if index == self._start and not rest:
                self._start += 1
            else:
                entries[index : index + 1] = rest
            first = end + 1
        self._count_off(taken)
        if self._start > 256 and self._start * 2 > len(entries):
            del entries[: self._start]
            self._start = 0
        return taken, None

    def settle_through(self, last: int) -> tuple[list[Delivered], int | None]:
        """Take out every tag up to `last`, which must itself be outstanding; 0 stands for all (section 1.8.3.13.1
        of the reference). The answer as of `settle`."""
        entries = self._entries
        if last == 0:
            taken = entries[self._start :]
            self._entries, self._start, self.count = [], 0, 0
            return taken, None
        index = self._find(last)
        if index is None:
            return [], last
        taken = entries[self._start : index]
        part, rest = _cut(entries[index], entries[index].tag, last)
        taken.append(part)
        entries[: index + 1] = rest
        self._start = 0
        self._count_off(taken)
        return taken, None

    def restore(self, entries: list[Delivered]) -> None:
        """Put back what was taken out (tx.rollback)."""
        self._entries = sorted(self._entries[self._start :] + entries, key=lambda entry: entry.tag)
        self._start = 0
        self.count += sum(entry.size for entry in entries)

    def _find(self, tag: int) -> int | None:
        entries, start = self._entries, self._start
        if start < len(entries):
            entry = entries[start]
            if entry.tag <= tag < entry.tag + entry.size:
                return start
            index = bisect_right(entries, tag, lo=start, key=lambda entry: entry.tag) - 1
            if index >= start and entries[index].tag <= tag < entries[index].tag + entries[index].size:
                return index
        return None

    def _count_off(self, taken: list[Delivered]) -> None:
        for entry in taken:
            self.count -= entry.size


def _cut(entry: Delivered, first: int, last: int) -> tuple[Delivered, list[Delivered]]:
    """The tags first..last of the entry, and what is left of it on either side."""
    tag, size, seq, queue, consumer = entry.tag, entry.size, entry.seq, entry.queue, entry.consumer
    low, high = first - tag, last - tag + 1
    if low == 0 and high == size:
        return entry, []
    rest = []
    if low > 0:
        rest.append(Delivered(tag, low, seq, queue, consumer))
    if high < size:
        rest.append(Delivered(tag + high, size - high, seq + high, queue, consumer))
    return Delivered(first, high - low, seq + low, queue, consumer), rest
