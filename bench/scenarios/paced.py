"""Latency at a fixed rate: publish to confirm, and publish to delivery.

What comes in: a setting. What goes out: p50, p99 and p99.9 of both, in milliseconds. Rule: 5,000 single
publishes a second (1,000 where each is to be on the disk), far below any broker's limit, so that queues do not
build up and the figure is latency, not load.
Not here: latency under full load.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.flow import run_flow
from bench.topology import Topology

BODY_BYTES = 100
PER_SECOND_MIN = 200


@dataclass(frozen=True, slots=True)
class Paced:
    per_second: int
    durable: bool = False
    """persistent messages in a durable queue, whose consumer acknowledges"""
    quorum: bool = False
    """a quorum queue: at all brokers of a cluster"""

    def __call__(self, setting: Setting) -> Result:
        per_second = max(PER_SECOND_MIN, round(self.per_second * min(1.0, setting.scale)))
        with Topology(setting.url) as topology:
            arguments: dict[str, str | int] = {"x-queue-type": "quorum"} if self.quorum else {}
            queue = topology.queue(durable=self.durable, arguments=arguments)
            publisher = {
                "role": "paced_publish",
                "key": queue,
                "body_bytes": BODY_BYTES,
                "per_second": per_second,
                "persistent": self.durable,
            }
            flow = run_flow(setting, publisher, {"role": "paced_consume", "queue": queue, "acks": self.durable})
        sides = {"confirm": flow.published, "delivery": flow.consumed}
        figures = [
            Figure(f"{side} {name}", value, "ms", False)
            for side, report in sides.items()
            for name, value in report["latency_ms"].items()
        ]
        return flow.result(figures, generator_late_ms=flow.published["late_ms"])


SCENARIOS = [
    Scenario("paced-5k", "latency of confirm and delivery at 5,000 transient messages a second", Paced(5_000))
]
