"""What a forwarder's place in the cluster needs of sockets, disk, store and clock.

What comes in: nothing. What goes out: a base class, which `runner.py` fills, and a simulator may; `LeaderLink`, a
connection that another node has dialed, at this end.
Rules: 1. None of it blocks; what takes time is answered by a call, in a later turn, or never. 2. An answer that comes
when the one who asked has given up is harmless: who asks looks.
Not here: the messages (`peers/messages.py`), the node's queues (`node/`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from amqpd.cluster.records import DesiredSetRecord
from amqpd.journal.lane import Lane
from amqpd.peers.entry import LogEntry, Position
from amqpd.peers.messages import Message, SnapshotPart
from amqpd.replication.receiver import Receiver
from amqpd.replication.take_over import SourceRecord


class LeaderLink:
    """A connection that another forwarder has dialed."""

    def __init__(
        self, forwarder: str, incarnation: int, send: Callable[[Message], None], close: Callable[[str], None]
    ) -> None:
        self.forwarder = forwarder
        self.incarnation = incarnation
        self.send = send
        self.close = close
        self.receivers: dict[int, Receiver] = {}
        self.open = True
        self.reads = 0
        """of the own disk, for it, that have not ended"""

    def forget_unused(self) -> None:
        """Forget the receivers of replica sets that have no source any more."""
        for number in [number for number, receiver in self.receivers.items() if not receiver.sources]:
            del self.receivers[number]


class ProcessIdentity(NamedTuple):
    """The identity of one node's process: its name, the incarnation of the process, the generation of its disk."""

    name: str
    incarnation: int
    generation: int


class OwnLog(NamedTuple):
    """The log of a source on the disk of this node, above what is known to be committed."""

    tail: list[LogEntry]
    """entries above the base"""
    reserved: int
    """sequence numbers below may have been given"""


class Shell(ABC):
    """The world outside of the cluster's pure half, as a node's part in the cluster asks it: connections, store,
    disk, log."""

    @property
    @abstractmethod
    def now_s(self) -> float:
        """Of a clock that goes on while the machine sleeps; only differences mean something."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """Of the metadata store, that this node knows everything up to."""

    @property
    @abstractmethod
    def heard_revision(self) -> int:
        """Of the last change that the metadata store's watch told; 0: none yet. Not that of a reading: etcd counts
        what other programs put into it too, and nobody else would ever hear of that."""

    @abstractmethod
    def catch_up_with_store(self) -> None:
        """Ask the store for what its watch has not told."""

    @abstractmethod
    def send(self, peer: str, message: Message) -> None:
        """Over the connection that was dialed to it; without one it is lost."""

    @abstractmethod
    def swap(self, record: SourceRecord, answered: Callable[[SourceRecord | None], None]) -> None:
        """Put the record, if its revision is still the one that it was read at. None: another one was first, or the
        store does not say."""

    @abstractmethod
    def read_log(self, source: int, after: Position, answered: Callable[[list[LogEntry]], None]) -> None:
        """Entries of the source behind this one, of the own disk, as many as go with one message."""

    @abstractmethod
    def read_own(self, source: int, answered: Callable[[OwnLog], None]) -> None:
        """What a take-over has won is on it."""

    @abstractmethod
    def read_state(
        self,
        link: str | LeaderLink,
        state: SnapshotPart,
        sends: Callable[[SnapshotPart], bool],
        failed: Callable[[], None],
    ) -> None:
        """What the own disk has of the source between `state.after` and `state.base`, part by part: `sends` is given
        one after the other, as fast as the link takes them (to this peer, or the one over which they were asked for),
        until it says that no more are wanted. `state` is the first, without its part. `failed`: no more follow,
        because they cannot be read."""

    @abstractmethod
    def served(self, source: int) -> None:
        """This forwarder is its leader, everything before is committed: its queues may be used."""

    @abstractmethod
    def ended(self, source: int, lane: Lane) -> None:
        """It is the leader no more: its queues are remote. This is its lane: what of it is not committed by now is
        not known to be."""

    @abstractmethod
    def cut_off(self, lanes: list[Lane]) -> None:
        """Of the sources with these lanes no majority answers, and of no others: their clients are told. Called again
        while it is so."""

    @abstractmethod
    def stops(self, source: int) -> None:
        """Another forwarder is to be its leader: its queues take and give nothing any more. What was handed in is
        committed yet; `ended` follows only if it cannot be."""

    @abstractmethod
    def handed_sessions(self, source: int) -> bytes:
        """What its leader's end of remote queues passes to the next one since `stops`; empty: nothing. Once."""

    @abstractmethod
    def put_desired_set(self, desired_set: DesiredSetRecord) -> None:
        """In place of the one of its revision. If that is another one by now, or the store does not answer, nothing
        happens."""

    @abstractmethod
    def drop_desired_set(self, desired_set: DesiredSetRecord) -> None:
        """It is fulfilled. As `put_desired_set`."""

    @abstractmethod
    def log(self, event: str, **fields: Any) -> None: ...
