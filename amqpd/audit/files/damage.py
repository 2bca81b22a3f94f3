"""Damaged files of the audit log, set aside: nothing of it may keep messages from being served.

What comes in: a file that is damaged, and why. What goes out: the same under another name, `*.damaged`; a line in the
broker's log; what the audit log has to say of it.
Rules: 1. Nothing is deleted, and no earlier file that was set aside is replaced. 2. A file that cannot be renamed
either stays where it is: it is told of all the same.
Not here: how damage is noticed (`lives.py`, `parquet.py`), when the gap is recorded (`log.py`, `writer.py`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import structlog

DAMAGED = ".damaged"

_log = structlog.get_logger("amqpd.audit")


class SpoolDamaged(Exception):
    """What a spool file held is not all there. `written`: the file of the log with what comes before the damage, if
    there was something."""

    written: Path | None = None


@dataclass
class Reached:
    """How many rows of each (node, life) are in files of the log, and how many were found missing between one file
    and the next."""

    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    missing: int = 0


def set_aside(path: Path, reason: str) -> dict[str, str]:
    """What the row of the gap has in `detail`."""
    aside = path.with_name(path.name + DAMAGED)
    number = 2
    while os.path.lexists(aside):
        aside = path.with_name(f"{path.name}.{number}{DAMAGED}")
        number += 1
    try:
        path.rename(aside)
    except OSError as error:
        aside = path
        if not isinstance(error, FileNotFoundError):
            reason = f"{reason}; it cannot be renamed either: {error.strerror}"
    _log.error("a part of the audit log is damaged and set aside: the log has a gap", file=str(aside), reason=reason)
    return {"file": aside.name, "error": reason}


def folder_in_place(path: Path) -> dict[str, str] | None:
    """Something else than a folder is set aside; the gap's `detail` if there was."""
    if path.is_dir() or not os.path.lexists(path):
        return None
    return set_aside(path, "it is not a folder")
