"""Damaged files of the audit log, set aside: nothing of it may keep messages from being served.

What comes in: a file that is damaged, and why. What goes out: the same under another name, `*.damaged`; a line in the
broker's log; what the audit log has to say of it.
Rules: 1. Nothing is deleted, and no earlier file that was set aside is replaced. 2. A file that cannot be renamed
either stays where it is: it is told of all the same.
Not here: how damage is noticed (`incarnations.py`, `parquet.py`), when the gap is recorded (`log.py`, `writer.py`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

DAMAGED = ".damaged"

_log = structlog.get_logger("amqpd.audit")


class GivenUp(Exception):
    """A conversion is no longer wanted: the spool file is as it was."""


class SpoolDamaged(Exception):
    """A spool file has lost a part of what it held. `written`: the file of the log with what comes before the
    damage, if there was something; `end`: the last row before it, if that is known."""

    written: Path | None = None
    end: int | None = None


@dataclass
class Reached:
    """The reach of the files of the log: the last row of each (node, incarnation) that is in a file, and the rows
    that were found missing between one file and the next (the first and the last of them)."""

    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    torn: set[tuple[str, int]] = field(default_factory=set)
    """the newest spool file of these was damaged: what is missing then is told of already"""
    missing: tuple[int, int] | None = None


def set_aside(
    path: Path, reason: str, told: str = "a part of the audit log is damaged and set aside: the log has a gap"
) -> dict[str, Any]:
    """What the row of the gap has in `detail`; `told`: by the broker's log."""
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
    _log.error(told, file=str(aside), reason=reason)
    return {"file": aside.name, "error": reason}


def folder_in_place(path: Path) -> dict[str, Any] | None:
    """Something else than a folder is set aside; the gap's `detail` if there was."""
    if path.is_dir() or not os.path.lexists(path):
        return None
    return set_aside(path, "it is not a folder")
