"""One publisher, one fanout exchange, ten queues with an auto-ack consumer each.

What comes in: a setting. What goes out: deliveries per second, all queues together. Rule: each queue has a
connection of its own (in one consuming process) and must receive every message exactly once, in order;
confirms bound what piles up in the ten queues.
Not here: topic and direct routing.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.flow import run_flow
from bench.topology import Topology


@dataclass(frozen=True, slots=True)
class Fanout:
    queues: int

    def __call__(self, setting: Setting) -> Result:
        with Topology(setting.url) as topology:
            exchange = topology.exchange("fanout")
            queues = [topology.queue(f"-{number:03}") for number in range(self.queues)]
            for queue in queues:
                topology.bind(queue, exchange)
            publisher = {
                "role": "publish",
                "exchange": exchange,
                "keys": [""],
                "body_bytes": 100,
                "window": 2000,
                "ring_messages": 256,
            }
            consumer = {"role": "consume", "queues": [[queue] for queue in queues]}
            flow = run_flow(setting, publisher, consumer, totals_of=lambda published: published * self.queues)
        return flow.result([Figure("rate", flow.rate(self.queues), "msg/s")], queues=self.queues)


SCENARIOS = [
    Scenario(
        "fanout-10",
        "1 publisher to 10 queues with an auto-ack consumer each, confirms; deliveries a second",
        Fanout(10),
    )
]
