"""Parameters, which components of the broker look up by name, and global parameters.

What comes in: names and values of JSON. What goes out: changed metadata; rows.
Rules: 1. What nothing would look at is refused. 2. A global parameter belongs to no virtual host and to no component.
Not here: the components (`topology/parameters.py`); policies and limits have modules of their own.
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
from amqpd.topology.parameters import ParameterInvalid, check_parameter
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Delete, ParameterRecord, Put


class ParameterRow(TypedDict):
    """A parameter; `value` is JSON."""

    vhost: str
    component: str
    name: str
    value: Any


class GlobalParameterRow(TypedDict):
    """A global parameter; `value` is JSON."""

    name: str
    value: Any


async def listed(metadata: ManagedMetadata, vhost: str | None = None) -> list[ParameterRow]:
    """By virtual host, component and name. Raises NotFound."""
    topology = await metadata.read()
    check_filter(topology, vhost)
    names = await in_order(list(topology.vhosts), str) if vhost is None else [vhost]

    def rows(at: str) -> list[ParameterRow] | None:
        held = topology.vhosts.get(at)
        if held is None:
            return None
        return [
            {"vhost": at, "component": record.component, "name": record.name, "value": record.value}
            for _, record in sorted(held.parameters.items())
        ]

    return list(chain.from_iterable(await each(names, rows)))


async def put(metadata: ManagedMetadata, vhost: str, component: str, name: str, value: Any) -> None:
    """Sets a runtime parameter of a virtual host. Raises BadArgument, NotFound."""
    check_name("parameter", name)
    check_value("value", value)
    record = ParameterRecord(vhost, component, name, value)

    def plan(topology: Topology) -> Plan:
        on = found_vhost(topology, vhost)
        try:
            check_parameter(record)
        except ParameterInvalid as error:
            raise BadArgument(f"the parameter is not valid: {error}") from error
        return Plan([Put(record)], [on.key])

    await metadata.change(plan)


async def clear(metadata: ManagedMetadata, vhost: str, component: str, name: str) -> None:
    """Removes a runtime parameter of a virtual host. Raises NotFound."""

    def plan(topology: Topology) -> Plan:
        found_vhost(topology, vhost)
        found = topology.vhosts[vhost].parameters.get((component, name))
        if found is None:
            raise NotFound(f"there is no parameter '{name}' of {component} in virtual host '{vhost}'")
        return Plan([Delete(found.key)])

    await metadata.change(plan)


async def listed_global(metadata: ManagedMetadata) -> list[GlobalParameterRow]:
    """The global parameters, sorted by name."""
    found = sorted((await metadata.read()).global_parameters.items())
    return [{"name": record.name, "value": record.value} for _, record in found]


async def put_global(metadata: ManagedMetadata, name: str, value: Any) -> None:
    """Sets a global parameter. Raises BadArgument."""
    check_name("parameter", name)
    check_value("value", value)
    record = ParameterRecord("", "", name, value)
    await metadata.change(lambda _: Plan([Put(record)]))


async def clear_global(metadata: ManagedMetadata, name: str) -> None:
    """Removes a global parameter. Raises NotFound."""

    def plan(topology: Topology) -> Plan:
        found = topology.global_parameters.get(("", name))
        if found is None:
            raise NotFound(f"there is no global parameter '{name}'")
        return Plan([Delete(found.key)])

    await metadata.change(plan)
