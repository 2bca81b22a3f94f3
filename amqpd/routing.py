"""From an exchange and a message to live queues.

What comes in: a virtual host, an exchange, a run of publishes. What goes out: the queues that it reaches.
Rules: 1. What no queue takes goes through the exchange that the policy `unroutable` names, if it names one. 2.
Exchanges that keep what passes them are told of every run. 3. Chance is drawn once for what is routed in one call:
who wants it drawn for each message asks message by message (`Route.reads`).
Not here: checks and permissions (`publishing.py`), the walk itself (`topology/routes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from amqpd.audit.recorder import Party
from amqpd.claims import BCC
from amqpd.exchanges import Message, Reads
from amqpd.kernel import Run
from amqpd.properties import Properties
from amqpd.rewriting import run_names, with_headers
from amqpd.topology.parameters import unroutable
from amqpd.unroutable import DROP, NACK, Outcome

if TYPE_CHECKING:
    from amqpd.node import Node
    from amqpd.queues.queue import Queue


# As many as a connection remembers; some hundred bytes each, with names of usual lengths.
NODE_ROUTES_MAX = 4096


class Entrance:
    """What a publish to an exchange meets there, whatever its routing key: worked out once for all its routes.
    `unroutable` is the policy for what no queue takes, see `topology.parameters.unroutable`; `reroutes_to` the
    exchange that gets it then, if there is one; an exchange of the type `topic` checks routing keys; `by_key` when
    the routing key alone decides."""

    __slots__ = ("by_key", "exchange", "is_topic", "reads", "reroutes_to", "unroutable")

    def __init__(self, node: Node, vhost: str, exchange: str) -> None:
        contents = node.topology.vhosts[vhost]
        state = contents.exchanges.get(exchange)
        self.exchange = exchange
        self.is_topic = state is not None and state.record.type == "topic"
        self.unroutable = unroutable(contents, exchange)
        self.reroutes_to = None if self.unroutable in (None, DROP, NACK) else self.unroutable
        self.reads = contents.reads(exchange)
        self.by_key = not self.reads & ~Reads.ROUTING_KEY
        if self.reroutes_to is not None:
            self.reads |= contents.reads(self.reroutes_to)


class Route:
    """What a basic.publish with certain arguments leads to. `queues` is None when each run must be looked at: `reads`
    says what decides. The rest is the exchange's, see `Entrance`."""

    __slots__ = (
        "exchange",
        "is_topic",
        "mandatory",
        "origin",
        "queues",
        "reads",
        "reroutes_to",
        "routing_key",
        "unroutable",
    )

    def __init__(self, node: Node, vhost: str, entrance: Entrance, routing_key: str, mandatory: bool) -> None:
        self.exchange = entrance.exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.origin: Party | None = None
        """in the audit log"""
        self.is_topic = entrance.is_topic
        self.unroutable = entrance.unroutable
        self.reroutes_to = entrance.reroutes_to
        self.reads = entrance.reads
        self.queues: tuple[Queue, ...] | None = None
        if entrance.by_key:
            names = node.topology.vhosts[vhost].route(entrance.exchange, routing_key)
            queues = queues_named(node, vhost, names)
            if queues or entrance.reroutes_to is None:
                self.queues = queues


class Routes:
    """What is known of routes while the topology stays: the entrances of all exchanges, and the routes of what the
    node itself publishes (dead letters, what was delayed)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], Route] = {}
        self._entrances: dict[tuple[str, str], Entrance] = {}
        self._version = -1
        self._entrances_version = -1

    def entrance(self, node: Node, vhost: str, exchange: str) -> Entrance:
        if self._entrances_version != node.topology.version or len(self._entrances) >= NODE_ROUTES_MAX:
            self._entrances.clear()
            self._entrances_version = node.topology.version
        known = self._entrances.get((vhost, exchange))
        if known is None:
            known = self._entrances[vhost, exchange] = Entrance(node, vhost, exchange)
        return known

    def find(self, node: Node, vhost: str, exchange: str, routing_key: str) -> Route:
        if self._version != node.topology.version or len(self._known) >= NODE_ROUTES_MAX:
            self._known.clear()
            self._version = node.topology.version
        key = (vhost, exchange, routing_key)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Route(node, vhost, self.entrance(node, vhost, exchange), routing_key, False)
        return known


def queues_of(
    node: Node, vhost: str, route: Route, keys: tuple[str, ...], run: Run, properties: Properties, count: bool = True
) -> tuple[Queue, ...]:
    """Where the run goes with these routing keys. With `count`, what takes the way of the policy is counted."""
    contents = node.topology.vhosts[vhost]
    message = Message(keys, properties.headers, run.properties, node.chance)
    queues = queues_named(node, vhost, contents.route_message(route.exchange, message))
    if not queues and route.reroutes_to is not None:
        queues = queues_named(node, vhost, contents.route_message(route.reroutes_to, message))
        if queues and count:
            count_unroutable(node, vhost, route.exchange, Outcome.REROUTED, run.count)
    for exchange, length in message.kept_by.items():
        node.histories.keep(vhost, exchange, length, without_bcc(run, properties))
    return queues


def queues_named(node: Node, vhost: str, names: Iterable[str]) -> tuple[Queue, ...]:
    queues = node.queues
    return tuple(queue for name in names if (queue := queues.get((vhost, name))) is not None)


def route_again(node: Node, vhost: str, run: Run, routing_keys: Sequence[str] | None = None) -> tuple[Queue, ...]:
    """The queues that the run reaches by the names in its method frame, or by these routing keys instead, which are
    then all that count; without any check. Nothing when there is no such exchange or virtual host."""
    if vhost not in node.topology.vhosts:
        return ()
    exchange, routing_key = run_names(run)
    properties = node.properties.read(run.properties)
    keys = (routing_key, *properties.routing_keys) if routing_keys is None else tuple(routing_keys)
    route = node.routes.find(node, vhost, exchange, routing_key)
    if route.queues is not None and keys == (routing_key,):
        return route.queues
    return queues_of(node, vhost, route, keys, run, properties, False)


def release(node: Node, vhost: str, run: Run) -> bool:
    """Publish the run now that its delay is over: as if it had been published now, but not mandatory, and by nobody
    who may be told. True when a queue wrote it to the journal."""
    if vhost not in node.topology.vhosts:
        return False
    exchange, routing_key = run_names(run)
    properties = node.properties.read(run.properties)
    keys = (routing_key, *properties.routing_keys)
    route, waits, letter = node.routes.find(node, vhost, exchange, routing_key), False, 0
    for part in parts(route, run):
        queues = route.queues
        if queues is None or len(keys) > 1:
            queues = queues_of(node, vhost, route, keys, part, properties)
        if not queues:
            count_unroutable(node, vhost, exchange, Outcome.DROPPED, part.count)
        delivered = without_bcc(part, properties)
        read, audit = node.properties.read(delivered.properties), node.audit
        if audit.active:
            publication = audit.begin_own(vhost, exchange, routing_key, "delayed", part.count, read)
            letter = letter or publication
        for queue in queues:
            waits |= put(node, queue, delivered, read)
        if audit.active:
            audit.end(part.count, part.body_size, bool(queues))
    node.audit.letter = letter
    return waits


def parts(route: Route, run: Run) -> Iterator[Run]:
    """What can be routed in one piece: single messages where chance decides."""
    if route.reads & Reads.CHANCE and run.count > 1:
        for i in range(run.count):
            yield run.part(i, i + 1)
    else:
        yield run


def put(node: Node, queue: Queue, run: Run, properties: Properties) -> bool:
    """The run goes into the queue, as far as the queue has room. True when the journal will hold it."""
    room = run.count
    if queue.refuses:
        saved = node.audit.save()
        room = min(room, queue.room(run))
        if room < run.count:
            queue.turn_away(run.part(room, run.count))
        node.audit.restore(saved)
    node.dirty[queue] = None
    return room > 0 and queue.publish(run if room == run.count else run.part(0, room), properties)


def count_unroutable(node: Node, vhost: str, exchange: str, outcome: Outcome, messages: int) -> None:
    """Of an exchange that has gone meanwhile nothing is counted any more, but in its virtual host."""
    known = not exchange or exchange in node.topology.vhosts[vhost].exchanges
    node.unroutable.count(vhost, exchange if known else None, outcome, messages)


def without_bcc(run: Run, properties: Properties) -> Run:
    """As consumers get it (https://www.rabbitmq.com/docs/sender-selected)."""
    return with_headers(run, {}, (BCC,)) if properties.has_bcc else run
