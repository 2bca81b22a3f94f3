"""The ledger of one channel: the deliveries that its client has not settled yet.

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

from amqpd.session.credit import Subscription

if TYPE_CHECKING:
    from amqpd.queues.port import QueuePort

# Entries of one block: finding it takes longer than moving half of it.
BLOCK_ENTRIES_MAX = 512
# This many that are settled, and more than the others of their block, leave it together.
SETTLED_MAX = 256


# What an entry takes here, and the gap beside it in its queue.
ENTRY_BYTES = 256


class Delivered:
    """A stretch of `size` deliveries: tags from `tag` on, sequence numbers of `queue` from `seq` on; `consumer` is
    None for basic.get. Never changed."""

    __slots__ = ("consumer", "queue", "seq", "size", "tag")

    def __init__(self, tag: int, size: int, seq: int, queue: QueuePort, consumer: Subscription | None) -> None:
        self.tag = tag
        self.size = size
        self.seq = seq
        self.queue = queue
        self.consumer = consumer

    def joined(self, other: Delivered) -> Delivered | None:
        """Both in one, when `other` goes on where this one ends."""
        if (
            self.queue is other.queue
            and self.consumer is other.consumer
            and self.tag + self.size == other.tag
            and self.seq + self.size == other.seq
        ):
            return Delivered(self.tag, self.size + other.size, self.seq, self.queue, self.consumer)
        return None


class Unacked:
    """The ledger of one channel's deliveries that its client has not settled yet. Its entries stand in blocks, so
    that taking one out of the middle moves part of one block, and not all that is outstanding behind it: clients
    choose how much that is."""

    def __init__(self) -> None:
        self._blocks: list[list[Delivered]] = [[]]
        """none is empty, except an only one"""
        self._start = 0
        """entries of the first block before it are settled, and leave it together"""
        self.count = 0

    def __iter__(self) -> Iterator[Delivered]:
        """In the order of their tags."""
        start = self._start
        for block in self._blocks:
            yield from block[start:] if start else block
            start = 0

    @property
    def nbytes(self) -> int:
        """What its entries take, about, with what their queues keep for the gaps; 0 for one block of them."""
        if len(self._blocks) == 1:
            return 0
        return ENTRY_BYTES * sum(map(len, self._blocks))

    @property
    def oldest(self) -> Delivered | None:
        return self._blocks[0][self._start] if self.count else None

    @property
    def newest_tag(self) -> int:
        """The last that is outstanding; 0 when none is."""
        if not self.count:
            return 0
        entry = self._blocks[-1][-1]
        return entry.tag + entry.size - 1

    def add(self, tag: int, count: int, seq: int, queue: QueuePort, consumer: Subscription | None) -> None:
        entries = self._blocks[-1]
        if self.count:
            last = entries[-1]
            if (
                last.queue is queue
                and last.consumer is consumer
                and last.tag + last.size == tag
                and last.seq + last.size == seq
            ):
                self.count += count
                entries[-1] = Delivered(last.tag, last.size + count, last.seq, queue, consumer)
                return
        self.count += count
        if len(entries) < BLOCK_ENTRIES_MAX:
            entries.append(Delivered(tag, count, seq, queue, consumer))
        else:
            self._blocks.append([Delivered(tag, count, seq, queue, consumer)])

    def settle(self, first: int, last: int) -> tuple[list[Delivered], int | None]:
        """Take out the tags first..last: (what they stand for, the first of them that is unknown or None). What
        stands before the unknown one is taken out."""
        taken: list[Delivered] = []
        while first <= last:
            at, index = self._find(first)
            if index < 0:
                self._count_off(taken)
                return taken, first
            entry = self._blocks[at][index]
            end = min(last, entry.tag + entry.size - 1)
            part, rest = _cut(entry, first, end)
            taken.append(part)
            if not at and index == self._start and not rest:
                self._start += 1
                size = len(self._blocks[0])
                if self._start == size or (self._start > SETTLED_MAX and self._start * 2 > size):
                    self._drop_settled()
            else:
                self._replace(at, index, rest)
            first = end + 1
        self._count_off(taken)
        return taken, None

    def settle_through(self, last: int, entries_max: int = 1 << 62) -> tuple[list[Delivered], int | None]:
        """Take out every tag up to `last`, which must itself be outstanding; 0 stands for all (section 1.8.3.13.1
        of the reference). The answer as of `settle`. About `entries_max` entries are taken out, the first ones: when
        the last of them is not that of `last`, or with 0 something is left, there is more to take out."""
        at, index = self._find(last) if last else (len(self._blocks), 0)
        if index < 0:
            return [], last
        taken: list[Delivered] = []
        blocks, whole = self._blocks, 0
        while whole < at and len(taken) < entries_max:
            taken += blocks[whole][self._start :] if not whole else blocks[whole]
            whole += 1
        if whole:
            del blocks[:whole]
            self._start = 0
        if whole == at and last and len(taken) < entries_max:
            entries = blocks[0]
            taken += entries[self._start : index]
            part, rest = _cut(entries[index], entries[index].tag, last)
            taken.append(part)
            entries[: index + 1] = rest
            self._start = 0
            if not entries:
                del blocks[0]
        if not blocks:
            blocks.append([])
        self._count_off(taken)
        return taken, None

    def restore(self, entries: list[Delivered]) -> None:
        """Put back what was taken out (tx.rollback): each moves a part of one block, so some at a time."""
        self._drop_settled()
        blocks = self._blocks
        for entry in entries:
            at = max(bisect_right(blocks, entry.tag, key=_first_tag) - 1, 0) if len(blocks) > 1 else 0
            block = blocks[at]
            block.insert(bisect_right(block, entry.tag, key=_tag), entry)
            self.count += entry.size
            if len(block) > 2 * BLOCK_ENTRIES_MAX:
                blocks.insert(at + 1, block[BLOCK_ENTRIES_MAX:])
                del block[BLOCK_ENTRIES_MAX:]

    def _find(self, tag: int) -> tuple[int, int]:
        """The block, and the place in it, of the entry with this tag; the place is -1 when there is none."""
        blocks, start = self._blocks, self._start
        entries = blocks[0]
        if start < len(entries):
            entry = entries[start]
            if entry.tag <= tag < entry.tag + entry.size:
                return 0, start
        at = bisect_right(blocks, tag, key=_first_tag) - 1 if len(blocks) > 1 else 0
        if at < 0:
            return 0, -1
        entries = blocks[at]
        index = bisect_right(entries, tag, lo=0 if at else start, key=_tag) - 1
        if index >= (0 if at else start) and tag < entries[index].tag + entries[index].size:
            return at, index
        return at, -1

    def _replace(self, at: int, index: int, rest: list[Delivered]) -> None:
        """These parts are left of an entry."""
        entries = self._blocks[at]
        entries[index : index + 1] = rest
        if not at and (self._start == len(entries) or len(entries) > 2 * BLOCK_ENTRIES_MAX):
            # Before it is divided: else the first part may be of settled ones only.
            self._drop_settled()
        elif not entries and len(self._blocks) > 1:
            del self._blocks[at]
        if len(entries) > 2 * BLOCK_ENTRIES_MAX:
            self._blocks.insert(at + 1, entries[BLOCK_ENTRIES_MAX:])
            del entries[BLOCK_ENTRIES_MAX:]

    def _drop_settled(self) -> None:
        """The settled entries leave the first block, and that the ledger when nothing else is in it."""
        entries = self._blocks[0]
        del entries[: self._start]
        self._start = 0
        if not entries and len(self._blocks) > 1:
            del self._blocks[0]

    def _count_off(self, taken: list[Delivered]) -> None:
        for entry in taken:
            self.count -= entry.size


def _tag(entry: Delivered) -> int:
    return entry.tag


def _first_tag(entries: list[Delivered]) -> int:
    return entries[0].tag


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
