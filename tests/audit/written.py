"""A writer of the audit log on a real disk, for tests.

What comes in: acts. What goes out: what is in its folder.
Not here: a disk without space (`disk.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amqpd.audit.coverage.coverage import Coverage
from amqpd.audit.files.writer import AuditWriter
from amqpd.audit.kinds import NAMES
from amqpd.audit.recorder import Recorder
from amqpd.setting_tables import AuditSettings
from amqpd.vocabulary.audit_levels import FULL
from tests.audit.reading import Row, rows_below


def files_of(folder: Path, pattern: str = "*.parquet") -> list[Path]:
    """Below the folder, by name."""
    return sorted(folder.rglob(pattern))


class Written:
    """A writer, its recorder, and what it told others."""

    def __init__(self, folder: Path, incarnation: int = 1, begin: bool = True, **settings: Any) -> None:
        self.now_us = 1_795_348_800_000_000
        self.recorder = Recorder(lambda: self.now_us)
        self.recorder.incarnation = incarnation
        Coverage(self.recorder, FULL)
        self.alarms: list[bool] = []
        self.incarnations: list[list[str]] = []
        """each time the incarnation's number was put on disk: what was in the spool then"""
        self.no_incarnation: OSError | None = None
        self.folder = folder
        self.writer = AuditWriter(
            folder,
            "n",
            self.recorder,
            AuditSettings(**settings),
            self._keep_incarnation,
            lambda: self.recorder.act("started", {}),
            self._anchor,
            self.alarms.append,
        )
        if begin:
            self.writer.begin()

    def _keep_incarnation(self) -> None:
        self.incarnations.append(self.spool())
        if self.no_incarnation is not None:
            raise self.no_incarnation

    def _anchor(self, kind: int) -> None:
        self.recorder.act("standing", {"reason": NAMES[kind][1]})

    def act(self, word: str, record: bool = True) -> None:
        self.recorder.act("bound", {"object": word})
        if record:
            self.writer.sink.record()

    def rows(self) -> list[Row]:
        return rows_below(self.folder / "events")

    def objects(self) -> list[str]:
        return [row["object"] for row in self.rows() if row["event"] == "bound"]

    def spool(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "spool").iterdir())
