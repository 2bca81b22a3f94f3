"""strace as the disk that fails: attach to a running broker and make its system calls return an error.

What comes in: a process id, the calls, the error. What goes out: a context in which they fail. Rules: 1. The
context is entered when strace says that it is attached to every thread. 2. When strace is missing or not
allowed to trace, the test is skipped with that reason.
Not here: starting a broker under strace (`BrokerProcess(prefix=strace_prefix(...))`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

ATTACH_DEADLINE_S = 90.0
DETACH_DEADLINE_S = 15.0


def strace_prefix(calls: str, error: str) -> list[str]:
    """The command to put in front of a broker: these calls fail from its start on."""
    require_strace()
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject={calls}:error={error}"]


def require_strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")


class FailingCalls:
    """`with FailingCalls(pid, "fsync,fdatasync", "error=EIO"):` the calls of that process fail."""

    def __init__(self, pid: int, calls: str, what: str, paths: Sequence[Path] = ()) -> None:
        """`what`: happens to them, in the words of strace's `inject`, as "error=EIO:when=3+" or "delay_enter=1000".
        `paths`: only calls on these files."""
        require_strace()
        only = [word for path in paths for word in ("-P", str(path))]
        self.command = ["strace", "-f", "-p", str(pid), *only, "-e", f"inject={calls}:{what}"]
        self.lines: list[str] = []
        self._attached = threading.Event()

    def __enter__(self) -> FailingCalls:
        self._strace = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._attached.wait(ATTACH_DEADLINE_S) or not self.attached:
            self.__exit__(None, None, None)
            # Else whoever misspells what is to fail would have tests that are skipped for ever.
            assert not any("invalid" in line for line in self.lines), f"{self.command}: {' '.join(self.lines)}"
            pytest.skip(f"strace may not trace here: {' '.join(self.lines)}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._strace.terminate()
        try:
            self._strace.wait(DETACH_DEADLINE_S)
        except subprocess.TimeoutExpired:
            # Told to detach from a process whose first thread has just ended, strace waits for that one for ever.
            self._strace.kill()
            self._strace.wait()
        self._reader.join(ATTACH_DEADLINE_S)
        assert self._strace.stderr is not None
        self._strace.stderr.close()

    @property
    def attached(self) -> bool:
        return any(re.search(r"attached", line) for line in self.lines)

    @property
    def injected(self) -> int:
        """How many calls have failed, or were late, by now."""
        return sum("(INJECTED" in line or "(DELAYED" in line for line in self.lines)

    def _read(self) -> None:
        assert self._strace.stderr is not None
        for line in self._strace.stderr:
            self.lines.append(line.rstrip())
            self._attached.set()
        self._attached.set()
