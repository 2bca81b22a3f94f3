"""What forwarders say to each other, one message a class.

What comes in, what goes out: values. The forwarder that dialed a connection asks over it, as the home of its lanes
and when it takes over; the one that accepted it answers over the same connection.
Rules: 1. `lane` is a small number that the dialer chooses for a replica set when it opens the lane, for this
connection only. 2. `question` and `request` grow with each message of a connection; an answer names the last question
that it covers, so questions may be answered together. 3. Messages of a connection arrive in order or not at all.
Not here: their bytes (`encoding.py`), connections (`amqpd.cluster.links`), what they make a forwarder do.

| dialer -> acceptor | acceptor -> dialer | of |
|---|---|---|
| Hello | Hello | the connection: first, in this order |
| OpenLane, Cut, Lacked, Filled, Told | Answered | a lane (`home.py`, `receiver.py`) |
| Ended | | a lane: the reign of its home |
| Ask | Would | a take-over (`take_over.py`) |
| RequestSeal | Sealed | a take-over |
| FetchEntries | Entries | a take-over |
| FetchParts | Fetched, one for each part | a take-over |
| Query | Page | what operators ask (`amqpd/cluster/queries.py`) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from amqpd.replication.entry import Frame, LogEntry, Position
from amqpd.replication.receiver import Answer, Missed, Opening, State
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import Ballot

VERSION = 3
"""of the messages; a number for each change of what one of them means or of its bytes"""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who speaks. Its first bytes are the same in all versions (`encoding.py`)."""

    version: int
    cluster: str
    """its name: forwarders of two clusters do not talk to each other"""
    forwarder: str
    life: int
    """of the process; grows with each start on the same disk"""
    generation: int
    """of the disk"""


@dataclass(frozen=True, slots=True)
class OpenLane:
    """The home's first word of a lane over this connection, and again when it becomes the home of more sources."""

    lane: int
    question: int
    opening: Opening


@dataclass(frozen=True, slots=True)
class Cut:
    """The next frame of a lane."""

    lane: int
    question: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Lacked:
    """Entries that an answer said were lacking."""

    lane: int
    question: int
    missed: Missed


@dataclass(frozen=True, slots=True)
class Filled:
    """A part of a source's state, for a peer that lacks more than is kept as entries."""

    lane: int
    question: int
    state: State


@dataclass(frozen=True, slots=True)
class Told:
    """What is committed, when there is no frame to say it with; and a question, so that the reign goes on."""

    lane: int
    question: int
    committed: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The sender is not the home of the source any more: nobody has to wait for its reign to end. Not answered."""

    lane: int
    source: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Answered:
    """What stands at the peer, once everything of the lane up to this question is on its disk."""

    lane: int
    question: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Ask:
    """Would you seal another epoch of this source?"""

    request: int
    source: int


@dataclass(frozen=True, slots=True)
class Would:
    """The answer to `Ask`."""

    request: int
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class RequestSeal:
    """Seal this epoch of the source."""

    request: int
    source: int
    seal: Seal


@dataclass(frozen=True, slots=True)
class Sealed:
    """The answer to `RequestSeal`, when it is on the disk. `seal`: the one that was asked for."""

    request: int
    seal: Seal
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class FetchEntries:
    """What of the source's log follows this position?"""

    request: int
    source: int
    after: Position


@dataclass(frozen=True, slots=True)
class Entries:
    """The answer to `FetchEntries`: the next ones, in order; there may be more."""

    request: int
    entries: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class FetchParts:
    """What have you committed of the source, as the difference to what is up to this position? For who lacks more
    than is kept as entries."""

    request: int
    source: int
    after: Position


@dataclass(frozen=True, slots=True)
class Fetched:
    """One part of the answer to `FetchParts`, in order."""

    request: int
    state: State


@dataclass(frozen=True, slots=True)
class Query:
    """What an operator asks of the peer, as JSON. `number` is of this connection, and the answer has it."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to `Query`, as JSON: never more than `encoding.PAGE_BYTES_MAX`, and one for each query, so that a
    long list does not keep what is replicated waiting."""

    number: int
    text: str


FromDialer = (
    Hello | OpenLane | Cut | Lacked | Filled | Told | Ended | Ask | RequestSeal | FetchEntries | FetchParts | Query
)
FromAcceptor = Hello | Answered | Would | Sealed | Entries | Fetched | Page
Message = FromDialer | FromAcceptor

FROM_DIALER: frozenset[type] = frozenset(get_args(FromDialer))
FROM_ACCEPTOR: frozenset[type] = frozenset(get_args(FromAcceptor))
