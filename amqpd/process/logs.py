"""The log: one logfmt line an event, on standard error.

What comes in: `structlog.get_logger(component="...")` in any module, then log.info("event in a few words",
key=value). What goes out: time=... level=info event="..." component=... key=value, which grep, awk and every log
collector read.
Rules: 1. Standard error only; where it goes (journald, a file, a container's log) is the operator's. 2.
Values under a name of `SECRETS` are never written. 3. A log that cannot be written (terminal gone, pipe
closed, pipe that is not read) does not stop the broker. 4. Never log per message: a line costs more than a
publish. 5. Names that clients chose cannot end a line, nor do anything to a terminal.
Not here: what happened to messages (audit), `READY` for service supervisors (`notify.py`).
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from io import TextIOBase
from time import monotonic
from typing import Any, TextIO

import structlog

from amqpd.management.figures.recent import Recent
from amqpd.vocabulary.escapes import UNSAFE, escaped

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
# Names under which components have secrets at hand. A password in the text of an event is for review to find.
SECRETS = frozenset({"password", "password_hash", "secret", "token", "response", "credentials"})
RECENT_LINES_MAX = 2000
RECENT_CHARACTERS_MAX = 1 << 20
_FIRST = ("level", "event", "component")
# Any white space: in `user=a\u2003level=error` a reader would see another field.
_TO_QUOTE = re.compile(rf'[\s="]|{UNSAFE.pattern}')
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# From libraries (Alembic, SQLAlchemy) only what an operator can act on, unless everything is asked for.
_LIBRARY_LEVEL = logging.WARNING


def recent_lines() -> Recent[str]:
    """For `configure_logs`: minutes of a broker's usual log."""
    return Recent(RECENT_LINES_MAX, RECENT_CHARACTERS_MAX)


def configure_logs(level: str, stream: TextIO | None = None, recent: Recent[str] | None = None) -> None:
    """Sets up structlog for the process, and the standard library's logging that libraries use. `level` is
    the setting; each line is put into `recent`, too."""
    threshold = LEVELS[level]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            hide_secrets,
            structlog.processors.format_exc_info,
            Lines(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_LineLoggerFactory(stream, recent),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_LibraryHandler()], level=max(threshold, _LIBRARY_LEVEL), force=True)


def unblock_standard_error() -> None:
    """From now until the process ends `sys.stderr` never waits for its reader; tracebacks included. Only where
    it is the process's own: a test that captures it keeps it."""
    stream = sys.stderr
    if stream is sys.__stderr__ and stream is not None:
        descriptor = stream.fileno()
        sys.stderr = LogStream(LogWriter(descriptor, _dropped), descriptor)


def _dropped(count: int) -> str:
    fields = {"level": "warning", "event": "log lines dropped: standard error was not read", "lines": count}
    return Lines()(None, "", fields) + "\n"


def hide_secrets(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Rule 2: says that a value was there, not which."""
    for name in SECRETS & event.keys():
        event[name] = "(hidden)"
    return event


class Lines:
    """Renders an event as a line; the last processor. As structlog's TimeStamper and LogfmtRenderer would, in a
    quarter of the time: there is a line for each connection. `clock` gives seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._second = -1
        self._until_second = ""

    def __call__(self, _: Any, __: str, event: structlog.typing.EventDict) -> str:
        now = self._clock()
        second = int(now)
        if second != self._second:
            self._second = second
            self._until_second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        line = f"time={self._until_second}.{int((now - second) * 1_000_000):06}Z"
        for key in _FIRST:
            value = event.pop(key, None)
            if value is not None:
                line += f" {key}={_value(value)}"
        for key, value in event.items():
            line += f" {key}={_value(value)}"
        return line


def _value(value: Any) -> str:
    """Several with commas between them; in quotes when it has to be. What is unsafe is escaped as in JSON, so readers
    of logfmt get it back."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if not _TO_QUOTE.search(text):
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    for character, short in _SHORT_ESCAPES.items():
        text = text.replace(character, short)
    return f'"{escaped(text)}"'


class _LineLogger:
    """Writes whole lines. `lost` counts those that could not be written."""

    def __init__(self, stream: TextIO | None, recent: Recent[str] | None) -> None:
        self._stream = stream
        self._recent = recent
        self.lost = 0

    def msg(self, line: str) -> None:
        if self._recent is not None:
            self._recent.add(line, len(line))
        if self._stream is None:
            self.lost += 1
            return
        try:
            # One write for the line and its end, so that lines of threads do not mix.
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # ValueError: the stream is closed. There is nowhere left to complain to.
            self.lost += 1

    debug = info = warning = warn = error = critical = exception = fatal = log = msg


class _LineLoggerFactory:
    def __init__(self, stream: TextIO | None, recent: Recent[str] | None) -> None:
        self._stream = stream
        self._recent = recent

    def __call__(self, *_: Any) -> _LineLogger:
        # Looked up here, not at configuration: a test that captures standard error replaces it later.
        return _LineLogger(self._stream or sys.stderr, self._recent)


class _LibraryHandler(logging.Handler):
    """A library's record as one of our lines, its logger's name as the component."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(component=record.name)
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


# Some thousand lines: minutes of a broker's usual log, or a storm of connections until a slow reader is back.
BYTES_MAX = 1 << 20
# In one write: a slow reader sees that it goes on, and the bytes that wait are given back in between.
WRITE_BYTES_MAX = 64 << 10
# How long the end of the process may be held up by a reader that does not read.
CLOSE_S = 1.0

Write = Callable[[int, bytes], int]


class LogWriter:
    """Writes the log to a file descriptor, in a thread of its own: its reader may stop reading, and the broker goes
    on. `write_bytes` is os.write, `notice` makes the line that says how many were dropped.

    `write` never waits for the descriptor. At most `bytes_max` wait; what comes then is dropped and counted, and the
    log says so at the place where it is missing. The descriptor stays blocking: O_NONBLOCK belongs to the open file,
    which other processes share (a terminal, a pipe of a supervisor). At the end of the process what waits is written
    within `CLOSE_S`, or lost."""

    def __init__(
        self,
        descriptor: int,
        notice: Callable[[int], str],
        bytes_max: int = BYTES_MAX,
        write_bytes: Write = os.write,
    ) -> None:
        self._descriptor = descriptor
        self._notice = notice
        self._bytes_max = bytes_max
        self._write_bytes = write_bytes
        self._waiting: deque[bytes | int] = deque()
        """texts; a number says how many were dropped there"""
        self._nbytes = 0
        """of what waits and of what is being written"""
        self._writing = False
        self._changed = threading.Condition()
        self._started = False
        self.dropped = 0
        """texts that were not written since the start"""

    def write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        with self._changed:
            if self._nbytes + len(data) > self._bytes_max:
                self._drop()
                return
            self._waiting.append(data)
            self._nbytes += len(data)
            if not self._started:
                self._start()
            self._changed.notify_all()

    def flush(self, within_s: float) -> bool:
        """Wait until everything is written, for at most `within_s`; whether it is."""
        until = monotonic() + within_s
        with self._changed:
            while self._waiting or self._writing:
                left_s = until - monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
        return True

    def _drop(self) -> None:
        self.dropped += 1
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, int):
            self._waiting[-1] = last + 1
        else:
            self._waiting.append(1)

    def _start(self) -> None:
        # A daemon: a write that never returns must not keep the process. What is left at the end is `flush`ed.
        self._started = True
        threading.Thread(target=self._run, name="log", daemon=True).start()
        atexit.register(self.flush, CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                data, nbytes, count = self._take()
                self._writing = True
            written = self._write_whole(data)
            with self._changed:
                self._writing = False
                self._nbytes -= nbytes
                self.dropped += 0 if written else count
                self._changed.notify_all()

    def _take(self) -> tuple[bytes, int, int]:
        """The next bytes to write, how many of them are counted, and of how many texts they are."""
        pieces: list[bytes] = []
        nbytes = count = size = 0
        while self._waiting and size < WRITE_BYTES_MAX:
            piece = self._waiting.popleft()
            if isinstance(piece, int):
                piece = self._notice(piece).encode("utf-8", "backslashreplace")
            else:
                nbytes += len(piece)
                count += 1
            size += len(piece)
            pieces.append(piece)
        return b"".join(pieces), nbytes, count

    def _write_whole(self, data: bytes) -> bool:
        view = memoryview(data)
        try:
            while view:
                view = view[self._write_bytes(self._descriptor, bytes(view)) :]
        except OSError:
            # The terminal is gone, the pipe is closed: there is nowhere left to complain to.
            return False
        return True


class LogStream(TextIOBase):
    """The writer in the place of `sys.stderr`, so that tracebacks and warnings go the same way."""

    def __init__(self, writer: LogWriter, descriptor: int) -> None:
        self._writer = writer
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("standard error takes text here, not bytes")
        if text:
            self._writer.write(text)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has an attribute here
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"
