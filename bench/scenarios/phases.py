"""Two phases of one queue: it is filled while nobody reads, then it is drained.

What comes in: a setting, an open topology and crew, how many messages of which size. What goes out: `Phases`, with
what both workers counted and looks at the machine in between. Rules: 1. transient messages, confirmed with a window
of 2000, so that what is counted as full has been taken in; 2. the consumer comes when the queue is full, with
automatic acks; 3. all looks are taken while the connections and the queue are still there.
Not here: how many messages, what is made of the looks (`backlog.py`, `memory.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from bench.clock import now
from bench.crew import Crew
from bench.errors import BenchError
from bench.scenarios.base import Figure, Result, Setting
from bench.scenarios.cost import Look, look, result_of
from bench.topology import Topology


@dataclass(frozen=True, slots=True)
class Phases:
    """`filled` and `drained` are the workers' windows. `first` looks at the machine before the first publish, `full`
    when all is confirmed, `last` when all is received, `rested` a while after that."""

    messages: int
    filled: dict[str, Any]
    drained: dict[str, Any]
    first: Look
    full: Look
    last: Look
    rested: Look

    def rates(self) -> list[Figure]:
        return [
            Figure("fill", self.messages / self.filled["seconds"], "msg/s"),
            Figure("drain", self.messages / self.drained["seconds"], "msg/s"),
        ]

    def result(self, figures: list[Figure]) -> Result:
        counts = {
            "published": self.messages,
            "confirmed": self.filled["confirmed"],
            "received": self.drained["received"],
        }
        windows = {"publish": self.filled, "consume": self.drained}
        return result_of(figures, windows, self.messages, self.first, self.last, counts)


def fill_and_drain(
    setting: Setting,
    topology: Topology,
    crew: Crew,
    messages: int,
    *,
    body_bytes: int,
    phase_s: float,
    rest_s: float = 0.0,
) -> Phases:
    """Each phase has `phase_s` seconds at most; `rested` is `last` where no rest is asked for. Raises BenchError if a
    message is not confirmed, not in the queue, or not received once and in order (`roles/consume.py`)."""
    queue = topology.queue()
    publisher = {"keys": [queue], "body_bytes": body_bytes, "window": 2000, "messages": messages}
    feeder = crew.start("publish", url=setting.url, ring_messages=1024, **publisher)
    first = look(setting.pid)
    crew.go(first.at, first.at + phase_s)
    (filled,) = crew.expect("stopped", [feeder], phase_s)
    full = look(setting.pid)
    if filled["published"] != messages or topology.messages(queue) != messages:
        raise BenchError(f"{filled['published']} of {messages} confirmed, {topology.messages(queue)} in the queue")
    eater = crew.start("consume", url=setting.url, queues=[[queue]], subscribe_on_go=True)
    eater.tell("go", start=now(), stop=now())
    eater.tell("total", totals=[messages])
    (drained,) = crew.expect("done", [eater], phase_s)
    last = rested = look(setting.pid)
    if rest_s:
        time.sleep(rest_s)
        rested = look(setting.pid)
    feeder.tell("finish")
    crew.expect("done", [feeder], phase_s)
    return Phases(messages, filled, drained, first, full, last, rested)
