"""Messages between the runner and one worker: JSON objects, one a line, over a pair of pipes.

What comes in, what goes out: dictionaries with a `kind`. Rules: 1. every wait has a deadline; 2. a line
longer than the bound is an error, not memory. Kinds, in order: worker `ready`; runner `go` (start, stop);
worker `stopped` (what was published); runner `total` (what to receive) or `finish`; worker `done` (report),
or `error` at any time.
Not here: starting and ending processes (`crew.py`), what a worker does (`roles/`).
"""

from __future__ import annotations

import json
import os
import select
from typing import Any

from bench.clock import now
from bench.errors import BenchError

LINE_BYTES_MAX = 1 << 20
Message = dict[str, Any]


class Link:
    """One end. `read_fd` and `write_fd` are pipe descriptors that the caller closes."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self._write_fd = write_fd
        self._buffer = bytearray()

    def say(self, kind: str, **fields: Any) -> None:
        """Send one message. Raises OSError if the other end is gone."""
        data = memoryview(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        while data:
            data = data[os.write(self._write_fd, data) :]

    def poll(self, wait_s: float = 0.0) -> Message | None:
        """The next message, or None if there is none within `wait_s`. Raises EOFError when the other end is
        gone."""
        deadline = now() + wait_s
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                return json.loads(line)
            if len(line) > LINE_BYTES_MAX:
                raise BenchError("a line between worker and runner is too long")
            if not select.select([self.read_fd], [], [], max(0.0, deadline - now()))[0]:
                return None
            chunk = os.read(self.read_fd, 65_536)
            if not chunk:
                raise EOFError("the other end closed its pipe")
            self._buffer += chunk

    def hear(self, kind: str, wait_s: float) -> Message:
        """The next message, which must be of `kind`. Raises BenchError if it is not, or does not come."""
        message = self.poll(wait_s)
        if message is None or message["kind"] != kind:
            raise BenchError(f"{kind!r} was due within {wait_s:g} s, came {message}")
        return message
