"""N connections, each with one confirmed 100-byte publish at a time: what a broker costs per round trip.

What comes in: a setting. What goes out: confirmed publishes per second; for one connection its latency too.
Rule: the queue is transient and an auto-ack consumer in another process keeps it empty, so that no broker is
measured at growing a queue that the other one pages out.
Not here: windows of many publishes (`stream.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.flow import run_flow
from bench.topology import Topology

BODY_BYTES = 100


@dataclass(frozen=True, slots=True)
class Closed:
    connections: int

    def __call__(self, setting: Setting) -> Result:
        connections = max(1, round(self.connections * min(1.0, setting.scale)))
        with Topology(setting.url) as topology:
            queue = topology.queue()
            publisher = {"role": "closed", "key": queue, "connections": connections, "body_bytes": BODY_BYTES}
            flow = run_flow(
                setting, publisher, {"role": "consume", "queues": [[queue]], "counter": {"kind": "ledger"}}
            )
        figures = [Figure("rate", flow.rate(), "msg/s")]
        latency_ms = flow.published["latency_ms"]
        figures += [Figure(name, latency_ms[name], "ms", False) for name in latency_ms]
        return flow.result(figures, connections=connections)


SCENARIOS = [
    Scenario(
        f"closed-{connections}",
        f"{connections} connection(s), one confirmed 100-byte publish each at a time; transient, consumed",
        Closed(connections),
    )
    for connections in (1, 50, 500)
]
