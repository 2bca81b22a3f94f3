"""Connections between an edge and a leader: in order, or lost.

What comes in: messages. What goes out: the same, later; or nothing, from some message on.
Rules: 1. Each direction keeps its order. 2. What is lost in a direction is lost from there on: nothing later arrives
over it. 3. Each end hears of a break by itself, at another time. 4. What an edge has sent arrives also when the edge
has given the connection up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.replication.simulation.clock import Clock


class Direction:
    """One way of a connection."""

    def __init__(self, clock: Clock, latency_ms: float, arrive: Callable[..., None]) -> None:
        self._clock, self.latency_ms, self._arrive = clock, latency_ms, arrive
        self.works = True
        self._last_ms = 0.0

    def send(self, *message: Any) -> None:
        """It arrives, if the direction works until then."""
        if self.works:
            clock = self._clock
            at_ms = clock.now_ms + self.latency_ms * (0.2 + 0.8 * clock.chance.random())
            self._last_ms = max(at_ms, self._last_ms + 0.001)
            clock.at(self._last_ms, lambda: self._arrives(message))

    def _arrives(self, message: tuple[Any, ...]) -> None:
        if self.works:
            self._arrive(*message)
        else:
            self._clock.counts["lost on the way"] += 1


class Connection:
    """A connection of an edge to a leader."""

    def __init__(
        self, clock: Clock, latency_ms: float, to_leader: Callable[..., None], to_edge: Callable[..., None]
    ) -> None:
        self.forward = Direction(clock, latency_ms, to_leader)
        self.backward = Direction(clock, latency_ms, to_edge)
        self.broken = False

    def cut(self) -> None:
        """Both directions."""
        self.broken = True
        self.forward.works = self.backward.works = False
