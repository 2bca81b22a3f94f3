"""Queues that stop at a damaged message: what clients and operators are told of them.

What comes in: queues with damage (`queues/fences.py`). What goes out: the error for a client that wants a message of
one; rows for the command line.
Rules: 1. Only what wants the next message is refused, with 406: a passive declare, a publish, an acknowledgement, a
purge and a deletion go on. 2. A client that tries again and again causes no read of the disk, and one line of the
log a minute.
Not here: where a queue stops (`queues/fences.py`), queues with a bug (`quarantine.py`), what the operator does then
(`management/damage/damaged_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pamqp.exceptions import AMQPPreconditionFailed

if TYPE_CHECKING:
    from amqpd.queues.port import QueuePort

TOLD_EACH_MS = 60_000


class Fenced(AMQPPreconditionFailed):
    """The next message is damaged. `told`: the log says so already."""

    def __init__(self, text: str, told: bool) -> None:
        super().__init__(text)
        self.told = told


def refuse_fenced(queue: QueuePort, now_ms: int) -> None:
    """Raises Fenced when nobody can get the next message of the queue."""
    blocked_by = queue.blocked_by
    if blocked_by is None:
        return
    first, last = blocked_by
    record, told = queue.record, now_ms - queue.refusal_told_ms < TOLD_EACH_MS
    if not told:
        queue.refusal_told_ms = now_ms
    # AMQP gives a reply text 255 bytes.
    raise Fenced(
        f"messages {first}..{last} of queue '{record.name}' in vhost '{record.vhost}' are damaged on the broker's "
        "disk; ask its operator: amqpd message quarantine, or delete",
        told,
    )


def fence_facts(queue: QueuePort) -> dict[str, Any] | None:
    """Its damage as plain values; None when there is none."""
    fence = queue.fence
    return None if fence is None else fence._asdict()


def fenced(queues: Iterable[QueuePort]) -> list[dict[str, Any]]:
    """Those with damage."""
    found = []
    for queue in queues:
        facts = fence_facts(queue)
        if facts is not None:
            found.append({"vhost": queue.record.vhost, "name": queue.record.name, **facts})
    return found
