"""Connections between forwarders.

What a connection promises: what comes, comes in order; when it breaks, what was under way is lost. Where nothing
passes, what was sent waits, and comes when something passes again, or is lost with the connection, which somebody
ends after a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amqpd.peers.messages import Cut, Lacked, Message
from tests.replication.simulation.clock import Clock

GAP_MS = 0.1
"""between two messages of a connection that waited"""


class Connection:
    """From one forwarder to another, one direction."""

    def __init__(self, sender: str, receiver: str) -> None:
        self.ends = (sender, receiver)
        self.open = True
        self.free_ms = 0.0
        """when the last message that was sent will have come"""
        self.held: list[Callable[[], None]] = []
        """what has not passed"""


class SimulatedNetwork:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.cut: set[tuple[str, str]] = set()
        """directions in which nothing passes"""
        self._holding: list[Connection] = []
        self.latency_ms = 40.0
        self.flips = 0.0
        """how many of the messages with entries are damaged"""

    def passes(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self.cut

    def connects(self, one: str, two: str) -> bool:
        return self.passes(one, two) and self.passes(two, one)

    def send(self, connection: Connection, what: Callable[[], None]) -> None:
        """`what` happens at the receiver, if the connection still stands by then."""

        def come() -> None:
            if connection.open:
                if connection.held or (self.cut and not self.passes(*connection.ends)):
                    self._hold(connection, what)
                else:
                    what()

        clock = self._clock
        at_ms = clock.now_ms + 1 + self.latency_ms * clock.chance.random()
        connection.free_ms = at_ms = max(at_ms, connection.free_ms + GAP_MS)
        clock.at(at_ms, come)

    def _hold(self, connection: Connection, what: Callable[[], None]) -> None:
        if not connection.held:
            self._holding.append(connection)
        connection.held.append(what)

    def changed(self) -> None:
        """`cut` is another: what passes now comes."""
        holding, self._holding = self._holding, []
        for connection in holding:
            self._release(connection)

    def _release(self, connection: Connection) -> None:
        """One after the other: the receiver does other things between them."""
        if connection.open and connection.held:
            if not self.passes(*connection.ends):
                self._holding.append(connection)
                return
            connection.held.pop(0)()
            self._clock.after(0, 2 * GAP_MS, lambda: self._release(connection))

    def damaged(self, message: Message) -> Message:
        """A bit flips on the way, now and then, and no checksum of TCP shows it."""
        if not self.flips or not isinstance(message, Cut | Lacked) or self._clock.chance.random() >= self.flips:
            return message
        what = message.frame if isinstance(message, Cut) else message
        if not what.entries:
            return message
        self._clock.counts["entry damaged on the way"] += 1
        first, *others = what.entries
        entries = (replace(first, payload=first.payload + b"0"), *others)
        if isinstance(message, Cut):
            return replace(message, frame=replace(message.frame, entries=entries))
        return replace(message, entries=entries)
