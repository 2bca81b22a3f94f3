"""TLS handshakes, in a thread of their own: any client may ask for one, and each takes some two milliseconds to
compute.

What comes in: streams, with what their clients sent. What goes out: a call when steps are done, and their outcome.
Rules: 1. The thread computes one step at a time, in the order in which they were asked for; OpenSSL does so without
the interpreter's lock, so clients that are logged in are served meanwhile. 2. While a step is under way nothing else
touches the stream (`TlsStream.busy`), so there is one step of a client at most. 3. A client that has waited beyond
the deadline of a handshake was closed, and is passed over.
Not here: deadlines (`session/liveness.py`), the bytes (`tls_stream.py`), sockets (`pump.py`).

Rejected: a budget of handshakes for each turn of the message loop. They would hold up all clients for as long as the
budget is, and wait for each other longer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amqpd.transport.link import Link
    from amqpd.transport.tls_stream import TlsStream

# A client's part of a handshake is some kilobytes, with a chain of certificates; more than this stays in the socket.
STEP_BYTES_MAX = 16 * 1024
# Outcomes that the message loop takes at once: each costs it some 0.1 ms.
OUTCOMES_MAX = 32

Outcome = tuple["Link", "TlsStream", Exception | None]


class TlsHandshakes:
    """A thread that computes TLS handshakes. `done` has outcomes when `tell` was called, from the thread."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.done: deque[Outcome] = deque()
        self._tell = tell
        self._steps: deque[tuple[Link, TlsStream, bytes]] = deque()
        self._changed = threading.Condition()
        self._started = False
        self._closed = False

    def step(self, link: Link, tls: TlsStream, data: bytes) -> None:
        """Go on with the handshake. The outcome has no error also when it is not complete yet."""
        tls.busy = True
        with self._changed:
            self._steps.append((link, tls, data))
            self._changed.notify()
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="tls", daemon=True).start()

    def take(self) -> list[Outcome]:
        """The next outcomes; whether there are more says `done`."""
        outcomes = [self.done.popleft() for _ in range(min(len(self.done), OUTCOMES_MAX))]
        for _, tls, _ in outcomes:
            tls.busy = False
        return [outcome for outcome in outcomes if not outcome[0].gone]

    def close(self) -> None:
        """What is not computed yet never is."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._steps or self._closed):
                    self._changed.wait()
                if self._closed:
                    return
                link, tls, data = self._steps.popleft()
            error: Exception | None = None
            try:
                if not link.gone:
                    tls.handshake(data)
            except Exception as raised:  # noqa: BLE001 - it is the client's end, and told where that is
                error = raised
            self.done.append((link, tls, error))
            with self._changed:
                if not self._closed:
                    self._tell()
