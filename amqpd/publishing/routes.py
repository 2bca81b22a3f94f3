"""Routes that are remembered: what a publish with certain arguments leads to; and how many went each exchange's way.

What comes in: an exchange and a routing key; the queues that were found for them; runs, as they are accepted. What
goes out: the same again, until the topology changes; counts of each exchange, and their rates.
Rules: 1. What depends on the exchange alone is worked out once for all its routes. 2. A cache holds the routes of one
version of the topology, and as many as fit into its bytes. 3. Routes to the same queues share one tuple of them.
4. A message that goes to ten queues came in once and went out ten times. What counts is the exchange that the
publisher named: those that it goes through behind it count nothing, and neither does what the node itself publishes
(dead letters). The counts of an exchange go with it; rates are those between the last two calls of `Passed.sample`.
Not here: how the queues are found (`routing.py`), what a connection keeps (`publish.py`), what reached no queue
(`unroutable.py`), what queues took (`queues/facts.py`).

Source of the counts' names and meaning: rabbit_channel.erl (`deliver_to_queues`, `exchange_stats`),
rabbit_mgmt_stats.erl.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from sys import getsizeof

from amqpd.audit.publication import Address
from amqpd.exchanges import Reads
from amqpd.exchanges.cache_memory import CacheMemory
from amqpd.publishing.unroutable import DROP, NACK, forget_exchanges
from amqpd.queues.port import QueuePort
from amqpd.topology.parameters import unroutable
from amqpd.topology.state import Topology, VhostTopology
from amqpd.vocabulary.records import Change

# Of the node itself, for dead letters and what was delayed: some ten thousand with names of usual lengths.
NODE_ROUTES_BYTES_MAX = 4 * 1024 * 1024
NODE_ENTRANCES_MAX = 4096
# What all connections together remember of routes. The largest cache of one (`publishing.ROUTES_BYTES_MAX`) is a
# quarter of it.
ALL_ROUTES_BYTES_MAX = 32 * 1024 * 1024
# What a tuple of queues takes beside eight bytes for each, and its place among those that routes share.
QUEUES_BYTES = 160
# What a route takes beside its names and its queues: itself, and its place in a dictionary.
ROUTE_BYTES = 296


# Bindings, exchanges and nodes of tries that a message may meet so that its queues are looked up at once: less than a
# millisecond in all.
LIGHT_MAX = 500
# Bindings of an exchange that is looked up at once for one routing key, in the usual case that no other exchange
# follows: this is how many destinations it may have. Nodes of its trie times words of the key are how many of them a
# match may visit, if there is a `#` everywhere: some milliseconds.
ALONE_BINDINGS_MAX = 2_000
ALONE_VISITS_MAX = 50_000


class Passed:
    """The messages of one exchange, since it is there or since the start."""

    __slots__ = ("_sampled_in", "_sampled_out", "publish_in", "publish_out", "rate_in", "rate_out")

    def __init__(self) -> None:
        self.publish_in = self.publish_out = 0
        self._sampled_in = self._sampled_out = 0
        self.rate_in = self.rate_out = 0.0
        """messages a second, between the last two samples"""

    def count(self, messages: int, copies: int) -> None:
        """`messages` were published, which are `copies` in queues."""
        self.publish_in += messages
        self.publish_out += copies

    def sample(self, seconds: float) -> None:
        """So long after the last time."""
        self.rate_in = (self.publish_in - self._sampled_in) / seconds
        self.rate_out = (self.publish_out - self._sampled_out) / seconds
        self._sampled_in, self._sampled_out = self.publish_in, self.publish_out


class ExchangeCounts:
    """The counts of messages of all exchanges to which somebody has published."""

    def __init__(self) -> None:
        self._by_exchange: dict[tuple[str, str], Passed] = {}

    def of(self, vhost: str, exchange: str) -> Passed:
        """To be counted in. The exchange is there."""
        known = self._by_exchange.get((vhost, exchange))
        if known is None:
            known = self._by_exchange[vhost, exchange] = Passed()
        return known

    def find(self, vhost: str, exchange: str) -> Passed | None:
        """None: nobody has published there."""
        return self._by_exchange.get((vhost, exchange))

    def all(self) -> Collection[Passed]:
        """As they are now."""
        return list(self._by_exchange.values())

    def applied(self, changes: Sequence[Change]) -> None:
        """The topology has changed so."""
        forget_exchanges(changes, self._by_exchange)


class Entrance:
    """The facts of an exchange that a publish meets there, whatever its routing key: worked out once for all its
    routes. `unroutable` is the policy for what no queue takes, see `topology.parameters.unroutable`; `reroutes_to`
    the exchange that gets it then, if there is one; an exchange of the type `topic` checks routing keys; `by_key`
    when the routing key alone decides; `light`: it may be asked at once, whatever the message is; `alone`: for one
    routing key it may be asked at once, and no other exchange has to be; `passed` counts what is published there."""

    __slots__ = (
        "alone",
        "by_key",
        "exchange",
        "is_topic",
        "light",
        "nodes",
        "passed",
        "reads",
        "reroutes_to",
        "unroutable",
    )

    def __init__(self, contents: VhostTopology, exchange: str, traffic: ExchangeCounts) -> None:
        state = contents.exchanges.get(exchange)
        # What is not there is never published to: a dead letter may look for it.
        self.passed = traffic.of(contents.name, exchange) if state is not None or not exchange else Passed()
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
    """The route of a basic.publish with certain arguments. `queues` is None when each run must be looked at:
    `reads` says what decides. The rest is the exchange's, see `Entrance`."""

    __slots__ = (
        "alone",
        "by_key",
        "is_topic",
        "light",
        "mandatory",
        "passed",
        "queues",
        "reads",
        "reroutes_to",
        "unroutable",
    )

    def __init__(self, entrance: Entrance, routing_key: str, mandatory: bool) -> None:
        """`routing.resolve` it before it is used."""
        super().__init__(entrance.exchange, routing_key)
        self.by_key = entrance.by_key
        self.light = entrance.light
        self.alone = entrance.alone and (
            not entrance.nodes or entrance.nodes * (routing_key.count(".") + 1) <= ALONE_VISITS_MAX
        )
        self.mandatory = mandatory
        self.passed = entrance.passed
        self.is_topic = entrance.is_topic
        self.unroutable = entrance.unroutable
        self.reroutes_to = entrance.reroutes_to
        self.reads = entrance.reads
        self.queues: tuple[QueuePort, ...] | None = None

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
    """The routes of one connection's publishes, as far as they are remembered. A `CacheMemory` may empty it."""

    def __init__(self) -> None:
        self.known: dict[bytes, Route] = {}
        """by the publish's method payload; all of one version of the topology"""
        self.version = -1
        self.nbytes = 0
        self.queues: dict[tuple[QueuePort, ...], tuple[QueuePort, ...]] = {}
        """the queues of these routes: routes to the same ones have the same tuple"""

    def forget(self) -> None:
        """Empty the cache."""
        self.known.clear()
        self.queues.clear()
        self.nbytes = 0


class Routes:
    """The routes that stay while the topology does: the entrances of all exchanges, and the routes of what the
    node itself publishes (dead letters, what was delayed)."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.traffic = ExchangeCounts()
        """what is published to exchanges; entrances count there"""
        self.memory = CacheMemory(ALL_ROUTES_BYTES_MAX)
        """where connections' routes are charged"""
        self._known: dict[tuple[str, str, str], Route] = {}
        self._queues: dict[tuple[QueuePort, ...], tuple[QueuePort, ...]] = {}
        self.nbytes = 0
        """what `_known` and its queues take"""
        self._entrances: dict[tuple[str, str], Entrance] = {}
        self._version = -1
        self._entrances_version = -1

    def entrance(self, vhost: str, exchange: str) -> Entrance:
        """Raises KeyError for an unknown virtual host."""
        topology = self._topology
        if self._entrances_version != topology.version or len(self._entrances) >= NODE_ENTRANCES_MAX:
            self._entrances.clear()
            self._entrances_version = topology.version
        known = self._entrances.get((vhost, exchange))
        if known is None:
            known = self._entrances[vhost, exchange] = Entrance(topology.vhosts[vhost], exchange, self.traffic)
        return known

    def cached(self, vhost: str, exchange: str, routing_key: str) -> Route | None:
        """What was kept for this version of the topology."""
        if self._version != self._topology.version or self.nbytes > NODE_ROUTES_BYTES_MAX:
            self._known.clear()
            self._queues.clear()
            self.nbytes = 0
            self._version = self._topology.version
            return None
        return self._known.get((vhost, exchange, routing_key))

    def keep(self, vhost: str, route: Route) -> None:
        """The route is resolved, and good for this version of the topology."""
        self._known[vhost, route.exchange, route.routing_key] = route
        self.nbytes += ROUTE_BYTES + getsizeof(route.routing_key) + route.share_queues(self._queues)
