"""Brokers that start in a fraction of a second: forked from a process that has imported amqpd already.

What comes in: `Zygote()`, once; then `ForkedBroker(zygote, data_dir)`, which is used like a `BrokerProcess`. What
goes out: real processes of `amqpd serve`, each in a process group of its own.
Rules: 1. The process that forks has one thread and no open file of a broker, so that a child has nothing but
imported modules. 2. It runs one broker at a time. 3. Code that changed on disk meanwhile is not seen: make a new
one.
Not here: what the brokers are started on (`rounds.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tests.clients.broker_process import REPOSITORY, BrokerProcess

MESSAGE_BYTES_MAX = 1 << 20
PR_SET_PDEATHSIG = 1
"""of prctl(2)"""


class Zygote:
    """The process that forks; `close` ends it."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )

    def close(self) -> None:
        self.socket.close()
        self._process.wait(60)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ForkedBroker(BrokerProcess):
    """A broker that the zygote forks."""

    def __init__(self, zygote: Zygote, data_dir: Path, environment: Mapping[str, str]) -> None:
        super().__init__(data_dir, environment=environment)
        self.zygote = zygote

    def spawn(self) -> None:
        assert not self.running, "the broker runs already"
        self._start_line, self._ended = len(self._lines), False
        settings = {name: value for name, value in self.child_environment().items() if name.startswith("AMQPD_")}
        self._process = _Forked(self.zygote.socket, self.command()[3:], settings)  # type: ignore[assignment]
        self._reader = threading.Thread(target=self._read_log, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def since_start(self) -> list[str]:
        """The lines of the log of this start."""
        with self._news:
            return self._lines[self._start_line :]


class _Forked:
    """What `BrokerProcess` needs of a `subprocess.Popen`."""

    def __init__(self, zygote: socket.socket, arguments: list[str], environment: Mapping[str, str]) -> None:
        ours, theirs = os.pipe()
        wish = json.dumps({"arguments": arguments, "environment": dict(environment)}).encode()
        socket.send_fds(zygote, [wish], [theirs])
        os.close(theirs)
        self.stdout: IO[bytes] = os.fdopen(ours, "rb")
        self._zygote = zygote
        self.pid: int = self._answer()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._zygote], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("amqpd serve", timeout or 0)
            self.returncode = self._answer()
        return self.returncode

    def _answer(self) -> int:
        answer = self._zygote.recv(8)
        assert len(answer) == 8, "the process that forks brokers is gone"
        return int.from_bytes(answer, "big", signed=True)


def _end_with_parent() -> None:
    """Whoever started this process is killed: nothing is left running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _serve(ours: socket.socket) -> None:
    import alembic.command

    import amqpd.__main__
    import amqpd.broker
    import amqpd.commands.serve

    _ = amqpd.broker, amqpd.commands.serve, alembic.command
    while True:
        message, descriptors, _, _ = socket.recv_fds(ours, MESSAGE_BYTES_MAX, 1)
        if not message:
            return
        pid = os.fork()
        if not pid:
            ours.close()
            _be_broker(json.loads(message), descriptors[0])
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)  # both do it: whoever kills the group next must find it
        os.close(descriptors[0])
        ours.sendall(pid.to_bytes(8, "big", signed=True))
        _, status = os.waitpid(pid, 0)
        ours.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))


def _be_broker(wish: dict[str, Any], output: int) -> None:
    """The child; never returns."""
    os.setpgid(0, 0)
    _end_with_parent()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    for name in [name for name in os.environ if name.startswith("AMQPD_") and name != "AMQPD_KERNEL"]:
        del os.environ[name]
    os.environ.update(wish["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    atexit._clear()
    random.seed()
    import amqpd.__main__

    code = 1
    try:
        code = amqpd.__main__.run(wish["arguments"])
    except BaseException:  # noqa: BLE001 - as the interpreter does with what nobody caught
        traceback.print_exc()
    finally:
        # As the interpreter ends; its own end would run what belongs to the process that forked.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        # Ctrl-C, and SIGTERM to the group, are for the program that asks; this one ends when that one does.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_with_parent()
        _serve(given)
