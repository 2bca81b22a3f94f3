"""Adopting an orphan: its messages move to the end of a queue, row by row.

What comes in: the orphan's rows, in order. What goes out: the same messages in the other queue; an account of it.
Rules: 1. A message leaves the orphan in the transaction of the journal in which it enters the other queue
(`messages/repair.py`): a crash neither loses nor doubles it. 2. The other queue's limits hold; what it does not take
stays, and adopting can be repeated. 3. At a damaged row it ends: what stands behind must not overtake it unnoticed.
4. However it ends, it is said how much was moved, and that is on disk.
Not here: reading the rows (`orphan_operations.py`), what becomes of an orphan that is empty (there too).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import trio

from amqpd.journal.lane import joined
from amqpd.journal.records import Row
from amqpd.management.messages.operations import LIFE_SIGN_S, MOVED_BYTES_MAX, SHORTAGES
from amqpd.management.messages.repair import Mover
from amqpd.management.running import until_durable
from amqpd.node.node import Node
from amqpd.node.orphans import Orphan, bodies_of
from amqpd.queues.messages import Messages
from amqpd.queues.port import QueuePort


class Adoption:
    """One orphan on its way into one queue."""

    def __init__(self, node: Node, orphan: Orphan, target: QueuePort) -> None:
        self._node = node
        self._orphan = orphan
        self._target = target
        self._mover = Mover(node, orphan.withdrawn, target)
        self._count = 0
        self._stopped: str | None = None

    async def steps(
        self,
        rows: AsyncGenerator[tuple[Messages, Row], None],
        settle: Callable[[], None],
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Until nothing is left, or something stands in the way; what was moved is on disk then.
        From time to time it says how far it is. `settle` has the node act on what was done."""
        nbytes, told_at = 0, trio.current_time()
        lanes = joined(self._orphan.lane.alone, self._target.lane.alone)
        async with aclosing(rows) as found:
            async for level, row in found:
                bodies = bodies_of(row)
                self._stopped = self._reason(row)
                if self._stopped is not None:
                    break
                level.store.cut_at(row.first_seq, row.last_seq)
                self._count += self._mover.move(level, bodies, row.first_seq, row.last_seq)
                settle()
                if self._mover.full:
                    name = self._target.record.name
                    self._stopped = f"the queue '{name}' takes no more: make space in it, and adopt the rest"
                    break
                nbytes += len(row.data)
                if nbytes > MOVED_BYTES_MAX:
                    await until_durable(self._node, settle, lanes)
                    nbytes = 0
                if trio.current_time() - told_at > LIFE_SIGN_S:
                    told_at = trio.current_time()
                    yield [self.account()]
        await until_durable(self._node, settle, lanes)

    def account(self) -> dict[str, Any]:
        """`stopped`: why there is something left, in a sentence; None while there is no reason."""
        return {"count": self._count, "left": self._orphan.ready_count, "stopped": self._stopped}

    def _reason(self, row: Row) -> str | None:
        """Not to go on with this row."""
        if row.damage:
            return f"{row.damage}: the rest stays parked, and `amqpd orphans export` writes what of it can be read"
        if short := sorted(SHORTAGES & self._node.alarms.kinds):
            return f"the {short[0]} alarm is on: nothing is adopted until it is off"
        if not self._target.is_served:
            return f"the queue '{self._target.record.name}' was deleted meanwhile, or is out of service now"
        return None
