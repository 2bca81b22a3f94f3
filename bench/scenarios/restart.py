"""How long a broker is away when it is restarted with a full queue on its disk.

What comes in: a setting with `restart`. What goes out: seconds from the start of the new process until a consumer has
the first message, and until it has all; and what SIGTERM took. Rules: 1. a durable queue, persistent messages of 100
bytes, all of them confirmed and none delivered before; 2. the process ends by itself on SIGTERM: a broker that was
killed would be measured at its repair; 3. the consumer knocks every few milliseconds, so that what is measured is the
broker and not the wait between two attempts; 4. every message must come back, once and in order.
Not here: crashes (the broker's own kill tests), the consumer (`roles/restarted.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.crew import Crew
from bench.errors import BenchError
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.cost import look, result_of
from bench.topology import Topology

FILL_SECONDS_MAX = 600.0
BACK_SECONDS_MAX = 600.0
MESSAGES_MIN = 1_000


@dataclass(frozen=True, slots=True)
class Restart:
    messages: int

    def __call__(self, setting: Setting) -> Result:
        if setting.restart is None:
            raise BenchError("a broker that the bench has not started cannot be restarted by it")
        messages = max(MESSAGES_MIN, round(self.messages * setting.scale))
        with Topology(setting.url) as topology, Crew() as crew:
            queue = topology.queue(durable=True)
            filled = _fill(crew, setting, queue, messages)
            if topology.messages(queue) != messages:
                raise BenchError(f"{topology.messages(queue)} of {messages} messages are in the queue")
            topology.disconnect()
            eater = crew.start("restarted_consume", url=setting.url, queue=queue, messages=messages)
            again = setting.restart()
            first = look(again.pid)
            eater.tell("go", start=first.at, stop=first.at)
            (back,) = crew.expect("done", [eater], BACK_SECONDS_MAX)
            last = look(again.pid)
            topology.reconnect()
        since = again.started_at
        figures = [
            Figure("first", back["first_at"] - since, "s", higher_is_better=False),
            Figure("all", back["all_at"] - since, "s", higher_is_better=False),
            Figure("accepts", back["open_at"] - since, "s", higher_is_better=False),
            Figure("stop", again.stop_s, "s", higher_is_better=False),
        ]
        counts = {"published": messages, "confirmed": filled, "received": back["received"]}
        return result_of(figures, {"consume": back["window"]}, messages, first, last, counts)


def _fill(crew: Crew, setting: Setting, queue: str, messages: int) -> int:
    """Publishes all and leaves; returns how many were confirmed."""
    publisher = {"keys": [queue], "body_bytes": 100, "persistent": True, "window": 2000, "messages": messages}
    feeder = crew.start("publish", url=setting.url, ring_messages=1024, **publisher)
    began = look(None).at
    crew.go(began, began + FILL_SECONDS_MAX)
    (filled,) = crew.expect("stopped", [feeder], FILL_SECONDS_MAX)
    feeder.tell("finish")
    crew.expect("done", [feeder], FILL_SECONDS_MAX)
    return int(filled["confirmed"])


SCENARIOS = [
    Scenario(
        "restart",
        "500,000 persistent messages on disk, SIGTERM, start: until the first is consumed, and all",
        Restart(500_000),
        restarts=True,
    )
]
