"""Standard error, written by a thread of its own: its reader may stop reading, and the broker goes on.

What comes in: text of the log, from any thread. What goes out: the same bytes, in order, to a file descriptor.
Rules: 1. `write` never waits for the descriptor. 2. At most `bytes_max` wait; what comes then is dropped and counted,
and the log says so at the place where it is missing. 3. The descriptor stays blocking: O_NONBLOCK belongs to the open
file, which other processes share (a terminal, a pipe of a supervisor). 4. At the end of the process what waits is
written within `CLOSE_S`, or lost.
Not here: what a line looks like (`logs.py`).
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from io import TextIOBase
from time import monotonic

# Some thousand lines: minutes of a broker's usual log, or a storm of connections until a slow reader is back.
BYTES_MAX = 1 << 20
# In one write: a slow reader sees that it goes on, and the bytes that wait are given back in between.
WRITE_BYTES_MAX = 64 << 10
# How long the end of the process may be held up by a reader that does not read.
CLOSE_S = 1.0

Write = Callable[[int, bytes], int]


class LogWriter:
    """Writes the log to a file descriptor, in a thread of its own. `write_bytes` is os.write, `notice` makes the
    line that says how many were dropped."""

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
