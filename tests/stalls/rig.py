"""A watched broker, a victim, and attackers: everything that a shape needs.

What comes in: a directory. What goes out: `Rig`, and by `rig.attacker()` connections that send prepared bytes; the
figures of what happened since they were cleared.
Not here: the shapes (`shapes.py`, `drawn.py`), bounds (`test_stalls.py`, `search.py`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.clients.broker_process import REPOSITORY, BrokerProcess
from tests.stalls.figures import Figures
from tests.stalls.wire import SYNC, Reader, login

# For hangs only: the slowest shape of a broker that has every one of these faults took two minutes.
PATIENCE_S = 600.0
RECEIVE_BYTES = 1 << 20
EXCHANGE_BYTES = 1 << 18
# A broker rests that takes less than this part of so long.
REST_S, REST_PART = 1.0, 0.2
# Less than a test is given, so that it says what it saw.
REST_PATIENCE_S = 300.0


class Watched(BrokerProcess):
    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        super().__init__(directory / "data", environment=environment)
        self.figures_path = directory / "figures"

    def command(self) -> list[str]:
        plain = super().command()
        serve = plain[plain.index("serve") :]
        return [*self.prefix, sys.executable, "-m", "tests.stalls.watched", str(self.figures_path), *serve]


class Attacker:
    """One connection, logged in, with channel 1 open."""

    def __init__(self, port: int, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = Reader()
        for data in login():
            self._socket.sendall(data)
            before = self.reader.methods
            while self.reader.methods == before:
                self.reader.feed(self._socket.recv(RECEIVE_BYTES))
        self._socket.setblocking(False)
        self._unsent = bytearray()

    def run(self, data: bytes) -> bool:
        """Send it, and read until all of it has been carried out; False when the broker has closed something."""
        expected = self.reader.answers + 1
        closed = len(self.reader.closed)
        self._unsent += data + SYNC
        until = time.monotonic() + self._patience_s
        while self.reader.answers < expected:
            if len(self.reader.closed) > closed and not self._unsent:
                return False
            if time.monotonic() > until:
                raise TimeoutError(f"no answer within {self._patience_s} s")
            if not self._exchange(1.0):
                return False
        return True

    def send(self, data: bytes) -> None:
        """Send it; what comes meanwhile is read."""
        self._unsent += data
        while self._unsent and self._exchange(1.0):
            pass

    def read_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._exchange(left):
            pass

    def close(self) -> None:
        """At once, as when a program dies."""
        self._socket.close()

    def _exchange(self, timeout_s: float) -> bool:
        readable, writable, _ = select.select([self._socket], [self._socket] if self._unsent else [], [], timeout_s)
        try:
            if writable:
                sent = self._socket.send(memoryview(self._unsent)[:EXCHANGE_BYTES].tobytes())
                del self._unsent[:sent]
            if readable:
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    self._unsent.clear()
                    return False
                self._unsent += self.reader.feed(data)
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()
            return False
        return True


class Rig:
    def __init__(
        self, directory: Path, environment: dict[str, str] | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        """`patience_s`: how long attackers wait for an answer."""
        self._patience_s = patience_s
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.environment = environment or {}
        self.broker = Watched(directory, self.environment)
        self.figures = Figures(self.broker.figures_path)
        self.broker.start()
        self._attackers: list[Attacker] = []
        self._victim = subprocess.Popen(
            [sys.executable, "-m", "tests.stalls.victim", str(self.broker.port), str(self.broker.figures_path)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._victim.stdout is not None
        self._victim.stdout.readline()

    def attacker(self) -> Attacker:
        attacker = Attacker(self.broker.port, self._patience_s)
        self._attackers.append(attacker)
        return attacker

    def settle(self) -> None:
        """Close the attackers' connections and wait until the broker is done with what they left."""
        for attacker in self._attackers:
            attacker.close()
        self._attackers.clear()
        last = Attacker(self.broker.port, self._patience_s)
        last.run(b"")
        last.close()

    def rest(self) -> None:
        """Without any client: return when the broker rests, and nothing holds the journal. It may finish first what
        it has begun, on the disk too. Raises TimeoutError when that does not come to an end."""
        self._victim.kill()
        self._victim.wait()
        until = time.monotonic() + REST_PATIENCE_S
        while True:
            before = self._processor_s()
            time.sleep(REST_S)
            spent = self._processor_s() - before
            # One that gets no processor looks as if it rested.
            if spent < REST_PART * REST_S and not self.figures.held:
                return
            if time.monotonic() > until:
                left = f"{self.figures.held} hold the journal"
                raise TimeoutError(f"{spent} s of processor time in {REST_S} s without a client; {left}")

    def _processor_s(self) -> float:
        """Of all its threads, since it started."""
        fields = Path(f"/proc/{self.broker.broker_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._victim.kill()
        self._victim.wait()
        assert self._victim.stdout is not None
        self._victim.stdout.close()
        self.broker.kill()


@contextlib.contextmanager
def rig(directory: Path, environment: dict[str, str] | None = None) -> Iterator[Rig]:
    made = Rig(directory, environment)
    try:
        yield made
    finally:
        made.stop()
