"""From a request to the changes that carry it out, with everything that goes along.

What comes in: the topology as it is, and the request (delete this queue). What goes out: a list of changes for
the metadata store, to be made in one transaction or not at all.
Rules: 1. pure: nothing is changed here, and the store may still refuse; 2. nothing is left behind: with a
thing go the bindings at both of its ends; 3. an auto-delete exchange goes when its last binding as source
goes, and that may take others along (RabbitMQ, rabbit_db_exchange.erl `maybe_auto_delete`); one that never
was a source stays; 4. removing what is absent gives no changes; 5. in the list, bindings go before their
ends.
Not here: permissions, equivalence, if-unused and if-empty, exclusive use (channels check them before they
ask).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.topology.state import Topology, VhostTopology
from amqpd.vocabulary.records import (
    Arguments,
    BindingRecord,
    Change,
    Delete,
    DestinationType,
    ExchangeRecord,
    Key,
    Put,
    QueueRecord,
    VhostRecord,
)
from amqpd.wire.values import NestedTooDeep, arguments_key

# name, type, internal; all durable. The default exchange '' is implicit and no record.
PREDECLARED_EXCHANGES = (
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)

# Of one virtual host only, when `events.exchange` is on (`amqpd/events/`).
EVENT_EXCHANGE = "amq.rabbitmq.event"


def create_vhost(name: str, description: str = "", metadata: Arguments | None = None) -> list[Change]:
    """A virtual host with its predeclared exchanges; the store refuses it all if the virtual host exists."""
    changes: list[Change] = [Put(VhostRecord(name, description, metadata=metadata or {}), create=True)]
    changes += [
        Put(ExchangeRecord(vhost=name, name=exchange, type=type_name, internal=internal))
        for exchange, type_name, internal in PREDECLARED_EXCHANGES
    ]
    return changes


def delete_vhost(topology: Topology, name: str) -> list[Change]:
    """A virtual host, everything in it and about it, and all users' permissions on it."""
    vhost = topology.vhosts.get(name)
    if vhost is None:
        return []
    changes: list[Change] = [Delete(binding.key) for binding in vhost.bindings()]
    changes += [Delete(exchange.record.key) for exchange in vhost.exchanges.values()]
    changes += [Delete(queue.key) for queue in vhost.queues.values()]
    changes += [Delete(policy.key) for policy in vhost.policies.records()]
    changes += [Delete(parameter.key) for parameter in vhost.parameters.values()]
    changes += _permissions(topology, lambda on, _: on == name)
    changes.append(Delete(topology.vhost_records[name].key))
    return changes


def delete_user(topology: Topology, name: str) -> list[Change]:
    """A user and its permissions on every virtual host."""
    user = topology.users.get(name)
    return [] if user is None else [*_permissions(topology, lambda _, of: of == name), Delete(user.key)]


def _permissions(topology: Topology, goes: Callable[[str, str], bool]) -> list[Change]:
    """The end of all permissions, topic permissions included, of which `goes` holds for virtual host and user."""
    changes: list[Change] = [Delete(held.key) for place, held in topology.permissions.items() if goes(*place)]
    by_exchange = [held for place, held in topology.topic_permissions.items() if goes(*place)]
    return [*changes, *(Delete(each.key) for held in by_exchange for each in held.values())]


def remove(vhost: VhostTopology, records: Iterable[QueueRecord | ExchangeRecord | BindingRecord]) -> list[Change]:
    """What was found in this virtual host, all in one step: with a queue or an exchange the bindings at both of its
    ends, and with the last binding from an auto-delete exchange that exchange. A record that is gone by now is passed
    over, and so is a queue when another one has its name."""
    removal = _Removal(vhost)
    for record in records:
        removal.take(record)
    removal.take_exchanges_let_go()
    return removal.changes


def bindings_along(
    vhost: VhostTopology, record: QueueRecord | ExchangeRecord | BindingRecord
) -> list[Collection[BindingRecord]]:
    """The bindings that go along with the record, in the order in which they may go before it does, part by part: an
    auto-delete exchange goes with the last one that leaves it. Those of exchanges beyond the next one do not
    count."""
    if isinstance(record, QueueRecord):
        found = vhost.queues.get(record.name)
        replaced = found is not None and found.id != record.id
        return [] if replaced else [vhost.bindings_to("queue", record.name)]
    if isinstance(record, ExchangeRecord):
        return [vhost.bindings_to("exchange", record.name), vhost.bindings_from(record.name)]
    source = vhost.exchanges.get(record.source)
    if source is None or not source.record.auto_delete or len(vhost.bindings_from(record.source)) > 1:
        return []
    return [vhost.bindings_to("exchange", record.source)]


def find_binding(vhost: VhostTopology, wanted: BindingRecord) -> BindingRecord | None:
    """The binding that a bind with these ends, this key and these arguments has made, if there is one."""
    try:
        key = arguments_key(dict(wanted.arguments))
    except NestedTooDeep:
        return None  # it could not be made
    return vhost.find_binding(wanted.source, wanted.destination_type, wanted.destination, wanted.routing_key, key)


def new_binding(vhost: VhostTopology, wanted: BindingRecord) -> BindingRecord:
    """The record of a binding between ends that are there, valid but not yet made: durable if both ends are, with its
    `arguments_key`. Raises AMQPPreconditionFailed when the source's type cannot take the arguments."""
    source = vhost.exchanges[wanted.source]
    queue = vhost.queues[wanted.destination] if wanted.destination_type == "queue" else None
    end = vhost.exchanges[wanted.destination].record if queue is None else queue
    try:
        key = arguments_key(dict(wanted.arguments))
    except NestedTooDeep as error:
        raise AMQPPreconditionFailed(f"invalid arguments: {error}") from error
    binding = replace(wanted, durable=source.record.durable and end.durable, arguments_key=key)
    source.matcher.validate(binding, queue)
    return binding


class _Removal:
    """One removal while it spreads. A work list, not recursion: chains of exchanges may be long."""

    def __init__(self, vhost: VhostTopology) -> None:
        self.changes: list[Change] = []
        self._vhost = vhost
        self._taken: set[Key] = set()
        self._taken_from: Counter[str] = Counter()
        self._gone: set[str] = set()
        self._let_go: list[str] = []

    def take(self, record: QueueRecord | ExchangeRecord | BindingRecord) -> None:
        if isinstance(record, QueueRecord):
            self.take_queue(record)
        elif isinstance(record, ExchangeRecord):
            self.take_exchange(record.name)
        else:
            found = self._vhost.find_binding(
                record.source, record.destination_type, record.destination, record.routing_key, record.arguments_key
            )
            if found is not None:
                self.take_binding(found)

    def take_queue(self, record: QueueRecord) -> None:
        found = self._vhost.queues.get(record.name)
        if record.key in self._taken or (found is not None and found.id != record.id):
            return
        self._taken.add(record.key)
        self.take_bindings_to("queue", record.name)
        if found is not None:
            self.changes.append(Delete(record.key))

    def take_binding(self, binding: BindingRecord) -> None:
        if binding.key in self._taken:
            return
        self._taken.add(binding.key)
        self.changes.append(Delete(binding.key))
        source = binding.source
        self._taken_from[source] += 1
        exchange = self._vhost.exchanges.get(source)
        if exchange is None or not exchange.record.auto_delete:
            return
        if self._taken_from[source] == len(self._vhost.bindings_from(source)):
            self._let_go.append(source)

    def take_bindings_to(self, destination_type: DestinationType, name: str) -> None:
        for binding in self._vhost.bindings_to(destination_type, name):
            self.take_binding(binding)

    def take_exchange(self, name: str) -> None:
        if name in self._gone:
            return
        self._gone.add(name)
        for binding in self._vhost.bindings_from(name):
            self.take_binding(binding)
        self.take_bindings_to("exchange", name)
        if name in self._vhost.exchanges:
            self.changes.append(Delete(self._vhost.exchanges[name].record.key))

    def take_exchanges_let_go(self) -> None:
        for name in self._let_go:  # grows while it is walked
            self.take_exchange(name)
