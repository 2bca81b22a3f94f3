"""Virtual hosts: made, listed, deleted.

What comes in: names. What goes out: changed metadata; rows.
Rules: 1. A new virtual host has the predeclared exchanges. 2. With a virtual host goes everything in it.
Not here: who may enter (`permissions.py`), what a running node knows of them (`overview.py`).
"""

from __future__ import annotations

from typing import TypedDict

from amqpd.management.errors import AlreadyExists
from amqpd.management.metadata import Metadata, Plan, check_name, found_vhost
from amqpd.topology.plans import create_vhost, delete_vhost
from amqpd.topology.state import Topology


class VhostRow(TypedDict):
    """A virtual host as lists have it; `queues` counts the durable ones."""

    name: str
    description: str
    queues: int


async def listed(metadata: Metadata) -> list[VhostRow]:
    """All virtual hosts, by name."""
    topology = await metadata.read()
    return [
        {"name": name, "description": record.description, "queues": len(topology.vhosts[name].queues)}
        for name, record in sorted(topology.vhost_records.items())
    ]


async def add(metadata: Metadata, name: str, description: str = "") -> None:
    """Raises BadArgument, AlreadyExists."""
    check_name("virtual host", name)

    def plan(topology: Topology) -> Plan:
        if name in topology.vhost_records:
            raise AlreadyExists(f"there is a virtual host '{name}' already")
        return Plan(create_vhost(name, description))

    await metadata.change(plan)


async def delete(metadata: Metadata, name: str) -> None:
    """With its exchanges, its queues, their messages, and all permissions on it. Raises NotFound."""
    await metadata.change(lambda topology: Plan(delete_vhost(topology, found_vhost(topology, name).name)))
    await metadata.sweep()
