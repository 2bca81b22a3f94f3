"""From an exchange and a message to live queues.

What comes in: a virtual host, an exchange, a run of publishes. What goes out: the queues that it reaches.
Rules: 1. What no queue takes goes through the exchange that the policy `unroutable` names, if it names one. 2.
Exchanges that keep what passes them are told of every run. 3. Chance is drawn once for what is routed in one call:
who wants it drawn for each message asks message by message (`Route.reads`).
Not here: checks and permissions (`publish.py`), the walk itself (`topology/routes.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from sys import getsizeof
from typing import TYPE_CHECKING, TypeVar

from amqpd.audit.publication import Address
from amqpd.exchanges import Message, Reads
from amqpd.exchanges.cache_memory import CacheMemory
from amqpd.kernel import Run
from amqpd.message.claims import BCC
from amqpd.message.properties import Properties
from amqpd.message.rewriting import run_names, with_headers
from amqpd.publishing.unroutable import DROP, NACK, Outcome
from amqpd.topology.parameters import unroutable
from amqpd.topology.routes import match_alone

if TYPE_CHECKING:
    from amqpd.node.node import Node
    from amqpd.queues.port import QueuePort
    from amqpd.topology.state import VhostTopology


# Of the node itself, for dead letters and what was delayed: some ten thousand with names of usual lengths.
NODE_ROUTES_BYTES_MAX = 4 * 1024 * 1024
NODE_ENTRANCES_MAX = 4096
# What all connections together remember of routes. The largest cache of one (`publishing.ROUTES_BYTES_MAX`) is a
# quarter of it.
ALL_ROUTES_BYTES_MAX = 32 * 1024 * 1024
# What a tuple of queues takes beside eight bytes for each, and its place among those that routes share.
QUEUES_BYTES = 160
# What a route takes beside its names and its queues: itself, and its place in a dictionary.
ROUTE_BYTES = 288


# Bindings, exchanges and nodes of tries that a message may meet so that its queues are looked up at once: less than a
# millisecond in all.
LIGHT_MAX = 500
# Bindings of an exchange that is looked up at once for one routing key, in the usual case that no other exchange
# follows: this is how many destinations it may have. Nodes of its trie times words of the key are how many of them a
# match may visit, if there is a `#` everywhere: some milliseconds.
ALONE_BINDINGS_MAX = 2_000
ALONE_VISITS_MAX = 50_000
# Of what the node itself publishes, in one step: routing keys, messages that are routed one by one, and copies.
KEYS_AT_ONCE, PARTS_AT_ONCE, COPIES_A_STEP = 16, 50, 500
# Queues that are looked up in one step, and so many of them are one unit of work.
NAMES_AT_ONCE, NAMES_A_WORK = 2_000, 8
# Exchanges that keep what passes them, in one step, and what one takes.
KEEPS_AT_ONCE, KEEP_WORK = 50, 4

Found = TypeVar("Found")
Steps = Generator[int, None, "tuple[QueuePort, ...]"]
"""yields what was done since it last did, in the unit of `limiting/turns.py`"""


class Entrance:
    """What a publish to an exchange meets there, whatever its routing key: worked out once for all its routes.
    `unroutable` is the policy for what no queue takes, see `topology.parameters.unroutable`; `reroutes_to` the
    exchange that gets it then, if there is one; an exchange of the type `topic` checks routing keys; `by_key` when
    the routing key alone decides; `light`: it may be asked at once, whatever the message is; `alone`: for one routing
    key it may be asked at once, and no other exchange has to be."""

    __slots__ = ("alone", "by_key", "exchange", "is_topic", "light", "nodes", "reads", "reroutes_to", "unroutable")

    def __init__(self, node: Node, vhost: str, exchange: str) -> None:
        contents = node.topology.vhosts[vhost]
        state = contents.exchanges.get(exchange)
        self.exchange = exchange
        self.is_topic = state is not None and state.record.type == "topic"
        self.unroutable = unroutable(contents, exchange)
        self.reroutes_to = None if self.unroutable in (None, DROP, NACK) else self.unroutable
        self.reads = contents.reads(exchange)
        self.by_key = not self.reads & ~Reads.ROUTING_KEY
        weight = contents.weight(exchange)
        if self.reroutes_to is not None:
            self.reads |= contents.reads(self.reroutes_to)
            weight += contents.weight(self.reroutes_to)
        self.light = weight <= LIGHT_MAX
        self.nodes = 0 if state is None else state.matcher.nodes
        leads_on = state is None or self.reroutes_to is not None or contents.leads_on(exchange)
        self.alone = self.by_key and not leads_on and len(contents.bindings_from(exchange)) <= ALONE_BINDINGS_MAX


class Route(Address):
    """What a basic.publish with certain arguments leads to. `queues` is None when each run must be looked at: `reads`
    says what decides. The rest is the exchange's, see `Entrance`."""

    __slots__ = (
        "alone",
        "by_key",
        "is_topic",
        "light",
        "mandatory",
        "queues",
        "reads",
        "reroutes_to",
        "unroutable",
    )

    def __init__(self, entrance: Entrance, routing_key: str, mandatory: bool) -> None:
        """`resolve` it before it is used."""
        super().__init__(entrance.exchange, routing_key)
        self.by_key = entrance.by_key
        self.light = entrance.light
        self.alone = entrance.alone and (
            not entrance.nodes or entrance.nodes * (routing_key.count(".") + 1) <= ALONE_VISITS_MAX
        )
        self.mandatory = mandatory
        self.is_topic = entrance.is_topic
        self.unroutable = entrance.unroutable
        self.reroutes_to = entrance.reroutes_to
        self.reads = entrance.reads
        self.queues: tuple[QueuePort, ...] | None = None

    def resolve(self, node: Node, vhost: str) -> Steps:
        """Look up `queues`, if the routing key alone decides."""
        if not self.by_key or vhost not in node.topology.vhosts:
            return ()
        names = yield from node.topology.vhosts[vhost].walk(self.exchange, Message((self.routing_key,)))
        queues = yield from _named_in_steps(node, vhost, names)
        if queues or self.reroutes_to is None:
            self.queues = queues
        return queues

    def resolve_alone(self, node: Node, vhost: str) -> int:
        """As `resolve`, at once, where it is `alone`; what it took (`limiting/turns.py`)."""
        names, work = match_alone(node.topology.vhosts[vhost], self.exchange, Message((self.routing_key,)))
        self.queues = queues_named(node, vhost, names)
        return work

    def share_queues(self, known: dict[tuple[QueuePort, ...], tuple[QueuePort, ...]]) -> int:
        """Take the queues of an equal route, if one is known, and be known; how many bytes the queues take that no
        other one has."""
        if self.queues is None or len(self.queues) < 2:
            return 0
        shared = known.get(self.queues)
        if shared is not None:
            self.queues = shared
            return 0
        known[self.queues] = self.queues
        return QUEUES_BYTES + 8 * len(self.queues)


class RouteCache:
    """What the publishes of one connection lead to, as far as it is remembered. A `CacheMemory` may empty it."""

    def __init__(self) -> None:
        self.known: dict[bytes, Route] = {}
        """by the publish's method payload; all of one version of the topology"""
        self.version = -1
        self.nbytes = 0
        self.queues: dict[tuple[QueuePort, ...], tuple[QueuePort, ...]] = {}
        """the queues of these routes: routes to the same ones have the same tuple"""

    def forget(self) -> None:
        """See `Cache.forget`."""
        self.known.clear()
        self.queues.clear()
        self.nbytes = 0


class Routes:
    """What is known of routes while the topology stays: the entrances of all exchanges, and the routes of what the
    node itself publishes (dead letters, what was delayed)."""

    def __init__(self) -> None:
        self.memory = CacheMemory(ALL_ROUTES_BYTES_MAX)
        """where connections' routes are charged"""
        self._known: dict[tuple[str, str, str], Route] = {}
        self._queues: dict[tuple[QueuePort, ...], tuple[QueuePort, ...]] = {}
        self.nbytes = 0
        """what `_known` and its queues take"""
        self._entrances: dict[tuple[str, str], Entrance] = {}
        self._version = -1
        self._entrances_version = -1

    def entrance(self, node: Node, vhost: str, exchange: str) -> Entrance:
        if self._entrances_version != node.topology.version or len(self._entrances) >= NODE_ENTRANCES_MAX:
            self._entrances.clear()
            self._entrances_version = node.topology.version
        known = self._entrances.get((vhost, exchange))
        if known is None:
            known = self._entrances[vhost, exchange] = Entrance(node, vhost, exchange)
        return known

    def find(self, node: Node, vhost: str, exchange: str, routing_key: str) -> Route:
        if self._version != node.topology.version or self.nbytes > NODE_ROUTES_BYTES_MAX:
            self._known.clear()
            self._queues.clear()
            self.nbytes = 0
            self._version = node.topology.version
        key = (vhost, exchange, routing_key)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Route(self.entrance(node, vhost, exchange), routing_key, False)
            at_once(node, known.resolve(node, vhost))
            self.nbytes += ROUTE_BYTES + getsizeof(routing_key) + known.share_queues(self._queues)
        return known


def queues_of(
    node: Node, vhost: str, route: Route, keys: tuple[str, ...], run: Run, properties: Properties, count: bool = True
) -> tuple[QueuePort, ...]:
    """As `queue_steps`, at once."""
    return at_once(node, queue_steps(node, vhost, route, keys, run, properties, count))


def queue_steps(
    node: Node, vhost: str, route: Route, keys: tuple[str, ...], run: Run, properties: Properties, count: bool = True
) -> Steps:
    """Where the run goes with these routing keys. With `count`, what takes the way of the policy is counted."""
    contents = node.topology.vhosts.get(vhost)
    if contents is None:
        return ()
    message = Message(keys, properties.headers, run.properties, node.chance)
    names = yield from contents.walk(route.exchange, message)
    queues = yield from _named_in_steps(node, vhost, names)
    if not queues and route.reroutes_to is not None:
        names = yield from contents.walk(route.reroutes_to, message)
        queues = yield from _named_in_steps(node, vhost, names)
        if queues and count:
            count_unroutable(node, vhost, route.exchange, Outcome.REROUTED, run.count)
    if message.kept_by:
        yield from _kept(node, contents, message.kept_by, without_bcc(run, properties))
    return queues


def at_once(node: Node, steps: Steps) -> tuple[QueuePort, ...]:
    """All steps, charged to what queues may do."""
    while True:
        try:
            node.work_left -= next(steps)
        except StopIteration as end:
            found: tuple[QueuePort, ...] = end.value
            return found


def in_steps(node: Node, steps: Generator[int, None, Found]) -> Generator[None, None, Found]:
    """As `at_once`, with others in between."""
    while True:
        try:
            node.work_left -= next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found
        yield


def queues_named(node: Node, vhost: str, names: Iterable[str]) -> tuple[QueuePort, ...]:
    queues = node.queues
    return tuple(queue for name in names if (queue := queues.get((vhost, name))) is not None)


def route_again(
    node: Node,
    vhost: str,
    run: Run,
    routing_keys: Sequence[str] | None = None,
    properties: Properties | None = None,
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
    route = node.routes.find(node, vhost, exchange, routing_key)
    if route.queues is not None and keys == (routing_key,):
        return route.queues
    return queues_of(node, vhost, route, keys, run, properties, False)


def _kept(node: Node, contents: VhostTopology, kept_by: dict[str, int], run: Run) -> Iterator[int]:
    """The exchanges keep the run, so many of its messages each: all of them one copy, which does not hold on to the
    buffer that it came in. Yields what it took (`limiting/turns.py`)."""
    vhost, copy = contents.name, run.part(0, run.count)
    for number, (exchange, length) in enumerate(list(kept_by.items()), 1):
        # One that was deleted between two steps nobody would forget again.
        if exchange in contents.exchanges and node.topology.vhosts.get(vhost) is contents:
            node.histories.keep(vhost, exchange, length, copy)
        if number % KEEPS_AT_ONCE == 0:
            yield KEEPS_AT_ONCE * KEEP_WORK
    yield len(kept_by) % KEEPS_AT_ONCE * KEEP_WORK


def _named_in_steps(node: Node, vhost: str, names: tuple[str, ...]) -> Steps:
    """As `queues_named`."""
    if len(names) <= NAMES_AT_ONCE:
        return queues_named(node, vhost, names)
    found: list[QueuePort] = []
    for at in range(0, len(names), NAMES_AT_ONCE):
        found += queues_named(node, vhost, names[at : at + NAMES_AT_ONCE])
        yield NAMES_AT_ONCE // NAMES_A_WORK
    return tuple(found)


def parts(route: Route, run: Run) -> Iterator[Run]:
    """What can be routed in one piece: single messages where chance decides."""
    if route.reads & Reads.CHANCE and run.count > 1:
        for i in range(run.count):
            yield run.part(i, i + 1)
    else:
        yield run


def count_unroutable(node: Node, vhost: str, exchange: str, outcome: Outcome, messages: int) -> None:
    """Of an exchange that has gone meanwhile nothing is counted any more, but in its virtual host."""
    contents = node.topology.vhosts.get(vhost)
    if contents is None:
        return
    known = not exchange or exchange in contents.exchanges
    node.unroutable.count(vhost, exchange if known else None, outcome, messages)


def without_bcc(run: Run, properties: Properties) -> Run:
    """As consumers get it (https://www.rabbitmq.com/docs/sender-selected)."""
    return with_headers(run, {}, (BCC,)) if properties.has_bcc else run
