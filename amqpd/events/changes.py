"""Which events a change of the topology is.

What comes in: a change, the record that was there before it, who asked for it. What goes out: events with their
facts, none or several.
Rules: 1. What is put again as it was is no event; of a user only what is different is one. 2. As RabbitMQ has it,
limits of a virtual host are a parameter too, and so is an operator policy. 3. A password, and its hash, is in none.
Not here: who asked (`amqpd/audit/acts.py`), how it is written (`messages.py`).

Source: rabbit_amqqueue_process.erl and rabbit_exchange.erl (their CREATION_EVENT_KEYS), rabbit_binding.erl,
rabbit_policy.erl, rabbit_runtime_parameters.erl, rabbit_vhost_limit.erl, rabbit_auth_backend_internal.erl,
rabbit_vhost.erl; seen with RabbitMQ 3.10.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amqpd.events.messages import terms
from amqpd.events.sessions import Facts, connection_pid
from amqpd.queues.settings import QUORUM, type_of
from amqpd.topology.limit_keys import LIMITS, VHOST_LIMITS
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    BindingRecord,
    ExchangeRecord,
    Key,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    Record,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from amqpd.wire.values import erlang_term

Events = Iterator[tuple[str, Facts]]

# RabbitMQ's name of what does something without a user: the node itself.
INTERNAL_USER = "rmq-internal"
GLOBAL = "global"
OPERATOR_POLICY = "operator_policy"


def put(record: Record, before: Record | None, node: str, topology: Topology) -> Events:
    """What it means that there is this record now."""
    if record == before:
        return
    match record, before:
        case QueueRecord(), None:
            yield "queue.created", _queue(record, node)
        case QueueRecord(), QueueRecord() if record.id != before.id:
            yield "queue.created", _queue(record, node)
        case ExchangeRecord(), None:
            yield "exchange.created", _exchange(record, topology)
        case BindingRecord(), None:
            yield "binding.created", _binding(record)
        case PolicyRecord(), _:
            yield from _policy_set(record)
        case ParameterRecord(), _:
            yield "parameter.set", {**_parameter(record.key), "value": record.value}
            if (record.component, record.name) == (VHOST_LIMITS, LIMITS) and isinstance(record.value, dict):
                yield "vhost.limits.set", {"name": LIMITS, **record.value}
        case VhostRecord(), _:
            yield "vhost.created" if before is None else "vhost.updated", _vhost(record, node)
        case UserRecord(), _:
            yield from _user_put(record, before if isinstance(before, UserRecord) else None)
        case PermissionRecord(), _:
            said = {"configure": record.configure, "write": record.write, "read": record.read}
            yield "permission.created", {"user": record.user, "vhost": record.vhost, **said}
        case TopicPermissionRecord(), _:
            said = {"exchange": record.exchange, "write": record.write, "read": record.read}
            yield "topic.permission.created", {"user": record.user, "vhost": record.vhost, **said}


def deleted(key: Key, before: Record | None) -> Events:
    """What it means that there is no record of this key any more."""
    if before is None:
        return  # there was none before either
    match key:
        case ("queue" | "exchange" as kind, vhost, name):
            yield f"{kind}.deleted", {"name": name, "vhost": vhost}
        case ("binding", *_) if isinstance(before, BindingRecord):
            yield "binding.deleted", _binding(before)
        case ("policy", vhost, name):
            yield "policy.cleared", {"name": name, "vhost": vhost}
        case ("operator-policy", vhost, name):
            yield "parameter.cleared", {"component": OPERATOR_POLICY, "name": name, "vhost": vhost}
            yield "operator.policy.cleared", {"name": name, "vhost": vhost}
        case ("parameter", _, component, name):
            yield "parameter.cleared", _parameter(key)
            if (component, name) == (VHOST_LIMITS, LIMITS):
                yield "vhost.limits.cleared", {"name": LIMITS}
        case ("vhost" | "user" as kind, name):
            yield f"{kind}.deleted", {"name": name}
        case ("permission", vhost, user):
            yield "permission.deleted", {"user": user, "vhost": vhost}
        case ("topic-permission", vhost, user, _):
            yield "topic.permission.deleted", {"user": user, "vhost": vhost}


def record_of(topology: Topology, key: Key) -> Record | None:
    """The record of this key, as it is now."""
    match key:
        case ("vhost", name):
            return topology.vhost_records.get(name)
        case ("user", name):
            return topology.users.get(name)
        case ("permission", vhost, user):
            return topology.permissions.get((vhost, user))
        case ("topic-permission", vhost, user, exchange):
            return topology.topic_permissions.get((vhost, user), {}).get(exchange)
        case ("parameter", "", component, name):
            return topology.global_parameters.get((component, name))
    contents = topology.vhosts.get(key[1])
    if contents is None:
        return None
    match key:
        case ("queue", _, name):
            return contents.queues.get(name)
        case ("exchange", _, name):
            state = contents.exchanges.get(name)
            return None if state is None else state.record
        case ("binding", _, source, kind, destination, routing_key, arguments_key):
            return contents.find_binding(source, kind, destination, routing_key, arguments_key)
        case ("policy", _, name):
            return contents.policies.policies.get(name)
        case ("operator-policy", _, name):
            return contents.policies.operator_policies.get(name)
        case ("parameter", _, component, name):
            return contents.parameters.get((component, name))
    return None


def _queue(record: QueueRecord, node: str) -> Facts:
    quorum = type_of(record.arguments) == QUORUM
    owner = {} if quorum else {"owner_pid": connection_pid(node, record.owner) if record.owner else ""}
    return {
        "name": record.name,
        "vhost": record.vhost,
        "type": f"rabbit_{QUORUM if quorum else 'classic'}_queue",
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "exclusive": record.exclusive,
        **owner,
        "arguments": terms(record.arguments),
    }


def _exchange(record: ExchangeRecord, topology: Topology) -> Facts:
    there = record.vhost in topology.vhosts
    policy = topology.policy_of("exchange", record.vhost, record.name).name if there else None
    return {
        "name": record.name,
        "vhost": record.vhost,
        "type": record.type,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "internal": record.internal,
        "arguments": terms(record.arguments),
        "policy": policy or "",
    }


def _binding(record: BindingRecord) -> Facts:
    return {
        "source_name": record.source,
        "source_kind": "exchange",
        "destination_name": record.destination,
        "destination_kind": record.destination_type,
        "routing_key": record.routing_key,
        "arguments": terms(dict(sorted(record.arguments.items()))),
        "vhost": record.vhost,
    }


def _policy_set(record: PolicyRecord) -> Events:
    said: dict[str, Any] = {
        "pattern": record.pattern,
        "definition": record.definition,
        "priority": record.priority,
        "apply-to": record.apply_to,
    }
    if record.operator:
        named = {"component": OPERATOR_POLICY, "name": record.name, "vhost": record.vhost}
        yield "parameter.set", {**named, "value": said}
    yield "policy.set", {"name": record.name, "vhost": record.vhost, **said}


def _parameter(key: Key) -> Facts:
    _, vhost, component, name = key
    return {"component": component, "name": name, "vhost": vhost} if vhost else {"component": GLOBAL, "name": name}


def _vhost(record: VhostRecord, node: str) -> Facts:
    metadata = record.metadata
    tags = [str(tag) for tag in metadata.get("tags") or ()]
    queue_type = metadata.get("default_queue_type")
    named = [f"default_queue_type => {erlang_term(queue_type)[1]}"] if queue_type else []
    named += [f"description => {erlang_term(record.description)[1]}", f"tags => [{','.join(tags)}]"]
    return {
        "name": record.name,
        "description": record.description,
        "tags": tags,
        "default_queue_type": queue_type or "undefined",
        "metadata": f"#{{{','.join(named)}}}",
        "tracing": False,  # it is turned on by another step
        "cluster_state": {node: "running"},
    }


def _user_put(record: UserRecord, before: UserRecord | None) -> Events:
    name = record.name
    if before is None:
        yield "user.created", {"name": name}
    elif not record.password_hash and before.password_hash:
        yield "user.password.cleared", {"name": name}
    elif record.password_hash != before.password_hash:
        yield "user.password.changed", {"name": name}
    if record.tags != (before.tags if before is not None else ()):
        yield "user.tags.set", {"name": name, "tags": list(record.tags)}
    limits, old = dict(record.limits), dict(before.limits) if before is not None else {}
    if limits == old:
        return
    if set(old) - set(limits):
        yield "user.limits.cleared", {"name": LIMITS, "username": name}
    if any(old.get(key) != value for key, value in limits.items()):
        yield "user.limits.set", {"name": LIMITS, "username": name, **limits}
