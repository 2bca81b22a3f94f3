"""Virtual hosts: made, listed, deleted.

What comes in: names. What goes out: changed metadata; rows.
Rules: 1. A new virtual host has the predeclared exchanges. 2. With a virtual host goes everything in it.
Not here: who may enter (`permissions.py`), what a running node knows of them (`figures/overview.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from amqpd.management.errors import AlreadyExists, BadArgument, Conflict
from amqpd.management.metadata.interface import (
    ManagedMetadata,
    Plan,
    check_name,
    check_value,
    found_user,
    found_vhost,
)
from amqpd.queues.settings import CLASSIC, QUORUM
from amqpd.topology.plans import create_vhost, delete_vhost
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import PermissionRecord, Put

QUEUE_TYPES = (CLASSIC, QUORUM)


class VhostRow(TypedDict):
    """A virtual host as lists have it; `queues` counts the durable ones."""

    name: str
    description: str
    queues: int
    default_queue_type: str
    """of queues that name none and can be of it; empty: classic"""
    tags: list[str]


async def listed(metadata: ManagedMetadata) -> list[VhostRow]:
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
    metadata: ManagedMetadata,
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


async def put(metadata: ManagedMetadata, name: str, wanted: VhostProperties, owner: str = "") -> bool:
    """There is a virtual host of this name from now on, with all that is wanted of it, or nothing is changed. A new
    one is entered by `owner` with all permissions. Whether it is new. Raises BadArgument."""
    check_name("virtual host", name)
    kept = wanted.checked()
    new = False

    def plan(topology: Topology) -> Plan:
        nonlocal new
        before = topology.vhost_records.get(name)
        new = before is None
        if before is not None:
            description = before.description if wanted.description is None else wanted.description
            changed = replace(before, description=description, metadata={**before.metadata, **kept})
            return Plan([Put(changed)] if changed != before else [])
        made = create_vhost(name, wanted.description or "", kept)
        if not owner:
            return Plan(made)
        entered = PermissionRecord(owner, name, ".*", ".*", ".*")
        return Plan([*made, Put(entered)], [found_user(topology, owner).key])

    await metadata.change(plan)
    return new


@dataclass(frozen=True)
class VhostProperties:
    """The properties that a request asks for of a virtual host. None is what is not said: it stays as it is."""

    description: str | None = None
    default_queue_type: str | None = None
    tags: Sequence[str] | None = None
    protected: bool | None = None

    def checked(self) -> dict[str, Any]:
        """What is kept beside the description. Raises BadArgument."""
        kept: dict[str, Any] = {}
        if self.default_queue_type is not None:
            if self.default_queue_type not in QUEUE_TYPES:
                known = ", ".join(QUEUE_TYPES)
                raise BadArgument(
                    f"'{self.default_queue_type}' is no type of queues that amqpd has; there are {known}"
                )
            kept["default_queue_type"] = self.default_queue_type
        if self.tags is not None:
            for tag in self.tags:
                check_name("tag", tag)
            kept["tags"] = list(self.tags)
        if self.protected is not None:
            kept["protected_from_deletion"] = self.protected
        check_value("description", self.description or "")
        return kept


async def set_default_queue_type(metadata: ManagedMetadata, name: str, kind: str) -> None:
    """For queues that are declared from now on. Raises BadArgument, NotFound."""
    await _keep(metadata, name, default_queue_type=kind)


async def set_tags(metadata: ManagedMetadata, name: str, tags: Sequence[str]) -> None:
    """Instead of those that it has. Raises BadArgument, NotFound."""
    await _keep(metadata, name, tags=list(tags))


async def protect(metadata: ManagedMetadata, name: str, protected: bool) -> None:
    """Whether `delete` refuses it. Raises NotFound."""
    await _keep(metadata, name, protected_from_deletion=protected)


async def _keep(metadata: ManagedMetadata, name: str, **kept: Any) -> None:
    for key, value in kept.items():
        check_value(key, value)

    def plan(topology: Topology) -> Plan:
        record = found_vhost(topology, name)
        return Plan([Put(replace(record, metadata={**record.metadata, **kept}))])

    await metadata.change(plan)


async def delete(metadata: ManagedMetadata, name: str) -> None:
    """With its exchanges, its queues, their messages, and all permissions on it. Raises NotFound, Conflict when it is
    protected."""

    def plan(topology: Topology) -> Plan:
        if found_vhost(topology, name).metadata.get("protected_from_deletion") is True:
            raise Conflict(f"Refusing to delete virtual host '{name}' because it is protected from deletion")
        return Plan(delete_vhost(topology, name))

    await metadata.aside().change(plan)
    await metadata.sweep()
