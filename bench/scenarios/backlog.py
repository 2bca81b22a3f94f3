"""Fill a queue that nobody reads, then drain it.

What comes in: a setting. What goes out: messages per second over both phases, each phase's own rate, and the
broker's resident memory when the queue is full. Rules: 1. a number of messages, not of seconds; 2. confirms
with a window of 2000 while filling, automatic acks while draining, messages of 100 bytes; transient ones for
`backlog`, persistent ones in a durable queue for `backlog-5m`.
Not here: what small messages cost in memory (`memory.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.clock import now
from bench.crew import Crew
from bench.errors import BenchError
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.cost import look, result_of
from bench.topology import Topology

PHASE_SECONDS_MAX = 600.0
MESSAGES_MIN = 1_000


@dataclass(frozen=True, slots=True)
class Backlog:
    messages: int
    durable: bool = False

    def __call__(self, setting: Setting) -> Result:
        messages = max(MESSAGES_MIN, round(self.messages * setting.scale))
        with Topology(setting.url) as topology, Crew() as crew:
            queue = topology.queue(durable=self.durable)
            publisher = {"keys": [queue], "body_bytes": 100, "persistent": self.durable, "messages": messages}
            feeder = crew.start("publish", url=setting.url, ring_messages=1024, window=2000, **publisher)
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
            feeder.tell("finish")
            crew.expect("done", [feeder], PHASE_SECONDS_MAX)
        phases = {"publish": filled, "consume": drained}
        figures = [
            Figure("rate", messages / sum(phase["seconds"] for phase in phases.values()), "msg/s"),
            Figure("fill", messages / filled["seconds"], "msg/s"),
            Figure("drain", messages / drained["seconds"], "msg/s"),
        ]
        if full.broker is not None:
            figures.append(Figure("full", full.broker.rss_bytes / 1e6, "MB", higher_is_better=False))
        counts = {"published": messages, "confirmed": filled["confirmed"], "received": drained["received"]}
        return result_of(figures, phases, messages, first, last, counts)


SCENARIOS = [
    Scenario(
        "backlog",
        "fill a queue with 500,000 transient messages of 100 bytes (confirms, window 2000), then drain it",
        Backlog(500_000),
    ),
    Scenario(
        "backlog-5m",
        "fill a durable queue with 5,000,000 persistent messages of 100 bytes (confirms, window 2000), then drain it",
        Backlog(5_000_000, durable=True),
        takes_long=True,
    ),
]
