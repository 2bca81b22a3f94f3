"""Which start of the broker this is, and what it has to know of the ones before.

What comes in: the audit folder. What goes out: a file `incarnations.json` there: the incarnation's number, how the
last one ended, the first numbers of each incarnation in the queues that still have messages of it.
Rules: 1. Written, and on disk, before a client connects: an incarnation's number is never used twice, also when the
file is damaged, missing or an older copy: the names of the log's files have the numbers too. 2. Kept up also while
nothing is recorded, so that recording may begin later. 3. The machine's boot is noted: when it changed and the last
incarnation did not end in order, the spool's last writes may be lost.
Not here: what the numbers mean (`audit/epochs.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from amqpd.audit.epochs import Eras
from amqpd.audit.files.damage import set_aside
from amqpd.errors import StartupError

FILE = "incarnations.json"
INCARNATION_MAX = 2**31 - 1
"""The log's column `incarnation` has 32 bits."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAME = re.compile(r".+-(\d{1,10})-\d+\.(?:spool|parquet)")


@dataclass
class Incarnation:
    """One start of the broker, with the facts of the start before it that the log needs."""

    number: int
    orderly: bool = True
    """the incarnation before ended in order; also true when there was none"""
    same_boot: bool = True
    """the machine was not started since"""
    eras: dict[int, Eras] = field(default_factory=dict)
    damage: dict[str, str] | None = None
    """what the log has to say of the file, if it could not be used"""


def next_incarnation(folder: Path) -> Incarnation:
    """A file that is damaged is set aside. Raises StartupError when it may not be read."""
    path = folder / FILE
    try:
        incarnation = _after(path.read_bytes())
    except FileNotFoundError:
        found = newest_named(folder)
        return _without_file(found, {"file": FILE, "error": "it is missing"}) if found else Incarnation(1)
    except PermissionError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}; give this user the right to read it") from error
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        reason = "its checksum does not fit, or it is cut off"
    else:
        if newest_named(folder, recent=True) < incarnation.number:
            return incarnation
        reason = "it is older than the files beside it"
    return _without_file(newest_named(folder), set_aside(path, reason))


def damage_of(folder: Path) -> str:
    """Why the next start would not use the file; empty: it would. Nothing is changed."""
    try:
        incarnation = _after((folder / FILE).read_bytes())
    except FileNotFoundError:
        return "it is missing" if newest_named(folder) else ""
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "its checksum does not fit, or it is cut off"
    return "it is older than the files beside it" if newest_named(folder, recent=True) >= incarnation.number else ""


def write_incarnation(folder: Path, incarnation: int, ended: bool, eras: dict[int, Eras]) -> None:
    """Writes the record of this incarnation to stable storage. Raises OSError."""
    temporary = folder / f".{FILE}.tmp"
    known = {
        "incarnation": incarnation,
        "ended": ended,
        "boot": _boot(),
        "eras": {str(queue): each for queue, each in eras.items()},
    }
    with temporary.open("w") as file:
        json.dump({**known, "crc": _checksum(known)}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / FILE)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newest_named(folder: Path, recent: bool = False) -> int:
    """The highest incarnation that a file of the log is named after; 0: there is none. `recent`: of the log's last
    hours, which is enough for a file that is in order."""
    highest = 0
    for name in _names(folder, recent):
        named = _NAME.match(name)
        if named is not None and int(named[1]) < INCARNATION_MAX:
            highest = max(highest, int(named[1]))
    return highest


def _names(folder: Path, recent: bool) -> Iterator[str]:
    with suppress(OSError):
        hours = sorted((folder / "events").glob("date=*/hour=*"))
        for place in (folder / "spool", *(hours[-2:] if recent else hours)):
            with suppress(OSError):
                yield from os.listdir(place)


def _after(data: bytes) -> Incarnation:
    """Raises ValueError, KeyError, TypeError, AttributeError."""
    known: dict[str, Any] = json.loads(data)
    # A file of an earlier version has none.
    if known.pop("crc", None) not in (None, _checksum(known)):
        raise ValueError
    if type(known["incarnation"]) is not int or not 0 < known["incarnation"] < INCARNATION_MAX:
        raise ValueError
    eras = {
        int(queue): [(int(incarnation), int(first)) for incarnation, first in each]
        for queue, each in known["eras"].items()
    }
    return Incarnation(known["incarnation"] + 1, bool(known["ended"]), known["boot"] == _boot(), eras)


def _without_file(newest: int, damage: dict[str, str]) -> Incarnation:
    return Incarnation(newest + 1, orderly=False, damage=damage)


def _checksum(known: dict[str, Any]) -> int:
    return crc32(json.dumps(known).encode())


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
