"""What the private brokers have in common: ports, directories, the wait until they accept, the end.

What comes in: a command and its environment. What goes out: a `Broker`. Rules: 1. the process gets a session
of its own, which ends with the context; 2. a restart waits for the broker to end by itself; 3. what the broker wrote
is shown when it does not start.
Not here: the commands themselves (`private_rabbitmq.py`, `private_amqpd.py`), sessions (`processes.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from urllib.parse import quote

import psutil

from bench.brokers.processes import end_session, free_port, start_session
from bench.clock import now
from bench.errors import BenchError
from bench.scenarios.base import Restarted
from bench.tls import make_certificate
from bench.wire import Wire

START_SECONDS_MAX = 90.0
RESTART_STOP_SECONDS_MAX = 180.0
"""A broker may write everything that it has in memory when it is asked to stop."""
RETRY_SECONDS = 0.1
LOG_BYTES_SHOWN = 2_000


@dataclass(frozen=True, slots=True)
class Broker:
    """`name` heads its column; `pid` is known for private brokers, or from the command line."""

    name: str
    url: str
    pid: int | None = None
    version: str = ""
    """As the broker says it; for a private amqpd with the kernel that runs."""
    again: Callable[[], PrivateBroker] | None = None
    """Makes another, fresh broker of the same kind; None where the broker is not ours to start."""
    tls_url: str = ""
    """Its amqps address, empty where there is none."""
    product: str = ""
    """What it calls itself, in lower case."""


class PrivateBroker:
    """A context manager that yields the running `Broker`. Subclasses give `name`, `command` and
    `environment`."""

    name = ""

    def __init__(self, work_dir: str | None = None, *, tls: bool = False) -> None:
        """`work_dir`: where the temporary directory is made; its file system is the one whose fsync
        counts. `tls`: it listens for amqps too, with a throw-away certificate."""
        self._work_dir = work_dir
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-", dir=work_dir))
        self.tls_port = free_port() if tls else 0
        self.certificate = make_certificate(self.directory) if tls else None
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def another(self) -> PrivateBroker:
        """A new one with ports and a directory of its own, not yet started."""
        return type(self)(self._work_dir, tls=self.certificate is not None)

    def environment(self) -> dict[str, str]:
        return {}

    def prepare(self) -> None:
        """Called before the command is started."""

    def clean(self) -> None:
        """Called after the process has ended, or did not start."""

    def version(self, said: str) -> str:
        """`said` is the version in the server's properties."""
        return said

    def leader(self, process: psutil.Process) -> psutil.Process:
        """The process that takes SIGTERM for all of it; raises BenchError if it is not there."""
        return process

    def restart(self) -> Restarted:
        """SIGTERM, wait for the end, start again on the same data; does not wait until it accepts.

        Raises BenchError if it does not end by itself within RESTART_STOP_SECONDS_MAX."""
        assert self._process is not None
        began = now()
        self.leader(psutil.Process(self._process.pid)).terminate()
        try:
            self._process.wait(RESTART_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name} does not end within {RESTART_STOP_SECONDS_MAX:g} s of SIGTERM") from None
        stop_s = now() - began
        end_session(self._process)  # what the broker left of its session, if anything
        started_at = now()
        self._process = self._start()
        return Restarted(stop_s, started_at, self._process.pid)

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.directory / "output").open("ab") as output:
            return start_session(self.command(), self.environment(), output=output, directory=self.directory)

    def __enter__(self) -> Broker:
        try:
            self.prepare()
            self._process = self._start()
            return self._wait_until_it_accepts()
        except BaseException:
            self.__exit__()
            raise

    def _wait_until_it_accepts(self) -> Broker:
        assert self._process is not None
        url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        deadline = now() + START_SECONDS_MAX
        while True:
            if self._process.poll() is not None:
                raise BenchError(f"{self.name} ended with code {self._process.returncode}: {self._output()}")
            try:
                with Wire(url, call_seconds_max=10.0) as wire:
                    said = wire.server_properties
                version, product = self.version(str(said.get("version", ""))), str(said.get("product", "")).lower()
                return Broker(self.name, url, self._process.pid, version, self.another, self._tls_url(), product)
            except (OSError, BenchError) as error:
                if now() > deadline:
                    why = f"does not accept after {START_SECONDS_MAX:g} s ({error})"
                    raise BenchError(f"{self.name} {why}: {self._output()}") from error
            sleep(RETRY_SECONDS)

    def _tls_url(self) -> str:
        if self.certificate is None:
            return ""
        return f"amqps://guest:guest@127.0.0.1:{self.tls_port}/?cacertfile={quote(str(self.certificate.ca))}"

    def _output(self) -> str:
        text = (self.directory / "output").read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace")
        return text.strip() or "it wrote nothing"

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            end_session(self._process)
            self._process = None
        self.clean()
        shutil.rmtree(self.directory, ignore_errors=True)


def file_system_of(path: str | None) -> str:
    """The type of the file system that holds `path` (or the temporary directory): an fsync on tmpfs costs
    nothing."""
    place = os.path.realpath(path or tempfile.gettempdir())
    mounts = [mount for mount in psutil.disk_partitions(all=True) if _below(place, mount.mountpoint)]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else "unknown"


def _below(place: str, mountpoint: str) -> bool:
    return place == mountpoint or place.startswith(mountpoint.rstrip("/") + "/")
