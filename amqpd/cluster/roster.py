"""What a process has heard of its cluster: members, who is known, sources, wishes.

What comes in: all that the store has, or what it told of one revision. What goes out: the records, and which of them
changed.
Rules: 1. It is what the store had at one revision, never a mixture. 2. Who was a member and lives no more is known,
and no member.
Not here: the store (`directory.py`), what is done about a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from amqpd.cluster.records import PREFIX, ClusterRecord, KnownRecord, MemberRecord, WishRecord, decode, key_of
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import Event, PutKey, Snapshot

N = TypeVar("N", str, int)


@dataclass(frozen=True, slots=True)
class Changed:
    """Names of members that came, went or are another life; names of which something else is known; sources; sources
    of which something else is wished."""

    members: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    sources: frozenset[int] = frozenset()
    wishes: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.members or self.known or self.sources or self.wishes)


class Roster:
    """`members` and `known` by name, `records` and `wishes` by source. For readers; `load` and `apply` change it."""

    def __init__(self) -> None:
        self.revision = 0
        """of the store, that this is as of"""
        self.members: dict[str, MemberRecord] = {}
        self.known: dict[str, KnownRecord] = {}
        self.records: dict[int, SourceRecord] = {}
        self.wishes: dict[int, WishRecord] = {}
        self.addresses: dict[str, tuple[str, int]] = {}
        """Where each one that is known was reached last: host and port. One whose lease ran out may live: links to it
        are not the store's to end."""

    def home_of(self, source: int) -> str:
        """Empty: it has none, as far as that is known."""
        record = self.records.get(source)
        return record.home.forwarder if record is not None else ""

    def load(self, snapshot: Snapshot) -> Changed:
        """As of now there is this, and nothing else. Raises StoreDamaged, and is as it was then."""
        found = Roster()
        for entry in snapshot.entries:
            if (record := decode(entry.key, entry.value, entry.mod_revision)) is not None:
                found._take(record)
        changed = Changed(
            _differing(self.members, found.members),
            _differing(self.known, found.known),
            _differing(self.records, found.records),
            _differing(self.wishes, found.wishes),
        )
        before = {name: address for name, address in self.addresses.items() if name in found.known}
        self.addresses = {**before, **found.addresses}
        self.revision = snapshot.revision
        self.members, self.known, self.records = found.members, found.known, found.records
        self.wishes = found.wishes
        return changed

    def apply(self, event: Event) -> Changed:
        """Raises StoreDamaged."""
        members: set[str] = set()
        known: set[str] = set()
        sources: set[int] = set()
        wishes: set[int] = set()
        for operation in event.operations:
            if not operation.key.startswith(PREFIX):
                continue
            before = self._of(operation.key)
            value = operation.value if isinstance(operation, PutKey) else None
            record = decode(operation.key, value, event.revision) if value is not None else None
            if record == before:
                continue
            if record is not None:
                self._take(record)
            elif before is not None:
                self._drop(before)
            match record or before:
                case SourceRecord(source=source):
                    sources.add(source)
                case WishRecord(source=source):
                    wishes.add(source)
                case KnownRecord(name=name):
                    known.add(name)
                case MemberRecord(name=name):
                    members.add(name)
        self.revision = event.revision
        return Changed(frozenset(members), frozenset(known), frozenset(sources), frozenset(wishes))

    def _of(self, key: str) -> ClusterRecord | None:
        kind, _, name = key.removeprefix(PREFIX).partition("/")
        if kind in ("source", "wish"):
            # Its name is a number; what is no number is no source.
            of: Mapping[int, ClusterRecord] = self.records if kind == "source" else self.wishes
            found = of.get(int(name)) if name.isdecimal() else None
            return found if found is not None and key == key_of(found) else None
        return self.members.get(name) if kind == "member" else self.known.get(name) if kind == "known" else None

    def _take(self, record: ClusterRecord) -> None:
        match record:
            case MemberRecord():
                self.members[record.name] = record
                self.addresses[record.name] = record.host, record.port
            case KnownRecord():
                self.known[record.name] = record
            case SourceRecord():
                self.records[record.source] = record
            case WishRecord():
                self.wishes[record.source] = record

    def _drop(self, record: ClusterRecord) -> None:
        match record:
            case MemberRecord():
                del self.members[record.name]
            case KnownRecord():
                del self.known[record.name]
                if record.name not in self.members:
                    self.addresses.pop(record.name, None)
            case SourceRecord():
                del self.records[record.source]
            case WishRecord():
                del self.wishes[record.source]


def _differing(before: Mapping[N, object], after: Mapping[N, object]) -> frozenset[N]:
    return frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
