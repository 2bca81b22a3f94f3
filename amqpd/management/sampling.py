"""A look at every queue's counters once a second, so that rates are those of the last seconds.

What comes in: the node. What goes out: samples in the queues' facts.
Rules: a thousand queues at a time, and then everybody else.
Not here: what a sample is (`queues/facts.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from amqpd.limiting.congestion import MEASURE_S
from amqpd.node.node import Node

# Facts take a sample each five seconds at most; this decides how late.
SAMPLING_S = 1.0
# A quarter of a millisecond.
QUEUES_AT_ONCE = 1000


async def run_samples(node: Node) -> None:
    """Until cancelled. The node's clock is one second old at the most: the pump's timer tells it."""
    while True:
        await trio.sleep(SAMPLING_S)
        for at, queue in enumerate(list(node.active), 1):
            queue.facts.sample(node.now_ms)
            if queue.stopped or queue.facts.settled:
                # Until something happens to it again: most of very many queues are idle.
                del node.active[queue]
            if at % QUEUES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()


async def run_measurements(node: Node, settle: Callable[[], None]) -> None:
    """Let the node see how fast crowded queues drain, and go on with publishers that need not wait any more. Until
    cancelled."""
    while True:
        await trio.sleep(MEASURE_S)
        if node.congestion.queues or node.quotas.waiting:
            node.measure()
            settle()
