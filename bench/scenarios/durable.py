"""Persistent messages, each published when the last one's confirm is in: what a durable round trip takes.

What comes in: a setting. What goes out: confirmed publishes per second, for one connection the round trip's
percentiles, and beside them an fdatasync of the same disk, looked at right before and after the run; and
the latencies at a fixed rate (`paced.py`). Rules: 1. the
queue is durable, and bodies have 100 bytes; 2. the consumer is a process of its own that wakes for every
delivery, with automatic acks or an ack for each; 3. where nobody consumes, everything is in the queue in the end,
and comes out of it once and in order.
Not here: transient messages (`closed.py`), a window of many (`stream.py`, `mixed.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.clock import now
from bench.crew import Crew
from bench.errors import BenchError
from bench.fdatasync import fdatasync_ms
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.cost import look, per_second, result_of
from bench.scenarios.flow import DONE_SECONDS_MAX, START_SECONDS, STOPPED_SECONDS_MAX, run_flow
from bench.scenarios.paced import Paced
from bench.topology import Topology

BODY_BYTES = 100
PREFETCH = 100
SYNC_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class DurableClosed:
    """`consumer` is "auto", "ack" (one for each), or "none"."""

    connections: int
    consumer: str
    quorum: bool = False
    """a quorum queue: at all brokers of a cluster"""

    def __call__(self, setting: Setting) -> Result:
        connections = max(1, round(self.connections * min(1.0, setting.scale)))
        before = fdatasync_ms(setting.work_dir, SYNC_SECONDS)
        with Topology(setting.url) as topology:
            arguments: dict[str, str | int] = {"x-queue-type": "quorum"} if self.quorum else {}
            queue = topology.queue(durable=True, arguments=arguments)
            publisher = {"role": "closed", "key": queue, "connections": connections, "body_bytes": BODY_BYTES}
            publisher["persistent"] = True
            if self.consumer == "none":
                result = self._stored(setting, topology, queue, publisher)
            else:
                result = self._consumed(setting, queue, publisher)
        after = fdatasync_ms(setting.work_dir, SYNC_SECONDS)
        sync_ms = min(before["p50"], after["p50"])
        result.figures.append(Figure("fdatasync p50", sync_ms, "ms", False, compared=False))
        for figure in [figure for figure in result.figures if figure.name == "p50"]:
            result.figures.append(Figure("p50 above fdatasync", figure.value - sync_ms, "ms", False, compared=False))
        return result

    def _consumed(self, setting: Setting, queue: str, publisher: dict[str, Any]) -> Result:
        acks = self.consumer == "ack"
        consumer = {"role": "consume", "queues": [[queue]], "counter": {"kind": "ledger"}, "at_once": True}
        consumer |= {"prefetch": PREFETCH if acks else 0, "ack_every": 1 if acks else 0}
        flow = run_flow(setting, publisher, consumer)
        return flow.result([Figure("rate", flow.rate(), "msg/s"), *_round_trip(flow.published)])

    def _stored(self, setting: Setting, topology: Topology, queue: str, publisher: dict[str, Any]) -> Result:
        with Crew() as crew:
            feeder = crew.start(url=setting.url, **publisher)
            start = now() + START_SECONDS + setting.warmup_s
            crew.go(start, start + setting.seconds)
            crew.watch_until(start)
            first = look(setting.pid)
            crew.watch_until(start + setting.seconds)
            last = look(setting.pid)
            (stopped,) = crew.expect("stopped", [feeder], STOPPED_SECONDS_MAX)
            confirmed, waiting = stopped["confirmed"], topology.messages(queue)
            if waiting != confirmed:
                raise BenchError(f"{confirmed} confirmed, {waiting} in the queue")
            counter = {"kind": "ledger"}
            eater = crew.start("consume", url=setting.url, queues=[[queue]], counter=counter, subscribe_on_go=True)
            eater.tell("go", start=now(), stop=now())
            eater.tell("total", totals=[confirmed])
            (drained,) = crew.expect("done", [eater], DONE_SECONDS_MAX)
            feeder.tell("finish")
            (published,) = crew.expect("done", [feeder], DONE_SECONDS_MAX)
        if drained["streams"] != stopped["streams"]:
            raise BenchError(f"published were {stopped['streams']}, came {drained['streams']}")
        window = published["window"]
        figures = [Figure("rate", per_second(window, "count"), "msg/s"), *_round_trip(published)]
        counts = {"published": stopped["published"], "confirmed": confirmed, "received": drained["received"]}
        return result_of(figures, {"publish": window}, window["count"], first, last, counts)


def _round_trip(published: dict[str, Any]) -> list[Figure]:
    return [Figure(name, value, "ms", False) for name, value in published["latency_ms"].items()]


SCENARIOS = [
    Scenario(
        "durable-closed-1",
        "persistent, one confirmed 100-byte publish at a time; a consumer takes each at once, auto-ack",
        DurableClosed(1, "auto"),
    ),
    Scenario("durable-closed-1-ack", "the same, the consumer acknowledges each", DurableClosed(1, "ack")),
    Scenario("durable-closed-1-stored", "the same, nobody consumes", DurableClosed(1, "none")),
    Scenario("durable-closed-50", "as durable-closed-1-stored, 50 connections", DurableClosed(50, "none")),
    Scenario(
        "durable-paced-1k",
        "latency of confirm and delivery at 1,000 persistent messages a second; durable queue, acks",
        Paced(1_000, durable=True),
    ),
    Scenario(
        "quorum-closed-1-ack",
        "as durable-closed-1-ack, a quorum queue (for --cluster)",
        DurableClosed(1, "ack", quorum=True),
        needs_cluster=True,
    ),
    Scenario(
        "quorum-closed-1-stored",
        "as durable-closed-1-stored, a quorum queue (for --cluster)",
        DurableClosed(1, "none", quorum=True),
        needs_cluster=True,
    ),
    Scenario(
        "quorum-paced-1k",
        "as durable-paced-1k, a quorum queue (for --cluster)",
        Paced(1_000, durable=True, quorum=True),
        needs_cluster=True,
    ),
]
