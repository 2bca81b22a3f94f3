"""SIGTERM and SIGINT: the first one asks for a drain, the second one ends the process at once, and so does time.

What comes in: signals. What goes out: `stop` is set; or the process is gone with exit code 1, or 0 if all was on
disk, or nothing was served yet.
Rules: 1. The second signal ends the process from its handler, outside trio: it must work when the drain, or the
whole event loop, is stuck. 2. It skips all cleaning up: what was confirmed is on disk already, nothing else was
promised. 3. What comes within `SAME_SIGNAL_S` of the first is the first again. 4. A process that is still there
`LATE_S` after the drain should have ended is ended as by a second signal, by a thread that waits for nothing but
the time: a disk that does not answer holds threads which nobody can interrupt, and a container is killed after 10
s. 5. A start is broken off: nobody was served, so there is nothing to drain.
Not here: the drain (`broker.py`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from types import FrameType

import structlog
import trio

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# One request often arrives twice: Ctrl-C goes to the whole process group, and a wrapper (timeout, a package
# runner, an init of a container) forwards its own. They are milliseconds apart; a person who presses again
# takes longer than this.
SAME_SIGNAL_S = 0.25
# Closing the stores, and what a thread had begun.
LATE_S = 1.0

log = structlog.get_logger(component="signals")


def _say(text: bytes) -> None:
    """To standard error, if it takes that at once. In between another process may fill the pipe: then SIGALRM ends
    this one, which is what is wanted, though with another exit code."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if any(mask & select.POLLOUT for _, mask in poll.poll(0)):
        signal.alarm(1)
        with contextlib.suppress(OSError):
            os.write(2, text)


class Stop:
    """The request of a signal that the process ends in order."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: within which it is to be orderly, from the first signal on."""
        self.seconds = seconds
        self.requested = trio.Event()
        self.on_disk = False
        """all that there was to write is written: what is left to do the next start can do as well"""
        self.start = trio.CancelScope()
        """around all that a broker does; cancelled by a request that comes before it serves"""
        self.serves = False

    def request(self) -> None:
        """The first signal came."""
        self.requested.set()
        if not self.serves:
            self.start.cancel()


async def watch_stop_signals(stop: Stop, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Sets `stop.requested` at the first signal, and waits for ever: the second ends the process. Run it in the main
    thread."""
    token = trio.lowlevel.current_trio_token()
    first_at: float | None = None
    reading, writing = os.pipe()

    def ask(number: int) -> None:
        hint = (
            "a second signal exits at once" if stop.serves else "it had not begun to serve: the start is broken off"
        )
        log.info("stopping", signal=signal.Signals(number).name, hint=hint)
        stop.request()

    def receive(number: int, _: FrameType | None) -> None:
        nonlocal first_at
        now = time.monotonic()
        if first_at is None:
            first_at = now
            os.write(writing, b"1")
            token.run_sync_soon(ask, number)
        elif now - first_at >= SAME_SIGNAL_S:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            # os._exit: buffered streams and exit handlers may be what is stuck.
            begun = b"the drain" if stop.serves else b"a start that had not begun to serve"
            _say(b"amqpd: second signal, exiting without finishing %b\n" % begun)
            os._exit(1)

    # Begun now: a handler that begins a thread may wait for a lock that is held where it interrupted.
    threading.Thread(target=_end_late, args=(reading, stop), name="end of a late stop", daemon=True).start()
    before = {number: signal.signal(number, receive) for number in STOP_SIGNALS}
    try:
        task_status.started()
        await trio.sleep_forever()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writing)


def _end_late(reading: int, stop: Stop) -> None:
    """Until the other end is closed; when it says that a signal came, only for so long."""
    try:
        if os.read(reading, 1) and not select.select([reading], [], [], stop.seconds + LATE_S)[0]:
            said = "all is on disk, the next start does the rest" if stop.on_disk else "what was confirmed is on disk"
            if not stop.serves:
                said = "it had not begun to serve"
            _say(f"amqpd: the end takes longer than drain_timeout_s, exiting without finishing it; {said}\n".encode())
            os._exit(0 if stop.on_disk or not stop.serves else 1)
    finally:
        os.close(reading)
