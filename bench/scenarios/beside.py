"""A client with one message at a time beside a connection that streams: how fairly a broker serves both.

What comes in: a setting. What goes out: the round trip of the one (p50, p99), the rate of the other beside it, and as
a share of its rate alone, which is measured right before. Rules: 1. each publishes into a queue of its own with
an auto-ack consumer in a process of its own; 2. the stream is that of `stream`, without confirms; 3. the stream's
workers yield the processor, also while it is alone: where there are fewer processors than processes, the lone client
would wait for the stream's client in place of the broker; 4. everything of both is counted and checked.
Not here: the same alone (`closed.py`, `stream.py`).
"""

from __future__ import annotations

from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.flow import Course, run_flows
from bench.topology import Topology

BODY_BYTES = 100
RING_MESSAGES = 1024
NICE = 10


def run_beside_stream(setting: Setting) -> Result:
    with Topology(setting.url) as topology:
        streamed, single = topology.queue("-s"), topology.queue("-1")
        streamer = {"role": "publish", "keys": [streamed], "body_bytes": BODY_BYTES, "ring_messages": RING_MESSAGES}
        stream = Course([streamer | {"nice": NICE}], {"role": "consume", "queues": [[streamed]], "nice": NICE})
        caller = {"role": "closed", "key": single, "connections": 1, "body_bytes": BODY_BYTES}
        taker = {"role": "consume", "queues": [[single]], "counter": {"kind": "ledger"}, "at_once": True}
        (alone,) = run_flows(setting, [stream])
        beside, lone = run_flows(setting, [stream, Course([caller], taker)])
    latency_ms = lone.published["latency_ms"]
    figures = [Figure(name, latency_ms[name], "ms", False) for name in ("p50", "p99")]
    figures += [
        Figure("stream beside", beside.rate(), "msg/s"),
        Figure("stream alone", alone.rate(), "msg/s"),
        Figure("share kept", 100 * beside.rate() / alone.rate(), "%", compared=False),
        Figure("rate", lone.rate(), "msg/s"),
    ]
    return beside.result(
        figures, single_published=lone.stopped["published"], single_received=lone.consumed["received"]
    )


SCENARIOS = [
    Scenario(
        "beside-stream",
        "one confirmed publish at a time while another connection streams; the stream's rate beside its rate alone",
        run_beside_stream,
    )
]
