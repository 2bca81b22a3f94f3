"""The topology as one in-memory value: users, permissions and virtual hosts with their routing.

What comes in: batches of changes, as the metadata store gives them back. What goes out: look-ups, and routes:
names of queues for an exchange, a routing key and headers.
Rules: 1. every answer follows from the set of records applied, not from the order in which they came: a
binding whose ends are not there (yet, or any more) routes nowhere, and what belongs to a virtual host without
a record waits out of sight; 2. `VhostTopology.version` never returns to an earlier value, not even for a
virtual host that was deleted and made again, so a route cached under it is good as long as it is equal; 3. a
change costs what is bound to the thing that it changes, never all bindings.
Not here: which changes a request amounts to (`plans.py`), asking the store (`metadata/store.py`), matching
(`amqpd/exchanges/`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count

from amqpd.exchanges import Message, Reads, check_types, new_matcher
from amqpd.exchanges.cache_memory import CacheMemory
from amqpd.topology.policies import EffectivePolicy, Kind, VhostPolicies
from amqpd.topology.policy_keys import ALTERNATE_EXCHANGE
from amqpd.topology.routes import ExchangeState, Walk, Walkable, reached_reads, walk
from amqpd.topology.sizes import record_bytes
from amqpd.vocabulary.records import (
    BindingRecord,
    Change,
    Delete,
    ExchangeRecord,
    Key,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    Record,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)

# What all exchanges together remember of the messages that they matched: some hundred thousand results. A single
# topic exchange keeps 2 MiB, a hash exchange half of one.
MATCH_CACHES_BYTES_MAX = 32 * 1024 * 1024


class VhostTopology(Walkable):
    """The contents of one virtual host. Read everywhere, changed by `Topology.apply` only. `version` moves with
    every change of an exchange (its alternate by policy too), queue or binding in it, and with nothing else."""

    def __init__(self, name: str, versions: Iterator[int] | None = None, memory: CacheMemory | None = None) -> None:
        """`memory`: where exchanges' caches are charged; None: this virtual host's own."""
        self.name = name
        self.nbytes = 0
        """what its exchanges, queues and bindings take in memory (`sizes.py`)"""
        self._memory = CacheMemory(MATCH_CACHES_BYTES_MAX) if memory is None else memory
        self.exchanges = {}
        self.queues = {}
        self.policies = VhostPolicies()
        self.parameters: dict[tuple[str, str], ParameterRecord] = {}
        """by component and name"""
        self._versions = count(1) if versions is None else versions
        self.version = next(self._versions)
        self._from: dict[str, dict[Key, BindingRecord]] = {}
        self._to: dict[tuple[str, str], dict[Key, BindingRecord]] = {}
        # With the number of such bindings.
        self._next_exchanges: dict[str, dict[str, int]] = {}
        self._reads: dict[str, tuple[Reads, int]] = {}
        self._reads_version = 0

    # -- look-ups

    def bindings_from(self, source: str) -> Collection[BindingRecord]:
        """A live view: copy it before a change. The default exchange's implicit bindings are not records."""
        return self._from.get(source, {}).values()

    def bindings_to(self, destination_type: str, name: str) -> Collection[BindingRecord]:
        """A live view, as `bindings_from`."""
        return self._to.get((destination_type, name), {}).values()

    def bound_sources(self) -> Collection[str]:
        """Names of exchanges that something is bound to, which need not exist; a live view, as `bindings_from`."""
        return self._from.keys()

    def find_binding(
        self, source: str, destination_type: str, destination: str, routing_key: str, arguments_key: str = ""
    ) -> BindingRecord | None:
        key = ("binding", self.name, source, destination_type, destination, routing_key, arguments_key)
        return self._from.get(source, {}).get(key)

    def bindings(self) -> Iterator[BindingRecord]:
        for leaving in self._from.values():
            yield from leaving.values()

    def is_empty(self) -> bool:
        return not (self.exchanges or self.queues or self._from or self.parameters or self.policies.records())

    def policy_of(self, kind: Kind, name: str, queue_type: str = "classic") -> EffectivePolicy:
        """What the policies say of the thing, which need not exist."""
        things = self.queues if kind == "queue" else self.exchanges
        return self.policies.of(kind, name, queue_type, remember=name in things)

    def next_exchanges(self, source: str) -> Collection[str]:
        """Exchanges that an exchange is bound to: a walk over these must not look through thousands of bindings to
        queues to find them."""
        return self._next_exchanges.get(source, {}).keys()

    # -- routing

    def walk(self, exchange_name: str, message: Message) -> Walk:
        """The names of the queues that a message goes to, step by step; see `routes.py`."""
        return walk(self, exchange_name, message)

    def reads(self, exchange_name: str) -> Reads:
        """What of a message a route from here may depend on. Exchanges reached by alternates count, used or
        not."""
        return self._reached(exchange_name)[0]

    def leads_on(self, exchange_name: str) -> bool:
        """Messages may go from this exchange to others."""
        exchange = self.exchanges[exchange_name]
        return exchange.alternate is not None or bool(self.next_exchanges(exchange_name))

    def weight(self, exchange_name: str) -> int:
        """How much a route from here may have to look at."""
        return self._reached(exchange_name)[1]

    def _reached(self, exchange_name: str) -> tuple[Reads, int]:
        if self._reads_version != self.version:
            self._reads.clear()
            self._reads_version = self.version
        known = self._reads.get(exchange_name)
        if known is None:
            known = self._reads[exchange_name] = reached_reads(self, exchange_name)
        return known

    # -- changes, called by `Topology.apply`

    def put_exchange(self, record: ExchangeRecord) -> None:
        """Bindings stay: the same matcher goes on, or a new one of the new type is filled with them."""
        before = self.exchanges.get(record.name)
        if before is not None and before.record == record:
            return
        self.nbytes += record_bytes(record) - (record_bytes(before.record) if before is not None else 0)
        if before is not None and (before.record.type, before.record.arguments) == (
            record.type,
            record.arguments,
        ):
            matcher = before.matcher
        else:
            if before is not None:
                before.matcher.forget()
            matcher = new_matcher(record)
            matcher.share_memory(self._memory)
            for binding in self.bindings_from(record.name):
                matcher.add(binding)
        self.exchanges[record.name] = ExchangeState(record, matcher, self._alternate(record))
        self._moved()

    def _alternate(self, record: ExchangeRecord) -> str | None:
        """The argument goes before the policy (rabbit_policy.erl, `get_arg`)."""
        if ALTERNATE_EXCHANGE in record.arguments:
            alternate = record.arguments[ALTERNATE_EXCHANGE]
        else:
            alternate = self.policy_of("exchange", record.name).get(ALTERNATE_EXCHANGE)
        return alternate if isinstance(alternate, str) else None

    def put_policy(self, record: PolicyRecord) -> None:
        if self.policies.put(record):
            self._policies_changed()

    def delete_policy(self, key: Key) -> None:
        if self.policies.delete(key):
            self._policies_changed()

    def _policies_changed(self) -> None:
        alternates = [(exchange, self._alternate(exchange.record)) for exchange in self.exchanges.values()]
        if any(exchange.alternate != alternate for exchange, alternate in alternates):
            for exchange, alternate in alternates:
                exchange.alternate = alternate
            self._moved()

    def delete_exchange(self, name: str) -> None:
        gone = self.exchanges.pop(name, None)
        if gone is not None:
            gone.matcher.forget()
            self.nbytes -= record_bytes(gone.record)
            self.policies.forget("exchange", name)
            self._moved()

    def put_queue(self, record: QueueRecord) -> None:
        before = self.queues.get(record.name)
        if before != record:
            self.nbytes += record_bytes(record) - (record_bytes(before) if before is not None else 0)
            self.queues[record.name] = record
            self._moved()

    def delete_queue(self, name: str) -> None:
        gone = self.queues.pop(name, None)
        if gone is not None:
            self.nbytes -= record_bytes(gone)
            self.policies.forget("queue", name)
            self._moved()

    def put_binding(self, record: BindingRecord) -> None:
        key = record.key
        leaving = self._from.setdefault(record.source, {})
        before = leaving.get(key)
        if before == record:
            return
        self.nbytes += record_bytes(record) - (record_bytes(before) if before is not None else 0)
        exchange = self.exchanges.get(record.source)
        if exchange is not None:
            if before is not None:
                exchange.matcher.remove(before)
            exchange.matcher.add(record)
        leaving[key] = record
        self._to.setdefault((record.destination_type, record.destination), {})[key] = record
        if before is None and record.destination_type == "exchange":
            following = self._next_exchanges.setdefault(record.source, {})
            following[record.destination] = following.get(record.destination, 0) + 1
        self._moved()

    def delete_binding(self, key: Key) -> None:
        source = key[2]
        leaving = self._from.get(source)
        record = None if leaving is None else leaving.pop(key, None)
        if leaving is None or record is None:
            return
        self.nbytes -= record_bytes(record)
        if not leaving:
            del self._from[source]
        end = (record.destination_type, record.destination)
        arriving = self._to[end]
        del arriving[key]
        if not arriving:
            del self._to[end]
        if record.destination_type == "exchange":
            self._forget_next(source, record.destination)
        exchange = self.exchanges.get(source)
        if exchange is not None:
            exchange.matcher.remove(record)
        self._moved()

    def _forget_next(self, source: str, destination: str) -> None:
        following = self._next_exchanges[source]
        following[destination] -= 1
        if not following[destination]:
            del following[destination]
        if not following:
            del self._next_exchanges[source]

    def _moved(self) -> None:
        self.version = next(self._versions)


class Topology:
    """The users, permissions and virtual hosts of one broker. `version` moves with every batch applied."""

    def __init__(self) -> None:
        self.version = 0
        self.users: dict[str, UserRecord] = {}
        self.permissions: dict[tuple[str, str], PermissionRecord] = {}
        self.topic_permissions: dict[tuple[str, str], dict[str, TopicPermissionRecord]] = {}
        self.vhosts: dict[str, VhostTopology] = {}
        self.vhost_records: dict[str, VhostRecord] = {}
        self.global_parameters: dict[tuple[str, str], ParameterRecord] = {}
        self.before_changes: Callable[[Sequence[Change]], None] = lambda changes: None
        """is told of changes that are about to be applied"""
        self._waiting: dict[str, VhostTopology] = {}  # contents without a virtual host's record
        self._routing_versions = count(1)
        self._match_caches = CacheMemory(MATCH_CACHES_BYTES_MAX)

    def apply(self, changes: Iterable[Change]) -> None:
        """Takes over what the store has committed; `Put.create` was its affair. Deleting what is absent is no
        error.

        Raises AMQPPreconditionFailed, with nothing changed, when an exchange has an unknown type: the store
        was written by a newer version, or a declaration was not checked."""
        batch = list(changes)
        for change in batch:
            if isinstance(change, Put) and isinstance(change.record, ExchangeRecord):
                check_types(change.record)
        self.before_changes(batch)
        for change in batch:
            if isinstance(change, Put):
                self._put(change.record)
            else:
                self._delete(change)
        self.version += 1

    def forget_routes(self) -> None:
        """What callers remember under `version` is void: a queue is gone before its record."""
        self.version += 1

    def policy_of(self, kind: Kind, vhost: str, name: str, queue_type: str = "classic") -> EffectivePolicy:
        """What the policies say of a queue or an exchange, which need not exist; its virtual host must."""
        return self.vhosts[vhost].policy_of(kind, name, queue_type)

    def has_queue(self, vhost: str, name: str) -> bool:
        """Also in a virtual host that has no record."""
        contents = self.vhosts.get(vhost) or self._waiting.get(vhost)
        return contents is not None and name in contents.queues

    def leftovers(self, vhost: str, node: str) -> list[Record]:
        """What belongs to a virtual host that has no record (any more), except exclusive queues of other nodes.
        `node`: the name under which queues are this node's (`QueueRecord.node`)."""
        contents = self._waiting.get(vhost)
        if contents is None:
            return []
        exchanges = (state.record for state in contents.exchanges.values())
        about: list[Record] = [*contents.parameters.values(), *contents.policies.records()]
        queues = (record for record in contents.queues.values() if not record.exclusive or record.node == node)
        return [*contents.bindings(), *exchanges, *queues, *about]

    def _put(self, record: Record) -> None:
        match record:
            case BindingRecord():
                self._contents(record.vhost).put_binding(record)
            case QueueRecord():
                self._contents(record.vhost).put_queue(record)
            case ExchangeRecord():
                self._contents(record.vhost).put_exchange(record)
            case VhostRecord():
                self.vhost_records[record.name] = record
                self.vhosts[record.name] = self._contents(record.name)
                self._waiting.pop(record.name, None)
            case UserRecord():
                self.users[record.name] = record
            case PermissionRecord():
                self.permissions[(record.vhost, record.user)] = record
            case PolicyRecord():
                self._contents(record.vhost).put_policy(record)
            case ParameterRecord():
                self._parameters(record.vhost)[record.component, record.name] = record
            case TopicPermissionRecord():
                of_user = self.topic_permissions.setdefault((record.vhost, record.user), {})
                of_user[record.exchange] = record

    def _delete(self, change: Delete) -> None:
        match change.key:
            case ("binding", vhost, *_):
                self._contents(vhost).delete_binding(change.key)
            case ("queue", vhost, name):
                self._contents(vhost).delete_queue(name)
            case ("exchange", vhost, name):
                self._contents(vhost).delete_exchange(name)
            case ("policy" | "operator-policy", vhost, _):
                self._contents(vhost).delete_policy(change.key)
            case ("parameter", vhost, component, name):
                self._parameters(vhost).pop((component, name), None)
            case ("vhost", name):
                self.vhost_records.pop(name, None)
                if (contents := self.vhosts.pop(name, None)) is not None:
                    self._waiting[name] = contents
            case ("user", name):
                self.users.pop(name, None)
            case ("permission", vhost, user):
                self.permissions.pop((vhost, user), None)
            case ("topic-permission", vhost, user, exchange):
                of_user = self.topic_permissions.get((vhost, user), {})
                of_user.pop(exchange, None)
                if not of_user:
                    self.topic_permissions.pop((vhost, user), None)
            case _:
                raise ValueError(f"not the key of a record: {change.key!r}")
        # What belongs to a virtual host without a record waits until the last of it is gone.
        waiting = self._waiting.get(change.key[1])
        if waiting is not None and waiting.is_empty():
            del self._waiting[change.key[1]]

    def _parameters(self, vhost: str) -> dict[tuple[str, str], ParameterRecord]:
        return self._contents(vhost).parameters if vhost else self.global_parameters

    def _contents(self, vhost: str) -> VhostTopology:
        contents = self.vhosts.get(vhost) or self._waiting.get(vhost)
        if contents is None:
            contents = self._waiting[vhost] = VhostTopology(vhost, self._routing_versions, self._match_caches)
        return contents
