"""Queues that stop at a damaged message, as plain values for operators.

What comes in: queues with damage (`queues/fences.py`). What goes out: rows for the command line.
Not here: where a queue stops and what its clients are told (`queues/fences.py`), queues with a bug
(`quarantine.py`), what the operator does then (`management/damage/damaged_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amqpd.queues.dispatchable import Paged
    from amqpd.queues.port import QueuePort


def fence_facts(queue: QueuePort | Paged) -> dict[str, Any] | None:
    """Its damage as plain values; None when there is none."""
    fence = queue.fence
    return None if fence is None else fence._asdict()


def fenced(queues: Iterable[Paged]) -> list[dict[str, Any]]:
    """Those with damage."""
    found = []
    for queue in queues:
        facts = fence_facts(queue)
        if facts is not None:
            found.append({"vhost": queue.record.vhost, "name": queue.record.name, **facts})
    return found
