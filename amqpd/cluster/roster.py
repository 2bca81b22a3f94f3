"""What a process has heard of its cluster: members and their links, who is known, sources, desired sets.

What comes in: all that the store has, or what it told of one revision. What goes out: the records, and which of them
changed.
Rules: 1. It is what the store had at one revision, never a mixture. 2. Who was a member and lives no more is known,
and no member. 3. A record that cannot be read is none, and is named: its source has no leader that counts, and its
node is no member, until it can be read again. No other record is touched by that. 4. A member's record whose lease
ran out is kept beside: while the store was silent no lease could be renewed, and who has a link to it knows better.
Not here: the store (`directory.py`), what is done about a change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from amqpd.cluster.linkage import Linkage, linkage_of
from amqpd.cluster.records import (
    PREFIX,
    PREFIXES,
    ClusterRecord,
    DesiredSetRecord,
    ForgottenRecord,
    ForgottenStartRecord,
    KnownRecord,
    LinksRecord,
    MemberRecord,
    decode,
    key_of,
    name_of,
)
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import Event, PutKey, Snapshot, StoreDamaged

N = TypeVar("N", str, int)


@dataclass(frozen=True, slots=True)
class Changed:
    """The differences between two states of a roster: names of members that came, went or are another incarnation;
    names of which something else is known; sources; sources of which something else is desired; keys of records
    that cannot be read now, or could not before; names of members that say something else of their links; names of
    forgotten nodes that ask to be let in, or do no more."""

    members: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    sources: frozenset[int] = frozenset()
    desired_sets: frozenset[int] = frozenset()
    unreadable: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    forgotten_starts: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))


_TABLES: Mapping[type[ClusterRecord], str] = {
    MemberRecord: "members",
    KnownRecord: "known",
    SourceRecord: "records",
    DesiredSetRecord: "desired_sets",
    LinksRecord: "links",
    ForgottenRecord: "forgotten",
    ForgottenStartRecord: "forgotten_starts",
}
"""attributes of a roster"""
_TOLD = {"records": "sources"}
"""what `Changed` calls such an attribute, if otherwise; of disks that are forgotten it says nothing"""


class Roster:
    """The records of a cluster that one process has read: `members`, `known` and `links` by name, `records` and
    `desired_sets` by source. For readers; `load` and `apply` change it."""

    def __init__(self) -> None:
        self.revision = 0
        """of the store, that this is as of"""
        self.heard_revision = 0
        """of the last change that was applied"""
        self.members: dict[str, MemberRecord] = {}
        self.lapsed: dict[str, MemberRecord] = {}
        """by name, the last record of one that is no member now"""
        self.known: dict[str, KnownRecord] = {}
        self.links: dict[str, LinksRecord] = {}
        self.records: dict[int, SourceRecord] = {}
        self.desired_sets: dict[int, DesiredSetRecord] = {}
        self.forgotten: dict[str, ForgottenRecord] = {}
        """by name"""
        self.forgotten_starts: dict[str, ForgottenStartRecord] = {}
        """by name"""
        self.unreadable: dict[str, str] = {}
        """keys of records that cannot be read: the sentence that says why"""
        self.addresses: dict[str, tuple[str, int]] = {}
        """Where each one that is known was reached last: host and port. One whose lease ran out may live: links to it
        are not the store's to end. An address is of the node that came there last, and of no other."""

    def leader_of_source(self, source: int) -> str:
        """Empty: it has none, as far as that is known."""
        record = self.records.get(source)
        return record.leader.forwarder if record is not None else ""

    @property
    def linkage(self) -> Linkage:
        """Which of the members have links to enough of the others."""
        return linkage_of(self.members, self.links, self.records.values())

    @property
    def usable(self) -> dict[str, MemberRecord]:
        """Members that something may be placed on."""
        return self.linkage.usable(self.members)

    @property
    def gone(self) -> list[str]:
        """Nodes that are known and no members."""
        return sorted(self.known.keys() - self.members.keys())

    def with_linked(self, linked: Collection[str]) -> Roster:
        """As this one, with those among the members whose leases ran out and that are reached all the same. One that
        has ended in order, or is another incarnation, has lost its link for good and is none of them. `linked`: names
        of the nodes that are reached."""
        back = {
            name: record
            for name, record in self.lapsed.items()
            if name in linked and name in self.known and self.known[name].incarnation == record.incarnation
        }
        if not back:
            return self
        found = copy(self)
        found.members = {**self.members, **back}
        return found

    def load(self, snapshot: Snapshot) -> Changed:
        """As of now there is this, and nothing else."""
        found = Roster()
        for entry in snapshot.entries:
            if (record := found._read(entry.key, entry.value, entry.mod_revision)) is not None:
                found._take(record)
        tables = *_TABLES.values(), "unreadable"
        changed = Changed(
            **{
                _TOLD.get(each, each): _differing(getattr(self, each), getattr(found, each))
                for each in tables
                if each != "forgotten"
            }
        )
        taken = set(found.addresses.values())
        before = {
            name: address for name, address in self.addresses.items() if name in found.known and address not in taken
        }
        self.addresses = {**before, **found.addresses}
        self.revision = snapshot.revision
        before_it = {**self.lapsed, **self.members}
        self.lapsed = {
            name: record for name, record in before_it.items() if name in found.known and name not in found.members
        }
        for each in tables:
            setattr(self, each, getattr(found, each))
        return changed

    def apply(self, event: Event) -> Changed:
        """What this revision changed."""
        changed: dict[str, set[str | int]] = {}
        unreadable = dict(self.unreadable)
        for operation in event.operations:
            if not operation.key.startswith(PREFIX):
                continue
            before = self._of(operation.key)
            value = operation.value if isinstance(operation, PutKey) else None
            self.unreadable.pop(operation.key, None)
            record = self._read(operation.key, value, event.revision) if value is not None else None
            if record == before:
                continue
            if record is not None:
                self._take(record)
            elif before is not None:
                self._drop(before)
            now = record or before
            if now is not None and not isinstance(now, ForgottenRecord):
                table = _TABLES[type(now)]
                changed.setdefault(_TOLD.get(table, table), set()).add(name_of(now))
        self.revision = self.heard_revision = event.revision
        differing: dict[str, Any] = {each: frozenset(names) for each, names in changed.items()}
        return Changed(unreadable=_differing(unreadable, self.unreadable), **differing)

    def _read(self, key: str, value: str, revision: int) -> ClusterRecord | None:
        """None: it is none, or cannot be read and is named from now on."""
        try:
            return decode(key, value, revision)
        except StoreDamaged as error:
            self.unreadable[key] = str(error)
            return None

    def _table(self, kind: type[ClusterRecord]) -> dict[str | int, Any]:
        found: dict[str | int, Any] = getattr(self, _TABLES[kind])
        return found

    def _of(self, key: str) -> ClusterRecord | None:
        for kind, prefix in PREFIXES.items():
            name = key.removeprefix(prefix)
            if name != key:
                # A source's name is a number; what is no number is no source.
                is_number = kind in (SourceRecord, DesiredSetRecord) and name.isdecimal()
                found: ClusterRecord | None = self._table(kind).get(int(name) if is_number else name)
                return found if found is not None and key == key_of(found) else None
        return None

    def _take(self, record: ClusterRecord) -> None:
        self._table(type(record))[name_of(record)] = record
        if isinstance(record, MemberRecord):
            self.lapsed.pop(record.name, None)
            self._is_at(record.name, (record.host, record.port))

    def _is_at(self, name: str, address: tuple[str, int]) -> None:
        """Another node that was there is there no more: nobody looks for it at this node's door."""
        for other in [other for other, there in self.addresses.items() if there == address and other != name]:
            del self.addresses[other]
        self.addresses[name] = address

    def _drop(self, record: ClusterRecord) -> None:
        del self._table(type(record))[name_of(record)]
        if isinstance(record, MemberRecord):
            self.lapsed[record.name] = record
        elif isinstance(record, KnownRecord):
            self.lapsed.pop(record.name, None)
            if record.name not in self.members:
                self.addresses.pop(record.name, None)


def _differing(before: Mapping[N, object], after: Mapping[N, object]) -> frozenset[N]:
    return frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
