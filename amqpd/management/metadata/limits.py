"""Limits: how much users and virtual hosts may have, and how fast they may publish.

What comes in: whose limits, and numbers by RabbitMQ's names or ours. What goes out: changed metadata; rows.
Rules: 1. What is not mentioned stays as it was. 2. -1 is no limit.
Not here: what happens at a limit (`amqpd/flow/`), the names and what they may be (`topology/limit_keys.py`), the
limits of the whole node (`amqpd/config.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypedDict

from amqpd.management.errors import BadArgument
from amqpd.management.metadata.interface import ManagedMetadata, Plan, found_user, found_vhost
from amqpd.management.pacing import each, in_order
from amqpd.topology.limit_keys import KEYS, LIMITS, VHOST_LIMITS, LimitInvalid, Owner, check_limits, limits_of
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Change, Delete, ParameterRecord, Put

WORDS: Mapping[Owner, str] = {"vhost": "virtual host", "user": "user"}


class LimitRow(TypedDict):
    """A limit that is set."""

    of: Owner
    name: str
    limit: str
    value: Any


async def listed(metadata: ManagedMetadata, vhost: str | None = None, user: str | None = None) -> list[LimitRow]:
    """Of the virtual host, of the user, of both; without either, of all. Raises NotFound."""
    topology = await metadata.read()
    everybody = vhost is None and user is None
    names: list[tuple[Owner, str]] = []
    if everybody or vhost is not None:
        known = await in_order(list(topology.vhosts), str) if vhost is None else [vhost]
        names += [("vhost", name) for name in known]
    if everybody or user is not None:
        known = await in_order(list(topology.users), str) if user is None else [user]
        names += [("user", name) for name in known]
    if not everybody:
        for owner, name in names:
            _found(topology, owner, name)

    def rows(of: tuple[Owner, str]) -> list[LimitRow] | None:
        owner, name = of
        if name not in (topology.users if owner == "user" else topology.vhosts):
            return None
        limits = sorted(limits_of(topology, owner, name).items())
        return [{"of": owner, "name": name, "limit": key, "value": value} for key, value in limits]

    return list(chain.from_iterable(await each(names, rows)))


async def put(metadata: ManagedMetadata, owner: Owner, name: str, given: Mapping[str, Any]) -> None:
    """Sets a limit. Raises BadArgument, NotFound."""

    def plan(topology: Topology) -> Plan:
        _found(topology, owner, name)
        changed = {**limits_of(topology, owner, name), **given}
        try:
            check_limits(owner, changed)
        except LimitInvalid as error:
            raise BadArgument(str(error)) from error
        return _stored(topology, owner, name, changed)

    await metadata.change(plan)


async def clear(metadata: ManagedMetadata, owner: Owner, name: str, keys: Collection[str] = ()) -> None:
    """Those that are named, or all. Raises BadArgument for a name of no limit, NotFound."""
    unknown = [key for key in keys if key not in KEYS[owner]]
    if unknown:
        raise BadArgument(f"'{unknown[0]}' is no limit of a {WORDS[owner]}; there are {', '.join(KEYS[owner])}")

    def plan(topology: Topology) -> Plan:
        _found(topology, owner, name)
        left = {key: value for key, value in limits_of(topology, owner, name).items() if keys and key not in keys}
        return _stored(topology, owner, name, left)

    await metadata.change(plan)


def _found(topology: Topology, owner: Owner, name: str) -> None:
    if owner == "user":
        found_user(topology, name)
    else:
        found_vhost(topology, name)


def _stored(topology: Topology, owner: Owner, name: str, changed: Mapping[str, Any]) -> Plan:
    if owner == "user":
        user = topology.users[name]
        return Plan([Put(replace(user, limits=dict(changed)))], [user.key])
    parameter = ParameterRecord(name, VHOST_LIMITS, LIMITS, dict(changed))
    written: Change = Put(parameter) if changed else Delete(parameter.key)
    return Plan([written], [topology.vhost_records[name].key])
