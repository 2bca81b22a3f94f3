"""Space that is held while no broker runs, so that a broker can start on a disk that has filled meanwhile.

What comes in: the data directory, before its files are opened and after they are closed. What goes out: the file
`metadata.reserve`, and `reserve` as large as there is space for.
Rules: 1. Opening metadata.db on a full disk takes space: its index of 32 KiB, which an orderly stop removes. It comes
from `metadata.reserve`, so that the journal's reserve is left for acknowledgements. 2. After a stop on a full disk
the journal's reserve is what the disk has, up to its full size: without any, the next start could hand out messages
and could not write down that they were acknowledged. 3. Nothing here fails: a reserve that cannot be held is missing,
and the start says what it lacks.
Not here: the journal's reserve while a broker runs (`journal/reserve.py`), alarms (`alarms.py`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from amqpd.journal.reserve import RESERVE_BYTES

METADATA_RESERVE = "metadata.reserve"
# The index of metadata's write-ahead log (32 KiB), and some commits of a few pages each.
METADATA_RESERVE_BYTES = 256 << 10
# Less than this lets no acknowledgement through: the journal's log takes more for its first commits.
JOURNAL_RESERVE_BYTES_MIN = 1 << 20


def hold_for_metadata(directory: Path) -> bool:
    """Whether it is held."""
    return _hold(directory / METADATA_RESERVE, METADATA_RESERVE_BYTES)


def release_for_metadata(directory: Path) -> bool:
    """Whether there was any."""
    try:
        (directory / METADATA_RESERVE).unlink()
    except OSError:
        return False
    return True


def hold_all(directory: Path, journal_bytes: int = RESERVE_BYTES) -> None:
    """When the files are closed, at once: what closing them gave back may be all there is."""
    path = directory / "reserve"
    if not hold_for_metadata(directory) and path.exists():
        with suppress(OSError):
            # 32 MiB of the journal's are not to be given up at the next start for 32 KiB.
            os.truncate(path, max(0, path.stat().st_size - METADATA_RESERVE_BYTES))
        hold_for_metadata(directory)
    if path.exists():
        return
    wanted = min(journal_bytes, _free_bytes(directory))
    while wanted >= JOURNAL_RESERVE_BYTES_MIN and not _hold(path, wanted):
        # The file system needs some of it for its own tables.
        wanted -= max(wanted // 64, 1 << 16)


def _hold(path: Path, nbytes: int) -> bool:
    with suppress(OSError):
        if path.exists() and path.stat().st_size >= nbytes:
            return True
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
    except OSError:
        with suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(descriptor)
    return True


def _free_bytes(directory: Path) -> int:
    try:
        file_system = os.statvfs(directory)
    except OSError:
        return 0
    return file_system.f_bavail * file_system.f_frsize
