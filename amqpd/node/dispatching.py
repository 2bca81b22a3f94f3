"""Dispatch: every queue that something happened to is looked at, within the budget of a tick.

What comes in: the queues to which something happened (`queues/to_dispatch.py`); consumers that may have credit again
(`session/credit.py`). What goes out: deliveries and deaths, by each queue's own `dispatch`; requests to read; queues
that leave memory, or slow their publishers down.
Rules: 1. A tick does as much as its budget allows (`QueueHost.work_left`); what is left stays in order, and the
pump serves connections before the next tick goes on with it. 2. A queue that is added while it waits is looked
at twice: a look costs little when there is nothing to do. 3. A bug that a queue meets takes that queue out of
service (`quarantine.py`), and the next one is looked at.
Not here: what a queue does (`queues/queue.py`), when ticks are (`pump.py`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

from amqpd.faults import TASK
from amqpd.node.ports import NodePort
from amqpd.publishing.ports import DispatchingBase
from amqpd.queues.dispatchable import LOOK_WORK, Dispatchable
from amqpd.queues.states import SERVED
from amqpd.session.services import Read
from amqpd.vocabulary.client import Client

# What queues do in one tick, in the unit of `flow/turns.py`, which says why it is so much.
QUEUES_WORK_MAX = 4_000
# What has begun and takes longer leaves so much of it to the queues: their consumers are not to wait for its end.
QUEUES_SHARE_MIN = 1_000
# To tell somebody that a queue is gone, or an alarm has ended: this many at once, then this many in each tick.
STEP_WORK, STEPS_AT_ONCE, STEPS_IN_A_TICK = 10, 50, 250
# Of what has begun, so much of one queue's, then comes another's.
DEAD_LETTERS_WORK: Final = 1_000


class Dispatching(DispatchingBase):
    """The dispatch of one node."""

    def __init__(self, node: NodePort) -> None:
        super().__init__()
        self._node = node
        self._left: Iterator[Dispatchable] | None = None
        """of a round, what the last tick had no time for"""
        self._steps: deque[Iterator[None]] = deque()
        """of what ended or changed for many at once"""
        self._unfinished: OrderedDict[Dispatchable | None, deque[Iterator[None]]] = OrderedDict()
        """of what queues have begun, while the journal is held; whose turn it is first"""
        self._going_on = False
        self._put_off: dict[Dispatchable, None] = {}
        """to be dispatched when that has ended: they would begin more of it"""

    @property
    def behind(self) -> bool:
        return self._left is not None or len(self._steps) > 0 or len(self._unfinished) > 0

    @property
    def holds(self) -> bool:
        return len(self._unfinished) > 0

    def later(self, steps: Iterator[None]) -> None:
        self._steps.append(steps)
        if len(self._steps) == 1:
            self._do_steps(STEPS_AT_ONCE)

    def _do_steps(self, count: int) -> None:
        while self._steps:
            try:
                for _ in self._steps[0]:
                    self._node.work_left -= STEP_WORK
                    count -= 1
                    if count <= 0:
                        return
            except Exception as error:  # noqa: BLE001 - what comes behind goes on; reported, or raised on
                self._node.faults.contain(TASK, "later", error)
            self._steps.popleft()

    def carry_out(self, steps: Iterator[None], queue: Dispatchable | None) -> None:
        """What the queue has begun and may take longer than the tick has time for: the rest goes on in the next
        ticks, in turn with what other queues have begun. Until then this queue is not dispatched, so each has begun
        no more than one dispatch of it can; others do not wait for it. The journal commits nothing meanwhile, so one
        transaction has all of it: up to a bound (`session/holds.py`). What a publisher has begun it does in its own
        turns."""
        if self.publisher is not None:
            self.publisher.turn.begin(self._charged(self.publisher, steps))
            return
        if self.source is not None:
            queue = self.source
        self._node.holds.dead_letters_begin()
        begun = self._unfinished.get(queue)
        if begun is None:
            self._unfinished[queue] = deque((steps,))
        else:
            begun.append(steps)
        if queue is not None:
            queue.dead_letters_under_way += 1
        self._go_on()

    def _charged(self, connection: Client, steps: Iterator[None]) -> Iterator[None]:
        """As steps for `Intake.begin`."""
        node = self._node
        before = node.work_left
        try:
            for _ in steps:
                node.turns.charge(connection, before - node.work_left)
                node.work_left = before
                yield
                before = node.work_left
        except Exception as error:  # noqa: BLE001 - of no connection, and of no queue; reported, or raised on
            node.faults.contain(TASK, "carry_out", error)
        node.turns.charge(connection, before - node.work_left)
        node.work_left = before

    def _go_on(self) -> None:
        node, unfinished, holds = self._node, self._unfinished, self._node.holds
        # A step may begin more itself, which comes behind it.
        if self._going_on:
            return
        self._going_on = True
        try:
            while unfinished and node.work_left > QUEUES_SHARE_MIN:
                before, queue = node.work_left, next(iter(unfinished))
                over = self._carry_on(queue, unfinished[queue][0], max(QUEUES_SHARE_MIN, before - DEAD_LETTERS_WORK))
                holds.dead_letters_did(before - node.work_left)
                unfinished.move_to_end(queue)
                if over:
                    self._ended(queue)
        finally:
            self._going_on = False
            if not unfinished:
                holds.dead_letters_end()

    def _carry_on(self, queue: Dispatchable | None, steps: Iterator[None], until: int) -> bool:
        """Down to so much of the budget; whether that was all."""
        node, source, self.source = self._node, self.source, queue
        try:
            for _ in steps:
                if node.work_left <= until:
                    return False
        except Exception as error:  # noqa: BLE001 - what comes behind goes on; reported, or raised on
            node.faults.contain(TASK, "carry_out", error)
        finally:
            self.source = source
        return True

    def _ended(self, queue: Dispatchable | None) -> None:
        """What the queue began first is done."""
        begun = self._unfinished[queue]
        begun.popleft()
        if not begun:
            del self._unfinished[queue]
        if queue is not None:
            queue.dead_letters_under_way -= 1
            if not queue.dead_letters_under_way and queue in self._put_off:
                del self._put_off[queue]
                self._node.to_dispatch.add(queue)

    def run(self, reads: list[Read]) -> None:
        """Look at the queues to which something happened, and to which it does meanwhile, until there is none or the
        budget is used up. What must be read from disk is added to `reads`."""
        node = self._node
        if self._steps:
            self._do_steps(STEPS_IN_A_TICK)
        if self._unfinished:
            self._go_on()
        while node.work_left > 0:
            left = self._left
            if left is None:
                if not node.to_dispatch:
                    if not (node.waking and node.waking.next()):
                        return
                    node.work_left -= LOOK_WORK
                left = self._left = node.to_dispatch.take()
            for queue in left:
                if queue.dead_letters_under_way:
                    self._put_off[queue] = None
                elif queue.state is SERVED:
                    try:
                        self._look_at(queue, reads)
                    except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
                        node.quarantine(queue, error)
                    if node.work_left <= 0:
                        return
            self._left = None

    def _look_at(self, queue: Dispatchable, reads: list[Read]) -> None:
        node = self._node
        node.work_left -= queue.look_work
        node.active[queue] = None
        queue.dispatch()
        paged = queue.paged
        if paged is None:
            if node.congestion.queues:
                node.congestion.emptied(queue)
            return
        held = paged.memory_bytes
        limit = node.shares.of(held)
        request = paged.next_read(held < limit // 2)
        if request is not None:
            reads.append(Read(paged, request))
        if node.congestion.update(paged, held, limit):
            node.work_left -= paged.shrink(limit // 2)
