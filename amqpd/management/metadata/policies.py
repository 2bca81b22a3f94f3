"""Policies and operator policies: arguments for many queues and exchanges at once.

What comes in: names, patterns, definitions. What goes out: changed metadata; rows.
Rules: 1. A policy that the broker could not use is refused, with RabbitMQ's words. 2. Both kinds are treated alike:
`operator` says which is meant.
Not here: which policy applies (`topology/policies.py`), the keys (`topology/policy_keys.py`).
"""

from __future__ import annotations

from itertools import chain
from typing import Any, TypedDict

from amqpd.management.errors import BadArgument, NotFound
from amqpd.management.metadata.interface import (
    ManagedMetadata,
    Plan,
    check_filter,
    check_name,
    check_value,
    found_vhost,
)
from amqpd.management.pacing import each, in_order
from amqpd.topology.policies import check_policy
from amqpd.topology.policy_keys import PolicyInvalid
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Arguments, Delete, PolicyRecord, Put

KINDS = {False: "policy", True: "operator policy"}

# `apply-to` is RabbitMQ's name for it.
PolicyRow = TypedDict(
    "PolicyRow",
    {"vhost": str, "name": str, "pattern": str, "apply-to": str, "definition": dict[str, Any], "priority": int},
)


async def listed(metadata: ManagedMetadata, operator: bool, vhost: str | None = None) -> list[PolicyRow]:
    """By virtual host; in one, those that go first, first. Raises NotFound."""
    topology = await metadata.read()
    check_filter(topology, vhost)
    names = await in_order(list(topology.vhosts), str) if vhost is None else [vhost]

    def rows(at: str) -> list[PolicyRow] | None:
        held = topology.vhosts.get(at)
        if held is None:
            return None
        records = [record for record in held.policies.records() if record.operator == operator]
        return list(map(_row, sorted(records, key=lambda record: (-record.priority, record.name))))

    return list(chain.from_iterable(await each(names, rows)))


async def put(
    metadata: ManagedMetadata,
    operator: bool,
    vhost: str,
    name: str,
    pattern: str,
    definition: Arguments,
    priority: int = 0,
    apply_to: str = "all",
) -> None:
    """Also in place of one of that name. Raises BadArgument, NotFound."""
    kind = KINDS[operator]
    check_name(kind, name)
    check_value("pattern", pattern)
    check_value("definition", dict(definition))
    record = PolicyRecord(vhost, name, pattern, apply_to, definition, priority, operator)
    try:
        check_policy(record)
    except PolicyInvalid as error:
        raise BadArgument(f"the {kind} is not valid: {error}") from error
    await metadata.change(lambda topology: Plan([Put(record)], [found_vhost(topology, vhost).key]))


async def clear(metadata: ManagedMetadata, operator: bool, vhost: str, name: str) -> None:
    """What it applied to falls back to the next one that matches. Raises NotFound."""

    def plan(topology: Topology) -> Plan:
        found_vhost(topology, vhost)
        held = topology.vhosts[vhost].policies
        found = (held.operator_policies if operator else held.policies).get(name)
        if found is None:
            raise NotFound(f"there is no {KINDS[operator]} '{name}' in virtual host '{vhost}'")
        return Plan([Delete(found.key)])

    await metadata.change(plan)


def _row(record: PolicyRecord) -> PolicyRow:
    return {
        "vhost": record.vhost,
        "name": record.name,
        "pattern": record.pattern,
        "apply-to": record.apply_to,
        "definition": dict(record.definition),
        "priority": record.priority,
    }
