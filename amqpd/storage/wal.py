"""Reads SQLite's write-ahead log by itself, to tell a torn end from damage in the middle.

What comes in: the path of a `-wal` file. What goes out: `WalEnd`; of a file that a process writes meanwhile, it may
be wrong, and another reading says something else.
Rules: 1. SQLite takes the first frame that does not fit its checksum for the end of the log, and forgets what stands
behind it. That is right after a power cut, when the last transaction was not synced yet, and wrong after damage.
2. Each transaction is synced before the next one begins. So at most one transaction may be torn, and a frame of the
current log behind a commit frame behind the first bad frame shows damage. 3. When the last transaction alone is bad,
the file cannot tell; what knows what was promised can (`mark.py`).
Not here: what follows from it (`amqpd.journal.sqlite.trust`).

Source: sqlite.org/fileformat2.html, section 4 (the WAL-index is not used: it is in memory).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from amqpd.storage.files import wal_path

_HEADER = Struct(">8I")
"""magic, format version, page size, checkpoint number, two salts, two checksums"""
_FRAME = Struct(">6I")
"""page number, pages of the database after a commit (0: none), two salts, two checksums"""
_MAGIC = 0x377F0682
"""the lowest bit says which byte order the checksums read words in"""
_MASK = 0xFFFFFFFF

Checksum = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WalEnd:
    """The end of a write-ahead log: what SQLite will recover of it, and what it would pass over."""

    frames: int
    """up to the last commit that is whole"""
    damage: str = ""
    """empty, or how one sees that later transactions were on the disk: the rest of a sentence about the file"""
    torn: bool = False
    """behind the last whole commit stands a part of one transaction, or one that is not whole"""

    def why_less(self, name: str) -> str:
        """Why the database may have less than it had, by its log `name`: the rest of a sentence; empty: the log is
        whole."""
        if self.damage:
            return f"{name} is damaged ({self.damage})"
        return f"{name} is damaged at its end" if self.torn else ""


def read_end(path: Path) -> WalEnd:
    """Of the log at `path`; one that is missing or empty has ended properly. Raises OSError."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return WalEnd(0)
    with file:
        size = path.stat().st_size
        if size == 0:
            return WalEnd(0)
        head = file.read(_HEADER.size)
        start = _read_header(head)
        if start is None:
            return WalEnd(0) if _all_zero(head, file) else WalEnd(0, "its header is damaged")
        return _scan(file, *start, frames=(size - _HEADER.size) // (_FRAME.size + start[0]))


def why_less(database: Path) -> str:
    """What is wrong with the database's log (see `WalEnd.why_less`); empty too if the log cannot be read: opening the
    database says that."""
    log = wal_path(database)
    try:
        return read_end(log).why_less(log.name)
    except OSError:
        return ""


def _read_header(head: bytes) -> tuple[int, bytes, Checksum, bool] | None:
    """(page size, salts, checksum, whether words are big-endian); None when it is not a valid one."""
    if len(head) < _HEADER.size:
        return None
    magic, version, page_bytes, _, _, _, *sums = _HEADER.unpack(head)
    big = bool(magic & 1)
    if (
        magic & ~1 != _MAGIC
        or version != 3_007_000
        or page_bytes & (page_bytes - 1)
        or not 512 <= page_bytes <= 65_536
    ):
        return None
    if _checksum(head[:24], (0, 0), big) != tuple(sums):
        return None
    return page_bytes, head[16:24], (sums[0], sums[1]), big


def _scan(file: BinaryIO, page_bytes: int, salts: bytes, checksum: Checksum, big: bool, *, frames: int) -> WalEnd:
    whole = at = 0
    for head, page in _frames(file, page_bytes, frames):
        checksum = _checksum(page, _checksum(head[:8], checksum, big), big)
        if checksum != _FRAME.unpack(head)[4:]:
            break
        if head[8:16] != salts:
            # The checksum is of all frames before it, so this one was written behind them.
            return WalEnd(whole, f"frame {at + 1} is damaged in its header")
        at += 1
        if head[4:8] != b"\0\0\0\0":
            whole = at
    # What follows is of this log if its salts are: a log that begins again has others, and overwrites the old one.
    commits = 0
    begun = at > whole
    for place in range(at, frames):
        file.seek(_HEADER.size + place * (_FRAME.size + page_bytes))
        head = file.read(_FRAME.size)
        if head[8:16] != salts:
            continue
        begun = True
        if commits:
            behind = sum(1 for _ in _current(file, page_bytes, salts, place, frames))
            return WalEnd(whole, f"frame {at + 1} is damaged, and {behind} frames of later transactions follow it")
        commits += head[4:8] != b"\0\0\0\0"
    return WalEnd(whole, torn=begun)


def _current(file: BinaryIO, page_bytes: int, salts: bytes, place: int, frames: int) -> Iterator[int]:
    """The frames of this log from `place` on."""
    for each in range(place, frames):
        file.seek(_HEADER.size + each * (_FRAME.size + page_bytes) + 8)
        if file.read(8) == salts:
            yield each


def _frames(file: BinaryIO, page_bytes: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    """(header, page) of each; the file stands behind its own header."""
    for _ in range(count):
        frame = file.read(_FRAME.size + page_bytes)
        if len(frame) < _FRAME.size + page_bytes:
            # Another process has cut the file since its size was taken: a checkpoint ended.
            return
        yield frame[: _FRAME.size], frame[_FRAME.size :]


def _all_zero(head: bytes, file: BinaryIO) -> bool:
    """A file system may have allocated space for a log whose bytes it had not written when the power went."""
    while head:
        if head.count(0) != len(head):
            return False
        head = file.read(1 << 20)
    return True


def _checksum(data: bytes, before: Checksum, big: bool) -> Checksum:
    """SQLite adds pairs of 32-bit words one after the other: s0 += x0 + s1; s1 += x1 + s0. That is a linear map of
    what was before and of the words, so its factors can be known in advance, and the sum is one call for each half:
    some tenths of a millisecond for a page of 8 kB."""
    words = array("I", data)
    if big != (sys.byteorder == "big"):
        words.byteswap()
    first, second, (a, b, c, d) = _factors(len(words) // 2)
    s0, s1 = before
    return (
        (a * s0 + b * s1 + sum(map(mul, words, first))) & _MASK,
        (c * s0 + d * s1 + sum(map(mul, words, second))) & _MASK,
    )


@lru_cache(maxsize=8)
def _factors(pairs: int) -> tuple[list[int], list[int], tuple[int, int, int, int]]:
    """(of each word in the first half of the sum, in the second one, of the sums before)."""
    # The matrix of one step is ((1, 1), (1, 2)); a word's factors are those of the steps that follow it.
    first, second = [0] * (2 * pairs), [0] * (2 * pairs)
    a, b, c, d = 1, 0, 0, 1
    for at in reversed(range(pairs)):
        # A pair (x0, x1) adds (x0, x0 + x1), and then the following steps apply.
        first[2 * at], first[2 * at + 1] = (a + b) & _MASK, b
        second[2 * at], second[2 * at + 1] = (c + d) & _MASK, d
        a, b, c, d = (a + b) & _MASK, (a + 2 * b) & _MASK, (c + d) & _MASK, (c + 2 * d) & _MASK
    return first, second, (a, b, c, d)
