"""A million messages that wait for their time in a queue through which others flow.

What comes in: a setting. What goes out: how late messages left, in milliseconds (the worst is the main figure), the
broker's memory, and what the flow kept. Rules: 1. The queue dead-letters to another one, whose consumer sees each
message leave. 2. The queue has two priorities, and the flow the higher one: in a queue with one, the flow's consumer
would be given the messages that wait. 3. Deadlines are spread evenly over the run and not in the order of the queue.
Only amqpd is asked: RabbitMQ's classic queues look at the head only, so what has expired behind a message that has
not stays, and a million in any order cannot leave in time
(https://www.rabbitmq.com/docs/ttl#per-message-ttl-caveats).
Not here: the workers (`roles/expiring.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.clock import now
from bench.crew import Crew
from bench.errors import BenchError
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.cost import look, per_second, result_of
from bench.topology import Topology

MESSAGES_MIN = 1_000
LEAD_SECONDS = 90.0
"""From the beginning of the fill to the first deadline; enough for a million on a busy machine."""
LEAD_SECONDS_MIN = 10.0
SPAN_SECONDS_MIN = 10.0
MARGIN_SECONDS = 5.0
DONE_SECONDS_MAX = 600.0
LATE_MS_MAX = 200.0
KEPT_SHARE_MIN = 0.98


@dataclass(frozen=True, slots=True)
class Expiring:
    messages: int
    span_s: float
    flow_per_second: int
    durable: bool = False

    def __call__(self, setting: Setting) -> Result:
        scale = min(1.0, setting.scale)
        messages = max(MESSAGES_MIN, round(self.messages * scale))
        lead_s = max(LEAD_SECONDS_MIN, LEAD_SECONDS * scale)
        span_s = max(SPAN_SECONDS_MIN, self.span_s * scale)
        with Topology(setting.url) as topology, Crew() as crew:
            dead_letters = topology.queue("-dead", durable=self.durable)
            arguments: dict[str, str | int] = {
                "x-max-priority": 1,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": dead_letters,
            }
            queue = topology.queue(durable=self.durable, arguments=arguments)
            common = {"url": setting.url, "queue": queue, "persistent": self.durable}
            empty = look(setting.pid)
            feeder = crew.start("expiring_publish", messages=messages, lead_s=lead_s, span_s=span_s, **common)
            crew.go(now(), now(), [feeder])
            (filled,) = crew.expect("stopped", [feeder], lead_s + DONE_SECONDS_MAX)
            if topology.messages(queue) != messages:
                raise BenchError(f"{topology.messages(queue)} of {messages} messages are in the queue")
            full = look(setting.pid)
            eater = crew.start("expired_consume", url=setting.url, queue=dead_letters, messages=messages)
            flow = crew.start("expiring_flow", per_second=self.flow_per_second, **common)
            start, stop = filled["first_s"], filled["first_s"] + span_s
            crew.go(start, stop, [eater])
            crew.go(start, stop + MARGIN_SECONDS, [flow])
            crew.watch_until(start)
            first = look(setting.pid)
            crew.watch_until(stop)
            last = look(setting.pid)
            (expired,) = crew.expect("done", [eater], DONE_SECONDS_MAX)
            crew.expect("stopped", [flow], DONE_SECONDS_MAX)
            for member in (feeder, flow):
                member.tell("finish")
            fed, flowed = crew.expect("done", [feeder, flow], DONE_SECONDS_MAX)
        rate = per_second(flowed["window"], "count")
        if rate < KEPT_SHARE_MIN * self.flow_per_second:
            raise BenchError(f"{self.flow_per_second}/s was not kept: {rate:.0f}/s; {expired['latency_ms']}")
        late_ms = expired["latency_ms"]
        figures = [Figure(f"late {name}", value, "ms", False) for name, value in late_ms.items() if " " not in name]
        figures.sort(key=lambda figure: figure.name != "late max")
        figures.append(Figure("fill", per_second(fed["window"], "count"), "msg/s"))
        figures.append(Figure("flow", rate, "msg/s"))
        if full.broker is not None and empty.broker is not None:
            grown = full.broker.rss_bytes - empty.broker.rss_bytes
            figures.append(Figure("full", full.broker.rss_bytes / 1e6, "MB", higher_is_better=False))
            figures.append(Figure("a message", grown / messages, "bytes", higher_is_better=False))
        windows = {"expired": expired["window"], "flow": flowed["window"]}
        counts = {"published": messages, "confirmed": filled["confirmed"], "received": expired["received"]}
        counts |= {"over_200_ms": late_ms["over 200 ms"], "flow": flowed["received"]}
        through = messages + rate * span_s
        return result_of(figures, windows, through, first, last, counts)


SCENARIOS = [
    Scenario(
        "ttl-million",
        "1,000,000 messages expire in any order over 100 s, 20,000 a second flow through their queue (amqpd only)",
        Expiring(1_000_000, 100.0, 20_000),
        needs_fresh=True,
        only="amqpd",
        takes_long=True,
    ),
    Scenario(
        "ttl-million-durable",
        "as ttl-million, all of it persistent in durable queues",
        Expiring(1_000_000, 100.0, 20_000, durable=True),
        needs_fresh=True,
        only="amqpd",
        takes_long=True,
    ),
]
