"""What a new quorum queue asks of the source that it will belong to: how many copies, and where its leader is.

What comes in: the queue's record, its policy. What goes out: `WantedSource`.
Rules: 1. A policy's `queue-leader-locator` counts more than the argument `x-queue-leader-locator`, as in RabbitMQ
(rabbit_queue_location.erl). 2. What RabbitMQ knows beside `client-local` means `balanced`, as in RabbitMQ 4:
`random`, `least-leaders`, `min-masters`. 3. The older `x-queue-master-locator` is no argument of a quorum queue
(`queues/arguments.py`), and a policy with `queue-master-locator` leaves quorum queues alone.
Not here: which source that is (`cluster/choosing.py`), whether the arguments are valid (`queues/arguments.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqpd.node.cluster import WantedSource
from amqpd.queues.argument_values import text_of
from amqpd.vocabulary.records import QueueRecord

CLIENT_LOCAL = "client-local"


def wanted_of(record: QueueRecord, policy: Mapping[str, Any]) -> WantedSource:
    """`record`: of a quorum queue, with arguments that were checked."""
    arguments = record.arguments
    locator = policy.get("queue-leader-locator") or text_of(arguments.get("x-queue-leader-locator", CLIENT_LOCAL))
    balanced = f"{record.vhost}/{record.name}" if locator != CLIENT_LOCAL else ""
    return WantedSource(arguments.get("x-quorum-initial-group-size", 0), balanced)
