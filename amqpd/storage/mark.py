"""A small file beside a database that says up to which number its transactions were promised to be durable.

What comes in: a database's identity; after each commit, its number. What goes out: the promise, for the next start.
Rules: 1. It is written after the database's own sync and not synced itself: the operating system keeps it when the
process dies, and after a power cut it may be older. So it never says more than is true, and a database that has less
than it says has lost something. 2. Two places are written in turn, each with a checksum: one that was half written
leaves the other. 3. It is mapped into memory, so that writing it is no system call: each of these gives up the
interpreter lock. Of a disk that is one of several it is not: writing a page of a file system that hangs waits, and
all threads with it.
Not here: what follows when the promise is broken (`amqpd.journal.sqlite.trust`, `amqpd.topology`).
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

FILE_BYTES = 4096
_PLACES = (0, FILE_BYTES // 2)
_MAGIC = b"amqpmark"
_PLACE = Struct("<8s16sQ")
_SUM = Struct("<I")


class Promise(NamedTuple):
    """The promise of a mark: up to which transaction the commits of which database are durable."""

    identity: str
    """of the database, 32 hexadecimal digits"""
    number: int
    """of the last transaction that was promised"""


class MarkDamaged(Exception):
    """The file of a mark is there and holds no promise; the text is one sentence."""


def read_mark(path: Path) -> Promise | None:
    """None when there is no file, or it was never written to. Raises MarkDamaged, OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    found = [promise for at in _PLACES if (promise := _parse(data[at : at + _PLACE.size + _SUM.size])) is not None]
    if len({promise.identity for promise in found}) == 1:
        return max(found)
    if not found and data.count(0) == len(data):
        return None  # the power went before its bytes were written
    raise MarkDamaged(f"{path} is damaged: what was promised to be on the disk is not known")


class Mark:
    """The file of a mark, open for writing. `by_calls`: no thread waits for it but the one that calls. Raises
    OSError; a full disk may refuse a new one."""

    def __init__(self, path: Path, identity: str, number: int, *, by_calls: bool = False) -> None:
        self.path = path
        self._identity = bytes.fromhex(identity)
        self._turn = 0
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Written, not only made longer: a page that the disk has no space for would end the process later.
            if os.pwrite(descriptor, self._whole(number), 0) != FILE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(descriptor, FILE_BYTES)
            self._map = None if by_calls else mmap.mmap(descriptor, FILE_BYTES)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def promise(self, number: int) -> None:
        """Transactions up to this number are on stable storage."""
        self._turn ^= 1
        at = _PLACES[self._turn]
        place = self._place(number)
        end = at + len(place)
        if self._map is not None:
            self._map[at:end] = place
            return
        with suppress(OSError):  # then it is as old as after a power cut
            os.pwrite(self._descriptor, place, at)

    def sync(self) -> None:
        """The promise itself is on stable storage. Raises OSError."""
        # Not msync(2), for which Python keeps the interpreter lock.
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _place(self, number: int) -> bytes:
        place = _PLACE.pack(_MAGIC, self._identity, number)
        return place + _SUM.pack(crc32(place))

    def _whole(self, number: int) -> bytes:
        place = self._place(number)
        return place.ljust(_PLACES[1], b"\0") + place.ljust(FILE_BYTES - _PLACES[1], b"\0")


def _parse(data: bytes) -> Promise | None:
    if len(data) < _PLACE.size + _SUM.size:
        return None
    magic, identity, number = _PLACE.unpack_from(data)
    (checksum,) = _SUM.unpack_from(data, _PLACE.size)
    if magic != _MAGIC or checksum != crc32(data[: _PLACE.size]):
        return None
    return Promise(identity.hex(), number)
