"""Which start of the broker this is, and what it has to know of the ones before.

What comes in: the audit folder. What goes out: a file `lives.json` there: the life's number, how the last one ended,
the first numbers of each life in the queues that still have messages of it.
Rules: 1. Written, and on disk, before anybody connects: a life's number is never used twice. 2. Kept up also while
nothing is recorded, so that recording may begin later. 3. The machine's boot is noted: when it changed and the last
life did not end in order, the spool's last writes may be lost.
Not here: what the numbers mean (`epochs.py`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from amqpd.audit.epochs import Eras
from amqpd.errors import StartupError

FILE = "lives.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Life:
    number: int
    orderly: bool = True
    """the life before ended in order; also true when there was none"""
    same_boot: bool = True
    """the machine was not started since"""
    eras: dict[int, Eras] = field(default_factory=dict)


def next_life(folder: Path) -> Life:
    """Raises StartupError when the file is there and cannot be read."""
    path = folder / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Life(1)
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}; give this user the right to read it") from error
    try:
        known = json.loads(data)
        eras = {int(queue): [(life, first) for life, first in each] for queue, each in known["eras"].items()}
        return Life(known["life"] + 1, known["ended"], known["boot"] == _boot(), eras)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StartupError(
            f"{path} is damaged: move the folder {folder} away, and the audit log begins anew"
        ) from error


def write_life(folder: Path, life: int, ended: bool, eras: dict[int, Eras]) -> None:
    """Raises OSError."""
    temporary = folder / f".{FILE}.tmp"
    with temporary.open("w") as file:
        json.dump({"life": life, "ended": ended, "boot": _boot(), "eras": eras}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / FILE)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
