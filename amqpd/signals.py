"""SIGTERM and SIGINT: the first one asks for a drain, the second one ends the process at once.

What comes in: signals. What goes out: `stop` is set; or the process is gone with exit code 1.
Rules: 1. The second signal is handled outside trio, at the next bytecode: it must work when the drain, or the
whole event loop, is stuck. 2. It skips all cleaning up: what was confirmed is on disk already, nothing else
was promised.
Not here: the drain (`broker.py`).
"""

from __future__ import annotations

import os
import signal
from types import FrameType

import structlog
import trio

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = structlog.get_logger(room="signals")


async def watch_stop_signals(stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Sets `stop` at the first signal, and waits for ever: the second ends the process. Run it in the main
    thread."""
    before = {known: signal.getsignal(known) for known in STOP_SIGNALS}
    with trio.open_signal_receiver(*STOP_SIGNALS) as received:
        task_status.started()
        first = await anext(received)
    try:
        for known in STOP_SIGNALS:
            signal.signal(known, _exit_at_once)
        log.info("stopping", signal=signal.Signals(first).name, hint="a second signal exits at once")
        stop.set()
        await trio.sleep_forever()
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)


def _exit_at_once(number: int, _: FrameType | None) -> None:
    # os.write and os._exit: buffered streams and exit handlers may be what is stuck.
    os.write(2, b"amqpd: second signal, exiting without finishing the drain\n")
    os._exit(1)
