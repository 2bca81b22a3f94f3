"""What forwarders say to each other, one message a class.

What comes in, what goes out: values. The forwarder that dialed a connection of replication asks over it, as the
leader of its replica sets and when it takes over; the one that accepted it answers over the same connection. Over a
data connection, which is another one, the dialer is the edge of remote queues, and the acceptor their leader.
Rules: 1. `replica_set` is a small number that the dialer chooses for a replica set when it opens that, for this
connection only. 2. `question` and `request` grow with each message of a connection; an answer names the last
question that it covers, so questions may be answered together. 3. Messages of a connection arrive in order or not at
all. 4. What goes over a connection of one purpose goes over none of the other (`OVER`).
Not here: their bytes (`encoding.py`), connections (`amqpd.peers.links`), what they make a forwarder do.

| dialer -> acceptor | acceptor -> dialer | of |
|---|---|---|
| Greeting, Proof | Greeting, Proof, Refusal | the connection, first (`links/handshake.py`) |
| OpenReplicaSet, Cut, Lacked, Filled, Heartbeat | | a replica set, from its leader (`replication/leader.py`) |
| | Answered | the same, from a peer (`replication/receiver.py`) |
| Ended | | a replica set: the leader lease of its leader |
| HandedSessions | | a hand-over: what the next leader has of remote clients (`amqpd/remote/handing.py`) |
| RequestPreVote | Would | a take-over (`replication/take_over.py`) |
| RequestVote | Voted for | a take-over |
| FetchEntries | Entries | a take-over |
| FetchParts | Fetched, one for each part | a take-over |
| Query | Page | what operators ask (`amqpd/cluster/queries.py`) |
| ToLeader, HoldsNothing | ToEdge | sessions of remote queues, over a data connection (`amqpd/remote/`) |
| DataHeartbeat | DataHeartbeat | a data connection (`amqpd/cluster/data_links.py`) |
| AskRevision | AppliedRevision | the metadata (`amqpd/cluster/applied_revisions.py`), over a data connection |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, get_args

from amqpd.peers.entry import START, Frame, LogEntry, Position, Vote
from amqpd.peers.versions import LOWEST, Versions

NONCE_BYTES = 32


class OpenedSource(NamedTuple):
    """A source of a replica set that is opened."""

    source: int
    epoch: int
    """of the leader"""
    last: Position
    """its last entry"""
    checksum: int | None
    """of that; None: it is not kept any more"""
    since: int = 0
    """frames of the replica set below this one say nothing of it: it was in another replica set then"""


@dataclass(frozen=True, slots=True)
class Opening:
    """The first message of a leader over a connection, and again when it becomes the leader of more sources."""

    number: int
    """the last frame that was cut; the next one follows it"""
    sources: tuple[OpenedSource, ...]
    committed: int


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """The committed state of a source at its leader, for a peer that lacks more than the leader keeps as entries.
    It is a difference: what the peer knows to be committed itself it keeps, except what died since. The parts come
    over one connection, in order; between them may be frames, and parts of another transfer, which takes the place
    of this one."""

    source: int
    transfer: int
    """which one over this connection (`ReplicaSetLeader.sends_state`)"""
    base: Position
    """the last entry that all parts together have: not below what is committed when the first one is sent"""
    part: bytes
    """as the leader's disk gives it, and the peer's takes it"""
    first: bool
    last: bool
    after: Position = START
    """the peer has everything up to this entry as the leader committed it (`Acknowledgement.bases`); START: nothing
    of what it has is used"""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The answer of a peer to what came before it over this connection: what of it is on the disk, lacking or
    fenced."""

    number: int
    """frames up to this one are on its disk, except what is of sources in the next three"""
    lacks: dict[int, Position]
    """source -> an entry from which on it may be sent what it lacks; what it has there, or below, is the leader's"""
    fenced: dict[int, Vote]
    """source -> who is the leader by now"""
    incomplete: frozenset[int]
    """sources whose state has not come yet: entries are of no use before"""
    contradicted: frozenset[int]
    """sources of which it has committed something else: it counts for nothing there until that is repaired"""
    bases: dict[int, Position] = field(default_factory=dict)
    """of sources that it lacks something of: the last entry that it knows to be committed"""


@dataclass(frozen=True, slots=True)
class Ballot:
    """The answer of a member that is asked to vote for an epoch of a source, or whether it would."""

    granted: bool
    vote: Vote
    """the highest one there"""
    last: Position
    """its last entry, on its disk; meaningful if it was granted"""
    generation: int
    """of its disk"""
    base: Position = START
    """the last entry that it knows to be committed: what is up to there it has as state only"""


@dataclass(frozen=True, slots=True)
class Hello:
    """The identity of the sender of a Greeting."""

    version: int
    """of the messages, the highest that it speaks (`versions.py`)"""
    cluster: str
    """its name: forwarders of two clusters do not talk to each other"""
    forwarder: str
    incarnation: int
    """of the process; grows with each start on the same disk"""
    generation: int
    """of the disk"""
    lowest: int = LOWEST
    """version; the same as `version` of a node before `versions.RANGED`, which speaks one only"""

    @property
    def versions(self) -> Versions:
        return Versions(self.lowest, self.version)


class Purpose(IntEnum):
    """The purpose of a connection between two forwarders; its number is what a Greeting says."""

    REPLICATION = 0
    """replication, take-overs, operators' questions"""
    DATA = 1
    """sessions of remote queues: what waits for a slow client delays no commit"""

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message of each end. Its bytes are laid out alike in all versions (`encoding.py`). The forwarder that
    accepted sends one without names first: who it is, it says only to a peer that has proven who that is."""

    hello: Hello
    target: str
    """name of the forwarder that is meant"""
    nonce: bytes
    """drawn for this connection, `NONCE_BYTES`"""
    secret: bool
    """the sender has the cluster's secret, and asks for a proof that the other end has it"""
    more: bytes = b""
    """what a later version than this node's has behind it: part of what both ends have proven"""
    purpose: Purpose = Purpose.REPLICATION
    """of the connection; a sender before `versions.HAS_DATA_LINKS` means the first one. The dialer says it, and the
    acceptor says it again"""


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof that the sender has the cluster's secret: a digest of all that was said before. Empty: it has
    none."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """The acceptor does not let the dialer in. The text says why, for the log there."""

    reason: str


@dataclass(frozen=True, slots=True)
class OpenReplicaSet:
    """The leader's first word of a replica set over this connection, and again when it becomes the leader of more
    sources."""

    replica_set: int
    question: int
    opening: Opening


@dataclass(frozen=True, slots=True)
class Cut:
    """The next frame of a replica set."""

    replica_set: int
    question: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Lacked:
    """Entries of one source that an answer said were lacking, in order."""

    replica_set: int
    question: int
    entries: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class Filled:
    """A part of a source's state, for a peer that lacks more than is kept as entries."""

    replica_set: int
    question: int
    state: SnapshotPart


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The number of what is committed, when there is no frame to say it with; and a question, so that the leader
    lease goes on."""

    replica_set: int
    question: int
    committed: int
    revision: int = 0
    """of the metadata store, that the sender has heard of; 0: it does not say"""


@dataclass(frozen=True, slots=True)
class Ended:
    """The sender is not the leader of the source any more: nobody has to wait for its leader lease to end. Not
    answered."""

    replica_set: int
    source: int
    epoch: int


@dataclass(frozen=True, slots=True)
class HandedSessions:
    """What a leader that hands a source over passes to the next one of remote clients, beside the log, which ends at
    this position: with any other one it is void. In front of `Ended`, to each peer, as nobody knows who will be the
    leader. Not answered."""

    source: int
    position: Position
    pieces: Body
    """as `ToLeader` has it (`amqpd/remote/handed_bytes.py` has what is in it)"""

    @property
    def body(self) -> bytes:
        return _joined(self.pieces)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a question of a replica set: what stands at the peer, once everything of the replica set up to
    this question is on its disk."""

    replica_set: int
    question: int
    answer: Acknowledgement
    revision: int = 0
    """as in a heartbeat"""


@dataclass(frozen=True, slots=True)
class RequestPreVote:
    """The question whether the peer would vote for another epoch of this source."""

    request: int
    source: int


@dataclass(frozen=True, slots=True)
class Would:
    """The answer to `RequestPreVote`: the ballot that the peer would cast if it were asked to vote."""

    request: int
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class RequestVote:
    """The request that the peer votes for this epoch of the source."""

    request: int
    source: int
    vote: Vote


@dataclass(frozen=True, slots=True)
class Voted:
    """The answer to `RequestVote`, when it is on the disk. `vote`: the one that was asked for."""

    request: int
    vote: Vote
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class FetchEntries:
    """The request for the entries of the source's log that follow this position."""

    request: int
    source: int
    after: Position


@dataclass(frozen=True, slots=True)
class Entries:
    """The answer to `FetchEntries`: the next entries, in order; there may be more."""

    request: int
    entries: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class FetchParts:
    """The request for what the peer has committed of the source, as the difference to what is up to this position,
    for a node that lacks more than is kept as entries."""

    request: int
    source: int
    after: Position


@dataclass(frozen=True, slots=True)
class Fetched:
    """One part of the answer to `FetchParts`, in order."""

    request: int
    state: SnapshotPart


@dataclass(frozen=True, slots=True)
class Query:
    """An operator's question to the peer, as JSON. `number` is of this connection, and the answer has it."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to `Query`, as JSON: never more than `encoding.PAGE_BYTES_MAX`, and one for each query, so that a
    long list does not keep what is replicated waiting."""

    number: int
    text: str


Body = tuple[bytes | memoryview, ...]
"""pieces, to be sent one behind the other; what is in them stays as it is until they are"""


@dataclass(frozen=True, slots=True)
class ToLeader:
    """A message of a session of remote queues, from the edge."""

    source: int
    """0: the local one of the leader's node, with its classic queues"""
    incarnation: int
    """of the edge, at this source"""
    session: int
    revision: int
    """of the newest change to the metadata that the sender had applied: what it names may have come with that"""
    pieces: Body
    """as it was read it is one piece, of bytes (`amqpd/remote/encoding.py` has what is in it)"""

    @property
    def body(self) -> bytes:
        return _joined(self.pieces)


@dataclass(frozen=True, slots=True)
class ToEdge:
    """A message of a session of remote queues, from the leader of the source. Its fields are those of the session
    that it is of, as `ToLeader` has them."""

    source: int
    incarnation: int
    session: int
    pieces: Body

    @property
    def body(self) -> bytes:
        return _joined(self.pieces)


def _joined(pieces: Body) -> bytes:
    return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], bytes) else b"".join(pieces)


class SourceEpoch(NamedTuple):
    """An epoch of one source."""

    source: int
    epoch: int


@dataclass(frozen=True, slots=True)
class HoldsNothing:
    """The edge's word that no client of it holds anything of these sources, and that no operation on them is
    undecided: their leaders, of these epochs, need not wait for it (rule 19 of remote queues)."""

    sources: tuple[SourceEpoch, ...]


@dataclass(frozen=True, slots=True)
class DataHeartbeat:
    """A sign of life of either end of a data connection. Not answered."""


@dataclass(frozen=True, slots=True)
class AskRevision:
    """The question how far the peer has applied the metadata."""

    question: int
    """from 1, growing"""


@dataclass(frozen=True, slots=True)
class AppliedRevision:
    """How far the sender has applied the metadata: the answer to a question, or said by itself when it has applied
    more."""

    question: int
    """0: it answers none"""
    revision: int
    generation: str
    """of the metadata store: revisions of another one are not to be compared with these"""
    asked_by: tuple[str, ...] = ()
    """names of the nodes that the sender may have answered within the time in which an answer counts
    (`sync_point.KNOWN_LEASES`)"""


FromDialer = (
    Greeting
    | Proof
    | OpenReplicaSet
    | Cut
    | Lacked
    | Filled
    | Heartbeat
    | Ended
    | HandedSessions
    | RequestPreVote
    | RequestVote
    | FetchEntries
    | FetchParts
    | Query
)
FromAcceptor = Greeting | Proof | Refusal | Answered | Would | Voted | Entries | Fetched | Page
DataFromDialer = ToLeader | HoldsNothing | DataHeartbeat | AskRevision
DataFromAcceptor = ToEdge | DataHeartbeat | AppliedRevision
Message = FromDialer | FromAcceptor | DataFromDialer | DataFromAcceptor

HANDSHAKE: frozenset[type] = frozenset((Greeting, Proof, Refusal))
"""before a link is made, and never over one"""

FROM_DIALER: frozenset[type] = frozenset(get_args(FromDialer))
FROM_ACCEPTOR: frozenset[type] = frozenset(get_args(FromAcceptor))
"""of a connection of replication, its handshake included"""


class Allowed(NamedTuple):
    """The messages that each end of a link may send."""

    dialer: frozenset[type]
    acceptor: frozenset[type]


OVER = {
    Purpose.REPLICATION: Allowed(FROM_DIALER - HANDSHAKE, FROM_ACCEPTOR - HANDSHAKE),
    Purpose.DATA: Allowed(frozenset(get_args(DataFromDialer)), frozenset(get_args(DataFromAcceptor))),
}
"""what goes over a link of each purpose"""
