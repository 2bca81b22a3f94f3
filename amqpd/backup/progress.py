"""How far a backup or a restore is, and the request to end it.

What comes in: what the working thread has done; from another thread, the reason to stop. What goes out: numbers for
an observer; `BackupError` in the working thread.
Rules: 1. One thread writes the numbers, any may read them: each is one attribute, so no lock is needed. 2. The
working thread looks at every piece whether it is to stop, so a stop takes milliseconds. 3. A rate is kept by
sleeping, in short pieces.
Not here: what is done (`job.py`, `restore.py`), how it is shown (`commands/backup.py`).
"""

from __future__ import annotations

import time
from typing import Any

from amqpd.backup.manifest import BackupError

SLEEP_S_MAX = 0.1
"""A request to stop is noticed within this while a rate is kept."""


class Progress:
    """The progress of a backup or a restore, shared by the thread that copies and the tasks that watch or end it."""

    def __init__(self, rate_bytes_s: float | None = None) -> None:
        """`rate_bytes_s`: at most this much of `add` a second, on average; None: no limit."""
        self.phase = "starting"
        self.done = 0
        self.total = 0
        """bytes of this phase; 0: it cannot be said"""
        self.held_log = 0
        """bytes by which the journal's write-ahead log has grown, which is not emptied while the copy is made"""
        self._rate = rate_bytes_s
        self._began = time.monotonic()
        self._paced = 0
        self._stop: str | None = None

    def begin(self, phase: str, total: int = 0) -> None:
        """Raises BackupError when it is to stop."""
        self.phase, self.done, self.total = phase, 0, total
        self.check()

    def add(self, nbytes: int) -> None:
        """This much more is done. Raises BackupError when it is to stop."""
        self.done += nbytes
        self.check()

    def pace(self, nbytes: int) -> None:
        """Sleep, if `nbytes` more would be faster than the rate. Raises BackupError when it is to stop."""
        self._paced += nbytes
        while self._rate is not None:
            early_s = self._began + self._paced / self._rate - time.monotonic()
            if early_s <= 0:
                return
            time.sleep(min(early_s, SLEEP_S_MAX))
            self.check()

    def stop(self, reason: str) -> None:
        """From any thread. The first reason counts."""
        self._stop = self._stop or reason

    def check(self) -> None:
        """Raises BackupError with the reason, when it is to stop."""
        if self._stop is not None:
            raise BackupError(self._stop)

    @property
    def row(self) -> dict[str, Any]:
        """For the control socket, and for a display."""
        return {"phase": self.phase, "done": self.done, "total": self.total, "held_log": self.held_log}
