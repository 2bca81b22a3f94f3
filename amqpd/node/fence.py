"""Queues that stop at a damaged message: what clients and operators are told of them.

What comes in: queues with damage (`queues/fences.py`). What goes out: the error for whoever wants a message of one;
rows for the command line.
Rules: 1. Only what wants the next message is refused, with 406: a passive declare, a publish, an acknowledgement, a
purge and a deletion go on. 2. A client that tries again and again causes no read of the disk, and one line of the
log a minute.
Not here: where a queue stops (`queues/fences.py`), queues with a bug (`quarantine.py`), what the operator does then
(`management/damaged_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.queues.fences import Damage

if TYPE_CHECKING:
    from amqpd.queues.queue import Queue

TOLD_EACH_MS = 60_000


class Fenced(AMQPPreconditionFailed):
    """The next message is damaged. `told`: the log says so already."""

    def __init__(self, text: str, told: bool) -> None:
        super().__init__(text)
        self.told = told


def refuse_fenced(queue: Queue) -> None:
    """Raises Fenced when nobody can get the next message of the queue."""
    damage = queue.blocked_at()
    if damage is None:
        return
    first, last = numbers(damage)
    now_ms, record = queue.host.now_ms, queue.record
    told = now_ms - queue.refusal_told_ms < TOLD_EACH_MS
    if not told:
        queue.refusal_told_ms = now_ms
    # AMQP gives a reply text 255 bytes.
    raise Fenced(
        f"messages {first}..{last} of queue '{record.name}' in vhost '{record.vhost}' are damaged on the broker's "
        "disk; ask its operator: amqpd message quarantine, or delete",
        told,
    )


def numbers(damage: Damage) -> tuple[int, int]:
    """First and last id of what is left in the damaged row."""
    segment = damage.segment
    low, high = segment.live_ranges()[0][0], segment.live_ranges()[-1][1]
    return damage.first + low, damage.first + high - 1


def fence_facts(queue: Queue) -> dict[str, Any] | None:
    """Of the first damage in the line; None when there is none. `blocked`: the queue has come to it."""
    found = queue.damaged() if queue.damage else []
    if not found:
        return None
    first, last = numbers(found[0])
    return {
        "first": first,
        "last": last,
        "reason": found[0].reason,
        "messages": sum(each.messages for each in found),
        "rows": len(found),
        "blocked": queue.blocked,
    }


def fenced(queues: Iterable[Queue]) -> list[dict[str, Any]]:
    """Those with damage."""
    found = []
    for queue in queues:
        facts = fence_facts(queue)
        if facts is not None:
            found.append({"vhost": queue.record.vhost, "name": queue.record.name, **facts})
    return found
