"""What the tracer is told of a publish that is traced.

What comes in: a publish, where it goes, what became of it. What goes out: the same, in words, to `tracing/tracer.py`.
Rules: only of what is traced; nothing is decided here.
Not here: whether it is (`publish.py`, by the tracer).
"""

from __future__ import annotations

from amqpd.publishing.ports import PublishingChannel, PublishingNode
from amqpd.publishing.transaction import Routed
from amqpd.tracing.tracer import SPAN_WORK, Publishing

# The publish and its route.
PUBLISH_WORK = 2 * SPAN_WORK


def routed_to(node: PublishingNode, publishing: Publishing, routed: Routed) -> None:
    """Its queues are known."""
    if node.tracer is not None:
        node.tracer.routed(publishing, [queue.record.name for queue in routed.queues])


def published(
    node: PublishingNode, channel: PublishingChannel, publishing: Publishing, routed: Routed, taken: bool
) -> None:
    """All that can be done with it at once is done. `taken`: all of it, by each queue, or by nobody because nobody
    was to have it."""
    if node.tracer is None:
        return
    if channel.tx is not None:
        outcome = "held"
    elif not taken:
        outcome = "refused"
    elif routed.delay_ms:
        outcome = "delayed"
    else:
        outcome = "routed" if routed.queues or routed.replies else "unroutable"
    node.tracer.published(publishing, routed.run, outcome)
    node.turns.charge(channel.connection, PUBLISH_WORK)
