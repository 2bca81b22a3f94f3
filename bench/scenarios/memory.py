"""Twenty million small messages that nobody reads: what each of them costs in memory.

What comes in: a setting. What goes out: the broker's resident megabytes when the queue is full (the main figure), at
most while it fills and drains, and when it is empty again; bytes of memory for each message above its body; messages
per second that came and went. Rules: 1. Transient messages of 16 bytes in one queue, each fill confirmed (window
2000), so that what is counted as full has been taken in. 2. What is resident is counted above what the broker needed
before the first message, for the bytes per message; as a whole for the megabytes. 3. Every message is received once,
in order (`roles/consume.py`).
Not here: the phases (`phases.py`), messages of common size (`backlog.py`), connections (`control.py`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from bench.crew import Crew
from bench.proc import usage_of
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.phases import fill_and_drain
from bench.topology import Topology

BODY_BYTES = 16
MESSAGES_MIN = 10_000
PHASE_SECONDS_MAX = 1800.0
LOOK_SECONDS = 0.1
# What is freed may stay with the allocator until the broker looks at its memory again.
EMPTY_SECONDS = 5.0


class Peak:
    """The largest resident size while it is looked at, in bytes; 0 when the process is not known."""

    def __init__(self, pid: int | None) -> None:
        self.rss_bytes = 0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peak:
        if self._pid is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._pid is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            usage = usage_of(self._pid)
            if usage is not None:
                self.rss_bytes = max(self.rss_bytes, usage.rss_bytes)


@dataclass(frozen=True, slots=True)
class SmallMessages:
    messages: int

    def __call__(self, setting: Setting) -> Result:
        messages = max(MESSAGES_MIN, round(self.messages * setting.scale))
        with Topology(setting.url) as topology, Crew() as crew, Peak(setting.pid) as peak:
            phases = fill_and_drain(
                setting,
                topology,
                crew,
                messages,
                body_bytes=BODY_BYTES,
                phase_s=PHASE_SECONDS_MAX,
                rest_s=EMPTY_SECONDS,
            )
        first, full, empty = phases.first.broker, phases.full.broker, phases.rested.broker
        figures = phases.rates()
        if first is not None and full is not None and empty is not None:
            each = (full.rss_bytes - first.rss_bytes) / messages - BODY_BYTES
            figures = [
                Figure("full", full.rss_bytes / 1e6, "MB", higher_is_better=False),
                Figure("peak", peak.rss_bytes / 1e6, "MB", higher_is_better=False),
                Figure("empty", empty.rss_bytes / 1e6, "MB", higher_is_better=False),
                Figure("each above body", each, "B", higher_is_better=False),
                *figures,
            ]
        return phases.result(figures)


SCENARIOS = [
    Scenario(
        "small-20m",
        "20,000,000 transient messages of 16 bytes wait in one queue, which is drained then: memory",
        SmallMessages(20_000_000),
        needs_fresh=True,
        takes_long=True,
    )
]
