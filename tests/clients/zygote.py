"""Brokers that start in a fraction of a second: forked from a process that has imported amqpd already.

What comes in: `Zygote()`, or `of_this_process()`, once; arguments and environment of each broker. What goes out: real
processes of `amqpd serve`, each in a session of its own, as `subprocess.Popen` would give them.
Rules: 1. The process that forks has one thread and no open file of a broker, so that a child has nothing but
imported modules. 2. Code that changed on disk meanwhile is not seen: make a new one. 3. When its maker ends, it does,
and with it all brokers.
Not here: which brokers are started so (`broker_process.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

MESSAGE_BYTES_MAX = 1 << 16
PR_SET_PDEATHSIG = 1
"""of prctl(2)"""
NUMBER_BYTES = 8
REPOSITORY = Path(__file__).resolve().parents[2]
DESCRIPTORS = 2
"""that come with a request: where the broker writes, and where its number and its exit code go"""


def python_path(checkout: Path) -> str:
    """Where a broker of it finds its packages."""
    return os.pathsep.join([str(checkout), str(checkout / "admin")])


class Zygote:
    """The process that forks; `close` ends it."""

    def __init__(self) -> None:
        # Each message is received as it was sent, whoever else sends.
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.environment = {**os.environ, "PYTHONPATH": python_path(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        """under which it has imported amqpd"""
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=REPOSITORY,
                env=self.environment,
                stdin=subprocess.DEVNULL,
            )

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Forked:
        """`arguments` as after `amqpd`; `environment` is all that it has."""
        return Forked(self._socket, arguments, environment)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(60)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@functools.cache
def of_this_process() -> Zygote:
    """One for all brokers of this process, until that ends."""
    zygote = Zygote()
    atexit.register(zygote.close)
    return zygote


class Forked:
    """What is needed of a `subprocess.Popen`."""

    def __init__(self, zygote: socket.socket, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        ours, output = os.pipe()
        self._news, news = socket.socketpair()
        request = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
        assert len(request) <= MESSAGE_BYTES_MAX, "a request of more bytes does not arrive whole"
        with news:
            socket.send_fds(zygote, [request], [output, news.fileno()])
        os.close(output)
        self.stdout: IO[bytes] = os.fdopen(ours, "rb")
        self.pid = self._number()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._news], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("amqpd serve", timeout or 0)
            self.returncode = self._number()
            self._news.close()
        return self.returncode

    def _number(self) -> int:
        answer = self._news.recv(NUMBER_BYTES, socket.MSG_WAITALL)
        assert len(answer) == NUMBER_BYTES, "the process that forks brokers is gone"
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
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a keeper
    while True:
        message, descriptors, _, _ = socket.recv_fds(ours, MESSAGE_BYTES_MAX, DESCRIPTORS)
        if not message:
            return
        output, news = descriptors
        if not os.fork():
            ours.close()
            _keep(json.loads(message), output, news)
        os.close(output)
        os.close(news)


def _keep(request: dict[str, Any], output: int, news: int) -> None:
    """A process beside each broker that waits for its end; never returns."""
    _end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        os.close(news)
        _be_broker(request, output)
    os.close(output)
    os.write(news, pid.to_bytes(NUMBER_BYTES, "big", signed=True))
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(news, os.waitstatus_to_exitcode(status).to_bytes(NUMBER_BYTES, "big", signed=True))
    os._exit(0)


def _be_broker(request: dict[str, Any], output: int) -> None:
    """The child; never returns."""
    os.setsid()
    _end_with_parent()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    atexit._clear()
    random.seed()
    import amqpd.__main__

    code = 1
    try:
        code = amqpd.__main__.run(request["arguments"])
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
