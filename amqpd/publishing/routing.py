"""From an exchange and a message to live queues.

What comes in: a virtual host, an exchange, a run of publishes. What goes out: the queues that it reaches.
Rules: 1. What no queue takes goes through the exchange that the policy `unroutable` names, if it names one. 2.
Exchanges that keep what passes them are told of every run. 3. Chance is drawn once for what is routed in one call:
a caller that wants it drawn for each message asks message by message (`Route.reads`).
Not here: checks and permissions (`publish.py`), routes that are remembered (`routes.py`), the walk itself
(`topology/routes.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

from amqpd.exchanges import Message, Reads
from amqpd.kernel import Run
from amqpd.message.claims import BCC
from amqpd.message.properties import Properties
from amqpd.message.rewriting import run_names, with_headers
from amqpd.publishing.ports import PublishingNode
from amqpd.publishing.routes import Route
from amqpd.publishing.unroutable import UnroutableOutcome
from amqpd.queues.port import QueuePort
from amqpd.topology.routes import match_alone
from amqpd.topology.state import VhostTopology

# Of what the node itself publishes, in one step: routing keys, messages that are routed one by one, and copies.
KEYS_AT_ONCE, PARTS_AT_ONCE, COPIES_A_STEP = 16, 50, 500
# Queues that are looked up in one step; this number of them is one unit of work. A look that makes the queue, of a
# source that begins, takes far more: a step ends when it has done this much.
NAMES_AT_ONCE, NAMES_A_WORK, MAKING_WORK = 2_000, 8, 500
# Exchanges that keep what passes them, in one step, and what one takes.
KEEPS_AT_ONCE, KEEP_WORK = 50, 4

Found = TypeVar("Found")
Steps = Generator[int, None, tuple[QueuePort, ...]]
"""yields what was done since it last did, in the unit of `flow/turns.py`"""


def queue_steps(
    node: PublishingNode,
    vhost: str,
    route: Route,
    keys: tuple[str, ...],
    run: Run,
    properties: Properties,
    count: bool = True,
    stays: bool = False,
    goes_far: bool = False,
) -> Steps:
    """Where the run goes with these routing keys. With `count`, what takes the way of the policy is counted. With
    `stays`, what reaches a queue that it has to wait for comes again, and is counted and kept then. `goes_far`: see
    `awaited_of`."""
    contents = node.topology.vhosts.get(vhost)
    if contents is None:
        return ()
    message = Message(keys, properties.headers, run.properties, node.chance, node.serves)
    names = yield from contents.walk(route.exchange, message)
    queues = yield from named_in_steps(node, vhost, names)
    rerouted = not queues and route.reroutes_to is not None
    if rerouted and route.reroutes_to is not None:
        names = yield from contents.walk(route.reroutes_to, message)
        queues = yield from named_in_steps(node, vhost, names)
    if stays and awaited_of(queues, goes_far) is not None:
        return queues
    if rerouted and queues and count:
        count_unroutable(node, vhost, route.exchange, UnroutableOutcome.REROUTED, run.count)
    if message.kept_by:
        yield from _kept(node, contents, message.kept_by, without_bcc(run, properties))
        return of_now(node, vhost, queues)
    return queues


def awaited_of(queues: Sequence[QueuePort], goes_far: bool = False) -> QueuePort | None:
    """The first of them whose leader is another node, or none at present, or whose copies are too far behind: what no
    client publishes waits for it, where it stands. Nothing would slow that down otherwise, and it may leave its own
    queue only in one transaction with what it becomes in the other; or, if it `goes_far`, when the other node says
    that it has it (`queues/transit.py`)."""
    for queue in queues:
        if (queue.is_remote and not goes_far) or queue.is_away or queue.lane.lagging:
            return queue
    return None


def remote_of(queues: Sequence[QueuePort]) -> QueuePort | None:
    """The first of them whose leader is another node that is not reached, or none at present: it takes nothing."""
    for queue in queues:
        if queue.is_away:
            return queue
    return None


def at_once(node: PublishingNode, steps: Steps) -> tuple[QueuePort, ...]:
    """All steps, charged to what queues may do."""
    while True:
        try:
            node.work_left -= next(steps)
        except StopIteration as end:
            found: tuple[QueuePort, ...] = end.value
            return found


def in_steps(node: PublishingNode, steps: Generator[int, None, Found]) -> Generator[None, None, Found]:
    """As `at_once`, with others in between."""
    while True:
        try:
            node.work_left -= next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found
        yield


def route_again(
    node: PublishingNode,
    vhost: str,
    run: Run,
    routing_keys: Sequence[str] | None = None,
    properties: Properties | None = None,
    goes_far: bool = False,
) -> tuple[QueuePort, ...]:
    """The queues that the run reaches by the names in its method frame, or by these routing keys instead, which are
    then all that count; without any check. Nothing when there is no such exchange or virtual host. `properties` are
    the run's, if they have been read."""
    if vhost not in node.topology.vhosts:
        return ()
    exchange, routing_key = run_names(run)
    if properties is None:
        properties = node.properties.read(run.properties)
    keys = (routing_key, *properties.routing_keys) if routing_keys is None else tuple(routing_keys)
    route = find(node, vhost, exchange, routing_key)
    if route.queues is not None and keys == (routing_key,):
        return route.queues
    return at_once(node, queue_steps(node, vhost, route, keys, run, properties, False, True, goes_far))


def find(node: PublishingNode, vhost: str, exchange: str, routing_key: str) -> Route:
    """A route that the node remembers, for what it publishes itself."""
    known = node.routes.cached(vhost, exchange, routing_key)
    if known is None:
        known = Route(node.routes.entrance(vhost, exchange), routing_key, False)
        at_once(node, resolve(node, vhost, known))
        node.routes.keep(vhost, known)
    return known


def resolve(node: PublishingNode, vhost: str, route: Route) -> Steps:
    """Look up the route's queues, if the routing key alone decides."""
    if not route.by_key or vhost not in node.topology.vhosts:
        return ()
    names = yield from node.topology.vhosts[vhost].walk(route.exchange, Message((route.routing_key,)))
    queues = yield from named_in_steps(node, vhost, names)
    if queues or route.reroutes_to is None:
        route.queues = queues
    return queues


def resolve_alone(node: PublishingNode, vhost: str, route: Route) -> int:
    """As `resolve`, at once, where it is `alone`; what it took (`flow/turns.py`)."""
    names, work = match_alone(node.topology.vhosts[vhost], route.exchange, Message((route.routing_key,)))
    route.queues = node.queues_named(vhost, names)
    return work


def _kept(node: PublishingNode, contents: VhostTopology, kept_by: dict[str, int], run: Run) -> Iterator[int]:
    """The exchanges keep the run, this many of its messages each: all of them one copy, which does not hold on to the
    buffer that it came in. Yields what it took (`flow/turns.py`)."""
    vhost, copy = contents.name, run.part(0, run.count)
    for number, (exchange, length) in enumerate(list(kept_by.items()), 1):
        # One that was deleted between two steps nobody would forget again.
        if exchange in contents.exchanges and node.topology.vhosts.get(vhost) is contents:
            node.histories.keep(vhost, exchange, length, copy)
        if number % KEEPS_AT_ONCE == 0:
            yield KEEPS_AT_ONCE * KEEP_WORK
    yield len(kept_by) % KEEPS_AT_ONCE * KEEP_WORK


def named_in_steps(node: PublishingNode, vhost: str, names: tuple[str, ...]) -> Steps:
    """As `PublishingNode.queues_named`."""
    found: list[QueuePort] = []
    if node.makes_queues:
        work = 0
        for name in names:
            before = node.work_left
            found += node.queues_named(vhost, (name,))
            # What takes the steps charges it: to a publisher what it asks for.
            work += before - node.work_left
            node.work_left = before
            if work >= MAKING_WORK:
                yield work
                work = 0
        yield work + len(names) // NAMES_A_WORK
        return of_now(node, vhost, found)
    if len(names) <= NAMES_AT_ONCE:
        return node.queues_named(vhost, names)
    for at in range(0, len(names), NAMES_AT_ONCE):
        found += node.queues_named(vhost, names[at : at + NAMES_AT_ONCE])
        yield NAMES_AT_ONCE // NAMES_A_WORK
    return of_now(node, vhost, found)


def of_now(node: PublishingNode, vhost: str, queues: Sequence[QueuePort]) -> tuple[QueuePort, ...]:
    """Others did something since these were found: some may be gone, or made again under their names."""
    if any(queue.is_deleted for queue in queues):
        return node.queues_named(vhost, tuple(queue.record.name for queue in queues))
    return tuple(queues)


def parts(route: Route, run: Run) -> Iterator[Run]:
    """What can be routed in one piece: single messages where chance decides."""
    if route.reads & Reads.CHANCE and run.count > 1:
        for i in range(run.count):
            yield run.part(i, i + 1)
    else:
        yield run


def count_unroutable(
    node: PublishingNode, vhost: str, exchange: str, outcome: UnroutableOutcome, messages: int
) -> None:
    """Of an exchange that has gone meanwhile nothing is counted any more, but in its virtual host."""
    contents = node.topology.vhosts.get(vhost)
    if contents is None:
        return
    known = not exchange or exchange in contents.exchanges
    node.unroutable.count(vhost, exchange if known else None, outcome, messages)


def without_bcc(run: Run, properties: Properties) -> Run:
    """As consumers get it (https://www.rabbitmq.com/docs/sender-selected)."""
    return with_headers(run, {}, (BCC,)) if properties.has_bcc else run
