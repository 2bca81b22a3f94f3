"""SIGTERM and SIGINT: the first one asks for a drain, the second one ends the process at once.

What comes in: signals. What goes out: `stop` is set; or the process is gone with exit code 1.
Rules: 1. The second signal ends the process from its handler, outside trio: it must work when the drain, or
the whole event loop, is stuck. 2. It skips all cleaning up: what was confirmed is on disk already, nothing
else was promised.
3. What comes within `SAME_SIGNAL_S` of the first is the first again.
Not here: the drain (`broker.py`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from types import FrameType

import structlog
import trio

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# One wish often arrives twice: Ctrl-C goes to the whole process group, and a wrapper (timeout, a package
# runner, an init of a container) forwards its own. They are milliseconds apart; a person who presses again
# takes longer than this.
SAME_SIGNAL_S = 0.25

log = structlog.get_logger(component="signals")


def _say(text: bytes) -> None:
    """To standard error, if it takes that at once. In between another process may fill the pipe: then SIGALRM ends
    this one, which is what is wanted, though with another exit code."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if any(mask & select.POLLOUT for _, mask in poll.poll(0)):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(1)
        with contextlib.suppress(OSError):
            os.write(2, text)


async def watch_stop_signals(stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Sets `stop` at the first signal, and waits for ever: the second ends the process. Run it in the main
    thread."""
    token = trio.lowlevel.current_trio_token()
    first_at: float | None = None

    def ask(number: int) -> None:
        log.info("stopping", signal=signal.Signals(number).name, hint="a second signal exits at once")
        stop.set()

    def receive(number: int, _: FrameType | None) -> None:
        nonlocal first_at
        now = time.monotonic()
        if first_at is None:
            first_at = now
            token.run_sync_soon(ask, number)
        elif now - first_at >= SAME_SIGNAL_S:
            # os._exit: buffered streams and exit handlers may be what is stuck.
            _say(b"amqpd: second signal, exiting without finishing the drain\n")
            os._exit(1)

    before = {number: signal.signal(number, receive) for number in STOP_SIGNALS}
    try:
        task_status.started()
        await trio.sleep_forever()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
