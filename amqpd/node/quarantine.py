"""A queue out of service: a bug was met in its own work, and what it has in memory may not be true any more; or it
stops at a damaged message, which operators see here as plain values.

What comes in: a queue, and the exception that its dispatch, a deadline, a dead letter, a policy, a publish or a
settling raised. What goes out: its consumers' cancellation; a line of the log.
Rules: 1. It is not dispatched and takes no message; a publish that is routed to it is refused (basic.nack), and so is
a dead letter, which does not take the source out of service. 2. A client that names it gets RabbitMQ's 404 of a
crashed queue (`queues/arguments.py`). 3. What is on disk stays there and is served again after a restart;
acknowledgements that come meanwhile are not taken, so those messages are delivered again. 4. Deleting it works.
Not here: how it is found out (`faults.py`), what a queue does (`queues/queue.py`), where a damaged one stops and what
its clients are told (`queues/damage.py`), what the operator does then (`management/damage/damaged_rows.py`).

There is no way back into service without a restart: what is in memory cannot be trusted, and a new machine for it can
only be made from the journal, by recovery. Source: rabbit_amqqueue.erl, priv_absent (crashed).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from amqpd.faults import QUEUE
from amqpd.node.ports import NodePort
from amqpd.queues.dispatchable import Dispatchable

if TYPE_CHECKING:
    from amqpd.queues.dispatchable import Paged
    from amqpd.queues.port import QueuePort


def quarantine(node: NodePort, queue: Dispatchable, error: Exception) -> None:
    """Take the queue out of service. Raises the error if it is one of the node."""
    record = queue.record
    node.faults.contain(QUEUE, record.name, error, vhost=record.vhost)
    if queue.is_served:
        node.log(
            "queue_quarantined",
            queue=record.name,
            vhost=record.vhost,
            remedy="restart the broker, or delete the queue",
        )
        node.to_dispatch.forget(queue)
        node.congestion.forget(queue)
        # First of all: nothing that follows may come back into it.
        queue.quarantine(f"{type(error).__name__}: {error}")
        if (found := node.queues.get((record.vhost, record.name))) is queue:
            node.active[found] = None  # what is in it counts, also if it never was dispatched
    # Also of one whose deletion failed half way: nobody is to wait for it.
    for answer in queue.abandoned():
        try:
            answer(None)
        except Exception as failure:  # noqa: BLE001 - a consumer's; faults reports it
            node.faults.contain(QUEUE, record.name, failure, vhost=record.vhost)


def quarantined(node: NodePort) -> list[dict[str, Any]]:
    """The queues that are out of service, and why."""
    return [
        {"vhost": queue.record.vhost, "name": queue.record.name, "reason": queue.crash_reason}
        for queue in node.paged()
        if queue.crash_reason is not None
    ]


def damage_facts(queue: QueuePort | Paged) -> dict[str, Any] | None:
    """Its damage as plain values; None when there is none."""
    damage = queue.damage_summary
    return None if damage is None else damage._asdict()


def fenced(queues: Iterable[Paged]) -> list[dict[str, Any]]:
    """Those with damage."""
    found = []
    for queue in queues:
        facts = damage_facts(queue)
        if facts is not None:
            found.append({"vhost": queue.record.vhost, "name": queue.record.name, **facts})
    return found
