"""Clients that wait until it is decided which node leads a queue.

What comes in: a client that uses a queue of a source which this node hands over, or takes over; the time. What goes
out: turns of these clients, when that is decided.
Rules: 1. A client that waits is not read, so nothing behind what waits overtakes it, and nothing of that is taken or
refused before. 2. A wait ends after `WAIT_MS` in any case, and when the connection has ended.
Not here: who leads a source (`amqpd/cluster`), what follows for a publish (`publishing/acceptance.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final

from amqpd.flow.turns import Turns
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.states import ConnectionState

MOVED: Final = "the leader of a queue has moved: connect again, and publish again what was not confirmed"
WAIT_MS: Final = 10_000
"""As long as a declaration waits for a source: several times what a hand-over takes."""


class LeaderMoves:
    """The moves of queues' leaders to this node and away from it, and the clients that wait for their ends."""

    def __init__(self, is_moving: Callable[[int], bool], serving: Container[int], turns: Turns) -> None:
        """`is_moving`: whether this node hands the source over, or takes it over, now; `serving`: sources of this
        node."""
        self.is_moving = is_moving
        self._serving = serving
        self._turns = turns
        self.count = 0
        """how often queues have left this node: what a queue and a connection remember, to know which was first"""
        self.waiting: dict[Client, tuple[int, int]] = {}
        """the source that each client waits for, and until when, in ms since the epoch"""

    def wait(self, client: Client, source: int, until_ms: int) -> Iterator[None]:
        """Steps for `Intake.begin`, which end when it is decided who leads the source."""
        self.waiting[client] = source, until_ms
        client.turn.parked = True
        yield

    def look(self, now_ms: int) -> None:
        """Let those go on whose wait has ended. Called when a source is served here, and some times a second."""
        for client, (source, until_ms) in list(self.waiting.items()):
            waits = self.is_moving(source) and source not in self._serving and now_ms < until_ms
            if not waits or client.state is not ConnectionState.RUNNING:
                del self.waiting[client]
                client.turn.parked = False
                self._turns.end(client)
