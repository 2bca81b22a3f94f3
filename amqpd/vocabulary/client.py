"""The client of a connection, as parts of the broker know it that need not know what a connection is.

What comes in: nothing. What goes out: `Client` and `ClientTurn`, which `amqpd.connection` and `session/intake.py`
fill.
Rules: attributes and a few abstract methods; compiled, because publishes go by them.
Not here: the protocol (`amqpd.connection`), users (`amqpd.security`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum

from pamqp.exceptions import AMQPSoftError

from amqpd.vocabulary.states import ConnectionState, PeerAddress


class UnfinishedKind(Enum):
    """The kinds of unfinished work that hold a channel's bytes."""

    TRANSACTION = "transaction"
    MESSAGE = "message"
    LEDGER = "ledger"


class ClientTurn(ABC):
    """The turn of a client: whether it is read on, and for how long. Limits act on it."""

    __slots__ = ("parked", "throttled", "told_slowed", "unfinished", "work_left")

    def __init__(self, work_left: int) -> None:
        self.throttled = False
        """it published as much as it may, or as its turn allows; what came behind that is not taken"""
        self.work_left = work_left
        """of its turn, see `flow/turns.py`"""
        self.unfinished: deque[Iterator[None]] | None = None
        """what one turn could not do, in order; each step charges what it did; None for none yet"""
        self.parked = False
        """what it has begun waits for the journal (`session/holds.py`), or for the leader of a queue
        (`flow/leader_moves.py`), without turns"""
        self.told_slowed = False
        """that it was throttled is in the log"""

    @abstractmethod
    def begin(self, steps: Iterator[None]) -> None:
        """Carry out the steps: as many as this turn allows now, the others in later turns."""

    @abstractmethod
    def go_on(self) -> None:
        """Take what was left, as far as nothing stands in the way any more."""


class UnfinishedChannel(ABC):
    """A channel, as far as something is begun on it and not finished."""

    client: Client

    def __init__(self) -> None:
        self.closed = False
        self.unfinished_bytes = 0
        """what its transaction holds, its publish that is not complete, its ledger"""

    @property
    @abstractmethod
    def unfinished_kind(self) -> UnfinishedKind: ...

    @property
    @abstractmethod
    def waits(self) -> bool:
        """For an answer, or for the journal: it must not be closed now."""

    @abstractmethod
    def refuse_unfinished(self, error: AMQPSoftError) -> None:
        """Close the channel for the error, as one of what it has begun."""


class Client(ABC):
    """The client of one connection, as limits, declarations and other parts of the broker know it."""

    turn: ClientTurn

    def __init__(self, name: str, connection_id: str, state: ConnectionState) -> None:
        self.name = name
        """as RabbitMQ writes it: "127.0.0.1:4711 -> 127.0.0.1:5672" """
        self.id = connection_id
        self.state = state
        self.user = ""
        self.claimed_user = ""
        """the user that it wants to log in as"""
        self.vhost = ""
        self.published = 0
        """messages"""
        self.published_bytes = 0
        """of their bodies"""
        self.audited = self.audited_bytes = 0
        """of these, what the audit log has counted"""
        self.unfinished_bytes = 0
        """of its channels together (`flow/unfinished.py`)"""

    @abstractmethod
    def contain_later(self, error: Exception) -> None:
        """A bug was met in this connection's work: it ends at the end of the tick."""

    @abstractmethod
    def unfinished_channels(self) -> Iterator[UnfinishedChannel]:
        """Its channels that hold what is not finished, while it is running."""

    @abstractmethod
    def guard(self, step: Callable[[], None]) -> None:
        """Run a step of this connection's own; every error in it ends here, as a close with the right code."""


class LoginClient(Client):
    """A client that logs in."""

    peer: PeerAddress

    @abstractmethod
    def authenticated(self, user: str, may_impersonate: bool = False) -> None:
        """The log-in succeeded; `may_impersonate`: RabbitMQ's tag `impersonator`."""

    @abstractmethod
    def refused(self, mechanism: str, reason: str) -> None:
        """The log-in was refused. The reason is for the log, never for the client, which may have left by now."""

    @abstractmethod
    def contain(self, error: Exception) -> None:
        """A bug was met in this connection's own work: it is closed with 541. Raises what is of the node."""
