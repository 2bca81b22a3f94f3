"""A broker that says for how long its one thread kept a client waiting.

What comes in: a file, then the arguments of `amqpd`. What goes out: in the file, the longest *hold*: processor time
of the thread during two rounds of the pump that follow each other.
With STALLS_WHERE in the environment (a file), where the longest round was, by samples of its stack: on the plain
build.
Rules: 1. A round is what lies between two looks at the sockets, whichever task of the thread did it, and whether the
pump looked or trio did, which lets the pump run when there is something. A client that sends something waits for the
round that has begun and for the one that serves it. 2. Processor time, not time: on a
machine that does other things too a broker is not to blame for what those take. 3. Whoever reads the file may set it
back to 0.
Not here: what keeps it busy (`shapes.py`), a client that waits (`victim.py`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from time import thread_time
from types import FrameType
from typing import Any

import trio

import amqpd.broker
from amqpd.__main__ import main
from amqpd.journal.buffer import JournalBuffer
from amqpd.pump import Pump
from tests.stalls.figures import Figures

# Of processor time, between samples; and this many callers of the code that was running.
SAMPLE_S = 0.001
CALLERS = 12


class Samples:
    """What ran in this round and in the longest one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Counter[str] = Counter()
        self._longest_s = 0.0
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        stack: list[str] = []
        while frame is not None and len(stack) < CALLERS:
            stack.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        self._seen[" < ".join(stack)] += 1

    def round_ended(self, spent_s: float, forget: bool) -> None:
        """With `forget`, a new search for the longest begins."""
        if forget:
            self._longest_s = 0.0
        if spent_s > self._longest_s:
            self._longest_s = spent_s
            lines = [f"{count:5} {stack}" for stack, count in self._seen.most_common(40)]
            self._path.write_text(f"{spent_s * 1e3:.1f} ms\n" + "\n".join(lines) + "\n")
        self._seen.clear()


class Rounds(trio.abc.Instrument):
    """Of the thread; trio tells when it looks."""

    def __init__(self, figures: Figures, samples: Samples | None) -> None:
        self._figures = figures
        self._samples = samples
        self._since = thread_time()
        self._before = 0.0
        self.journal: JournalBuffer | None = None

    def before_io_wait(self, timeout: float) -> None:
        self.end()

    def after_io_wait(self, timeout: float) -> None:
        self.begin()

    def begin(self) -> None:
        self._since = thread_time()

    def end(self) -> None:
        # Whoever looks: the pump does not look again when the last hold ends after its last look.
        if self.journal is not None:
            self._figures.held = self.journal.held
        spent = thread_time() - self._since
        cleared = not self._figures.hold_s
        if spent + self._before > self._figures.hold_s:
            self._figures.hold_s = spent + self._before
        self._before = spent
        if self._samples is not None:
            self._samples.round_ended(spent, cleared)


class WatchedEpoll:
    """The pump's epoll, which it asks once a round."""

    def __init__(self, epoll: Any, rounds: Rounds) -> None:
        self._epoll = epoll
        self._rounds = rounds
        self.fileno = epoll.fileno
        self.register = epoll.register
        self.unregister = epoll.unregister
        self.modify = epoll.modify
        self.close = epoll.close

    def poll(self, timeout: float = -1) -> list[tuple[int, int]]:
        self._rounds.end()
        events: list[tuple[int, int]] = self._epoll.poll(timeout)
        self._rounds.begin()
        return events


if __name__ == "__main__":
    figures = Figures(sys.argv.pop(1))
    where = os.environ.get("STALLS_WHERE")
    rounds = Rounds(figures, Samples(Path(where)) if where else None)
    make, run = Pump, trio.run

    def watched(*arguments: Any, **named: Any) -> Any:
        pump = make(*arguments, **named)
        rounds.journal = pump.node.journal
        pump._epoll = WatchedEpoll(pump._epoll, rounds)  # type: ignore[assignment]
        return pump

    amqpd.broker.__dict__["Pump"] = watched
    trio.__dict__["run"] = partial(run, instruments=[rounds])
    main()
