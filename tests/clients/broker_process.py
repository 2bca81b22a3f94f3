"""A broker as a child process: start it, wait until it accepts, kill it, stop it, start it again.

What comes in: a data directory and, if wanted, a port, arguments, environment and a prefix such as
strace.
What goes out: `url`, `port`, the log text, exit codes.
Rules: 1. Nothing here sleeps: `start` waits for the line with READY, `wait` for the exit, both under a
deadline. 2. The child has its own process group, and `kill` takes the whole group, so that a tracer goes
with it. 3. AMQPD_* settings of the caller do not leak into the broker; only `environment` does. 4. Where `forks` is
set, as for most tests, a broker that is begun like any other comes from a process that has imported amqpd already:
to import it takes one to two seconds of a processor.
Not here: RabbitMQ as a stand-in (`rabbitmq_process.py`), the fixtures (`conftest.py`).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from . import address
from .zygote import REPOSITORY, Forked, of_this_process, python_path

READY_DEADLINE_S = 180.0
EXIT_DEADLINE_S = 120.0
PYTHON = [sys.executable, "-m", "amqpd"]


class BrokerFailed(AssertionError):
    """The broker ended, or did not get ready; the message carries the end of its log."""


class BrokerProcess:
    """One amqpd, of `checkout`. `prefix` is put in front of the command (`["strace", "-f", ...]`)."""

    product = "amqpd"
    ready = re.compile(r"\bREADY\b")
    forks = False
    """rule 4"""

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        checkout: Path = REPOSITORY,
    ) -> None:
        self.data_dir = data_dir
        self.checkout = checkout
        self.port = port or free_port()
        # What the tests call its port is that of TLS, when they run through TLS.
        self._plain_port = free_port() if address.TLS and self.product == "amqpd" else self.port
        self.arguments = list(arguments)
        self.environment = dict(environment or {})
        self.prefix = list(prefix)
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._lines: list[str] = []
        self._start_line = 0
        self._reader: threading.Thread | None = None
        self._news = threading.Condition()
        self._ended = True

    # what it is started with; a stand-in for another broker overrides these two

    def command(self) -> list[str]:
        where = ["--port", str(self._plain_port), "--data-dir", str(self.data_dir)]
        return [*self.prefix, *PYTHON, "serve", *where, *self.arguments]

    def child_environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AMQPD_")}
        kernel = {"AMQPD_KERNEL": os.environ["AMQPD_KERNEL"]} if "AMQPD_KERNEL" in os.environ else {}
        tls = {**address.tls_settings(), "AMQPD_TLS_PORT": str(self.port)} if self._plain_port != self.port else {}
        return {
            **inherited,
            **kernel,
            **tls,
            "PYTHONPATH": python_path(self.checkout),
            "PYTHONUNBUFFERED": "1",
            # One port is not for all brokers that run at a time. Tests of the API name theirs.
            "AMQPD_HTTP_ENABLED": "false",
            **self.environment,
        }

    # incarnation

    def start(self, deadline_s: float = READY_DEADLINE_S) -> None:
        """Start and wait until the broker accepts connections. Raises BrokerFailed."""
        self.spawn()
        self.wait_ready(deadline_s)

    def spawn(self) -> None:
        """Start without waiting: for killing a broker that has not got ready yet."""
        assert not self.running, "the broker runs already"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._start_line, self._ended = len(self._lines), False
        command, environment = self.command(), self.child_environment()
        if self._may_fork(command, environment):
            self._process = of_this_process().start(command[len(PYTHON) :], environment)
        else:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=self.checkout,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read_log, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _may_fork(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Of what an interpreter looks at when it starts nothing is another than where amqpd was imported."""
        if not self.forks or command[: len(PYTHON)] != PYTHON or self.checkout != REPOSITORY:
            return False
        then = of_this_process().environment
        names = {name for name in then.keys() | environment.keys() if then.get(name) != environment.get(name)}
        return all(name.startswith("AMQPD_") and name != "AMQPD_KERNEL" for name in names)

    def wait_ready(self, deadline_s: float = READY_DEADLINE_S) -> None:
        def seen() -> bool:
            return self._ended or any(self.ready.search(line) for line in self._lines[self._start_line :])

        with self._news:
            in_time = self._news.wait_for(seen, deadline_s)
            ready = any(self.ready.search(line) for line in self._lines[self._start_line :])
        if not in_time or not ready:
            self.kill()
            raise BrokerFailed(
                f"{'the broker ended' if in_time else f'no READY within {deadline_s} s'}, "
                f"exit code {self._process and self._process.returncode}; its log:\n{self.log[-4000:]}"
            )

    def wait_log(self, pattern: str, deadline_s: float = READY_DEADLINE_S) -> str:
        """The first line since the last start in which the pattern is found. Raises BrokerFailed."""

        def found() -> str | None:
            return next((line for line in self._lines[self._start_line :] if re.search(pattern, line)), None)

        with self._news:
            self._news.wait_for(lambda: self._ended or found() is not None, deadline_s)
            line = found()
        if line is None:
            raise BrokerFailed(f"no log line with {pattern!r}; the log:\n{self.log[-4000:]}")
        return line

    def kill(self) -> None:
        """SIGKILL to the whole group; returns when all is over."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(EXIT_DEADLINE_S)
            self._join()

    def send_signal(self, number: signal.Signals) -> None:
        """To the broker itself, not to a tracer in front of it."""
        os.kill(self.broker_pid, number)

    def terminate(self, deadline_s: float = EXIT_DEADLINE_S) -> int:
        """SIGTERM, and the exit code (negative: the signal that ended it). Raises BrokerFailed."""
        self.send_signal(signal.SIGTERM)
        return self.wait(deadline_s)

    def wait(self, deadline_s: float = EXIT_DEADLINE_S) -> int:
        """The exit code, when the broker ends by itself. At the deadline: kills it, raises BrokerFailed."""
        assert self._process is not None
        try:
            code = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"still running after {deadline_s} s; the log:\n{self.log[-4000:]}") from None
        self._join()
        return code

    def exit_code(self, within_s: float) -> int | None:
        """The exit code if it ends in this time, None if it goes on."""
        assert self._process is not None
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None

    def restart(self) -> None:
        """Stop with SIGTERM if it runs, and start on the same port and data."""
        if self.running:
            self.terminate()
        self.start()

    def close(self) -> None:
        """At the end of a test: whatever state it is in, nothing is left running."""
        self.kill()

    # what one sees from outside

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def url(self) -> str:
        return address.url(self.port)

    @property
    def log(self) -> str:
        """Everything written since the object was made, over all starts."""
        with self._news:
            return "\n".join(self._lines)

    @property
    def broker_pid(self) -> int:
        assert self._process is not None
        if not self.prefix:
            return self._process.pid
        # `strace command` runs the command as its child, `nsenter` becomes it.
        children = psutil.Process(self._process.pid).children()
        return int(children[0].pid) if children else self._process.pid

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.broker_pid).memory_info().rss)

    def _read_log(self, stream: IO[bytes]) -> None:
        for line in stream:
            with self._news:
                self._lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _join(self) -> None:
        if self._reader is not None:
            self._reader.join(EXIT_DEADLINE_S)
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()


def free_port() -> int:
    """A port that was free a moment ago. A broker that loses the race for it says so in its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_refused(port: int, deadline_s: float = EXIT_DEADLINE_S) -> None:
    """Returns when nobody listens on the port any more."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        try:
            socket.create_connection((address.HOST, port), timeout=1).close()
        except OSError:
            return
    raise AssertionError(f"port {port} still accepts after {deadline_s} s")
