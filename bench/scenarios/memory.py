"""Twenty million small messages that nobody reads: what each of them costs in memory.

What comes in: a setting. What goes out: the broker's resident megabytes when the queue is full (the main figure), at
most while it fills and drains, and when it is empty again; bytes of memory for each message above its body; messages
per second that came and went. Rules: 1. Transient messages of 16 bytes in one queue, each fill confirmed (window
2000), so that what is counted as full has been taken in. 2. What is resident is counted above what the broker needed
before the first message, for the bytes per message; as a whole for the megabytes. 3. Every message is received once,
in order (`roles/consume.py`).
Not here: messages of common size (`backlog.py`), connections (`control.py`).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from bench.clock import now
from bench.crew import Crew
from bench.errors import BenchError
from bench.proc import usage_of
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.cost import look, result_of
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
            queue = topology.queue()
            publisher = {"keys": [queue], "body_bytes": BODY_BYTES, "window": 2000, "messages": messages}
            feeder = crew.start("publish", url=setting.url, ring_messages=1024, **publisher)
            first = look(setting.pid)
            crew.go(first.at, first.at + PHASE_SECONDS_MAX)
            (filled,) = crew.expect("stopped", [feeder], PHASE_SECONDS_MAX)
            full = look(setting.pid)
            if filled["published"] != messages or topology.messages(queue) != messages:
                raise BenchError(
                    f"{filled['published']} of {messages} confirmed, {topology.messages(queue)} in the queue"
                )
            eater = crew.start("consume", url=setting.url, queues=[[queue]], subscribe_on_go=True)
            eater.tell("go", start=now(), stop=now())
            eater.tell("total", totals=[messages])
            (drained,) = crew.expect("done", [eater], PHASE_SECONDS_MAX)
            last = look(setting.pid)
            time.sleep(EMPTY_SECONDS)
            empty = look(setting.pid)
            feeder.tell("finish")
            crew.expect("done", [feeder], PHASE_SECONDS_MAX)
        phases = {"publish": filled, "consume": drained}
        figures = [
            Figure("fill", messages / filled["seconds"], "msg/s"),
            Figure("drain", messages / drained["seconds"], "msg/s"),
        ]
        if first.broker is not None and full.broker is not None and empty.broker is not None:
            each = (full.broker.rss_bytes - first.broker.rss_bytes) / messages - BODY_BYTES
            figures = [
                Figure("full", full.broker.rss_bytes / 1e6, "MB", higher_is_better=False),
                Figure("peak", peak.rss_bytes / 1e6, "MB", higher_is_better=False),
                Figure("empty", empty.broker.rss_bytes / 1e6, "MB", higher_is_better=False),
                Figure("each above body", each, "B", higher_is_better=False),
                *figures,
            ]
        counts = {"published": messages, "confirmed": filled["confirmed"], "received": drained["received"]}
        return result_of(figures, phases, messages, first, last, counts)


SCENARIOS = [
    Scenario(
        "small-20m",
        "20,000,000 transient messages of 16 bytes wait in one queue, which is drained then: memory",
        SmallMessages(20_000_000),
        needs_fresh=True,
        takes_long=True,
    )
]
