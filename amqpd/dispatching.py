"""Dispatch: every queue that something happened to is looked at, within the budget of a tick.

What comes in: the node's `dirty` queues; consumers that may have credit again (`credit.py`). What goes out:
deliveries and deaths, by each queue's own `dispatch`; wishes to read; queues that leave memory, or slow their
publishers down.
Rules: 1. A tick does as much as its budget has room for (`QueueHost.work_left`); what is left stays in order, and the
pump serves connections before the next tick goes on with it. 2. A queue that becomes dirty while it waits is looked
at twice: a look costs little when there is nothing to do. 3. A bug that a queue meets takes that queue out of
service (`quarantine.py`), and the next one is looked at.
Not here: what a queue does (`queues/queue.py`), when ticks are (`pump.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amqpd.faults import TASK
from amqpd.world import Read

if TYPE_CHECKING:
    from amqpd.node import Node
    from amqpd.queues.queue import Queue

# What queues do in one tick, in the unit of `limiting/turns.py`, which says why it is so much.
QUEUES_WORK_MAX = 5_000
# What has begun and takes longer leaves so much of it to the queues: their consumers are not to wait for its end.
QUEUES_SHARE_MIN = 1_250
# A look at a queue that has nothing to do.
LOOK_WORK = 1
# To tell somebody that a queue is gone, or an alarm over; so many at once, and so many in each tick from then on.
STEP_WORK, STEPS_AT_ONCE, STEPS_IN_A_TICK = 10, 50, 250


class Dispatching:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._left: Iterator[Queue] | None = None
        """at what was dirty and the last tick had no room for"""
        self._steps: deque[Iterator[None]] = deque()
        """of what ended or changed for many at once"""
        self._unfinished: deque[Iterator[None]] = deque()
        """of what queues have begun, while the journal is held"""
        self._going_on = False
        self._put_off: dict[Queue, None] = {}
        """dirty ones that may begin more of it"""

    @property
    def behind(self) -> bool:
        """There is more to do than the last tick had room for."""
        return self._left is not None or len(self._steps) > 0 or len(self._unfinished) > 0 or len(self._put_off) > 0

    def later(self, steps: Iterator[None]) -> None:
        """See `QueueHost.later`."""
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

    def carry_out(self, steps: Iterator[None]) -> None:
        """What a queue has begun and may take longer than the tick has room for: the rest goes on in the next ticks.
        Queues that may begin more of it wait until then, others do not. The journal commits nothing meanwhile, so one
        transaction has all of it: up to a bound (`holds.py`)."""
        self._node.holds.letters_begin()
        self._unfinished.append(steps)
        self._go_on()

    def _go_on(self) -> None:
        node, unfinished, holds = self._node, self._unfinished, self._node.holds
        # A step may begin more itself, which comes behind it.
        while unfinished and node.work_left > QUEUES_SHARE_MIN and not self._going_on:
            before, self._going_on = node.work_left, True
            try:
                for _ in unfinished[0]:
                    holds.letters_did(before - node.work_left)
                    before = node.work_left
                    if before <= QUEUES_SHARE_MIN:
                        return
                unfinished.popleft()
            except Exception as error:  # noqa: BLE001 - what comes behind goes on; reported, or raised on
                unfinished.popleft()
                node.faults.contain(TASK, "carry_out", error)
            finally:
                self._going_on = False
                holds.letters_did(before - node.work_left)
                if not unfinished:
                    holds.letters_end()

    def run(self, reads: list[Read]) -> None:
        """Look at what is dirty, and at what becomes so meanwhile, until nothing is or the budget is used up. What
        must be read from disk is added to `reads`."""
        node = self._node
        if self._steps:
            self._do_steps(STEPS_IN_A_TICK)
        if self._unfinished:
            self._go_on()
        if self._put_off and not self._unfinished:
            node.dirty.update(self._put_off)
            self._put_off = {}
        while node.work_left > 0:
            left = self._left
            if left is None:
                if not node.dirty:
                    if not (node.waking and node.waking.next()):
                        return
                    node.work_left -= LOOK_WORK
                left = self._left = iter(node.dirty)
                node.dirty = {}
            for queue in left:
                if self._unfinished and queue.backlog.buries:
                    self._put_off[queue] = None
                elif not queue.stopped:
                    try:
                        self._look_at(queue, reads)
                    except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
                        node.quarantine(queue, error)
                    if node.work_left <= 0:
                        return
            self._left = None

    def _look_at(self, queue: Queue, reads: list[Read]) -> None:
        node = self._node
        node.work_left -= LOOK_WORK
        queue.dispatch()
        backlog = queue.backlog
        if not (backlog.memory_bytes or backlog.ready or backlog.unacked or node.congestion.queues):
            return
        limit = node.shares.of(queue)
        wanted = queue.next_read(backlog.memory_bytes < limit // 2)
        if wanted is not None:
            queue.reading = True
            reads.append(Read(queue, *wanted))
        if node.congestion.update(queue, limit):
            node.work_left -= backlog.shrink(limit // 2)
            if backlog.shrinking:
                node.again(queue)
