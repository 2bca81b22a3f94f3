"""The worker processes of one run, from the runner's side.

What comes in: jobs. What goes out: the workers' reports. Rules: 1. leaving the `with` block ends every
process that was started in it, by its handle; 2. an error of any worker ends every wait at once, with the
role's name; 3. every wait has a deadline.
Not here: the messages (`link.py`), what the workers do (`roles/`).
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.clock import now
from bench.errors import BenchError
from bench.link import Link, Message

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS_MAX = 180.0
"""Until all workers are connected: closed-500 logs in 500 times, and a log-in may cost a password hash."""
END_SECONDS_MAX = 5.0


class Member:
    """One worker; `inbox` holds what it said and nobody asked for yet."""

    def __init__(self, name: str, job: Message) -> None:
        self.name = name
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._link = Link(self.process.stdout.fileno(), self.process.stdin.fileno())
        self.read_fd = self._link.read_fd
        self.inbox: list[Message] = []
        self.done = False
        self.tell("job", **job)

    def tell(self, kind: str, **fields: Any) -> None:
        try:
            self._link.say(kind, **fields)
        except OSError:
            self.listen()  # what it said before it went is the better error
            raise BenchError(f"{self.name} is gone") from None

    def listen(self) -> None:
        """Take what the worker said; raises BenchError if that is an error, or if it went without a word."""
        try:
            while (message := self._link.poll()) is not None:
                if message["kind"] == "error":
                    raise BenchError(f"{self.name}: {message['text']}")
                self.inbox.append(message)
                self.done = self.done or message["kind"] == "done"
        except EOFError:
            if not self.done:
                raise BenchError(f"{self.name} ended with code {self.process.wait()}") from None

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_SECONDS_MAX)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Crew:
    """A context manager around all workers of a run."""

    def __init__(self) -> None:
        self.members: list[Member] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc: object) -> None:
        for member in self.members:
            member.end()

    def start(self, role: str, **job: Any) -> Member:
        """A new worker, connected and `ready` when this returns."""
        member = Member(role, {"role": role, **job})
        self.members.append(member)
        self.expect("ready", [member], READY_SECONDS_MAX)
        return member

    def go(self, start: float, stop: float, members: list[Member] | None = None) -> None:
        """All (or these) begin at once; `start` and `stop` bound the measured window."""
        for member in members or self.members:
            member.tell("go", start=start, stop=stop)

    def watch_until(self, moment: float) -> None:
        """Wait for a moment of CLOCK_MONOTONIC. Raises BenchError if a worker fails meanwhile."""
        while (left := moment - now()) > 0:
            self._listen(left)

    def expect(self, kind: str, members: list[Member], wait_s: float) -> list[Message]:
        """One message of `kind` from each of `members`, in their order. Raises BenchError after `wait_s`."""
        deadline = now() + wait_s
        while True:
            silent = [m for m in members if not any(message["kind"] == kind for message in m.inbox)]
            if not silent:
                return [_pop(member.inbox, kind) for member in members]
            if now() >= deadline:
                names = ", ".join(member.name for member in silent)
                raise BenchError(f"{names}: not {kind!r} within {wait_s:g} s")
            self._listen(deadline - now())

    def _listen(self, wait_s: float) -> None:
        listening = [member for member in self.members if not member.done]
        ready = select.select([m.read_fd for m in listening], [], [], max(0.0, wait_s))[0]
        for member in listening:
            if member.read_fd in ready:
                member.listen()


def _pop(inbox: list[Message], kind: str) -> Message:
    at = next(i for i, message in enumerate(inbox) if message["kind"] == kind)
    return inbox.pop(at)
