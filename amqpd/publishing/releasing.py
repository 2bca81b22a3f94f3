"""Messages whose delay is over: published now, by the node itself.

What comes in: a run from the store of a virtual host's delayed messages. What goes out: the run, to the queues that
it reaches now.
Rules: 1. What takes long goes on in later ticks, in the name of the store (`Dispatching.carry_out`).
Not here: the store (`queues/delayed.py`), what delays a message (`message/delays.py`), the way to the queues
(`routing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from amqpd.audit.recorder import Saved
from amqpd.exchanges import Reads
from amqpd.kernel import Run
from amqpd.limiting.turns import COPY_WORK
from amqpd.message.properties import Properties
from amqpd.message.rewriting import run_names
from amqpd.publishing.disk_space import fits
from amqpd.publishing.offering import offer
from amqpd.publishing.routing import (
    COPIES_A_STEP,
    KEYS_AT_ONCE,
    PARTS_AT_ONCE,
    Route,
    count_unroutable,
    in_steps,
    parts,
    queue_steps,
    queues_of,
    without_bcc,
)
from amqpd.publishing.unroutable import Outcome

if TYPE_CHECKING:
    from amqpd.node.node import Node


def release(node: Node, vhost: str, run: Run) -> bool:
    """Publish the run now that its delay is over: as if it had been published now, but not mandatory, and by nobody
    who may be told. True when a queue wrote it to the journal."""
    node.dispatching.source = node.delayed.get(vhost)
    try:
        return _release(node, vhost, run)
    finally:
        node.dispatching.source = None


def _release(node: Node, vhost: str, run: Run) -> bool:
    if vhost not in node.topology.vhosts:
        return False
    exchange, routing_key = run_names(run)
    properties = node.properties.read(run.properties, True)
    keys = (routing_key, *properties.routing_keys)
    entrance = node.routes.entrance(node, vhost, exchange)
    light = entrance.light and len(keys) <= KEYS_AT_ONCE
    if not light or (run.count > PARTS_AT_ONCE and entrance.reads & Reads.CHANCE):
        _begin_release(node, vhost, Route(entrance, routing_key, False), run, keys, properties)
        return False
    route, waits, letter = node.routes.find(node, vhost, exchange, routing_key), False, 0
    for part in parts(route, run):
        queues = route.queues
        if queues is None or len(keys) > 1:
            queues = queues_of(node, vhost, route, keys, part, properties)
        if not queues:
            count_unroutable(node, vhost, exchange, Outcome.DROPPED, part.count)
        delivered = without_bcc(part, properties)
        read, audit = node.properties.read(delivered.properties, True), node.audit
        if audit.active:
            publication = audit.begin_own(vhost, exchange, routing_key, "delayed", part.count, read)
            letter = letter or publication
        node.work_left -= COPY_WORK * len(queues)
        if len(queues) > 1 and not fits(node, delivered, queues, read):
            queues = ()
        waits |= offer(node, queues, delivered, read)[1]
        if audit.active:
            audit.end(part.count, part.body_size, bool(queues))
    node.audit.letter = letter
    return waits


def _begin_release(
    node: Node, vhost: str, route: Route, run: Run, keys: tuple[str, ...], properties: Properties
) -> None:
    """Where it takes long to find out where it goes, or to bring it there."""
    delivered, audit = without_bcc(run, properties), node.audit
    read = node.properties.read(delivered.properties, True)
    if audit.active:
        audit.letter = audit.begin_own(vhost, route.exchange, keys[0], "delayed", run.count, read)
    steps = _release_slowly(node, vhost, route, run, delivered, keys, properties, read, audit.save())
    node.dispatching.carry_out(steps, node.delayed.get(vhost))


def _release_slowly(
    node: Node,
    vhost: str,
    route: Route,
    run: Run,
    delivered: Run,
    keys: tuple[str, ...],
    properties: Properties,
    read: Properties,
    saved: Saved,
) -> Iterator[None]:
    """Begins in a later tick, maybe: then the virtual host may be gone."""
    audit, reached = node.audit, False
    for at, part in enumerate(parts(route, run)):
        steps = queue_steps(node, vhost, route, keys, part, properties)
        queues = yield from in_steps(node, steps)
        piece = delivered if part is run else delivered.part(at, at + 1)
        for begin in range(0, len(queues), COPIES_A_STEP):
            audit.restore(saved)
            node.work_left -= COPY_WORK * COPIES_A_STEP
            step = queues[begin : begin + COPIES_A_STEP]
            if fits(node, piece, step, read):
                there = [queue for queue in step if not queue.deleted]
                offer(node, there, piece, read)
                reached = reached or bool(there)
            saved = audit.save()
            yield
        if not queues:
            count_unroutable(node, vhost, route.exchange, Outcome.DROPPED, part.count)
    audit.restore(saved)
    if audit.active and saved[7] is not None:
        audit.end(run.count, run.body_size, reached)
