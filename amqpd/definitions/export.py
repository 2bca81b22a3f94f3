"""A topology as the text of a definition file.

What comes in: a topology; or one virtual host of it. What goes out: JSON text in RabbitMQ's format.
Rules: 1. Sorted, and one thing a line: two exports can be compared by eye and by diff. 2. Left out is what cannot be
brought back: exclusive queues, names that begin with `amq.`, and bindings of these queues. 3. Internal exchanges are
in, though RabbitMQ leaves them out: their bindings are in its files too, and lead nowhere then. 4. It is made in
steps, over copies of references: a broker goes on in between.
Not here: reading files (`document.py`), where the topology comes from (`commands/definitions.py`).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from amqpd.definitions.items import OPERATOR_POLICY
from amqpd.security.rabbitmq_hashes import exported_hash, is_rabbitmq_hash
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


# Which RabbitMQ's format this is; its importer asks only for files older than 3.6.1.
FORMAT_VERSION = "4.2.0"

EXPLANATION = "explanation"
"""a member of documents that RabbitMQ passes over, as it does any that it does not know"""
NAMED_MAX = 10
ABOUT_LENGTH_MAX, ABOUT_LINES_MAX = 16_384, 10
# Lines: less than a millisecond.
SORTED_AT_ONCE = 500


def export_steps(topology: Topology, version: str, vhost: str | None = None) -> Iterator[str | None]:
    """The file, in steps between which the topology may change: parts of the text, and None for a step that has none.
    `version` is amqpd's. With `vhost`, the file of this one virtual host, which names it nowhere (as RabbitMQ's), so
    that it can be imported into another."""
    about: Item = {
        "product_name": "amqpd",
        "product_version": version,
        "rabbit_version": FORMAT_VERSION,
        "rabbitmq_version": FORMAT_VERSION,
        "rabbitmq_definition_format": "cluster" if vhost is None else "single_virtual_host",
    }
    if vhost is not None:
        about |= {"original_vhost_name": vhost, **_about_vhost(topology, vhost)}
    else:
        if (explanation := explanation_of(topology)) is not None:
            about[EXPLANATION] = explanation
        named = topology.global_parameters.get(("", "cluster_name"))
        if named is not None and isinstance(named.value, str):
            about["original_cluster_name"] = named.value
    yield "{\n" + ",\n".join(f"{json.dumps(name)}: {_line(value)}" for name, value in about.items())
    for name, items in Export(topology, vhost).sections():
        yield f",\n{json.dumps(name)}: ["
        yield from _section(items)
    yield "\n}\n"


def _about_vhost(topology: Topology, name: str) -> Item:
    """What is no thing in it: an import passes it over, as RabbitMQ's does."""
    item = vhost_item(topology, topology.vhost_records[name])
    return {"description": item["metadata"]["description"], "metadata": item["metadata"], "limits": item["limits"]}


def explanation_of(topology: Topology) -> str | None:
    """That RabbitMQ takes users of the document, and cannot check their passwords."""
    users = list(topology.users.values())
    names = sorted(user.name for user in users if user.password_hash and not is_rabbitmq_hash(user.password_hash))
    if not names:
        return None
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return (
        "RabbitMQ takes these users and cannot check their passwords, whose hashes are argon2, so they cannot log in "
        f"there: {', '.join(names[:NAMED_MAX])}{more}. Set new passwords there, or set them here as RabbitMQ hashes "
        "them before you export: amqpd user passwd NAME --for-rabbitmq, or a hashing_algorithm in PUT /api/users/NAME"
    )


def explanation_in(text: str) -> str | None:
    """Of a document that was made here: it stands in one of the first lines."""
    for line in text[:ABOUT_LENGTH_MAX].splitlines()[:ABOUT_LINES_MAX]:
        name, _, value = line.partition(": ")
        if name == f'"{EXPLANATION}"':
            return str(json.loads(value.removesuffix(",")))
    return None


def _section(items: Iterable[Item | None]) -> Iterator[str | None]:
    """Its lines, sorted a few at a time and merged, and its end."""
    runs: list[list[str]] = [[]]
    for item in items:
        yield None
        if item is not None:
            if len(runs[-1]) == SORTED_AT_ONCE:
                runs[-1].sort()
                runs.append([])
            runs[-1].append(_line(item))
    runs[-1].sort()
    between = "\n  "
    for line in heapq.merge(*runs):
        yield between + line
        between = ",\n  "
    yield "]" if between == "\n  " else "\n]"


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


class Export:
    """One export of a topology as a document of definitions. What is in a section is walked over as it is when its
    turn comes; names that a later section may mention are kept from then on, so that nothing is mentioned that the
    document does not have."""

    def __init__(self, topology: Topology, vhost: str | None) -> None:
        self._topology = topology
        self._vhosts = [topology.vhosts[vhost]] if vhost is not None else list(topology.vhosts.values())
        self._whole = vhost is None
        self._users: set[str] = set()
        self._names = {each.name for each in self._vhosts}
        self._queues: set[tuple[str, str]] = set()
        self._exchanges: set[tuple[str, str]] = set()

    def sections(self) -> Iterator[tuple[str, Iterator[Item | None]]]:
        if self._whole:
            yield "users", self._user_items()
            yield "vhosts", self._vhost_items()
            yield "permissions", self._permissions()
            yield "topic_permissions", self._topic_permissions()
        yield "parameters", self._of_vhosts(parameter_items)
        if self._whole:
            records = list(self._topology.global_parameters.values())
            yield "global_parameters", ({"name": record.name, "value": record.value} for record in records)
        yield "policies", self._of_vhosts(lambda vhost: map(policy_item, list(vhost.policies.policies.values())))
        yield "queues", self._of_vhosts(self._queue_items)
        yield "exchanges", self._of_vhosts(self._exchange_items)
        yield "bindings", self._of_vhosts(self._binding_items)

    def _of_vhosts(self, items_of: Callable[[VhostTopology], Iterable[Item | None]]) -> Iterator[Item | None]:
        for vhost in self._vhosts:
            yield None
            for item in items_of(vhost):
                if item is not None and not self._whole:
                    del item["vhost"]
                yield item

    def _user_items(self) -> Iterator[Item]:
        for record in list(self._topology.users.values()):
            self._users.add(record.name)
            yield user_item(record)

    def _vhost_items(self) -> Iterator[Item | None]:
        for record in list(self._topology.vhost_records.values()):
            yield vhost_item(self._topology, record) if record.name in self._names else None

    def _permissions(self) -> Iterator[Item | None]:
        for held in list(self._topology.permissions.values()):
            if held.user not in self._users or held.vhost not in self._names:
                yield None
                continue
            about = {"user": held.user, "vhost": held.vhost}
            yield {**about, "configure": held.configure, "write": held.write, "read": held.read}

    def _topic_permissions(self) -> Iterator[Item | None]:
        for by_exchange in list(self._topology.topic_permissions.values()):
            for held in list(by_exchange.values()):
                if held.user not in self._users or held.vhost not in self._names:
                    yield None
                    continue
                about = {"user": held.user, "vhost": held.vhost, "exchange": held.exchange}
                yield {**about, "write": held.write, "read": held.read}

    def _queue_items(self, vhost: VhostTopology) -> Iterator[Item | None]:
        for record in list(vhost.queues.values()):
            if record.exclusive or record.name.startswith("amq."):
                yield None
                continue
            self._queues.add((record.vhost, record.name))
            yield queue_item(record)

    def _exchange_items(self, vhost: VhostTopology) -> Iterator[Item | None]:
        for state in list(vhost.exchanges.values()):
            record = state.record
            self._exchanges.add((record.vhost, record.name))
            yield None if record.name.startswith("amq.") else exchange_item(record)

    def _binding_items(self, vhost: VhostTopology) -> Iterator[Item | None]:
        """Of two bindings that look the same in JSON, though their arguments differ in type, one."""
        seen: set[str] = set()
        for source in list(vhost.bound_sources()):
            for record in list(vhost.bindings_from(source)):
                ends = self._queues if record.destination_type == "queue" else self._exchanges
                if (vhost.name, source) not in self._exchanges or (vhost.name, record.destination) not in ends:
                    yield None
                    continue
                if record.arguments:
                    spelled = json_text(binding_item(record))
                    if spelled in seen:
                        yield None
                        continue
                    seen.add(spelled)
                yield binding_item(record)
