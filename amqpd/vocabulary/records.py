"""What exists in the broker, as plain values: one frozen record per thing.

What comes in: nothing. What goes out: the record classes and the two kinds of change.
Rules: 1. records are immutable and hold names, never live objects; 2. `key` is unique over all records;
3. `durable` says whether the metadata store keeps the record over a restart.
Not here: the in-memory value made of them (`topology/state.py`), how they are stored (`topology/metadata/store.py`,
`topology/metadata/codec.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Key = tuple[str, ...]
Arguments = Mapping[str, Any]
JsonValue = Any
"""What JSON can say: null, booleans, numbers, text, lists and objects of these."""
DestinationType = Literal["queue", "exchange"]


@dataclass(frozen=True, slots=True)
class VhostRecord:
    """A virtual host. `metadata` is what RabbitMQ keeps beside the description: tags, default_queue_type,
    protected_from_deletion."""

    name: str
    description: str = ""
    durable: bool = True
    metadata: Arguments = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return ("vhost", self.name)


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user. `password_hash` is an encoded argon2 hash, or one that came from RabbitMQ
    (`security/rabbitmq_hashes.py`), or empty: no password is accepted (EXTERNAL only). `limits` are the user's, by
    RabbitMQ's names and ours (`amqpd/topology/limit_keys.py`)."""

    name: str
    password_hash: str = ""
    tags: tuple[str, ...] = ()
    durable: bool = True
    limits: Arguments = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return ("user", self.name)


@dataclass(frozen=True, slots=True)
class PermissionRecord:
    """The permissions of a user in a virtual host: three regular expressions; an empty one matches only the empty
    name (RabbitMQ's access control)."""

    user: str
    vhost: str
    configure: str = ""
    write: str = ""
    read: str = ""
    durable: bool = True

    @property
    def key(self) -> Key:
        return ("permission", self.vhost, self.user)


@dataclass(frozen=True, slots=True)
class TopicPermissionRecord:
    """The routing keys that a user may use on one topic exchange: two regular expressions."""

    user: str
    vhost: str
    exchange: str
    write: str = ""
    read: str = ""
    durable: bool = True

    @property
    def key(self) -> Key:
        return ("topic-permission", self.vhost, self.user, self.exchange)


@dataclass(frozen=True, slots=True)
class ExchangeRecord:
    """An exchange; `internal` ones take messages from other exchanges only."""

    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return ("exchange", self.vhost, self.name)


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A queue, with its incarnation, its source and the connection that it belongs to, if it is exclusive.

    `id` is the incarnation of the queue: a random 63-bit number, never used again. The journal's rows carry it, so
    that the messages of a deleted queue cannot come back in a new one of the same name. `source` is the cluster's
    numbered log that its messages are in; 0: a node's own log, the one of `node`. `node` is the name of that node
    where nodes share their metadata; it is empty in a store that one node has for itself, and in a shared one until
    a node has claimed the queue (`topology/metadata/claiming.py`). `owner` is the id of the connection (of `node`)
    that an exclusive queue belongs to; others have None."""

    vhost: str
    name: str
    id: int
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    owner: str | None = None
    arguments: Arguments = field(default_factory=dict)
    source: int = 0
    node: str = ""

    @property
    def key(self) -> Key:
        return ("queue", self.vhost, self.name)


@dataclass(frozen=True, slots=True)
class UnreadableQueue(QueueRecord):
    """A stand-in for the record of a queue that the store has and nobody can read. It is never stored."""

    reason: str = ""
    """the sentence for an operator"""


@dataclass(frozen=True, slots=True)
class BindingRecord:
    """A binding of a queue or an exchange to an exchange. `durable` is true when both ends are durable.
    `arguments_key` is the canonical text of the arguments: two bindings that differ only in arguments are two
    bindings (AMQP 0-9-1, queue.bind)."""

    vhost: str
    source: str
    destination: str
    destination_type: DestinationType
    routing_key: str
    durable: bool = True
    arguments: Arguments = field(default_factory=dict)
    arguments_key: str = ""

    @property
    def key(self) -> Key:
        return (
            "binding",
            self.vhost,
            self.source,
            self.destination_type,
            self.destination,
            self.routing_key,
            self.arguments_key,
        )


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """A policy, or with `operator` an operator policy: what exchanges and queues with names like `pattern` are to
    have. `apply_to` is one of `policies.APPLY_TO`; a higher `priority` goes before a lower one."""

    vhost: str
    name: str
    pattern: str
    apply_to: str
    definition: Arguments
    priority: int = 0
    operator: bool = False
    durable: bool = True

    @property
    def key(self) -> Key:
        return ("operator-policy" if self.operator else "policy", self.vhost, self.name)


@dataclass(frozen=True, slots=True)
class ParameterRecord:
    """A runtime parameter: a value that a component looks up by name. Global ones have the virtual host '' (no
    virtual host is named so) and the component ''."""

    vhost: str
    component: str
    name: str
    value: JsonValue
    durable: bool = True

    @property
    def key(self) -> Key:
        return ("parameter", self.vhost, self.component, self.name)


Record = (
    VhostRecord
    | UserRecord
    | PermissionRecord
    | TopicPermissionRecord
    | PolicyRecord
    | ParameterRecord
    | ExchangeRecord
    | QueueRecord
    | BindingRecord
)


@dataclass(frozen=True, slots=True)
class Put:
    """A change that creates the record, or replaces the one of the same key. With `create`, the whole transaction
    is refused when the key exists."""

    record: Record
    create: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """A change that removes the record of this key; no error when it is absent."""

    key: Key


Change = Put | Delete
