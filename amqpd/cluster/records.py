"""What the metadata store has of a cluster: its members, who was one, the sources, and what is wished of these.

What comes in: records. What goes out: keys and JSON text, and records from these.
Rules: 1. A member's record is held by a lease: it says that the process lives. What is known of a member by its name,
and the sources, are durable. 2. A field that is not known here is left alone: neighbouring versions read each other's
records. 3. What cannot be read otherwise is damage, and raises.
Not here: reading and writing them (`directory.py`), the records of the topology (`topology/metadata/codec.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from amqpd.replication.seal import Seal
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import StoreDamaged

PREFIX = "cluster/"
_MEMBER, _KNOWN, _SOURCE = f"{PREFIX}member/", f"{PREFIX}known/", f"{PREFIX}source/"
_WISH = f"{PREFIX}wish/"
# Sources are numbered from 1; how many there are is fixed, so that a forwarder knows them without the store.
SOURCES = 256
# Lives, generations and epochs are columns of SQLite's type INTEGER, too.
NUMBER_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A forwarder that lives, where others reach it, and what placement goes by. (The record of a source is
    `amqpd.replication.take_over.SourceRecord`.)"""

    name: str
    life: int
    """of its process: it grows with each start on the same disk"""
    generation: int
    """of its disk: another one has none of what this one acknowledged"""
    host: str
    port: int
    cluster: str = ""
    """failure domain: a rack, a zone. Empty: it is one of its own"""
    region: str = ""
    version: str = ""
    """of amqpd"""

    @property
    def domain(self) -> tuple[str, str]:
        """What fails together has the same one. A label means another rack, or zone, in another region."""
        return (self.cluster, self.region) if self.cluster else ("", self.name)


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """Who a member was last, whether it lives or not. A life that is not above this one, or another generation, is
    not the disk that acknowledged what this member acknowledged."""

    name: str
    life: int
    generation: int


@dataclass(frozen=True, slots=True)
class WishRecord:
    """What an operator wants of a source. Its home, whichever that is at the time, carries it out and deletes it."""

    source: int
    members: tuple[str, ...] = ()
    """the set that it is to have; empty: the one that it has"""
    home: str = ""
    """which of them is to be the home; empty: any"""
    reason: str = ""
    """why it cannot go on now, by the home"""
    revision: int = 0
    """of the store, that it was read at"""


ClusterRecord = MemberRecord | KnownRecord | SourceRecord | WishRecord
OfSource = SourceRecord | WishRecord


def member_key(name: str) -> str:
    return _MEMBER + name


def known_key(name: str) -> str:
    return _KNOWN + name


def source_key(source: int) -> str:
    return f"{_SOURCE}{source}"


def wish_key(source: int) -> str:
    return f"{_WISH}{source}"


def key_of(record: ClusterRecord) -> str:
    match record:
        case MemberRecord():
            return member_key(record.name)
        case KnownRecord():
            return known_key(record.name)
        case SourceRecord():
            return source_key(record.source)
        case WishRecord():
            return wish_key(record.source)


def encode(record: ClusterRecord) -> str:
    """The value. A revision is the store's, and not in it."""
    fields: dict[str, Any]
    match record:
        case MemberRecord():
            fields = {
                name: getattr(record, name)
                for name in ("life", "generation", "host", "port", "cluster", "region", "version")
            }
        case KnownRecord():
            fields = {"life": record.life, "generation": record.generation}
        case SourceRecord():
            pairs = zip(record.members, record.generations, strict=True)
            fields = {
                "home": record.home._asdict(),
                "members": [{"name": name, "generation": generation} for name, generation in pairs],
            }
            if record.given_up:
                fields["given_up"] = record.given_up
        case WishRecord():
            fields = {"members": list(record.members), "home": record.home, "reason": record.reason}
    return json.dumps(fields, separators=(",", ":"))


def decode(key: str, text: str, revision: int) -> ClusterRecord | None:
    """None for a key of another kind. `revision`: of the store, at which it was put. Raises StoreDamaged."""
    try:
        for prefix, read in _READERS.items():
            if key.startswith(prefix):
                return read(key.removeprefix(prefix), json.loads(text), revision)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreDamaged(f"the metadata's record {key} cannot be read ({error!r})") from error
    return None


def _member(name: str, fields: Mapping[str, Any], _: int) -> MemberRecord:
    port = _number(fields, "port")
    if port > 65535:
        raise ValueError(f"port is {port}")
    return MemberRecord(
        name,
        _number(fields, "life"),
        _number(fields, "generation"),
        _text(fields, "host"),
        port,
        _text(fields, "cluster"),
        _text(fields, "region"),
        _text(fields, "version"),
    )


def _known(name: str, fields: Mapping[str, Any], _: int) -> KnownRecord:
    return KnownRecord(name, _number(fields, "life"), _number(fields, "generation"))


def _source(name: str, fields: Mapping[str, Any], revision: int) -> SourceRecord:
    home, members = fields["home"], fields["members"]
    seal = Seal(_number(home, "epoch"), _text(home, "forwarder"), _number(home, "life"))
    names = tuple(_text(each, "name") for each in members)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"its members are {names}")
    generations = tuple(_number(each, "generation") for each in members)
    given_up = _number(fields, "given_up") if "given_up" in fields else 0
    return SourceRecord(_source_number(name), seal, names, generations, revision, given_up)


def _wish(name: str, fields: Mapping[str, Any], revision: int) -> WishRecord:
    members = fields["members"]
    if (
        type(members) is not list
        or any(type(each) is not str for each in members)
        or len(set(members)) < len(members)
    ):
        raise ValueError(f"its members are {members!r}")
    home, reason = _text(fields, "home"), _text(fields, "reason")
    return WishRecord(_source_number(name), tuple(members), home, reason, revision)


def _source_number(name: str) -> int:
    source = int(name)
    if str(source) != name or not 0 < source <= SOURCES:
        raise ValueError(f"it is of source {name}")
    return source


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{name} is {value!r}")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if type(value) is not str:
        raise ValueError(f"{name} is {value!r}")
    return value


_READERS: dict[str, Callable[[str, Mapping[str, Any], int], ClusterRecord]] = {
    _MEMBER: _member,
    _KNOWN: _known,
    _SOURCE: _source,
    _WISH: _wish,
}
