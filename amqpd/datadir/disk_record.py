"""What each data directory says of itself and of the others: the file `disks`.

What comes in: a directory. What goes out: its record, read and written on stable storage.
Rules: 1. The file has two places, written in turn and in place: a crash leaves one of them whole, and a full disk
takes it. 2. A record that is damaged is none, and the directory counts for nothing until it is repaired. 3. What is
`promised` is kept before anything of that incarnation is written; a list is in effect when a majority of its disks,
and of those of the list before it, have it (docs/decisions/several-disks.md).
Not here: what follows from records (`disks/election.py`), who writes which (`disks/roster.py`).
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from amqpd.storage.files import sync_directory

RECORD = "disks"
PLACE_BYTES = 64 << 10
"""Holds nine of the longest paths that Linux has (4096), as JSON."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Listed:
    """A disk of the list."""

    generation: str
    """drawn when it was new, and again whenever it was emptied, replaced or repaired"""
    path: str
    """where it was, for people"""
    inside: bool
    """it had everything when the list was written"""


@dataclass(frozen=True, slots=True)
class DiskList:
    """The disks of a node. Of two lists of a node the one with the higher version is the newer one."""

    node: str
    """drawn when the node got its first list"""
    version: tuple[int, int]
    """the incarnation of the process that wrote it, and a number in that"""
    disks: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one data directory: its generation, whether it is whole, and the list of disks that it knows."""

    generation: str
    """its own"""
    whole: bool
    """False: it is new, or its repair did not end; it has nothing that counts"""
    promised: int
    """nothing is taken from a process with a lower incarnation"""
    list: DiskList
    turn: int = field(default=0, compare=False)
    """grows with each writing"""


def read_record(directory: Path) -> Record | None:
    """None: there is none, or none that can be trusted. Raises OSError."""
    try:
        descriptor = os.open(directory / RECORD, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        places = [os.pread(descriptor, PLACE_BYTES, at * PLACE_BYTES) for at in range(2)]
    finally:
        os.close(descriptor)
    found = [record for record in map(_parse, places) if record is not None]
    return max(found, key=lambda record: record.turn, default=None)


def has_record(directory: Path) -> bool:
    """The directory is one of several, whatever it says. Raises OSError."""
    return (directory / RECORD).exists()


def directory_in_use(directory: Path) -> Path:
    """Where a command finds what it is to work on: of several directories of a node the first one that has
    everything, by the newest list that can be read; of one that is alone, itself."""
    inside, _ = inside_of(directory)
    return inside[0] if inside else directory


def inside_of(directory: Path) -> tuple[list[Path], int]:
    """The directories of its node that have everything, by the newest list that can be read, and how many are listed;
    none of one that is alone."""
    newest = _list_of(directory)
    if newest is None:
        return [], 0
    others = [each for disk in newest.disks if (each := _list_of(Path(disk.path))) is not None]
    newest = max((newest, *(each for each in others if each.node == newest.node)), key=lambda each: each.version)
    return [Path(disk.path) for disk in newest.disks if disk.inside], len(newest.disks)


def _list_of(directory: Path) -> DiskList | None:
    try:
        record = read_record(directory)
    except OSError:
        return None
    return None if record is None else record.list


def write_record(directory: Path, record: Record) -> Record:
    """As it is written, on stable storage. Raises OSError, ValueError for one that is too long."""
    before = read_record(directory)
    turn = 0 if before is None else before.turn + 1
    record = Record(record.generation, record.whole, record.promised, record.list, turn)
    place = _packed(record)
    path = directory / RECORD
    new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < 2 * PLACE_BYTES:
            os.posix_fallocate(descriptor, 0, 2 * PLACE_BYTES)
        if os.pwrite(descriptor, place, turn % 2 * PLACE_BYTES) != PLACE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if new:
        sync_directory(directory)
    return record


def _packed(record: Record) -> bytes:
    text = json.dumps(asdict(record)).encode()
    place = b"amqpd-disks %d %d %d\n" % (FORMAT, len(text), crc32(text)) + text
    if len(place) > PLACE_BYTES:
        raise ValueError("the paths of the data directories are too long together")
    return place.ljust(PLACE_BYTES, b"\0")


def _parse(place: bytes) -> Record | None:
    head, _, rest = place.partition(b"\n")
    words = head.split()
    try:
        magic, form, length, crc = words[0], int(words[1]), int(words[2]), int(words[3])
        text = rest[:length]
        if magic != b"amqpd-disks" or form != FORMAT or len(text) != length or crc32(text) != crc:
            return None
        return _record(json.loads(text))
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def _record(said: dict[str, Any]) -> Record:
    listed = said["list"]
    disks = tuple(Listed(each["generation"], each["path"], bool(each["inside"])) for each in listed["disks"])
    incarnation, number = listed["version"]
    found = DiskList(listed["node"], (int(incarnation), int(number)), disks)
    return Record(said["generation"], bool(said["whole"]), int(said["promised"]), found, int(said["turn"]))
