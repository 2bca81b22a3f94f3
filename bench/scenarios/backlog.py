"""Fill a queue that nobody reads, then drain it.

What comes in: a setting. What goes out: messages per second over both phases, each phase's own rate, and the
broker's resident memory when the queue is full. Rules: 1. a number of messages, not of seconds; 2. confirms
with a window of 2000 while filling, automatic acks while draining, transient messages of 100 bytes; 3. bytes
a message are only told of a fresh process: one that has served has freed memory to fill first.
Not here: the phases (`phases.py`), what waits on disk over a restart (`restart.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.crew import Crew
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.cost import look
from bench.scenarios.phases import fill_and_drain
from bench.topology import Topology

PHASE_SECONDS_MIN = 600.0
MESSAGES_PER_SECOND_MIN = 2_500
"""A broker that pages to disk on a slow machine; below this a phase is given up."""
MESSAGES_MIN = 1_000


@dataclass(frozen=True, slots=True)
class Backlog:
    messages: int
    fresh: bool = False

    def __call__(self, setting: Setting) -> Result:
        messages = max(MESSAGES_MIN, round(self.messages * setting.scale))
        phase_s = max(PHASE_SECONDS_MIN, messages / MESSAGES_PER_SECOND_MIN)
        empty = look(setting.pid)
        with Topology(setting.url) as topology, Crew() as crew:
            phases = fill_and_drain(setting, topology, crew, messages, body_bytes=100, phase_s=phase_s)
        full = phases.full
        both_s = phases.filled["seconds"] + phases.drained["seconds"]
        figures = [Figure("rate", messages / both_s, "msg/s"), *phases.rates()]
        if full.broker is not None:
            figures.append(Figure("full", full.broker.rss_bytes / 1e6, "MB", higher_is_better=False))
        if full.broker is not None and empty.broker is not None and self.fresh:
            grown = (full.broker.rss_bytes - empty.broker.rss_bytes) / messages
            figures.append(Figure("a message", max(0.0, grown), "bytes", higher_is_better=False))
        return phases.result(figures)


SCENARIOS = [
    Scenario(
        "backlog",
        "fill a queue with 500,000 transient messages of 100 bytes (confirms, window 2000), then drain it",
        Backlog(500_000),
    ),
    Scenario(
        "backlog-5m",
        "as backlog with 5,000,000 messages, in a fresh broker",
        Backlog(5_000_000, fresh=True),
        needs_fresh=True,
        takes_long=True,
    ),
]
