"""Records of one virtual host for tests of the topology, and a topology of them.

What comes in: names, keys. What goes out: records of the virtual host "/", with what is not said as it usually is.
Rule: a binding's arguments have a key of their own, as the broker makes one: other arguments, another binding.
Not here: records as the broker makes them from methods (`amqpd/topology/plans.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def topology_of(*records: Record) -> tuple[Topology, VhostTopology]:
    topology = Topology()
    topology.apply([Put(VhostRecord("/")), *(Put(record) for record in records)])
    return topology, topology.vhosts["/"]
