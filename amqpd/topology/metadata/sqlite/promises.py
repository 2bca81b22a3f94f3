"""Whether `metadata.db` has everything that was once committed to it, asked before it is opened for writing.

What comes in: its path, what it says of itself, the files beside it. What goes out: the losses, a sentence each;
after the operator has accepted them, copies of what is going to be overwritten.
Rules: 1. Looking changes nothing. 2. A mark that says more than the database has, and a log that is damaged in the
middle, are losses; so is a database that is missing where there was one. A mark that is missing or damaged promises
nothing. 3. Others may write the log meanwhile: it is damaged when two readings agree on how. The mark is read before
the database, which therefore has at least as much.
Not here: the checksums of what is in the database (`verification.py`), the way out (`copies.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from amqpd.storage.files import free_name, has_log, mark_path, wal_path
from amqpd.storage.mark import MarkDamaged, Promise, read_mark
from amqpd.storage.wal import WalEnd, read_end

COPIES = (1, 2)
_READINGS_MAX = 20
"""of a log that others write: each finds it in the middle of a transaction or of a checkpoint"""


def copy_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of commits beside a database: its mark and the end of its log."""

    promise: Promise | None
    end: WalEnd
    unknown: str
    """why there is no promise though there is a mark"""


def traces_of(path: Path) -> Traces:
    """The traces of earlier promises beside a database. Raises OSError."""
    unknown = ""
    try:
        promise = read_mark(mark_path(path))
    except MarkDamaged as error:
        promise, unknown = None, str(error)
    return Traces(promise, _end_of(wal_path(path)), unknown)


def _end_of(wal: Path) -> WalEnd:
    """Raises OSError."""
    before, end = None, read_end(wal)
    for _ in range(_READINGS_MAX):
        if not end.damage or end == before:
            break
        # A frame may have been written between two reads and the next one seen, or the log have begun again.
        before, end = end, read_end(wal)
    return end


def missing(path: Path, traces: Traces) -> list[str]:
    """The database is not there, or is empty: what says that there was one."""
    beside = [wal_path(path).name] if has_log(path) else []
    beside += [mark_path(path).name] if traces.promise is not None or traces.unknown else []
    beside += [copy_path(path, number).name for number in COPIES if copy_path(path, number).exists()]
    if not beside:
        return []
    state = "empty" if path.exists() else "missing"
    return [f"{path} is {state}, and there was one: {' and '.join(beside)} {'are' if beside[1:] else 'is'} beside it"]


def emptied(path: Path) -> list[str]:
    """The database is there and has no tables: what says that it had some."""
    beside = [copy_path(path, number).name for number in COPIES if copy_path(path, number).exists()]
    return [f"{path} is empty, and there was something in it: {' and '.join(beside)} beside it"] if beside else []


def losses(path: Path, identity: str, revision: int, traces: Traces) -> list[str]:
    """`identity` is empty, and `revision` -1, of a database of an old format or without tables: it has no mark."""
    promise, end = traces.promise, traces.end
    reason = end.why_less(wal_path(path).name)
    if promise is not None and not identity:
        return [f"{path} has nothing of what was committed: {reason or 'it is of an older format, or empty'}"]
    if promise is not None and promise.identity != identity:
        return [f"{path} is not the database that {mark_path(path).name} beside it is of: one of them was replaced"]
    if promise is not None and promise.number > revision:
        reason = reason or "it is an older copy, or its log was removed or cut short"
        return [f"{path} ends at revision {revision}, and {promise.number} was committed: {reason}"]
    if end.damage and (promise is None or promise.number != revision):
        return [f"{path} lacks what was committed behind the damage of its log: {reason}"]
    return []


def keep_copies_aside(path: Path) -> list[str]:
    """An empty database begins: the copies of the lost one must not be taken for its own. Raises OSError."""
    said = []
    for number in COPIES:
        copy = copy_path(path, number)
        if copy.exists():
            aside = free_name(copy, "kept")
            copy.rename(aside)
            said.append(f"the copy {copy.name} is kept as {aside.name}")
    return said
