"""Permissions: what users may do in a virtual host, and which routing keys they may use on its topic exchanges.

What comes in: names and regular expressions. What goes out: changed metadata; rows.
Rules: 1. A pattern that the broker could not use is refused, with the reason. 2. Permissions are for users and
virtual hosts that exist.
Not here: what the patterns are held against, and when (`security/access.py`).
"""

from __future__ import annotations

from itertools import chain
from typing import TypedDict

from amqpd.management.errors import BadArgument, NotFound
from amqpd.management.metadata.interface import (
    ManagedMetadata,
    Plan,
    check_filter,
    check_value,
    found_user,
    found_vhost,
)
from amqpd.management.pacing import each, in_order
from amqpd.security.access import compile_pattern
from amqpd.topology.expressions import PatternError
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Delete, PermissionRecord, Put, TopicPermissionRecord


class PermissionRow(TypedDict):
    """The permissions of a user in a virtual host, as lists have them: regular expressions."""

    vhost: str
    user: str
    configure: str
    write: str
    read: str


class TopicPermissionRow(TypedDict):
    """The routing keys that a user may use on a topic exchange, as lists have them: regular expressions."""

    vhost: str
    user: str
    exchange: str
    write: str
    read: str


async def listed(metadata: ManagedMetadata, vhost: str | None = None, user: str | None = None) -> list[PermissionRow]:
    """By virtual host and user. Raises NotFound for a virtual host or a user that does not exist."""
    topology = await metadata.read()
    check_filter(topology, vhost, user)

    def row(record: PermissionRecord) -> PermissionRow | None:
        if vhost not in (None, record.vhost) or user not in (None, record.user):
            return None
        return {
            "vhost": record.vhost,
            "user": record.user,
            "configure": record.configure,
            "write": record.write,
            "read": record.read,
        }

    records = await in_order(list(topology.permissions.values()), _place)
    return await each(records, row)


async def put(metadata: ManagedMetadata, vhost: str, user: str, configure: str, write: str, read: str) -> None:
    """Instead of what the user might do before. Raises BadArgument, NotFound."""
    _check_patterns(configure=configure, write=write, read=read)

    def plan(topology: Topology) -> Plan:
        on, to = found_vhost(topology, vhost), found_user(topology, user)
        return Plan([Put(PermissionRecord(user, vhost, configure, write, read))], [on.key, to.key])

    await metadata.change(plan)


async def clear(metadata: ManagedMetadata, vhost: str, user: str) -> None:
    """The user cannot enter any more; topic permissions stay. Raises NotFound."""

    def plan(topology: Topology) -> Plan:
        if (vhost, user) not in topology.permissions:
            raise NotFound(f"user '{user}' has no permissions in virtual host '{vhost}'")
        return Plan([Delete(topology.permissions[vhost, user].key)])

    await metadata.change(plan)


async def listed_topics(
    metadata: ManagedMetadata, vhost: str | None = None, user: str | None = None
) -> list[TopicPermissionRow]:
    """By virtual host, user and exchange. Raises NotFound as `listed`."""
    topology = await metadata.read()
    check_filter(topology, vhost, user)

    def row(record: TopicPermissionRecord) -> TopicPermissionRow | None:
        if vhost not in (None, record.vhost) or user not in (None, record.user):
            return None
        return {
            "vhost": record.vhost,
            "user": record.user,
            "exchange": record.exchange,
            "write": record.write,
            "read": record.read,
        }

    held = await each(list(topology.topic_permissions.values()), lambda by_exchange: list(by_exchange.values()))
    records = await in_order(list(chain.from_iterable(held)), lambda record: (*_place(record), record.exchange))
    return await each(records, row)


async def put_topic(metadata: ManagedMetadata, vhost: str, user: str, exchange: str, write: str, read: str) -> None:
    """Which routing keys the user may write to and read from a topic exchange. Raises BadArgument, NotFound."""
    _check_patterns(write=write, read=read)
    if not exchange:
        raise BadArgument("topic permissions are for topic exchanges, the default exchange is none")
    check_value("exchange's name", exchange)

    def plan(topology: Topology) -> Plan:
        on, to = found_vhost(topology, vhost), found_user(topology, user)
        return Plan([Put(TopicPermissionRecord(user, vhost, exchange, write, read))], [on.key, to.key])

    await metadata.change(plan)


async def clear_topic(metadata: ManagedMetadata, vhost: str, user: str, exchange: str | None = None) -> None:
    """On one exchange, or on all. Raises NotFound."""

    def plan(topology: Topology) -> Plan:
        held = topology.topic_permissions.get((vhost, user), {})
        chosen = [record for name, record in held.items() if exchange in (None, name)]
        if not chosen:
            on = "" if exchange is None else f" on exchange '{exchange}'"
            raise NotFound(f"user '{user}' has no topic permissions{on} in virtual host '{vhost}'")
        return Plan([Delete(record.key) for record in chosen])

    await metadata.change(plan)


def _check_patterns(**patterns: str) -> None:
    for name, pattern in patterns.items():
        check_value(f"{name} pattern", pattern)
        try:
            compile_pattern(pattern)
        except PatternError as error:
            raise BadArgument(
                f"the {name} pattern '{pattern}' is not a regular expression that amqpd takes: {error}"
            ) from error


def _place(record: PermissionRecord | TopicPermissionRecord) -> tuple[str, str]:
    return record.vhost, record.user
