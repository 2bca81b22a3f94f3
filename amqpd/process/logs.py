"""The log: one logfmt line an event, on standard error.

What comes in: `structlog.get_logger(component="...")` in any module, then log.info("event in a few words",
key=value). What goes out: time=... level=info event="..." component=... key=value, which grep, awk and every log
collector read.
Rules: 1. Standard error only; where it goes (journald, a file, a container's log) is the operator's. 2.
Values under a name of `SECRETS` are never written. 3. A log that cannot be written (terminal gone, pipe
closed, pipe that is not read) does not stop the broker. 4. Never log per message: a line costs more than a
publish. 5. Names that clients chose cannot end a line, nor do anything to a terminal.
Not here: the thread that writes (`log_writer.py`), what happened to messages (audit), `READY` for service
supervisors (`notify.py`).
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import structlog

from amqpd.management.figures.recent import Recent
from amqpd.process.log_writer import LogStream, LogWriter
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
