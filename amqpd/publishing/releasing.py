"""Messages whose delay has passed: published now, by the node itself.

What comes in: a run from the store of a virtual host's delayed messages. What goes out: the run, to the queues that
it reaches now.
Rules: 1. What takes long goes on in later ticks, in the name of the store (`Dispatching.carry_out`). 2. What reaches
a queue whose leader is another node that is not reached, or none at present, or whose copies are too far behind,
stays in the store, and enters no other queue either. 3. A queue that another node leads and that is reached gets it
first, and those of this node when that has decided (`queues/transit.py`).
Not here: the store (`queues/delayed.py`), what delays a message (`message/delays.py`), the way to the queues
(`routing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from amqpd.audit.publication import Publication
from amqpd.exchanges import Reads
from amqpd.flow.turns import COPY_WORK
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.message.rewriting import run_names
from amqpd.publishing.offering import offer, send
from amqpd.publishing.ports import PublishingNode
from amqpd.publishing.routes import Route
from amqpd.publishing.routing import (
    COPIES_A_STEP,
    KEYS_AT_ONCE,
    PARTS_AT_ONCE,
    at_once,
    awaited_of,
    count_unroutable,
    find,
    in_steps,
    parts,
    queue_steps,
    remote_of,
    without_bcc,
)
from amqpd.publishing.unroutable import UnroutableOutcome
from amqpd.queues.deadletters import cycle_of, deaths_of, is_dead_letter
from amqpd.queues.delayed import DelayedMessages
from amqpd.queues.expiry import LATER
from amqpd.queues.host import Released
from amqpd.queues.port import QueuePort
from amqpd.queues.transit import Transit


def release(
    node: PublishingNode, store: DelayedMessages | None, vhost: str, run: Run, transit: Transit | None = None
) -> Released:
    """Publish the run now that its delay has passed: as if it had been published now, but not mandatory, and by
    nobody who may be told. `transit`: see `queues/host.py`."""
    node.dispatching.source = store
    try:
        return _release(node, store, vhost, run, transit)
    finally:
        node.dispatching.source = None


def _release(
    node: PublishingNode, store: DelayedMessages | None, vhost: str, run: Run, transit: Transit | None
) -> Released:
    if vhost not in node.topology.vhosts:
        return run.count, 0, ""
    exchange, routing_key = run_names(run)
    properties = node.properties.read(run.properties, True)
    keys = (routing_key, *properties.routing_keys)
    entrance = node.routes.entrance(vhost, exchange)
    dead_letter = is_dead_letter(run)
    if node.remote or node.journal.lagging or dead_letter:
        if run.count > 1 and entrance.reads & Reads.CHANCE:
            run = run.part(0, 1)  # each may reach another queue, and has to stay then
        route = find(node, vhost, exchange, routing_key)
        found = route.queues
        goes_far = transit is not None
        if transit is not None and transit.names is not None:
            found = node.queues_named(vhost, transit.names)
        elif found is None or len(keys) > 1:
            found = at_once(node, queue_steps(node, vhost, route, keys, run, properties, True, True, goes_far))
        if dead_letter:
            # As when it died: `keep_dead_letters`.
            cycle = cycle_of(deaths_of(properties))
            found = tuple(queue for queue in found if queue.record.name not in cycle)
        away = awaited_of(found, True)
        if away is not None:
            return 0, 0, away.record.name
        if any(queue.is_remote for queue in found):
            if transit is None or store is None:
                return 0, 0, ""
            return _send(node, store, vhost, run, properties, found, transit)
    else:
        found = None
    delivered, publication = without_bcc(run, properties), None
    read = node.properties.read(delivered.properties, True)
    if node.audit.active:
        publication = node.audit.begin_own(vhost, exchange, routing_key, "delayed", run.count, read)
    light = entrance.light and len(keys) <= KEYS_AT_ONCE
    if found is None and (not light or (run.count > PARTS_AT_ONCE and entrance.reads & Reads.CHANCE)):
        # It takes long to find out where it goes, or to bring it there.
        route = Route(entrance, routing_key, False)
        steps = _release_slowly(node, vhost, route, run, delivered, keys, properties, read, publication)
        node.dispatching.carry_out(steps, node.dispatching.source)
        return run.count, 0 if publication is None else publication.first, ""
    route = find(node, vhost, exchange, routing_key)
    for at, part in enumerate(parts(route, run)):
        queues = found
        if queues is None:
            queues = route.queues if len(keys) == 1 else None
        if queues is None:
            queues = at_once(node, queue_steps(node, vhost, route, keys, part, properties))
        if not queues:
            count_unroutable(node, vhost, exchange, UnroutableOutcome.DROPPED, part.count)
        piece, recorded = _piece(run, part, delivered, publication, at)
        node.work_left -= COPY_WORK * len(queues)
        if len(queues) > 1 and not node.disk_space.fits(piece, queues, read):
            queues = ()
        offer(node, queues, piece, read, recorded)
        if recorded is not None:
            node.audit.end(recorded, piece.body_size, bool(queues))
    return run.count, 0 if publication is None else publication.first, ""


def _send(
    node: PublishingNode,
    store: DelayedMessages,
    vhost: str,
    run: Run,
    properties: Properties,
    found: Sequence[QueuePort],
    transit: Transit,
) -> Released:
    """To those of the queues that other nodes lead."""
    delivered = without_bcc(run, properties)
    read, publication, first = node.properties.read(delivered.properties, True), None, 0
    if node.audit.active:
        publication = node.audit.begin_own(vhost, *run_names(run), "delayed", run.count, read)
        first = publication.first
    transit.begin(run, first, False, tuple([queue.record.name for queue in found if not queue.is_remote]))
    far = [queue for queue in found if queue.is_remote]
    if not send(node, far, delivered, read, publication, transit, partial(_decided, node, store, transit)):
        return run.count, first, ""
    return run.count, LATER, ""


def _decided(node: PublishingNode, store: DelayedMessages, transit: Transit) -> None:
    try:
        store.arrived(transit)
    except Exception as error:  # noqa: BLE001 - the store's; quarantine reports it, or raises it on
        node.quarantine(store, error)


def _piece(
    run: Run, part: Run, delivered: Run, publication: Publication | None, at: int
) -> tuple[Run, Publication | None]:
    """The part as it is delivered, and as the audit log has it: the whole run, or its message `at`."""
    if part is run:
        return delivered, publication
    return delivered.part(at, at + 1), None if publication is None else publication.part(at, 1)


def _release_slowly(
    node: PublishingNode,
    vhost: str,
    route: Route,
    run: Run,
    delivered: Run,
    keys: tuple[str, ...],
    properties: Properties,
    read: Properties,
    publication: Publication | None,
) -> Iterator[None]:
    """Begins in a later tick, maybe: then the virtual host may be gone."""
    for at, part in enumerate(parts(route, run)):
        steps = queue_steps(node, vhost, route, keys, part, properties)
        queues = yield from in_steps(node, steps)
        piece, recorded = _piece(run, part, delivered, publication, at)
        reached = False
        for begin in range(0, len(queues), COPIES_A_STEP):
            node.work_left -= COPY_WORK * COPIES_A_STEP
            step = queues[begin : begin + COPIES_A_STEP]
            if node.disk_space.fits(piece, step, read):
                there = [queue for queue in step if not queue.is_deleted]
                if remote_of(there) is not None:
                    # Its leader has moved in between: the store has let go of it here, and has it again at a start.
                    node.journal.stray()
                offer(node, there, piece, read, recorded)
                reached = reached or bool(there)
            yield
        if not queues:
            count_unroutable(node, vhost, route.exchange, UnroutableOutcome.DROPPED, part.count)
        if recorded is not None:
            node.audit.end(recorded, piece.body_size, reached)
