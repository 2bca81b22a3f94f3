"""What a definition file does not name, and what goes along when that is taken away.

What comes in: a topology, definitions. What goes out: the keys that go, and steps of changes.
Rules: 1. Only sections that the file has are pruned: a file of users says nothing about queues. 2. Only what is
durable goes; what is not belongs to running clients. 3. Names that begin with `amq.` stay, and so do exclusive
queues. 4. With a thing go the bindings at its ends; an auto-delete exchange that the file names stays. 5. Of
administrators the last ones stay, or no user could manage the broker any more.
Not here: what is added and changed (`difference.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amqpd.definitions.comparison import binding_identity
from amqpd.definitions.document import Definitions
from amqpd.topology.plans import delete_user, delete_vhost
from amqpd.topology.state import Topology, VhostTopology
from amqpd.vocabulary.records import (
    BindingRecord,
    Change,
    Delete,
    ExchangeRecord,
    Key,
    QueueRecord,
    Record,
    UserRecord,
)

ADMINISTRATOR = "administrator"

Removal = tuple[str, Record, tuple[Change, ...], str]
"""section, what goes, the changes, what goes along in words"""


class Pruning:
    """Finds what the file does not name: `removed` are the keys of what goes, `kept` says what stays and why."""

    def __init__(self, topology: Topology, wanted: Definitions) -> None:
        self._topology = topology
        self._wanted = wanted
        self.kept: list[str] = []
        """what stays though the file does not name it, one sentence each"""
        self._removals: list[Removal] = []
        self.removed: set[Key] = set()
        """the keys of everything that goes"""
        self._bindings = {binding_identity(record) for record in wanted.bindings()}
        self._prune()

    def removals(self) -> Iterator[Removal]:
        yield from self._removals

    def _prune(self) -> None:
        topology, wanted = self._topology, self._wanted
        if "vhosts" in wanted.named:
            for name, vhost in sorted(topology.vhost_records.items()):
                if vhost.key not in wanted.records["vhosts"]:
                    count = len(topology.vhosts[name].queues)
                    words = (
                        "with 1 queue and its messages" if count == 1 else f"with {count} queues and their messages"
                    )
                    self._remove("vhosts", vhost, delete_vhost(topology, name), words)
        if "users" in wanted.named:
            self._prune_users()
        self._prune_plain("permissions", topology.permissions.values())
        topic = (each for by_exchange in topology.topic_permissions.values() for each in by_exchange.values())
        self._prune_plain("topic_permissions", topic)
        self._prune_plain("global_parameters", topology.global_parameters.values())
        for name, vhost_topology in sorted(topology.vhosts.items()):
            if wanted.vhost in (None, name) and ("vhost", name) not in self.removed:
                self._prune_vhost(vhost_topology)

    def _prune_users(self) -> None:
        named = self._wanted.records["users"]
        leaving = [user for _, user in sorted(self._topology.users.items()) if user.key not in named]
        staying = any(isinstance(user, UserRecord) and ADMINISTRATOR in user.tags for user in named.values())
        for user in leaving:
            if not staying and ADMINISTRATOR in user.tags:
                self.kept.append(f"user '{user.name}' stays: the file names no administrator")
            else:
                self._remove("users", user, delete_user(self._topology, user.name))

    def _prune_vhost(self, vhost: VhostTopology) -> None:
        self._prune_plain("parameters", vhost.parameters.values())
        self._prune_plain("policies", vhost.policies.policies.values())
        self._prune_plain("operator_policies", vhost.policies.operator_policies.values())
        self._prune_ends("exchanges", vhost, [state.record for state in vhost.exchanges.values()])
        self._prune_ends("queues", vhost, list(vhost.queues.values()))
        self._prune_plain("bindings", (each for each in list(vhost.bindings()) if each.durable))

    def _prune_plain(self, section: str, known: Iterable[Record]) -> None:
        if section not in self._wanted.named:
            return
        for record in sorted(known, key=_key):
            if record.key in self.removed or self._is_named(section, record):
                continue
            self._remove(section, record, [Delete(record.key)])

    def _is_named(self, section: str, record: Record) -> bool:
        if isinstance(record, BindingRecord):
            # One with an end that is transient, or exclusive, is not in a file.
            return binding_identity(record) in self._bindings
        return record.key in self._wanted.records[section]

    def _prune_ends(self, section: str, vhost: VhostTopology, known: Iterable[ExchangeRecord | QueueRecord]) -> None:
        if section not in self._wanted.named:
            return
        for record in sorted(known, key=_key):
            if not record.durable or record.name.startswith("amq.") or self._is_named(section, record):
                continue
            bindings = self._bindings_of(vhost, record)
            count = len(bindings)
            words = f"with {count} binding{'' if count == 1 else 's'}" if count else ""
            if isinstance(record, QueueRecord):
                words = (words + " and " if words else "with ") + "its messages"
            self._remove(section, record, [*(Delete(each.key) for each in bindings), Delete(record.key)], words)

    def _bindings_of(self, vhost: VhostTopology, record: ExchangeRecord | QueueRecord) -> list[BindingRecord]:
        kind = "queue" if isinstance(record, QueueRecord) else "exchange"
        found = {each.key: each for each in vhost.bindings_to(kind, record.name)}
        if kind == "exchange":
            found |= {each.key: each for each in vhost.bindings_from(record.name)}
        return [found[key] for key in sorted(found) if key not in self.removed]

    def _remove(self, section: str, record: Record, changes: list[Change], words: str = "") -> None:
        self.removed |= {change.key for change in changes if isinstance(change, Delete)}
        self._removals.append((section, record, tuple(changes), words))


def _key(record: Record) -> Key:
    return record.key
