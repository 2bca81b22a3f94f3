"""A topology as the text of a definition file.

What comes in: a topology; or one virtual host of it. What goes out: JSON text in RabbitMQ's format.
Rules: 1. Sorted, and one thing a line: two exports can be compared by eye and by diff. 2. Left out is what cannot be
brought back: exclusive queues, names that begin with `amq.`, and bindings of these queues. 3. Internal exchanges are
in, though RabbitMQ leaves them out: their bindings are in its files too, and lead nowhere then.
Not here: reading files (`document.py`), where the topology comes from (`commands/definitions.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from amqpd.definitions.items import OPERATOR_POLICY
from amqpd.security.rabbitmq_hashes import exported_hash
from amqpd.topology.limit_keys import limits_of
from amqpd.topology.state import Topology, VhostTopology
from amqpd.vocabulary.escapes import readable_json
from amqpd.vocabulary.records import (
    BindingRecord,
    ExchangeRecord,
    ParameterRecord,
    PolicyRecord,
    QueueRecord,
    UserRecord,
    VhostRecord,
)
from amqpd.wire.json_values import json_text, to_json

# Which RabbitMQ's format this is; its importer asks only for files older than 3.6.1.
FORMAT_VERSION = "4.2.0"

Item = dict[str, Any]


def export_text(topology: Topology, version: str, vhost: str | None = None) -> str:
    """`version` is amqpd's. With `vhost`, the file of this one virtual host, which names it nowhere (as RabbitMQ's),
    so that it can be imported into another."""
    sections = _of_vhost(topology, vhost) if vhost is not None else _of_broker(topology)
    about: Item = {
        "product_name": "amqpd",
        "product_version": version,
        "rabbit_version": FORMAT_VERSION,
        "rabbitmq_version": FORMAT_VERSION,
        "rabbitmq_definition_format": "cluster" if vhost is None else "single_virtual_host",
    }
    if vhost is not None:
        about["original_vhost_name"] = vhost
    members = [f"{json.dumps(name)}: {_line(value)}" for name, value in about.items()]
    for name, items in sections.items():
        lines = sorted(_line(item) for item in items)
        members.append(
            f"{json.dumps(name)}: [" + ",".join("\n  " + line for line in lines) + ("\n]" if lines else "]")
        )
    return "{\n" + ",\n".join(members) + "\n}\n"


def _line(value: Any) -> str:
    """The members of a thing stay in their order, names first; those of the values within are sorted."""
    if isinstance(value, dict):
        value = {name: _sorted(member) for name, member in value.items()}
    return readable_json(value)


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(member) for member in value]
    return value


def _of_broker(topology: Topology) -> dict[str, Iterable[Item]]:
    vhosts = topology.vhosts.values()
    return {
        "users": map(user_item, topology.users.values()),
        "vhosts": (vhost_item(topology, record) for record in topology.vhost_records.values()),
        "permissions": (
            {
                "user": held.user,
                "vhost": held.vhost,
                "configure": held.configure,
                "write": held.write,
                "read": held.read,
            }
            for held in topology.permissions.values()
        ),
        "topic_permissions": (
            {
                "user": held.user,
                "vhost": held.vhost,
                "exchange": held.exchange,
                "write": held.write,
                "read": held.read,
            }
            for by_exchange in topology.topic_permissions.values()
            for held in by_exchange.values()
        ),
        "parameters": (item for vhost in vhosts for item in parameter_items(vhost)),
        "global_parameters": (
            {"name": record.name, "value": record.value} for record in topology.global_parameters.values()
        ),
        "policies": (policy_item(record) for vhost in vhosts for record in vhost.policies.policies.values()),
        "queues": (queue_item(record) for vhost in vhosts for record in exported_queues(vhost)),
        "exchanges": (exchange_item(record) for vhost in vhosts for record in exported_exchanges(vhost)),
        "bindings": (binding_item(record) for vhost in vhosts for record in exported_bindings(vhost)),
    }


def _of_vhost(topology: Topology, name: str) -> dict[str, Iterable[Item]]:
    vhost = topology.vhosts[name]
    sections: dict[str, Iterable[Item]] = {
        "parameters": parameter_items(vhost),
        "policies": map(policy_item, vhost.policies.policies.values()),
        "queues": map(queue_item, exported_queues(vhost)),
        "exchanges": map(exchange_item, exported_exchanges(vhost)),
        "bindings": map(binding_item, exported_bindings(vhost)),
    }
    return {
        section: ({member: value for member, value in item.items() if member != "vhost"} for item in items)
        for section, items in sections.items()
    }


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
    yield from map(parameter_item, vhost.parameters.values())
    yield from map(operator_policy_item, vhost.policies.operator_policies.values())


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


def exported_queues(vhost: VhostTopology) -> list[QueueRecord]:
    return [record for record in vhost.queues.values() if not (record.exclusive or record.name.startswith("amq."))]


def exported_exchanges(vhost: VhostTopology) -> list[ExchangeRecord]:
    return [state.record for state in vhost.exchanges.values() if not state.record.name.startswith("amq.")]


def exported_bindings(vhost: VhostTopology) -> Iterator[BindingRecord]:
    """Of two bindings that look the same in JSON, though their arguments differ in type, one."""
    queues: Mapping[str, QueueRecord] = {record.name: record for record in exported_queues(vhost)}
    seen: set[str] = set()
    for record in vhost.bindings():
        if record.destination_type == "queue" and record.destination not in queues:
            continue
        if record.source not in vhost.exchanges:
            continue
        if record.destination_type == "exchange" and record.destination not in vhost.exchanges:
            continue
        if record.arguments:
            spelled = json_text(binding_item(record))
            if spelled in seen:
                continue
            seen.add(spelled)
        yield record
