"""Three forwarders of amqpd that are killed, stopped and started one by one, with an etcd of their own.

What comes in: a directory. What goes out: processes by name, their addresses, their memory.
Rules: 1. each has its own data and its own ports, the same over its restarts; 2. they run this checkout, with default
settings, `busy_wait_us` off and `fast_takeover` on: nothing stands between these processes; 3. all of them end with
the context.
Not here: three that are measured as one broker (`clusters.py`).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from bench.brokers.clusters import BUSY_WAIT_OFF, is_healthy, wait_until
from bench.brokers.processes import end_session, free_port, start_session
from bench.clock import now
from bench.crew import ROOT
from bench.errors import BenchError

NAMES = ("a", "b", "c")
STOP_SECONDS_MAX = 120.0


class Forwarders:
    """A context manager."""

    def __init__(self, directory: Path, ready_seconds_max: float) -> None:
        self.directory = directory
        self._ready_seconds_max = ready_seconds_max
        self._ports = {name: free_port() for name in NAMES}
        self._links = {name: free_port() for name in NAMES}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._etcd_port = free_port()

    def url(self, name: str) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._ports[name]}/"

    def __enter__(self) -> Forwarders:
        program = shutil.which("etcd")
        if program is None:
            raise BenchError("etcd is not installed: apt-get install etcd-server")
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        self._processes["etcd"] = start_session(
            [
                *(program, "--name", "one", "--data-dir", str(self.directory / "etcd")),
                *("--logger", "zap", "--log-level", "error"),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"one={peer}"),
            ]
        )
        try:
            wait_until(lambda: is_healthy(client), "etcd")
            self.start(*NAMES)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for process in reversed(self._processes.values()):
            end_session(process)

    def start(self, *names: str) -> dict[str, float]:
        """Together. After how many seconds each was ready."""
        began, ready = now(), dict[str, float]()
        for name in names:
            with self._output(name).open("wb") as output:
                self._processes[name] = start_session(self._command(name), self._settings(name), output=output)
        deadline = began + self._ready_seconds_max
        while len(ready) < len(names):
            for name in names:
                if name not in ready and b"READY" in self._output(name).read_bytes():
                    ready[name] = now() - began
            if now() > deadline or any(self._processes[name].poll() is not None for name in names):
                missing = next(name for name in names if name not in ready)
                said = self._output(missing).read_text(errors="replace")[-2000:]
                raise BenchError(f"{missing} is not ready after {now() - began:.0f} s; it said: {said}")
            psutil.wait_procs([], timeout=0.05)
        return ready

    def kill(self, name: str) -> None:
        """By SIGKILL."""
        os.kill(self._processes[name].pid, signal.SIGKILL)
        self._processes[name].wait()

    def stop(self, *names: str) -> float:
        """In order, together. How many seconds the last one took. Raises BenchError."""
        began = now()
        for name in names:
            self._processes[name].terminate()
        for name in names:
            try:
                self._processes[name].wait(max(0.0, began + STOP_SECONDS_MAX - now()))
            except subprocess.TimeoutExpired:
                raise BenchError(f"{name} has not stopped after {STOP_SECONDS_MAX:g} s") from None
        return now() - began

    def memory_bytes(self, name: str) -> int:
        """Resident, of this one or of etcd."""
        return int(psutil.Process(self._processes[name].pid).memory_info().rss)

    def processor_s(self, name: str) -> float:
        times = psutil.Process(self._processes[name].pid).cpu_times()
        return float(times.user + times.system)

    def disk_bytes(self, name: str) -> int:
        return sum(file.stat().st_size for file in (self.directory / name).rglob("*") if file.is_file())

    def _output(self, name: str) -> Path:
        return self.directory / f"output-{name}"

    def _command(self, name: str) -> list[str]:
        data_dir = str(self.directory / name)
        return [sys.executable, "-m", "amqpd", "serve", "--port", str(self._ports[name]), "--data-dir", data_dir]

    def _settings(self, name: str) -> dict[str, str]:
        return {
            **BUSY_WAIT_OFF,
            "AMQPD_HTTP_PORT": "0",
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(ROOT), str(ROOT / "admin"), os.environ.get("PYTHONPATH")])
            ),
            "AMQPD_NODE_NAME": name,
            "AMQPD_CLUSTER_STORE": f"etcd://127.0.0.1:{self._etcd_port}/bench",
            "AMQPD_CLUSTER_LISTEN": f"127.0.0.1:{self._links[name]}",
            "AMQPD_CLUSTER_LABEL": name,
            "AMQPD_FAST_TAKEOVER": "true",
        }
