"""Messages as applications send them: several sizes, keys, ids, times and headers, through a topic exchange.

What comes in: a setting. What goes out: messages per second that went all the way. Rules: 1. each publisher has a
ring of its own (`bench/applications.py`), encoded before the clock starts; 2. a key's first word is its area, and
each queue is bound to the areas that it has; 3. window and prefetch are those of `stream` and its kin; acks are
single ones, as applications send them.
Not here: keys and sizes alone, each message with another key (`routing.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.applications import AREAS, KEYS, ApplicationRecipe
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.flow import run_flow
from bench.topology import Topology


@dataclass(frozen=True, slots=True)
class Mixed:
    """As `stream.Stream`; with `spread`, as many publishers as areas, and a queue and a consuming connection for each
    area: every publisher sends to every queue."""

    durable: bool = False
    window: int = 0
    prefetch: int = 0
    ack_every: int = 0
    spread: bool = False

    def __call__(self, setting: Setting) -> Result:
        with Topology(setting.url) as topology:
            exchange = topology.exchange("topic")
            queues = [topology.queue(f"-{area}", durable=self.durable) for area in range(AREAS if self.spread else 1)]
            for area in range(AREAS):
                topology.bind(queues[area % len(queues)], exchange, f"area{area}.#")
            consumer = {
                "role": "consume",
                "queues": [[queue] for queue in queues],
                "prefetch": self.prefetch,
                "ack_every": self.ack_every,
                "counters": [self._counter(exchange, area) for area in range(len(queues))],
            }
            publishers = [
                {"role": "publish", "exchange": exchange, "recipe": self._recipe(number), "window": self.window}
                for number in range(len(queues))
            ]
            flow = run_flow(setting, publishers, consumer, totals_of=self._totals)
        return flow.result([Figure("rate", flow.rate(), "msg/s")], keys=KEYS)

    def _recipe(self, publisher: int) -> dict[str, Any]:
        return {"kind": "application", "publisher": publisher, "persistent": self.durable}

    def _counter(self, exchange: str, area: int) -> dict[str, Any]:
        if self.spread:
            return {"kind": "mixed_ledger", "exchange": exchange, "publishers": AREAS, "area": area}
        return {"kind": "mixed", "exchange": exchange, "recipe": self._recipe(0)}

    def _totals(self, published: list[int]) -> list[int]:
        if not self.spread:
            return published
        recipe = ApplicationRecipe()
        return [sum(recipe.of_area(area, count) for count in published) for area in range(AREAS)]


SCENARIOS = [
    Scenario(
        "mixed",
        "topic exchange, 200 keys, bodies of 40 to 600 bytes, message-id, timestamp and three headers; auto-ack",
        Mixed(),
    ),
    Scenario("mixed-ack", "as mixed, an ack for each message, prefetch 2000", Mixed(prefetch=2000, ack_every=1)),
    Scenario("mixed-4x4", "as mixed, 4 publishers, each to all of 4 queues with a consumer each", Mixed(spread=True)),
    Scenario(
        "mixed-durable",
        "as mixed-ack, durable queue, persistent messages, confirms (window 2000)",
        Mixed(durable=True, window=2000, prefetch=2000, ack_every=1),
    ),
]
