"""What becomes of damaged rows that the scrub has found: a queue is fenced, if it would have to read the row.

What comes in: the node; which messages of which of the journal's queues, and why. What goes out: whether they are
fenced, in memory still, copies that the queue can do without, or not wanted any more.
Rules: 1. Pure. 2. What is in memory can be delivered, and is not fenced. 3. What nobody waits for, because it is
settled or its queue is gone, is no loss. 4. All finds of a step cost one walk over the queues. 5. A queue that is not
made yet, of a source that begins here, is made.
Not here: what a fence is (`queues/fences.py`), finding (`journal/sqlite/scrubbing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from amqpd.node.node import Node
    from amqpd.queues.dispatchable import Paged
    from amqpd.queues.messages import Messages

FENCED, IN_MEMORY, COPIES, UNWANTED = "fenced", "in memory", "copies", "unwanted"


class DamagedRow(NamedTuple):
    """A row of the journal that is damaged on disk, of a queue or of a level of one."""

    queue_id: int
    first: int
    last: int
    reason: str


class DamageOutcome(NamedTuple):
    """The outcome of a damaged row: FENCED, UNWANTED or COPIES, and the queue that it belongs to, if any."""

    what: str
    queue: Paged | None = None


def damage_found(node: Node, rows: Sequence[DamagedRow]) -> list[DamageOutcome]:
    """What becomes of each of them."""
    levels: dict[int, tuple[Paged, Messages | None]] = {}
    wanted = {row.queue_id for row in rows}
    if wanted and node.registry.beginning:
        _make(node, wanted)
    for queue in node.paged() if wanted else ():
        for level in queue.levels() if queue.is_served else ():
            if level.queue_id in wanted:
                levels[level.queue_id] = queue, level
            agenda = level.store.agenda
            if agenda.has_timetable and agenda.timetable.queue_id in wanted:
                levels[agenda.timetable.queue_id] = queue, None
    outcomes = [_of_row(node, row, *levels.get(row.queue_id, (None, None))) for row in rows]
    fenced = [outcome.queue for outcome in outcomes if outcome.what == FENCED and outcome.queue is not None]
    for each in dict.fromkeys(fenced):
        each.look_for_damage()
        node.to_dispatch.add(each)
    return outcomes


def _make(node: Node, wanted: set[int]) -> None:
    """Of a source that begins here, the queues that these rows are of: they wait for them as others do."""
    for key, queue in list(node.remote.items()):
        if any(queue_id in wanted for queue_id in node.registry.numbers_of(queue.record)):
            node.ports.get(key)


def _of_row(node: Node, row: DamagedRow, queue: Paged | None, level: Messages | None) -> DamageOutcome:
    if queue is None or not queue.is_served:
        return DamageOutcome(UNWANTED)
    if level is None:
        return DamageOutcome(COPIES, queue)
    try:
        return DamageOutcome(_in_level(level, row), queue)
    except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
        node.quarantine(queue, error)
        return DamageOutcome(UNWANTED)


def _in_level(level: Messages, row: DamagedRow) -> str:
    outcome, seq, store = UNWANTED, row.first, level.store
    while (index := store.index_of(seq)) < len(store.segments):
        segment = store.segments[index]
        if segment.first > row.last:
            break
        begin, end = max(seq, segment.first), min(row.last, segment.last)
        if segment.live_in(begin, end):
            if segment.runs is None:
                level.paging.fence(begin, end, row.reason)
                outcome = FENCED
            elif outcome != FENCED:
                outcome = IN_MEMORY
        seq = end + 1
    return outcome
