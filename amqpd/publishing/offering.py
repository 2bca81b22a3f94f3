"""A run is offered to the queues that it reaches: as much of it as each has space for enters.

What comes in: a run, its queues, who publishes it. What goes out: how many of its messages all of them took, and the
lanes that their confirm must wait for; what a queue did not take is turned away.
Rules: 1. This is the only way into a queue, for publishes, dead letters and what was delayed. 2. A fault of the queue
takes that queue out of service, and nothing else. 3. What is turned away, dead letters of a full queue, is the
publisher's work and not the queue's: or a client that goes on publishing has more of it done in each tick than there
is time for.
Not here: which queues (`routing.py`), what follows for the publisher (`acceptance.py`), what a queue has space for
(`queues/removal.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from amqpd.audit.publication import Publication
from amqpd.flow.turns import COPY_WORK
from amqpd.journal.lane import NONE, Lanes, joined
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.publishing.ports import PublishingNode
from amqpd.queues.port import QueuePort
from amqpd.queues.receipt import Receipt
from amqpd.queues.transit import Transit
from amqpd.session.durability import Decision
from amqpd.session.ports import ConnectionBase

AWAY_TOLD_MS: Final = 60_000
"""The log says again after this time that publishers of a queue of another node are refused."""
FAULT = -1
"""this many were taken: one of the queues is out of service now"""


def offer(
    node: PublishingNode,
    queues: Sequence[QueuePort],
    run: Run,
    properties: Properties,
    publication: Publication | None,
    publisher: ConnectionBase | None = None,
    turns_away: bool = True,
    receipt: Receipt | None = None,
) -> tuple[int, Lanes]:
    """How many of the run's messages all of the queues took, from the first on, or FAULT; the lanes that will make
    them safe. `publication`: the run's, if the audit log records. Without a publisher another queue is being
    dispatched. Without `turns_away` what is not taken is the caller's. `receipt`: for a queue that may refuse later
    what it takes now."""
    waits, taken = NONE, run.count
    for queue in queues:
        try:
            if queue.may_refuse:
                space = _admitted(node, queue, run, publisher, turns_away)
                if space < taken:
                    taken = space
                if space and queue.publish(
                    run if space == run.count else run.part(0, space), properties, publication, receipt
                ):
                    waits = joined(waits, queue.lane.alone)
            elif queue.publish(run, properties, publication):
                waits = joined(waits, queue.lane.alone)
        except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
            node.quarantine(queue, error)
            taken = FAULT
        node.to_dispatch.add(queue)
        if (
            (node.congestion.queues or node.journal.lagging or node.congestion.leaders_lag)
            and publisher is not None
            and node.congestion.slows(queue)
        ):
            publisher.intake.congested[queue] = None
    return taken, waits


def send(
    node: PublishingNode,
    queues: Sequence[QueuePort],
    run: Run,
    properties: Properties,
    publication: Publication | None,
    transit: Transit,
    decided: Callable[[], object],
) -> bool:
    """What the node itself publishes goes to queues that other nodes lead; `decided`, when each of them has taken or
    refused it. False: it went nowhere."""
    node.work_left -= COPY_WORK * len(queues)
    waits = NONE
    for queue in queues:
        receipt = transit.receipt(queue.record)
        waits = joined(waits, offer(node, (queue,), run, properties, publication, None, False, receipt)[1])
    if publication is not None:
        node.audit.end(publication, run.body_size, True)
    if not waits:
        return False
    node.durability.when_durable(partial(_known, transit, decided), waits)
    return True


def _known(transit: Transit, decided: Callable[[], object], decision: Decision) -> None:
    if decision is Decision.LOST:
        transit.lost()
    decided()


def capacity(node: PublishingNode, queue: QueuePort, run: Run) -> int:
    """How many of the run's messages the queue would take now; 0 when there is a fault in it."""
    try:
        return queue.capacity(run)
    except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
        node.quarantine(queue, error)
        return 0


def _admitted(
    node: PublishingNode, queue: QueuePort, run: Run, publisher: ConnectionBase | None, turns_away: bool
) -> int:
    """How many may come in; the others are turned away."""
    count = min(run.count, queue.capacity(run) if publisher is None else queue.capacity_after_dispatch(run))
    if count < run.count and turns_away:
        rest = run.part(count, run.count)
        if publisher is None:
            queue.turn_away(rest)
        else:
            _turn_away(node, publisher, queue, rest)
    return count


def _turn_away(node: PublishingNode, publisher: ConnectionBase, queue: QueuePort, run: Run) -> None:
    if queue.is_away and node.now_ms - queue.refusal_told_ms >= AWAY_TOLD_MS:
        # Without confirms nobody else says so.
        queue.refusal_told_ms = node.now_ms
        node.log("publish_to_another_node", queue=queue.record.name, vhost=queue.record.vhost)
    before, node.dispatching.publisher = node.work_left, publisher
    try:
        queue.turn_away(run)
    finally:
        node.dispatching.publisher = None
        node.turns.charge(publisher, before - node.work_left)
        node.work_left = before
