"""One thing as it stands in a definition file.

What comes in: a record. What goes out: the members of a JSON object, in RabbitMQ's words and order.
Not here: the file (`export.py`), the way back (`items.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amqpd.definitions.items import OPERATOR_POLICY
from amqpd.security.rabbitmq_hashes import exported_hash
from amqpd.topology.limit_keys import limits_of
from amqpd.topology.state import Topology, VhostTopology
from amqpd.vocabulary.records import (
    BindingRecord,
    ExchangeRecord,
    ParameterRecord,
    PolicyRecord,
    QueueRecord,
    UserRecord,
    VhostRecord,
)
from amqpd.wire.json_values import to_json

Item = dict[str, Any]


def user_item(record: UserRecord) -> Item:
    algorithm, password_hash = exported_hash(record.password_hash)
    return {
        "name": record.name,
        "password_hash": password_hash,
        "hashing_algorithm": algorithm,
        "tags": list(record.tags),
        "limits": dict(record.limits),
    }


def vhost_item(topology: Topology, record: VhostRecord) -> Item:
    metadata = {"description": record.description, "tags": [], **record.metadata}
    return {"name": record.name, "limits": dict(limits_of(topology, "vhost", record.name)), "metadata": metadata}


def parameter_items(vhost: VhostTopology) -> Iterator[Item]:
    """Parameters, and operator policies, which RabbitMQ's files have among them."""
    yield from map(parameter_item, list(vhost.parameters.values()))
    yield from map(operator_policy_item, list(vhost.policies.operator_policies.values()))


def parameter_item(record: ParameterRecord) -> Item:
    return {"vhost": record.vhost, "component": record.component, "name": record.name, "value": record.value}


def operator_policy_item(record: PolicyRecord) -> Item:
    value = policy_item(record)
    return {"vhost": value.pop("vhost"), "component": OPERATOR_POLICY, "name": value.pop("name"), "value": value}


def policy_item(record: PolicyRecord) -> Item:
    return {
        "vhost": record.vhost,
        "name": record.name,
        "pattern": record.pattern,
        "apply-to": record.apply_to,
        "priority": record.priority,
        "definition": to_json(record.definition),
    }


def queue_item(record: QueueRecord) -> Item:
    return {
        "vhost": record.vhost,
        "name": record.name,
        "type": to_json(record.arguments.get("x-queue-type", "classic")),
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "arguments": to_json(record.arguments),
    }


def exchange_item(record: ExchangeRecord) -> Item:
    item = {
        "vhost": record.vhost,
        "name": record.name,
        "type": record.type,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "arguments": to_json(record.arguments),
    }
    return {**item, "internal": True} if record.internal else item


def binding_item(record: BindingRecord) -> Item:
    return {
        "vhost": record.vhost,
        "source": record.source,
        "destination": record.destination,
        "destination_type": record.destination_type,
        "routing_key": record.routing_key,
        "arguments": to_json(record.arguments),
    }
