"""Looks at forwarders from outside while something happens to them: is a queue served, how long does a confirm take.

What comes in: addresses, names of queues. What goes out: where a queue is served; the longest wait of a publisher
that has nothing to do with what happens.
Rules: 1. A question that is answered with no is asked again after a pause: who asks must not be the load. 2. Every
wait has an end.
Not here: what happens to them (`many_queues.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import sleep

from pamqp import commands

from bench.clock import now
from bench.errors import BenchError
from bench.roles.closed import Caller
from bench.wire import Wire

AGAIN_SECONDS = 0.02
ANSWER_SECONDS_MAX = 30.0
"""A forwarder that is busy with something answers late; one that is silent for longer does not serve."""


class Asker:
    """Of one forwarder, over a connection that is kept as long as the answer is yes: a no closes the channel."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._wire: Wire | None = None

    def serves(self, name: str) -> bool:
        try:
            if self._wire is None:
                self._wire = Wire(self.url, call_seconds_max=ANSWER_SECONDS_MAX)
            self._wire.call(commands.Queue.Declare(queue=name, passive=True), commands.Queue.DeclareOk)
        except (OSError, BenchError):
            self.close()
            return False
        return True

    def close(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None


class Askers:
    """Of several; the one that said yes last is asked first. A context manager."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._askers = [Asker(url) for url in urls]

    def served(self, name: str, deadline: float) -> str:
        """Wait until the queue is served; the address of who serves it. Raises BenchError."""
        while True:
            for at, asker in enumerate(self._askers):
                if asker.serves(name):
                    self._askers.insert(0, self._askers.pop(at))
                    return asker.url
            if now() > deadline:
                raise BenchError(f"queue {name} is not served in time")
            sleep(AGAIN_SECONDS)

    def __enter__(self) -> Askers:
        return self

    def __exit__(self, *exc: object) -> None:
        for asker in self._askers:
            asker.close()


class LoneWatch(threading.Thread):
    """Publishes a message, waits for its confirm, publishes the next one, until it is stopped. A context manager."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(daemon=True)
        self._caller = Caller(url, queue, 100, 1, persistent=True)
        self._stopped = threading.Event()
        self.confirms = 0
        self.longest_s = 0.0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            while not self._stopped.wait(AGAIN_SECONDS):
                began = now()
                self._caller.publish()
                self._caller.receive()
                self.confirms += 1
                self.longest_s = max(self.longest_s, now() - began)
        except (OSError, BenchError) as error:
            self.failure = error

    def __enter__(self) -> LoneWatch:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self.join()
        self._caller.wire.socket.close()

    def __str__(self) -> str:
        text = f"{1000 * self.longest_s:,.0f} (of {self.confirms:,})"
        return text if self.failure is None else f"{text}, then {self.failure}"
