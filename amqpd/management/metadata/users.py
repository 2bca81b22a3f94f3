"""Users: who may log in.

What comes in: names, tags, passwords. What goes out: changed metadata; rows.
Rules: 1. Passwords are hashed here and never stored or shown. 2. None is a user without a password, which logs in
with a client certificate only; an empty password is a mistake.
Not here: what users may do (`permissions.py`), their limits (`limits.py`), how a log-in goes
(`security/authentication/`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TypedDict

import trio

from amqpd.management.errors import AlreadyExists, BadArgument
from amqpd.management.metadata.interface import ManagedMetadata, Plan, check_name, found_user
from amqpd.security.authentication.logins import PASSWORD_BYTES_MAX
from amqpd.security.authentication.passwords import hash_password, verify_password
from amqpd.security.rabbitmq_hashes import DEFAULT_ALGORITHM, SALT_BYTES, rabbitmq_hash
from amqpd.topology.plans import delete_user
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Put, UserRecord

TAGS = ("administrator", "monitoring", "policymaker", "management", "impersonator")
"""that mean something; a user may have any other, too"""
SHORT_MIN = 3

RABBITMQ_ALGORITHM = DEFAULT_ALGORITHM
"""for a password that RabbitMQ is to be able to check, too"""


class UserRow(TypedDict):
    """A user as lists have it."""

    name: str
    tags: list[str]
    password: bool
    """whether there is one"""


async def listed(metadata: ManagedMetadata) -> list[UserRow]:
    """All users, by name."""
    users = (await metadata.read()).users
    return [
        {"name": name, "tags": list(users[name].tags), "password": bool(users[name].password_hash)}
        for name in sorted(users)
    ]


async def check_new(metadata: ManagedMetadata, name: str, tags: Sequence[str] = ()) -> None:
    """What `add` refuses, without a password: so that nobody is asked for one in vain."""
    check_name("user", name)
    _checked_tags(tags)
    _refuse_existing(await metadata.read(), name)


async def add(
    metadata: ManagedMetadata,
    name: str,
    password: bytes | None,
    tags: Sequence[str] = (),
    algorithm: str | None = None,
) -> None:
    """`algorithm`: of RabbitMQ's, for the password. Raises BadArgument, AlreadyExists."""
    check_name("user", name)
    tags = _checked_tags(tags)
    password_hash = await _hashed(password, algorithm)

    def plan(topology: Topology) -> Plan:
        _refuse_existing(topology, name)
        return Plan([Put(UserRecord(name, password_hash, tags), create=True)])

    await metadata.change(plan)


async def check_known(metadata: ManagedMetadata, name: str) -> None:
    """Refuses a user that does not exist. Raises NotFound."""
    found_user(await metadata.read(), name)


async def set_password(
    metadata: ManagedMetadata, name: str, password: bytes | None, algorithm: str | None = None
) -> None:
    """Connections that are open stay open. `algorithm`: of RabbitMQ's. Raises BadArgument, NotFound."""
    password_hash = await _hashed(password, algorithm)
    await metadata.change(
        lambda topology: Plan([Put(replace(found_user(topology, name), password_hash=password_hash))])
    )


async def authenticated(metadata: ManagedMetadata, name: str, password: bytes) -> bool:
    """Whether the user is there and the password is its own."""
    user = (await metadata.read()).users.get(name)
    if user is None or len(password) > PASSWORD_BYTES_MAX:
        return False
    return await trio.to_thread.run_sync(verify_password, user.password_hash, password)


async def set_tags(metadata: ManagedMetadata, name: str, tags: Sequence[str]) -> tuple[str, ...]:
    """Instead of those that it has. The tags that it has now: each once. Raises BadArgument, NotFound."""
    wanted = _checked_tags(tags)
    await metadata.change(lambda topology: Plan([Put(replace(found_user(topology, name), tags=wanted))]))
    return wanted


async def put(
    metadata: ManagedMetadata,
    name: str,
    tags: Sequence[str],
    *,
    password: bytes | None = None,
    algorithm: str | None = None,
    stored: str | None = None,
) -> bool:
    """The user has these tags from now on, and this password, or what `stored_hash` makes of one's hash; with neither
    it has none, and logs in with a certificate only: as in RabbitMQ, what is put is all of it. `algorithm`: of
    RabbitMQ's, for the password. Whether the user is new. Raises BadArgument."""
    check_name("user", name)
    wanted = _checked_tags(tags)
    password_hash = stored if password is None else await _hashed(password, algorithm)
    new = False

    def plan(topology: Topology) -> Plan:
        nonlocal new
        before = topology.users.get(name)
        new = before is None
        if before is None:
            return Plan([Put(UserRecord(name, password_hash or "", wanted), create=True)])
        return Plan([Put(replace(before, password_hash=password_hash or "", tags=wanted))])

    await metadata.change(plan)
    return new


async def delete(metadata: ManagedMetadata, name: str) -> None:
    """The user and its permissions. Raises NotFound."""
    await metadata.change(lambda topology: Plan(delete_user(topology, found_user(topology, name).name)))
    await metadata.sweep()


def meant_tag(tag: str) -> str | None:
    """One that does something and that may be meant by this one, which does nothing."""
    if tag in TAGS:
        return None
    short = next((each for each in TAGS if len(tag) >= SHORT_MIN and each.startswith(tag.lower())), None)
    near = get_close_matches(tag.lower(), TAGS, 1)
    return short or (near[0] if near else None)


def _refuse_existing(topology: Topology, name: str) -> None:
    if name in topology.users:
        raise AlreadyExists(f"there is a user '{name}' already")


def _checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    for tag in tags:
        check_name("tag", tag)
        if "," in tag or tag != tag.strip():
            raise BadArgument(f"'{tag}' cannot be a tag: a tag has no commas, and no spaces at its ends")
    return tuple(dict.fromkeys(tags))


async def _hashed(password: bytes | None, algorithm: str | None = None) -> str:
    """To hash takes a tenth of a second of a processor, on purpose: a broker goes on meanwhile."""
    if password is None:
        return ""
    if not password:
        raise BadArgument("an empty password lets nobody in: for certificates only, say --no-password")
    if len(password) > PASSWORD_BYTES_MAX:
        raise BadArgument(f"the password is longer than {PASSWORD_BYTES_MAX} bytes")
    if algorithm is not None:
        try:
            return rabbitmq_hash(algorithm, password, secrets.token_bytes(SALT_BYTES))
        except ValueError as error:
            raise BadArgument(str(error)) from None
    return await trio.to_thread.run_sync(hash_password, password)
