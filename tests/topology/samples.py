"""Records of one virtual host for tests of the topology, and a topology of them.

What comes in: names, keys. What goes out: records of the virtual host "/", with what is not said as it usually is;
routes at once, and what policies amount to.
Rule: a binding's arguments have a key of their own, as the broker makes one: other arguments, another binding.
Not here: records as the broker makes them from methods (`amqpd/topology/plans.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from amqpd.exchanges import Message, Reads
from amqpd.topology.policies import EffectivePolicy, Kind, VhostPolicies
from amqpd.topology.state import Topology, VhostTopology
from amqpd.vocabulary.records import (
    BindingRecord,
    ExchangeRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    Record,
    VhostRecord,
)


def exchange(name: str, type_name: str = "direct", alternate: Any = None, **more: Any) -> ExchangeRecord:
    arguments = {} if alternate is None else {"alternate-exchange": alternate}
    return ExchangeRecord("/", name, type_name, arguments=arguments, **more)


def queue(name: str, number: int = 1) -> QueueRecord:
    return QueueRecord("/", name, number)


def to_queue(source: str, name: str, key: str = "k", arguments: Mapping[str, Any] | None = None) -> BindingRecord:
    return BindingRecord(
        "/", source, name, "queue", key, arguments=arguments or {}, arguments_key=repr(arguments or "")
    )


def to_exchange(source: str, name: str, key: str = "k") -> BindingRecord:
    return BindingRecord("/", source, name, "exchange", key)


def alternate_policy(name: str, pattern: str, alternate: str, priority: int = 0) -> PolicyRecord:
    return PolicyRecord("/", name, pattern, "exchanges", {"alternate-exchange": alternate}, priority)


def routed(
    vhost: VhostTopology, exchange_name: str, routing_key: str, headers: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """The names of the queues that a message goes to, each once, all of them existing."""
    return routed_message(vhost, exchange_name, Message((routing_key,), headers))


def routed_message(vhost: VhostTopology, exchange_name: str, message: Message) -> tuple[str, ...]:
    steps = vhost.walk(exchange_name, message)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: tuple[str, ...] = end.value
            return found


def reads_more(vhost: VhostTopology, exchange_name: str) -> bool:
    """Whether a route from here may depend on more of a message than its routing key, or keeps it."""
    return bool(vhost.reads(exchange_name) & ~Reads.ROUTING_KEY)


def effective_policy(
    policies: Iterable[PolicyRecord],
    operator_policies: Iterable[PolicyRecord],
    kind: Kind,
    name: str,
    queue_type: str = "classic",
) -> EffectivePolicy:
    """What these policies of one virtual host say of one thing."""
    held = VhostPolicies()
    for record in (*policies, *operator_policies):
        held.put(record)
    return held.of(kind, name, queue_type, remember=False)


def topology_of(*records: Record) -> tuple[Topology, VhostTopology]:
    topology = Topology()
    topology.apply([Put(VhostRecord("/")), *(Put(record) for record in records)])
    return topology, topology.vhosts["/"]
