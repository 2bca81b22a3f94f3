"""Connections between forwarders, and single messages.

What a connection promises: what comes, comes in order; when it breaks, what was under way is lost. Where nothing
passes, what was sent waits, and comes when something passes again, or is lost with the connection, which somebody
ends after a while. Single messages (votes, and what belongs to them) may be lost, late, or come twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from amqpd.replication.entry import Frame
from amqpd.replication.receiver import Missed
from tests.replication.simulation.clock import Clock

T = TypeVar("T")

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
        self.loss = 0.0
        self.flips = 0.0
        """how many of the messages with entries are damaged"""

    def passes(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self.cut

    def send(self, connection: Connection, what: Callable[[], None]) -> None:
        """`what` happens at the receiver, if the connection still stands by then."""

        def come() -> None:
            if connection.open:
                if connection.held or not self.passes(*connection.ends):
                    self._hold(connection, what)
                else:
                    what()

        clock = self._clock
        arrives_ms = max(clock.now_ms + clock.chance.uniform(0.1, 4), connection.free_ms + GAP_MS)
        connection.free_ms = arrives_ms
        wait_ms = arrives_ms - clock.now_ms
        clock.after(wait_ms, wait_ms, come)

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

    def damaged(self, what: T) -> T:
        """A bit flips on the way, now and then, and no checksum of TCP shows it."""
        if self._clock.chance.random() >= self.flips or not isinstance(what, Frame | Missed) or not what.entries:
            return what
        self._clock.counts["entry damaged on the way"] += 1
        first, *others = what.entries
        return replace(what, entries=(replace(first, payload=first.payload + b"0"), *others))

    def message(self, sender: str, receiver: str, what: Callable[[], None]) -> None:
        def come() -> None:
            if self.passes(sender, receiver):
                what()

        clock = self._clock
        for _ in range(2 if clock.chance.random() < self.loss / 2 else 1):
            if sender == receiver:
                clock.after(0, 0, what)
                return
            if clock.chance.random() < self.loss:
                clock.counts["message lost"] += 1
                continue
            late = clock.chance.random() < 0.05
            clock.after(0.1, 200 if late else 4, come)
