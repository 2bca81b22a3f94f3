"""A connection that one forwarder has dialed to another: questions go there, answers come back.

What comes in: messages. What goes out: the same, to the process at the other end, as long as both live and it stands.
Rules: 1. Both ends say hello first: who they are, in which incarnation, with which disk. 2. When it breaks, its
dialer knows at once, the other end later; and the other way round.
Not here: what passes (`network.py`), when somebody dials (`cluster.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from amqpd.cluster.shell import LeaderLink
from amqpd.peers.encoding import decode, encode
from amqpd.peers.messages import Answered, Cut, Entries, Fetched, Lacked, Message, RequestVote, Voted, Would
from amqpd.peers.versions import HIGHEST
from tests.replication.simulation.law import LawBroken
from tests.replication.simulation.network import Connection

if TYPE_CHECKING:
    from tests.replication.simulation.process import Process

NOTICED_MS = 500
"""so late the other end knows of it, at most"""


class SimulatedLink:
    def __init__(self, dialer: Process, acceptor: Process) -> None:
        self._network = dialer.cluster.network
        self._clock = dialer.clock
        self.dialer = dialer
        self.acceptor = acceptor
        self.there = Connection(dialer.name, acceptor.name)
        self.back = Connection(acceptor.name, dialer.name)
        self.generation = acceptor.there.generation
        self.version = min(dialer.version, acceptor.version)
        self._leader: LeaderLink | None = None
        incarnation, mine = acceptor.incarnation, dialer.incarnation
        self._send(self.there, lambda: self._accepted(mine), acceptor)
        self._send(self.back, lambda: self._dialed(incarnation), dialer)

    @property
    def open(self) -> bool:
        return self.there.open

    def _send(self, connection: Connection, what: Callable[[], None], at: Process) -> None:
        self._network.send(connection, lambda: at.run(lambda: what() if connection.open else None))

    def _accepted(self, incarnation: int) -> None:
        self._leader = self.acceptor.link(self.dialer.name, incarnation, self, dialed=False)

    def _dialed(self, incarnation: int) -> None:
        self.dialer.link(self.acceptor.name, incarnation, self, dialed=True)

    def ask(self, message: Message) -> None:
        """Of the dialer."""
        message = self._network.damaged(self._in_bytes(message))
        self._counts(message)
        self._send(self.there, lambda: self._asked(message), self.acceptor)

    def _asked(self, message: Message) -> None:
        if self._leader is not None:
            puts_off = isinstance(message, RequestVote)
            copies = self.acceptor.there.copies
            before = len(copies._put_off) if puts_off else 0
            self.acceptor.there.asked(self._leader, message)
            if puts_off:
                self._clock.counts["vote put off"] += len(copies._put_off) > before

    def answer(self, message: Message) -> None:
        """Of the acceptor."""
        message = self._in_bytes(message)
        self._counts(message)
        self._send(self.back, lambda: self.dialer.there.answered(self.acceptor.name, message), self.dialer)

    def _in_bytes(self, message: Message) -> Message:
        """As the other end reads it, where one of the two is of the version before. Raises LawBroken for what that
        has no bytes for."""
        if self.version == HIGHEST:
            return message
        self._clock.counts["message in the version before"] += 1
        try:
            data = b"".join(encode(message, self.version))
        except ValueError as error:
            raise LawBroken(f"{self.dialer.name} to {self.acceptor.name}: {error}") from error
        return decode(data, self.version)

    def _counts(self, message: Message) -> None:
        counts = self._clock.counts
        if isinstance(message, Answered):
            counts["peer lacks entries"] += bool(message.answer.lacks)
        elif isinstance(message, Cut):
            counts["frame"] += 1
            counts["source left out"] += bool(message.frame.left_out)
        elif isinstance(message, Lacked):
            counts["sent again"] += 1
        elif isinstance(message, Voted):
            counts["vote refused"] += not message.ballot.granted
        elif isinstance(message, Would):
            counts["would not vote"] += not message.ballot.granted
        elif isinstance(message, Entries):
            counts["entries fetched"] += 1
        elif isinstance(message, Fetched):
            counts["state fetched"] += message.state.last

    def refuse(self, why: str) -> None:
        """The acceptor closes it, because of what came."""
        self._clock.counts["damage noticed on the way"] += 1
        self._close()
        self.left()
        self._clock.after(0, NOTICED_MS, lambda: self.dialer.run(self._lost))

    def breaks(self) -> None:
        """Its dialer closes it, or sees that it is closed."""
        if self.open:
            self._close()
            self.dialer.run(self._lost)
            self._clock.after(0, NOTICED_MS, lambda: self.acceptor.run(self.left))

    def _close(self) -> None:
        self.there.open = self.back.open = False

    def left(self) -> None:
        """The acceptor knows of it, or has another one."""
        if self._leader is not None and self._leader.open:
            if self.acceptor.incoming.get(self.dialer.name) is self:
                del self.acceptor.incoming[self.dialer.name]
            self.acceptor.there.left(self._leader)
        if self.open:
            self._close()
            self._clock.after(0, NOTICED_MS, lambda: self.dialer.run(self._lost))

    def _lost(self) -> None:
        if self.dialer.dialed.get(self.acceptor.name) is self:
            del self.dialer.dialed[self.acceptor.name]
            self.dialer.there.lost(self.acceptor.name)
