"""What becomes of a damaged row that the scrub has found: its queue is fenced, if it would have to read the row.

What comes in: the node; which messages of the journal's which queue, and why. What goes out: whether they are fenced,
in memory still, copies that the queue can do without, or not wanted any more.
Rules: 1. Pure. 2. What is in memory can be delivered, and is not fenced. 3. What nobody waits for, because it is
settled or its queue is gone, is no loss.
Not here: what a fence is (`queues/fences.py`), finding (`journal/scrubbing.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amqpd.queues.fences import look

if TYPE_CHECKING:
    from amqpd.node import Node
    from amqpd.queues.backlog import Backlog
    from amqpd.queues.queue import Queue

FENCED, IN_MEMORY, COPIES, UNWANTED = "fenced", "in memory", "copies", "unwanted"


class Outcome(NamedTuple):
    what: str
    queue: Queue | None = None


def damage_found(node: Node, queue_id: int, first: int, last: int, reason: str) -> Outcome:
    """The journal's row first..last of this queue, or of this lane of one, is damaged on disk."""
    for queue in node.audited():
        for lane in () if queue.stopped else queue.backlog.lanes():
            if lane.timetable.queue_id == queue_id:
                return Outcome(COPIES, queue)
            if lane.queue_id == queue_id:
                try:
                    return Outcome(_in_lane(node, queue, lane, first, last, reason), queue)
                except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
                    node.quarantine(queue, error)
                    return Outcome(UNWANTED, queue)
    return Outcome(UNWANTED)


def _in_lane(node: Node, queue: Queue, lane: Backlog, first: int, last: int, reason: str) -> str:
    outcome = UNWANTED
    seq = first
    while (index := lane.index_of(seq)) < len(lane.segments) and (segment := lane.segments[index]).first <= last:
        begin, end = max(seq, segment.first), min(last, segment.last)
        if segment.live_in(begin, end):
            if segment.runs is None:
                lane.fence(begin, end, reason)
                outcome = FENCED
            elif outcome != FENCED:
                outcome = IN_MEMORY
        seq = end + 1
    if outcome == FENCED:
        look(queue)
        node.dirty[queue] = None
    return outcome
