"""Checks the audit log: the record of incarnations and epochs, the spool, the files of events, how far they reach.

What comes in: a data directory. What goes out: findings.
Rules: 1. Nothing is changed, and nothing set aside: the broker does that at its next start. 2. A spool whose last
block was cut off is what a kill leaves, and no damage. 3. Whatever is wrong here, no message is touched by it.
Not here: what the broker makes of such a file (`audit/files/damage.py`).
"""

from __future__ import annotations

from pathlib import Path

from amqpd.audit.files.damage import DAMAGED, SpoolDamaged
from amqpd.audit.files.edges import edges_damage
from amqpd.audit.files.incarnations import FILE, damage_of
from amqpd.backup.progress import Progress
from amqpd.checking.report import Report

FOLDER = "audit"
_SPOOL = "the next start sets it aside, and says a gap in the audit log; messages are not touched"
_EDGES = "the next start sets it aside, and makes it again from the files; messages are not touched"
_EVENTS = "put a copy of the file back if there is one; messages are not touched"


def check_audit(directory: Path, report: Report, progress: Progress, *, quick: bool) -> None:
    folder = directory / FOLDER
    if not folder.exists():
        return
    progress.begin("checking the audit log")
    for place in (folder, folder / "spool", folder / "events"):
        if place.exists() and not place.is_dir():
            report.damage(_name(directory, place), "audit folder", "it is not a folder", _SPOOL)
            return
    if reason := damage_of(folder):
        text = f"the record of the broker's incarnations is not usable: {reason}"
        report.damage(f"{FOLDER}/{FILE}", "audit incarnations", text, _SPOOL)
    for path in sorted((folder / "spool").glob("*.spool")):
        if reason := _spool_damage(path):
            report.damage(_name(directory, path), "audit spool", f"it is damaged: {reason}", _SPOOL)
    for path in sorted((folder / "events").glob("_log-*.json")):
        if reason := edges_damage(path):
            report.damage(_name(directory, path), "audit edges", f"it is damaged: {reason}", _EDGES)
    events = sorted((folder / "events").glob("date=*/hour=*/*.parquet"))
    if events:
        _events(directory, events, report, progress, quick=quick)
    for path in sorted(folder.rglob(f"*{DAMAGED}")):
        report.note(_name(directory, path), "audit, set aside", "it was found damaged earlier, and set aside",
                    "nothing has to be done")  # fmt: skip


def _events(directory: Path, events: list[Path], report: Report, progress: Progress, *, quick: bool) -> None:
    # pyarrow takes a while to import.
    from amqpd.audit.files.parquet import look_at_events

    progress.begin("checking the audit log", sum(_size(path) for path in events))
    for path in events:
        if reason := look_at_events(path, whole=not quick):
            report.damage(_name(directory, path), "audit events", f"it is damaged: {reason}", _EVENTS)
        progress.add(_size(path))


def _spool_damage(path: Path) -> str:
    from amqpd.audit.files.parquet import look

    try:
        look(path)
    except (OSError, SpoolDamaged) as error:
        return str(error)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        return f"it holds something else than was written ({type(error).__name__})"
    return ""


def _name(directory: Path, path: Path) -> str:
    return path.relative_to(directory).as_posix()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
