"""The metadata as an operator's use cases read and change them: the same whether a broker runs on them or not.

What comes in: a plan, from the topology as it is to the changes. What goes out: the changes, committed, and applied
by the broker if one runs; or a `ManagementError`.
Rules: 1. A use case is a function of a `ManagedMetadata` and plain values: it knows nothing of files and sockets. 2.
A plan that was overtaken by somebody else's change is made again, so its errors are about what is really there. 3. A
plan changes nothing and reads nothing but the topology that it is given: it may be called several times.
Not here: the use cases (`users.py`, `vhosts.py`, `permissions.py`, `policies.py`, `parameters.py`, `limits.py`,
`definitions.py`), the metadata of a data directory (`stored.py`), those of a running node
(`live.py`).
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from amqpd.management.errors import BadArgument, NotFound
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Change, Key, Record, UserRecord, VhostRecord
from amqpd.wire.json_values import BadValue, check_kept

# AMQP 0-9-1 writes names as short strings (4.2.5.3); user names are held to the same.
NAME_BYTES_MAX = 255
# How often a plan is made again when somebody else changed the same things meanwhile: each round is a few
# milliseconds.
ROUNDS_MAX = 20
OVERTAKEN = "somebody else is changing the same things all the time: try again"


@dataclass(frozen=True)
class Plan:
    """The changes of a use case, and the keys that must (still) be there for them to make sense."""

    changes: Sequence[Change]
    requires: Iterable[Key] = field(default=())


Planner = Callable[[Topology], Plan]


class ManagedMetadata(ABC):
    """The metadata of a broker, as use cases read and change them. All methods raise `Unavailable` when the store
    cannot be used."""

    @abstractmethod
    async def read(self, *, whole: bool = False) -> Topology:
        """What exists: with `whole`, also what is not durable and lives in a running broker only; inside of that
        broker it always does. It is to be read only, and before the next await."""

    @abstractmethod
    async def change(self, plan: Planner, *, whole: bool = False) -> None:
        """Commit what the plan says, all or nothing up to some thousands of changes; a broker that runs has applied
        it when this returns. The plan is given what `read` returns, and changes what is durable. Raises what the plan
        raises, and Conflict when others change the same things all the time."""

    def asked_by(self, user: str, address: str) -> ManagedMetadata:
        """The metadata, whose changes are told as those of this user, who is there."""
        return self

    def aside(self) -> ManagedMetadata:
        """The same, for a plan that looks at very much: a broker reads and plans it beside its other work."""
        return self

    @abstractmethod
    async def sweep(self) -> None:
        """Delete what belongs to a virtual host or a user, or binds a queue or an exchange, that does not exist:
        after a deletion, what somebody declared, set or bound between our look and our commit."""

    @abstractmethod
    async def transients(self) -> list[Record] | None:
        """Exchanges, queues and bindings that live in the running broker only; None when none runs."""

    @abstractmethod
    async def change_transients(self, changes: Sequence[Change]) -> None:
        """Of such things only, some hundred at a time. Raises Unavailable when no broker runs, Conflict."""


def found_user(topology: Topology, name: str) -> UserRecord:
    """The record of a user that has to exist. Raises NotFound."""
    if name not in topology.users:
        raise NotFound(f"there is no user '{name}'")
    return topology.users[name]


def found_vhost(topology: Topology, name: str) -> VhostRecord:
    """The record of a virtual host that has to exist. Raises NotFound."""
    if name not in topology.vhost_records:
        raise NotFound(f"there is no virtual host '{name}'")
    return topology.vhost_records[name]


def check_filter(topology: Topology, vhost: str | None, user: str | None = None) -> None:
    """For lists that name one virtual host or user, or none. Raises NotFound."""
    if vhost is not None:
        found_vhost(topology, vhost)
    if user is not None:
        found_user(topology, user)


def check_name(kind: str, name: str) -> None:
    """Raises BadArgument for a name that no client could use."""
    if not name:
        raise BadArgument(f"a {kind} needs a name that is not empty")
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise BadArgument(f"the {kind}'s name is longer than {NAME_BYTES_MAX} bytes")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise BadArgument(f"the {kind}'s name has control characters, or is not UTF-8")


def check_value(kind: str, value: Any) -> None:
    """Of a text, or another value of JSON, that is kept. Raises BadArgument for what cannot be, or could not be
    written into a definition file again."""
    try:
        check_kept(value)
    except BadValue as error:
        raise BadArgument(f"the {kind} cannot be kept: {error}") from None
