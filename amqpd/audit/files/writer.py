"""The audit log's files: the spool that is written now, and those that a thread turns into Parquet.

What comes in: blocks of the recorder's buffer, once for each tick with something urgent, else for each turn of the
pump. What goes out: files; an alarm, where it is configured, while there is no space.
Rules: 1. What was handed to the system survives a kill of the broker: so a confirmed message has its events. No
fsync: a power cut may lose the last seconds, and the next start says so. 2. A full disk never stops consumers: events
are dropped, and when there is space again the gap is in the log, with anchors behind it. So it is from the start of
the broker on, if the disk is full then. 3. Spool files of earlier incarnations are finished first. 4. An
incarnation's number is on disk before any row of that incarnation. 5. A spool file that is damaged is set aside, and
said as a gap in the same way. 6. The end of the node waits for Parquet of `END_BYTES_MAX` at most: what is more stays
in the spool, for the next start.
Not here: what is recorded (`audit/recorder.py`), Parquet (`parquet.py`), which files go (`retention.py`).
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
import trio

from amqpd.audit.files.damage import GivenUp, Reached, SpoolDamaged, set_aside
from amqpd.audit.files.edges import Edges
from amqpd.audit.files.footer import named
from amqpd.audit.files.retention import Retention
from amqpd.audit.kinds import ANCHOR_GAP, ANCHOR_RECOVERED
from amqpd.audit.recorder import Recorder
from amqpd.audit.sink import Sink
from amqpd.setting_tables import AuditSettings

# How often it is looked whether a file is old enough, and whether a full disk has space again.
LOOK_S = 1.0
# Some tenths of a second of processor time, and one for pyarrow, where it was not needed before.
END_BYTES_MAX = 4 << 20
SUFFIX = ".spool"
# An empty file that is there while events are dropped: of an incarnation that ends meanwhile, the next one has to say
# so.
GAP = "gap"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NAME = re.compile(r".+-\d+-\d+")

Convert = Callable[[Path, Path, Reached, Edges, Callable[[], bool]], Path | None]
"""`parquet.convert`"""

_log = structlog.get_logger("amqpd.audit")


class AuditWriter:
    """Writes the spool in the pump's thread, and has finished spool files converted to Parquet in another."""

    def __init__(
        self,
        folder: Path,
        node: str,
        recorder: Recorder,
        settings: AuditSettings,
        keep_incarnation: Callable[[], None],
        tell_start: Callable[[], None],
        anchor_all: Callable[[int], None],
        on_full: Callable[[bool], None],
    ) -> None:
        """`keep_incarnation` puts the incarnation's number on disk, or raises OSError; `tell_start` records that it
        began, and what the log misses of the one before; `anchor_all` has every queue say what stands in it;
        `on_full` is told when publishers have to wait."""
        self._spool = folder / "spool"
        self.events = folder / "events"
        self._node = node
        self._recorder = recorder
        self._settings = settings
        self._keep_incarnation = keep_incarnation
        self._tell_start = tell_start
        self._anchor_all = anchor_all
        self._on_full = on_full
        self._edges = Edges(self.events)
        self._retention = Retention(self.events, settings.keep_days, settings.keep_bytes, self._edges)
        self.sink = Sink(recorder, settings.spool_bytes, os.write, self._begin_gap, self._rotate)
        """what the pump calls"""
        self._path = Path()
        self._number = 0
        self._begun = 0.0
        self._finished: deque[Path] = deque()
        self._work = trio.Event()
        self._converting = trio.Lock()
        self.threads = trio.CapacityLimiter(1)
        self._failed_at: float | None = None
        self._end_at = math.inf
        """of time.monotonic: no conversion goes on behind it"""
        self._much_waits = False
        """more is finished than the end of the node waits for"""
        self._gap: dict[str, Any] | None = None
        self._gap_rows = 0
        """the last row before the gap"""
        self._reached = Reached()
        self._untold: list[dict[str, Any]] = []
        """parts found damaged that the log does not tell of yet"""
        self._incarnation_kept = False
        """the incarnation's number is on disk"""
        self._start_told = False
        """and that it began is in the log"""
        self.files = 0
        """written since the start"""
        self.left_gap: str | None = None
        """since when the incarnation before had dropped events when it ended"""

    def begin(self) -> None:
        """Write the incarnation's first rows; without space on the disk a gap begins in their place. Raises OSError
        when something else stands in the way."""
        if (self._spool / GAP).is_dir():
            self._untold.append(set_aside(self._spool / GAP, "it is not a file"))
        with suppress(FileNotFoundError):
            self.left_gap = _utc((self._spool / GAP).stat().st_mtime)
        for half in self.events.glob(".*.tmp"):
            with suppress(OSError):
                half.unlink()
        # Of earlier incarnations, oldest first.
        left = [path for path in self._spool.glob(f"*{SUFFIX}") if _NAME.fullmatch(path.stem)]
        self._finished += sorted(left, key=_order)
        try:
            self._write_anchors(ANCHOR_RECOVERED)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._begin_gap(error)

    def _write_anchors(self, kind: int, gap: dict[str, Any] | None = None) -> None:
        """In a new file: what the log begins with, or goes on with behind a gap. Raises OSError."""
        recorder = self._recorder
        recorder.later()
        # Not `parents`: a data directory that has vanished is not made again (`datadir/presence.py`).
        for folder in (self._spool.parent, self._spool, self.events):
            folder.mkdir(exist_ok=True)
        if not self._incarnation_kept:
            # Two calls of fsync in the message loop, after a start on a full disk; once.
            self._keep_incarnation()
            self._incarnation_kept = True
        self._begin_file()
        if not self._start_told:
            self._tell_start()
        if gap is not None:
            recorder.act("gap", {"reason": "disk_full", "detail": json.dumps(gap)})
        self._tell_damages()
        self._anchor_all(kind)
        if recorder.buffer.pending:
            self.sink.write(recorder.buffer.take())
        recorder.later()
        self._start_told = True
        # Not before: what is not in the log yet is left to the next incarnation.
        (self._spool / GAP).unlink(missing_ok=True)

    # Damage

    def _damaged(self, damage: dict[str, Any]) -> None:
        """The log tells of it, at the latest when there is space on the disk again."""
        self._untold.append(damage)
        if self._gap is None and self.sink.descriptor >= 0:
            self._recorder.later()
            self._tell_damages()
            self._anchor_all(ANCHOR_GAP)
            self.sink.record()

    def _tell_damages(self) -> None:
        for damage in self._untold:
            self._recorder.act("gap", {"reason": "damaged", "detail": json.dumps(damage)})
        self._untold = []

    # Files

    def _rotate(self) -> None:
        try:
            self._end_file()
            self._begin_file()
        except OSError as error:
            self._begin_gap(error)

    def _begin_file(self) -> None:
        self._number += 1
        path = self._spool / f"{self._node}-{self._recorder.incarnation}-{self._number}{SUFFIX}"
        self.sink.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._path, self.sink.size, self._begun = path, 0, trio.current_time()
        self._recorder.buffer.begin_file()

    def _end_file(self) -> None:
        if self.sink.descriptor >= 0:
            os.close(self.sink.descriptor)
            self.sink.descriptor = -1
            if self.sink.size:
                self._finished.append(self._path)
                self._work.set()
            else:
                self._path.unlink(missing_ok=True)

    # A full disk

    @property
    def full(self) -> bool:
        return self._gap is not None

    def _begin_gap(self, error: Exception) -> None:
        assert self._gap is None
        reason = error.strerror if isinstance(error, OSError) else None
        self._gap = {"from": _utc(), "error": reason or repr(error)}
        self._gap_rows = self._recorder.buffer.rows_before
        self.sink.dropping = True
        self._recorder.buffer.drop()
        try:
            # One that is there keeps its time: the gap of the incarnation before goes on.
            os.close(os.open(self._spool / GAP, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as failure:
            _log.error("the next start will not know of this gap", reason=str(failure))
        stops = self._settings.on_full == "stop"
        waits = "publishers wait" if stops else "messages go on without it"
        _log.error(f"the audit log cannot be written: {waits}", reason=self._gap["error"], folder=str(self._spool))
        if stops:
            self._on_full(True)

    def _end_gap(self) -> None:
        """Try to go on: first of all the log says what it misses."""
        assert self._gap is not None
        gap, self._gap = self._gap, None
        self.sink.dropping = False
        buffer = self._recorder.buffer
        # What came between two ticks belongs to the gap, and a file begins with nothing that waits.
        buffer.drop()
        try:
            if self.sink.descriptor >= 0:
                # A block that was cut off would hide what comes behind it.
                os.ftruncate(self.sink.descriptor, self.sink.size)
                self._end_file()
            lost = self._gap_rows + 1, buffer.rows
            known = {"rows_from": lost[0], "rows_to": lost[1], "incarnation": self._recorder.incarnation}
            told = gap | known if lost[0] <= lost[1] else gap
            self._write_anchors(ANCHOR_GAP, told)
        except OSError:
            self._gap = gap
            self.sink.dropping = True
            buffer.drop()
            return
        _log.warning("the audit log goes on, with a gap", since=gap["from"])
        if self._settings.on_full == "stop":
            self._on_full(False)

    # Beside the ticks

    async def run(self) -> None:
        """Finish files as they grow old, and make Parquet of them, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._convert_all)
            while True:
                await trio.sleep(LOOK_S)
                self._recorder.later()
                # Also what was done between two ticks.
                self.sink.record()
                if self._gap is not None:
                    self._end_gap()
                elif self.sink.size and trio.current_time() - self._begun >= self._settings.file_seconds:
                    self._rotate()
                if (
                    self._failed_at is not None
                    and trio.current_time() - self._failed_at > self._settings.file_seconds
                ):
                    self._work.set()

    async def _convert_all(self) -> None:
        begun = False
        while True:
            await self.convert_finished()
            if not begun:
                # What was converted saw to it; where there was nothing, it is still to be done.
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._edges.begin, self._node, limiter=self.threads)
                begun = True
            await self._work.wait()
            self._work = trio.Event()

    async def _convert_next(self) -> bool:
        """False when there is no space for it now; the spool file stays."""
        # pyarrow: fifty megabytes that a broker without a finished file does not need.
        from amqpd.audit.files.parquet import convert

        async with self._converting:
            return await self._convert_first(convert) if self._finished else True

    async def _convert_first(self, convert: Convert) -> bool:
        if self._end_at < math.inf:
            self._much_waits = self._waiting_bytes > END_BYTES_MAX
        if self._is_unwanted():
            return False
        path = self._finished[0]
        written: Path | None = None
        try:
            with trio.CancelScope(shield=True):
                parts = (path, self.events, self._reached, self._edges, self._is_unwanted)
                written = await trio.to_thread.run_sync(convert, *parts, limiter=self.threads)
        except GivenUp:
            return False
        except (OSError, MemoryError) as error:
            return self._postpone(path, error)
        except SpoolDamaged as damage:
            written = damage.written
            _, incarnation, _ = named(path.stem)
            known = (
                {"incarnation": incarnation}
                if damage.end is None
                else {"incarnation": incarnation, "rows_from": damage.end + 1}
            )
            self._damaged(set_aside(path, str(damage)) | known)
        except Exception as error:  # noqa: BLE001 - it would fail again and again; the log has it
            self._damaged(set_aside(path, repr(error)))
        if self._reached.missing is not None:
            (first, last), self._reached.missing = self._reached.missing, None
            reason = f"{last - first + 1} rows before it are missing"
            _log.error("a part of the audit log is missing: the log has a gap", file=path.name, reason=reason)
            _, incarnation, _ = named(path.stem)
            self._damaged(
                {"file": path.name, "error": reason, "rows_from": first, "rows_to": last, "incarnation": incarnation}
            )
        self._finished.popleft()
        self._failed_at = None
        self.files += written is not None
        await self._remove_old()
        return True

    def hurry(self, seconds: float) -> None:
        """The node ends within this time: what is converted now is given up if much waits."""
        self._much_waits = self._waiting_bytes > END_BYTES_MAX
        self._end_at = time.monotonic() + seconds

    @property
    def _waiting_bytes(self) -> int:
        sizes = 0
        for path in self._finished:
            with suppress(OSError):
                sizes += path.stat().st_size
        return sizes

    def _is_unwanted(self) -> bool:
        """Asked by the thread that converts."""
        return self._end_at < math.inf and (self._much_waits or time.monotonic() >= self._end_at)

    def _postpone(self, path: Path, error: Exception) -> bool:
        """There is no space for it now, on the disk or in memory."""
        if self._failed_at is None:
            _log.error("a part of the audit log waits in the spool", file=str(path), reason=repr(error))
        self._failed_at = trio.current_time()
        return False

    async def _remove_old(self) -> None:
        try:
            with trio.CancelScope(shield=True):
                removed = await trio.to_thread.run_sync(self._retention.apply, limiter=self.threads)
        except OSError as error:
            _log.error("old parts of the audit log cannot be removed", reason=str(error))
            return
        if removed:
            _log.info("old parts of the audit log removed", files=removed)

    async def flush(self) -> int:
        """Everything that happened until now is in Parquet files; how many are waiting all the same, for want of
        space."""
        self.sink.record()
        if self._gap is not None:
            self._end_gap()
        if self._gap is None and self.sink.size:
            self._rotate()
        await self.convert_finished()
        return len(self._finished)

    async def convert_finished(self) -> None:
        """All spool files that are finished, as long as there is space for it."""
        while self._finished and await self._convert_next():
            pass

    async def aclose(self) -> None:
        """After the last record: the spool is finished, or left for the next start."""
        self.sink.record()
        self._end_file()
        await self.convert_finished()
        if self._finished:
            files, nbytes = len(self._finished), self._waiting_bytes
            _log.info("the last part of the audit log is made Parquet at the next start", files=files, bytes=nbytes)
        elif not self.full:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(
                    self._edges.ended, self._node, self._recorder.incarnation, limiter=self.threads
                )

    def status(self) -> dict[str, Any]:
        return {
            "incarnation": self._recorder.incarnation,
            "rows": self._recorder.buffer.rows,
            "spool_bytes": self.sink.size,
            "spool_files_waiting": len(self._finished),
            "files_written": self.files,
            "gap_since": None if self._gap is None else self._gap["from"],
            "folder": str(self.events),
        }


def _order(path: Path) -> tuple[int, int]:
    _, incarnation, number = path.stem.rsplit("-", 2)
    return int(incarnation), int(number)


def _utc(posix: float | None = None) -> str:
    moment = datetime.now(UTC) if posix is None else datetime.fromtimestamp(posix, UTC)
    return moment.isoformat(timespec="milliseconds")
