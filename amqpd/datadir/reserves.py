"""Space that is held while no broker runs, so that a broker can start on a disk that has filled meanwhile.

What comes in: the data directory, before its files are opened and after they are closed. What goes out: the file
`metadata.reserve`, and `reserve` as large as there is space for.
Rules: 1. Opening metadata.db on a full disk takes space: its index of 32 KiB, which an orderly stop removes. It comes
from `metadata.reserve`, so that the journal's reserve is left for acknowledgements. 2. After a stop on a full disk
the journal's reserve is what the disk has, up to its full size: without any, the next start could hand out messages
and could not write down that they were acknowledged. 3. Nothing here fails: a reserve that cannot be held is missing,
and the start says what it lacks.
Not here: the journal's reserve while a broker runs (`journal/sqlite/reserve.py`), alarms (`process/alarms.py`).
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from amqpd.journal.sqlite.reserve import RESERVE_BYTES

METADATA_RESERVE = "metadata.reserve"
# The index of metadata's write-ahead log (32 KiB), and some commits of a few pages each.
METADATA_RESERVE_BYTES = 256 << 10
# The index alone, and a page: what closing the metadata gives back, on a disk where there is nothing else.
METADATA_RESERVE_BYTES_MIN = 36 << 10
INDEX_PAGE_BYTES = 4096
# Less than this lets no acknowledgement through: the journal's log takes more for its first commit.
JOURNAL_RESERVE_BYTES_MIN = 128 << 10


def hold_for_next_start(directory: Path) -> None:
    """When the reserve was given up for this one: a broker that is killed now has it again."""
    _hold(directory / METADATA_RESERVE, METADATA_RESERVE_BYTES_MIN)


def hold_for_metadata(directory: Path) -> bool:
    """As much as there is space for; whether it is all of it."""
    path, wanted = directory / METADATA_RESERVE, METADATA_RESERVE_BYTES
    if _hold(path, wanted):
        return True
    while wanted > METADATA_RESERVE_BYTES_MIN:
        wanted = max(wanted // 2, METADATA_RESERVE_BYTES_MIN)
        if _hold(path, wanted):
            break
    return False


def release_for_metadata(directory: Path) -> bool:
    """Whether there was any."""
    try:
        (directory / METADATA_RESERVE).unlink()
    except OSError:
        return False
    return True


def index_is_safe(directory: Path) -> bool:
    """SQLite takes one byte of each page of the metadata's index from the file system, and writes the page through a
    memory map. Where blocks are smaller than pages a full disk would end the process there (SIGBUS)."""
    try:
        file_system = os.statvfs(directory)
    except OSError:
        return True
    return file_system.f_frsize >= INDEX_PAGE_BYTES or _free_bytes(directory) >= METADATA_RESERVE_BYTES_MIN


def hold_all(directory: Path, journal_bytes: int = RESERVE_BYTES) -> None:
    """When the files are closed, at once: what closing them gave back may be all there is."""
    metadata, journal = directory / METADATA_RESERVE, directory / "reserve"
    _hold(metadata, METADATA_RESERVE_BYTES_MIN)
    if not journal.exists():
        wanted = min(journal_bytes, _free_bytes(directory))
        while wanted >= JOURNAL_RESERVE_BYTES_MIN and not _hold(journal, wanted):
            # The file system needs some of it for its own tables.
            wanted -= max(wanted // 64, 1 << 15)
    if not hold_for_metadata(directory) and _bytes_of(metadata) < METADATA_RESERVE_BYTES_MIN <= _bytes_of(journal):
        with suppress(OSError):
            # Not all of the journal's is to be given up at the next start for 32 KiB.
            os.truncate(journal, _bytes_of(journal) - METADATA_RESERVE_BYTES_MIN)
        _hold(metadata, METADATA_RESERVE_BYTES_MIN)


def _hold(path: Path, nbytes: int) -> bool:
    """Whether the file has that size now; if not, it is as it was."""
    before = -1
    with suppress(OSError):
        before = path.stat().st_size
        if before >= nbytes:
            return True
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
    except OSError:
        with suppress(OSError):
            path.unlink() if before < 0 else os.ftruncate(descriptor, before)
        return False
    finally:
        os.close(descriptor)
    return True


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _free_bytes(directory: Path) -> int:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0
