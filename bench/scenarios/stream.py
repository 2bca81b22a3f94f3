"""One publisher, one queue, one consumer, at full speed.

What comes in: a setting. What goes out: messages per second that went all the way. Rule: the ring is sized so
that one send call carries some 100 kB to 1 MB.
Not here: one message at a time (`closed.py`), several queues (`fanout.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.flow import run_flow
from bench.topology import Topology


@dataclass(frozen=True, slots=True)
class Stream:
    """`window` unconfirmed publishes at most (0: no confirms); `ack_every` messages one multiple-ack (0:
    automatic)."""

    body_bytes: int = 100
    durable: bool = False
    window: int = 0
    prefetch: int = 0
    ack_every: int = 0
    ring_messages: int = 1024
    quorum: bool = False
    """a quorum queue: at all brokers of a cluster"""

    def __call__(self, setting: Setting) -> Result:
        with Topology(setting.url) as topology:
            arguments: dict[str, str | int] = {"x-queue-type": "quorum"} if self.quorum else {}
            queue = topology.queue(durable=self.durable, arguments=arguments)
            publisher = {
                "role": "publish",
                "keys": [queue],
                "body_bytes": self.body_bytes,
                "persistent": self.durable,
                "window": self.window,
                "ring_messages": self.ring_messages,
            }
            consumer = {
                "role": "consume",
                "queues": [[queue]],
                "prefetch": self.prefetch,
                "ack_every": self.ack_every,
            }
            flow = run_flow(setting, publisher, consumer)
            cipher = {"tls": topology.tls} if topology.tls else {}
        figures = [Figure("rate", flow.rate(), "msg/s")]
        if self.body_bytes >= 1024:
            figures.append(Figure("bytes", flow.rate() * self.body_bytes / 1e6, "MB/s"))
        return flow.result(figures, **cipher)


SCENARIOS = [
    Scenario("stream", "1 publisher, 1 auto-ack consumer, 100-byte transient messages, no confirms", Stream()),
    Scenario(
        "stream-ack",
        "as stream, manual acks: prefetch 2000, one ack for 200",
        Stream(prefetch=2000, ack_every=200),
    ),
    Scenario("tls-stream", "as stream, both connections over TLS", Stream(), needs_tls=True),
    Scenario("stream-confirm", "as stream, publisher confirms with a window of 2000", Stream(window=2000)),
    Scenario(
        "durable-confirm",
        "durable queue, persistent messages, confirms (window 2000), acks (prefetch 2000, one for 200)",
        Stream(durable=True, window=2000, prefetch=2000, ack_every=200),
    ),
    Scenario(
        "durable-1k",
        "as durable-confirm with bodies of 1 kB",
        Stream(body_bytes=1024, durable=True, window=2000, prefetch=2000, ack_every=200, ring_messages=256),
    ),
    Scenario(
        "quorum-confirm",
        "as durable-confirm, a quorum queue (for --cluster)",
        Stream(durable=True, window=2000, prefetch=2000, ack_every=200, quorum=True),
        needs_cluster=True,
    ),
    Scenario(
        "quorum-1k",
        "as durable-1k, a quorum queue (for --cluster)",
        Stream(
            body_bytes=1024, durable=True, window=2000, prefetch=2000, ack_every=200, ring_messages=256, quorum=True
        ),
        needs_cluster=True,
    ),
    Scenario(
        "large-64k",
        "64 kB transient messages, confirms (window 100, so that the backlog stays small), auto-ack",
        Stream(body_bytes=65_536, window=100, ring_messages=16),
    ),
]
