"""Where a message goes is the work: many patterns, many keys, many queues.

What comes in: a setting. What goes out: messages per second that went all the way. Rule: what is published is
confirmed with a window of 2000, so that brokers that route slowly do not pile it up.
Not here: fanout (`fanout.py`); the matching alone, without a broker around it (`bench/topic_match.py`).
"""

from __future__ import annotations

from typing import Any

from bench.errors import BenchError
from bench.scenarios.base import Figure, Result, Scenario, Setting
from bench.scenarios.flow import run_flow
from bench.topology import Topology

WINDOW = 2000
PATTERNS = 10_000
KEYS = 1_000
QUEUES = 1_000
CONSUMERS = 19
MIXED_MESSAGES = 16_384


def topic_patterns(count: int = PATTERNS) -> list[str]:
    """Patterns over keys `aNN.bNNN.cNNN.dNNN`: of ten, six literal, three with `*`, one that ends in `#`.

    The first `KEYS` match their key; the others differ from a key in the last two words, as other
    subscribers' patterns do, and match none."""
    patterns = []
    for number in range(count):
        a, b, c, d = topic_key(number % KEYS).split(".")
        if number >= KEYS:
            c, d = f"x{number:05}", f"y{number:05}"
        kind = number // 7 % 10
        stars = {6: f"{a}.*.{c}.{d}", 7: f"*.{b}.*.{d}", 8: f"{a}.{b}.{c}.*", 9: f"{a}.{b}.{c}.#"}
        patterns.append(stars.get(kind, f"{a}.{b}.{c}.{d}"))
    return patterns


def topic_key(number: int) -> str:
    """Key `number` of 1,000; all have one length."""
    return f"a{number % 10:02}.b{number % 100:03}.c{number // 10:03}.d{number:03}"


def run_topic(setting: Setting) -> Result:
    with Topology(setting.url) as topology:
        exchange, queue = topology.exchange("topic"), topology.queue()
        topology.bind_many(queue, exchange, topic_patterns(max(KEYS, round(PATTERNS * setting.scale))))
        keys = [topic_key(number) for number in range(KEYS)]
        publisher: dict[str, Any] = {"role": "publish", "exchange": exchange, "keys": keys, "body_bytes": 100}
        publisher |= {"window": WINDOW, "ring_messages": KEYS}
        flow = run_flow(setting, publisher, {"role": "consume", "queues": [[queue]]})
    return flow.result([Figure("rate", flow.rate(), "msg/s")], patterns=PATTERNS, keys=KEYS)


def run_mixed_keys(setting: Setting) -> Result:
    recipe = {"kind": "keys", "messages": MIXED_MESSAGES}
    with Topology(setting.url) as topology:
        exchange, queue = topology.exchange("topic"), topology.queue()
        topology.bind(queue, exchange, "key.#")
        publisher = {"role": "publish", "exchange": exchange, "recipe": recipe}
        counter = {"kind": "mixed", "exchange": exchange, "recipe": recipe}
        consumer = {"role": "consume", "queues": [[queue]], "counter": counter}
        flow = run_flow(setting, publisher | {"window": WINDOW}, consumer)
    return flow.result([Figure("rate", flow.rate(), "msg/s")], keys=MIXED_MESSAGES)


def run_many_queues(setting: Setting) -> Result:
    count = max(CONSUMERS, round(QUEUES * min(1.0, setting.scale)))
    with Topology(setting.url) as topology:
        queues = [topology.queue(f"-{number:04}") for number in range(count)]
        publisher = {"role": "publish", "keys": queues, "body_bytes": 100}
        publisher |= {"window": WINDOW, "ring_messages": count}
        consumer: dict[str, Any] = {
            "role": "consume",
            "queues": [queues[tap::CONSUMERS] for tap in range(CONSUMERS)],
        }
        consumer |= {"counter": {"kind": "ledger", "queues": count}}

        def totals_of(published: list[int]) -> list[int]:
            each = [_share(published[0], number, count) for number in range(count)]
            return [sum(each[tap::CONSUMERS]) for tap in range(CONSUMERS)]

        flow = run_flow(setting, publisher, consumer, totals_of=totals_of)
    for number in range(count):
        due = _share(flow.stopped["published"], number, count)
        if flow.consumed["streams"].get(str(number), 0) != due:
            raise BenchError(f"queue {number} received {flow.consumed['streams'].get(str(number))} of {due}")
    return flow.result([Figure("rate", flow.rate(), "msg/s")], queues=count)


def _share(published: int, number: int, queues: int) -> int:
    """How many of `published` messages, dealt round, queue `number` gets."""
    return (published - number + queues - 1) // queues


SCENARIOS = [
    Scenario("topic-10k", "topic exchange, 10,000 patterns, 1,000 keys in turn; confirms, auto-ack", run_topic),
    Scenario(
        "mixed-keys",
        "topic exchange, 16,384 publishes in turn, each with another key and size (40 to 1000 bytes)",
        run_mixed_keys,
    ),
    Scenario(
        "many-queues",
        "1,000 queues in turn from one publisher, 19 consuming connections; confirms, auto-ack",
        run_many_queues,
    ),
]
