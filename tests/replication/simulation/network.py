"""Connections between forwarders, and single messages.

What a connection promises: what comes, comes in order; when it breaks, what was under way is lost. Single messages
(votes, and what belongs to them) may be lost, late, or come twice.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.replication.simulation.clock import Clock


class Connection:
    """From one forwarder to another, one direction."""

    def __init__(self, sender: str, receiver: str) -> None:
        self.ends = (sender, receiver)
        self.open = True
        self.free_ms = 0.0
        """when the last message that was sent will have come"""


class SimulatedNetwork:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.cut: set[tuple[str, str]] = set()
        """directions in which nothing passes"""
        self.loss = 0.0

    def passes(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) not in self.cut

    def send(self, connection: Connection, what: Callable[[], None]) -> None:
        """`what` happens at the receiver, if the connection still stands by then."""

        def come() -> None:
            if connection.open and self.passes(*connection.ends):
                what()

        clock = self._clock
        arrives_ms = max(clock.now_ms + clock.chance.uniform(0.1, 4), connection.free_ms)
        connection.free_ms = arrives_ms
        wait_ms = arrives_ms - clock.now_ms
        clock.after(wait_ms, wait_ms, come)

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
