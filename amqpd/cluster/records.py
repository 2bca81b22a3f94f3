"""What the metadata store has of a cluster: its members and links that they lack, who was one, the sources, what is
asked of these, and which disks were taken out for good.

What comes in: records. What goes out: keys and JSON text, and records from these.
Rules: 1. A member's records are held by a lease: the first one says that the process lives. What is known of a member
by its name, and the sources, are durable. 2. A field that is not known here is left alone: neighbouring versions read
each other's records. 3. What cannot be read otherwise is damage, and raises; so does a number from which nobody could
go on.
Not here: reading and writing them (`directory.py`), the records of the topology (`topology/metadata/codec.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from amqpd.peers.entry import EPOCH_MAX, Vote
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import StoreDamaged, unreadable_because

PREFIX = "cluster/"
# Sources are numbered from 1; how many there are is fixed, so that a forwarder knows them without the store.
SOURCES = 256
# Generations are columns of SQLite's type INTEGER.
NUMBER_MAX = (1 << 63) - 1
# An incarnation grows by one with each start of a process, also one that fails later: one each second uses them up in
# nine million years. What is above that is not counted on from: its successors would be numbers that no column takes.
INCARNATION_MAX = EPOCH_MAX
# Far more than an etcd of five nodes, or a set of members, ever has; names are node names and host names.
MEMBERS_MAX, TEXT_MAX = 64, 255
REASON_MAX = 4_096
# Disks of one name that were taken out of the cluster for good: the last ones.
FORGOTTEN_MAX = 64
# What a sentence quotes of a value that cannot be read.
QUOTED_MAX = 80


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A forwarder that lives, where others reach it, and what placement goes by. (The record of a source is
    `amqpd.replication.take_over.SourceRecord`.)"""

    name: str
    incarnation: int
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
    nonce: int = 0
    """which claim it was put by (`claims.py`), so that a process knows its own record; 0: by a version without"""

    @property
    def domain(self) -> tuple[str, str]:
        """What fails together has the same one. A label means another rack, or zone, in another region."""
        return (self.cluster, self.region) if self.cluster else ("", self.name)


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """The last incarnation of a member, whether it lives or not. An incarnation that is not above this one, or
    another generation, is not the disk that acknowledged what this member acknowledged."""

    name: str
    incarnation: int
    generation: int
    nonce: int = 0
    """see `MemberRecord`"""


class MissingLink(NamedTuple):
    """A link to a living member that a node has lacked for longer than links come and go."""

    peer: str
    kind: str
    """what is in the way (`peers/links/troubles.py`); a later version may know more kinds"""
    reason: str
    """for people, without a full stop"""


@dataclass(frozen=True, slots=True)
class LinksRecord:
    """The links that one member says it lacks. A member that lacks none has no such record, and one of a version
    that says nothing of its links has none either."""

    name: str
    incarnation: int
    """of its process: what an earlier one said counts no more"""
    missing: tuple[MissingLink, ...] = ()


@dataclass(frozen=True, slots=True)
class ForgottenRecord:
    """The disks of one name that an operator has taken out of the cluster for good. They do not come back by
    themselves; another disk of that name is a new member."""

    name: str
    generations: tuple[int, ...]
    """the last one at the end"""

    def with_one(self, generation: int) -> ForgottenRecord:
        others = [each for each in self.generations if each != generation]
        return ForgottenRecord(self.name, (*others, generation)[-FORGOTTEN_MAX:])


@dataclass(frozen=True, slots=True)
class ForgottenStartRecord:
    """A disk that was forgotten was started and is refused: the other nodes say so. It counts for some time after
    the last start (`forgotten_starts.py`)."""

    name: str
    host: str
    port: int
    since_ms: int
    """when it was started first, since the epoch, by its own clock"""
    last_ms: int
    starts: int
    """how often, within that time"""


@dataclass(frozen=True, slots=True)
class DesiredSetRecord:
    """The members and the leader that an operator desires for a source. The leader of the source, whichever node
    that is at the time, carries it out and deletes the record."""

    source: int
    members: tuple[str, ...] = ()
    """the set that it is to have; empty: the one that it has"""
    leader: str = ""
    """which of them is to be the leader; empty: any"""
    reason: str = ""
    """why it cannot go on now, by the leader"""
    revision: int = 0
    """of the store, that it was read at"""


ClusterRecord = (
    MemberRecord
    | KnownRecord
    | LinksRecord
    | SourceRecord
    | DesiredSetRecord
    | ForgottenRecord
    | ForgottenStartRecord
)
OfSource = SourceRecord | DesiredSetRecord


PREFIXES: Mapping[type[ClusterRecord], str] = {
    MemberRecord: f"{PREFIX}member/",
    KnownRecord: f"{PREFIX}known/",
    SourceRecord: f"{PREFIX}source/",
    DesiredSetRecord: f"{PREFIX}desired_set/",
    LinksRecord: f"{PREFIX}links/",
    ForgottenRecord: f"{PREFIX}forgotten/",
    ForgottenStartRecord: f"{PREFIX}asking/",
}


def member_key(name: str) -> str:
    return PREFIXES[MemberRecord] + name


def known_key(name: str) -> str:
    return PREFIXES[KnownRecord] + name


def forgotten_key(name: str) -> str:
    return PREFIXES[ForgottenRecord] + name


def forgotten_start_key(name: str) -> str:
    return PREFIXES[ForgottenStartRecord] + name


def links_key(name: str) -> str:
    return PREFIXES[LinksRecord] + name


def source_key(source: int) -> str:
    return f"{PREFIXES[SourceRecord]}{source}"


def desired_set_key(source: int) -> str:
    return f"{PREFIXES[DesiredSetRecord]}{source}"


def name_of(record: ClusterRecord) -> str | int:
    """Of the node or the source that it is of, as its key ends."""
    return record.source if isinstance(record, OfSource) else record.name


def key_of(record: ClusterRecord) -> str:
    return f"{PREFIXES[type(record)]}{name_of(record)}"


def encode(record: ClusterRecord) -> str:
    """The value. A revision is the store's, and not in it."""
    fields: dict[str, Any]
    match record:
        case MemberRecord():
            fields = {
                name: getattr(record, name)
                for name in ("incarnation", "generation", "host", "port", "cluster", "region", "version")
            }
            _put_nonce(fields, record.nonce)
        case KnownRecord():
            fields = {"incarnation": record.incarnation, "generation": record.generation}
            _put_nonce(fields, record.nonce)
        case LinksRecord():
            fields = {"incarnation": record.incarnation, "missing": [each._asdict() for each in record.missing]}
        case SourceRecord():
            pairs = zip(record.members, record.generations, strict=True)
            fields = {
                "leader": record.leader._asdict(),
                "members": [{"name": name, "generation": generation} for name, generation in pairs],
            }
            if record.given_up:
                fields["given_up"] = record.given_up
        case DesiredSetRecord():
            fields = {"members": list(record.members), "leader": record.leader, "reason": record.reason}
        case ForgottenRecord():
            fields = {"generations": list(record.generations)}
        case ForgottenStartRecord():
            fields = {name: getattr(record, name) for name in ("host", "port", "since_ms", "last_ms")}
            fields["asks"] = record.starts
    return json.dumps(fields, separators=(",", ":"))


def decode(key: str, text: str, revision: int) -> ClusterRecord | None:
    """None for a key of another kind. `revision`: of the store, at which it was put. Raises StoreDamaged."""
    try:
        for kind, prefix in PREFIXES.items():
            if key.startswith(prefix):
                return _READERS[kind](_name(key.removeprefix(prefix)), json.loads(text), revision)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = _shortened(unreadable_because(error))
        raise StoreDamaged(f"the metadata's record {key} cannot be read ({said})") from error
    return None


def source_of_key(key: str) -> int:
    """The source whose record has this key; 0: it is another key."""
    try:
        prefix = PREFIXES[SourceRecord]
        return _source_number(key.removeprefix(prefix)) if key.startswith(prefix) else 0
    except ValueError:
        return 0


def _member(name: str, fields: Mapping[str, Any], _: int) -> MemberRecord:
    port = _number(fields, "port", 65535)
    return MemberRecord(
        name,
        _number(fields, "incarnation", INCARNATION_MAX),
        _number(fields, "generation"),
        _text(fields, "host"),
        port,
        _text(fields, "cluster"),
        _text(fields, "region"),
        _text(fields, "version"),
        _nonce(fields),
    )


def _known(name: str, fields: Mapping[str, Any], _: int) -> KnownRecord:
    generation = _number(fields, "generation")
    return KnownRecord(name, _number(fields, "incarnation", INCARNATION_MAX), generation, _nonce(fields))


def _links(name: str, fields: Mapping[str, Any], _: int) -> LinksRecord:
    found = fields["missing"]
    if type(found) is not list or len(found) > MEMBERS_MAX:
        raise ValueError(f"its missing links are {found!r}")
    missing = tuple(
        MissingLink(_name(_text(each, "peer")), _text(each, "kind"), _text(each, "reason", REASON_MAX))
        for each in found
    )
    return LinksRecord(name, _number(fields, "incarnation", INCARNATION_MAX), missing)


def _source(name: str, fields: Mapping[str, Any], revision: int) -> SourceRecord:
    leader, members = fields["leader"], fields["members"]
    vote = Vote(
        _number(leader, "epoch", EPOCH_MAX),
        _text(leader, "forwarder"),
        _number(leader, "incarnation", INCARNATION_MAX),
    )
    names = _members(members, [_text(each, "name") for each in members])
    if not names:
        raise ValueError("it has no members")
    generations = tuple(_number(each, "generation") for each in members)
    given_up = _number(fields, "given_up", EPOCH_MAX) if "given_up" in fields else 0
    return SourceRecord(_source_number(name), vote, names, generations, revision, given_up)


def _desired_set(name: str, fields: Mapping[str, Any], revision: int) -> DesiredSetRecord:
    members = _members(fields["members"], fields["members"])
    leader, reason = _text(fields, "leader"), _text(fields, "reason", REASON_MAX)
    return DesiredSetRecord(_source_number(name), members, leader, reason, revision)


def _forgotten(name: str, fields: Mapping[str, Any], _: int) -> ForgottenRecord:
    generations = fields["generations"]
    if type(generations) is not list or len(generations) > FORGOTTEN_MAX:
        raise ValueError(f"its generations are {generations!r}")
    return ForgottenRecord(name, tuple(_number({"generation": each}, "generation") for each in generations))


def _forgotten_start(name: str, fields: Mapping[str, Any], _: int) -> ForgottenStartRecord:
    numbers = [_number(fields, each) for each in ("since_ms", "last_ms", "asks")]
    return ForgottenStartRecord(name, _text(fields, "host"), _number(fields, "port", 65535), *numbers)


def _members(members: object, names: object) -> tuple[str, ...]:
    """`members`: as they are stored."""
    if type(members) is not list or type(names) is not list or len(members) > MEMBERS_MAX:
        raise ValueError(f"its members are {members!r}")
    if any(type(each) is not str for each in names) or not all(map(_name, names)) or len(set(names)) < len(names):
        raise ValueError(f"its members are {names!r}")
    return tuple(names)


def _name(text: str) -> str:
    """Of a node, or the number of a source."""
    if not text or len(text) > TEXT_MAX or not text.isprintable():
        raise ValueError(f"a name is {text!r}")
    return text


def _source_number(name: str) -> int:
    source = int(name)
    if str(source) != name or not 0 < source <= SOURCES:
        raise ValueError(f"it is of source {name}")
    return source


def _put_nonce(fields: dict[str, Any], nonce: int) -> None:
    if nonce:
        fields["nonce"] = nonce


def _nonce(fields: Mapping[str, Any]) -> int:
    return _number(fields, "nonce") if "nonce" in fields else 0


def _number(fields: Mapping[str, Any], name: str, highest: int = NUMBER_MAX) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= highest:
        raise ValueError(f"{name} is {value!r}")
    return value


def _text(fields: Mapping[str, Any], name: str, longest: int = TEXT_MAX) -> str:
    value = fields[name]
    if type(value) is not str or len(value) > longest:
        raise ValueError(f"{name} is {value!r}")
    return value


def _shortened(text: str) -> str:
    return text if len(text) <= QUOTED_MAX else f"{text[:QUOTED_MAX]}..."


_READERS: Mapping[type[ClusterRecord], Callable[[str, Mapping[str, Any], int], ClusterRecord]] = {
    MemberRecord: _member,
    KnownRecord: _known,
    LinksRecord: _links,
    SourceRecord: _source,
    DesiredSetRecord: _desired_set,
    ForgottenRecord: _forgotten,
    ForgottenStartRecord: _forgotten_start,
}
