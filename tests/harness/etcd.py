"""A private etcd: Debian's `etcd-server` as a plain process on loopback, which tests kill, stop, restart and compact.

What comes in: a directory for its data. What goes out: an `EtcdProcess`, and its endpoint.
Rules: 1. Ports are the system's choice and stay those of the process over its restarts; data are in the given
directory; a system service is not touched. 2. It is started when it says that it serves; nothing is waited for by
time.
Not here: where the program is from (`programs.py`), the store over it (`tests/topology/etcd_stores.py`).
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.brokers.etcd import etcd_command, etcd_environment
from tests.harness.programs import debian_program

START_SECONDS_MAX, END_SECONDS_MAX = 60, 30
SERVES = b"serving client traffic"


def etcd_program() -> str:
    """Where etcd is. Skips the test when it is nowhere."""
    return debian_program("etcd", "etcd-server")


class EtcdProcess:
    """One etcd, a cluster of its own if it is not one of several (`start_cluster`). `options`: more of its flags;
    `tls`: these have certificates for clients."""

    def __init__(
        self,
        directory: Path,
        options: Sequence[str] = (),
        *,
        tls: bool = False,
        name: str = "one",
        host: str = "127.0.0.1",
    ) -> None:
        self.directory = directory
        self.host = host
        self.name = name
        self.port, self._peer_port = free_ports(2)
        self._scheme = "https" if tls else "http"
        self._options = options
        self.peer_of_members = f"{name}={self.peer}"
        self.members = self.peer_of_members
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def peer(self) -> str:
        return f"http://127.0.0.1:{self._peer_port}"

    def start(self) -> None:
        """Returns when it serves."""
        client = f"{self._scheme}://{self.endpoint}"
        command = etcd_command(
            *(etcd_program(), self.directory, client, self.peer),
            name=self.name,
            members=self.members,
            options=["--log-outputs", "stderr", *self._options],
        )
        process = subprocess.Popen(
            command,
            env=etcd_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        said: list[bytes] = []
        deadline = threading.Timer(START_SECONDS_MAX, process.kill)
        deadline.start()
        for line in process.stderr:
            said.append(line)
            if SERVES in line:
                break
        else:
            deadline.cancel()
            process.wait()
            process.stderr.close()
            raise AssertionError(b"".join(said[-20:]).decode(errors="replace"))
        deadline.cancel()
        self._process = process
        # What it says later must not fill the pipe.
        threading.Thread(target=_drain, args=(process,), daemon=True).start()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """In order, if it runs."""
        if self._process is not None:
            self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Its connections stay open, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(self, path: str, message: Mapping[str, Any], token: str = "") -> dict[str, Any]:
        """A call of the gateway, without TLS."""
        request = urllib.request.Request(
            f"http://{self.endpoint}{path}", json.dumps(message).encode(), {"Authorization": token} if token else {}
        )
        with urllib.request.urlopen(request, timeout=END_SECONDS_MAX) as answer:
            found = json.load(answer)
        assert isinstance(found, dict)
        return found

    def leads(self) -> bool:
        """Of the members of its cluster, it is the leader."""
        status = self.ask("/v3/maintenance/status", {})
        return bool(status["leader"] == status["header"]["member_id"])

    def compact(self) -> int:
        """Forget everything before now; the revision of now."""
        revision = self.ask("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        self.ask("/v3/kv/compaction", {"revision": revision, "physical": True})
        return int(revision)

    def require_log_in(self, password: str) -> None:
        """The user root, with everything allowed, and nobody else."""
        self.ask("/v3/auth/role/add", {"name": "root"})
        self.ask("/v3/auth/user/add", {"name": "root", "password": password})
        self.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
        self.ask("/v3/auth/enable", {})

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)
        self._process.wait(END_SECONDS_MAX)
        self._process = None


def members(directory: Path, count: int, host: str = "127.0.0.1") -> list[EtcdProcess]:
    """As many members of one cluster, which do not run yet."""
    processes = [
        EtcdProcess(directory / f"member{number}", name=f"member{number}", host=host) for number in range(count)
    ]
    for process in processes:
        process.members = ",".join(each.peer_of_members for each in processes)
    return processes


def start_all(processes: Sequence[EtcdProcess]) -> None:
    """Those that do not run. Returns when they serve; none of them does before most of them run."""
    waiting = [process for process in processes if not process.running]
    if waiting:
        with ThreadPoolExecutor(len(waiting)) as starting:
            list(starting.map(EtcdProcess.start, waiting))


def start_cluster(directory: Path, count: int) -> list[EtcdProcess]:
    """As many members of one cluster, which serve."""
    processes = members(directory, count)
    start_all(processes)
    return processes


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _drain(process: subprocess.Popen[bytes]) -> None:
    assert process.stderr is not None
    with process.stderr as said:
        for _ in said:
            pass
