"""Virtual hosts: made, listed, deleted.

What comes in: names. What goes out: changed metadata; rows.
Rules: 1. A new virtual host has the predeclared exchanges. 2. With a virtual host goes everything in it.
Not here: who may enter (`permissions.py`), what a running node knows of them (`overview.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict

from amqpd.management.errors import AlreadyExists, Conflict
from amqpd.management.metadata import Metadata, Plan, check_name, check_value, found_vhost
from amqpd.topology.plans import create_vhost, delete_vhost
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Put


class VhostRow(TypedDict):
    """A virtual host as lists have it; `queues` counts the durable ones."""

    name: str
    description: str
    queues: int
    default_queue_type: str
    """of queues that name none and can be of it; empty: classic"""
    tags: list[str]


async def listed(metadata: Metadata) -> list[VhostRow]:
    """All virtual hosts, by name."""
    topology = await metadata.read()
    return [
        {
            "name": name,
            "description": record.description,
            "queues": len(topology.vhosts[name].queues),
            "default_queue_type": str(record.metadata.get("default_queue_type", "")),
            "tags": list(record.metadata.get("tags", ())),
        }
        for name, record in sorted(topology.vhost_records.items())
    ]


async def add(
    metadata: Metadata,
    name: str,
    description: str = "",
    default_queue_type: str | None = None,
    tags: Sequence[str] = (),
) -> None:
    """`tags` are words of the operator's own. Raises BadArgument, AlreadyExists."""
    kept: dict[str, Any] = {} if default_queue_type is None else {"default_queue_type": default_queue_type}
    if tags:
        kept["tags"] = list(tags)
    check_name("virtual host", name)
    check_value("description", description)
    for key, value in kept.items():
        check_value(key, value)

    def plan(topology: Topology) -> Plan:
        if name in topology.vhost_records:
            raise AlreadyExists(f"there is a virtual host '{name}' already")
        return Plan(create_vhost(name, description, kept))

    await metadata.change(plan)


async def set_default_queue_type(metadata: Metadata, name: str, kind: str) -> None:
    """For queues that are declared from now on. Raises BadArgument, NotFound."""
    await _keep(metadata, name, default_queue_type=kind)


async def set_tags(metadata: Metadata, name: str, tags: Sequence[str]) -> None:
    """Instead of those that it has. Raises BadArgument, NotFound."""
    await _keep(metadata, name, tags=list(tags))


async def set_description(metadata: Metadata, name: str, description: str) -> None:
    """Raises BadArgument, NotFound."""
    check_value("description", description)
    await metadata.change(lambda topology: Plan([Put(replace(found_vhost(topology, name), description=description))]))


async def protect(metadata: Metadata, name: str, protected: bool) -> None:
    """Whether `delete` refuses it. Raises NotFound."""
    await _keep(metadata, name, protected_from_deletion=protected)


async def _keep(metadata: Metadata, name: str, **kept: Any) -> None:
    for key, value in kept.items():
        check_value(key, value)

    def plan(topology: Topology) -> Plan:
        record = found_vhost(topology, name)
        return Plan([Put(replace(record, metadata={**record.metadata, **kept}))])

    await metadata.change(plan)


async def delete(metadata: Metadata, name: str) -> None:
    """With its exchanges, its queues, their messages, and all permissions on it. Raises NotFound, Conflict when it is
    protected."""

    def plan(topology: Topology) -> Plan:
        if found_vhost(topology, name).metadata.get("protected_from_deletion") is True:
            raise Conflict(f"Refusing to delete virtual host '{name}' because it is protected from deletion")
        return Plan(delete_vhost(topology, name))

    await metadata.change(plan)
    await metadata.sweep()
