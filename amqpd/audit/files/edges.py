"""How far the log reaches: what a listing of its files cannot say, since an edge has one neighbour only.

What comes in: a file that was written, files that are to be removed. What goes out: `events/_log-<node>.json`: of
each incarnation the last row that is in a file, and how far retention went.
Rules: 1. In the thread that converts, never in the message loop. 2. A file, then what is said here, then its spool
file goes; what is said here, then old files go: what a kill leaves is done again, or is older than the edge. 3. What
is missing or damaged is made from the files' footers again: what is not there then is held against nobody. 4. What
cannot be written now is written with the next file, and holds nothing up: what was said before asks for less.
Not here: footers (`footer.py`), which files go (`retention.py`), why (docs/decisions/audit-holes.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import structlog

from amqpd.audit.files.damage import set_aside
from amqpd.audit.files.footer import FileRows, named, rows_in
from amqpd.storage.files import sync_directory

FORMAT = 1
_AGAIN = "what the audit log says of its files is damaged and set aside, and is made from them again"

_log = structlog.get_logger("amqpd.audit")


@dataclass
class _Reach:
    """The reach of the audit log for one node: the last row of each incarnation that is in a file, and the last
    row that retention removed."""

    incarnations: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """incarnation -> the last row in a file, and whether the incarnation ended in order with all of it in files"""
    removed: tuple[int, int] | None = None
    """incarnation and last row of what retention removed"""
    made_from: str = "broker"

    def as_json(self, node: str) -> dict[str, Any]:
        incarnations = {
            str(incarnation): {"last": last, "ended": ended}
            for incarnation, (last, ended) in sorted(self.incarnations.items())
        }
        removed = None if self.removed is None else {"incarnation": self.removed[0], "last": self.removed[1]}
        return {
            "format": FORMAT,
            "node": node,
            "incarnations": incarnations,
            "removed": removed,
            "from": self.made_from,
        }


class Edges:
    """Keeps `_log-<node>.json` of each node whose files are in the folder; calls may wait for the disk."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._nodes: dict[str, _Reach] = {}

    def begin(self, node: str) -> None:
        """What is known of the node's files is on disk, if there are any."""
        if node not in self._nodes and self._of(node).made_from == "files":
            self._write(node)

    def grown(self, rows: FileRows) -> None:
        """There is a file with these rows."""
        reach = self._of(rows.node)
        last, _ = reach.incarnations.get(rows.incarnation, (0, False))
        if rows.last > last:
            reach.incarnations[rows.incarnation] = rows.last, False
            self._write(rows.node)

    def ended(self, node: str, incarnation: int) -> None:
        """The incarnation ended in order, and all of it is in files."""
        reach = self._of(node)
        if incarnation in reach.incarnations:
            reach.incarnations[incarnation] = reach.incarnations[incarnation][0], True
            self._write(node)

    def removing(self, files: Iterable[Path]) -> set[str]:
        """These files are about to go; the nodes that `write` has to be called for, before they do."""
        newest: dict[str, list[tuple[int, int, Path]]] = {}
        for path in files:
            with suppress(ValueError):
                node, incarnation, number = named(path.stem)
                newest.setdefault(node, []).append((incarnation, number, path))
        changed = set()
        for node, found in newest.items():
            reach = self._of(node)
            # The last of them that can be read.
            rows = next((rows for _, _, path in sorted(found, reverse=True) if (rows := rows_in(path))), None)
            if rows is not None and (reach.removed is None or (rows.incarnation, rows.last) > reach.removed):
                edge = reach.removed = rows.incarnation, rows.last
                reach.incarnations = {
                    incarnation: (last, ended)
                    for incarnation, (last, ended) in reach.incarnations.items()
                    if (incarnation, last) > edge
                }
                changed.add(node)
        return changed

    def write(self, nodes: Iterable[str]) -> bool:
        """False: of some it could not be written."""
        failed = [node for node in nodes if not self._write(node)]
        return not failed

    def _of(self, node: str) -> _Reach:
        reach = self._nodes.get(node)
        if reach is None:
            try:
                reach = _read(self._path(node))
            except FileNotFoundError:
                reach = self._from_files(node)
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                set_aside(self._path(node), "it cannot be read, or its checksum does not fit", _AGAIN)
                reach = self._from_files(node)
            self._nodes[node] = reach
        return reach

    def _from_files(self, node: str) -> _Reach:
        """The first one, and the last one of each incarnation, say it all."""
        incarnations: dict[int, list[tuple[int, Path]]] = {}
        for path in self._events.glob("date=*/hour=*/*.parquet"):
            with suppress(ValueError):
                of, incarnation, number = named(path.stem)
                if of == node:
                    incarnations.setdefault(incarnation, []).append((number, path))
        if not incarnations:
            return _Reach()
        reach = _Reach(made_from="files")
        for incarnation, files in incarnations.items():
            rows = _first_known(sorted(files, reverse=True))
            if rows is not None:
                reach.incarnations[incarnation] = rows.last, False
        oldest = min(incarnations)
        rows = _first_known(sorted(incarnations[oldest]))
        if rows is not None and (oldest, rows.first) != (1, 1):
            reach.removed = oldest, rows.first - 1
        return reach

    def _path(self, node: str) -> Path:
        return self._events / f"_log-{node}.json"

    def _write(self, node: str) -> bool:
        path = self._path(node)
        known = self._nodes[node].as_json(node)
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            with temporary.open("w") as file:
                json.dump({**known, "crc": _checksum(known)}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
            sync_directory(self._events)
        except OSError as error:
            _log.error("how far the audit log reaches cannot be written", file=str(path), reason=str(error))
            return False
        return True


def edges_damage(path: Path) -> str:
    """Why the next start would not use the file; empty: it would. Nothing is changed."""
    try:
        _read(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "its checksum does not fit, or it is cut off"
    return ""


def _read(path: Path) -> _Reach:
    """Raises OSError, ValueError, KeyError, TypeError, AttributeError."""
    known = json.loads(path.read_bytes())
    if known.pop("crc") != _checksum(known) or known["format"] != FORMAT:
        raise ValueError
    incarnations = {
        int(incarnation): (int(each["last"]), bool(each["ended"]))
        for incarnation, each in known["incarnations"].items()
    }
    removed = known["removed"]
    edge = None if removed is None else (int(removed["incarnation"]), int(removed["last"]))
    return _Reach(incarnations, edge, str(known["from"]))


def _first_known(files: Iterable[tuple[int, Path]]) -> FileRows | None:
    return next((rows for _, path in files if (rows := rows_in(path)) is not None), None)


def _checksum(known: dict[str, Any]) -> int:
    return crc32(json.dumps(known).encode())
