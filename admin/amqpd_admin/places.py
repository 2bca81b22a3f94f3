"""Which connections of the HTTP server there may be at a time, and which of them gives way to a new one.

What comes in: connections as they come, log in, wait between two requests, and end. What goes out: whether there is a
place, and the end of another connection whose place it was.
Rules: 1. There are `connections_max` places. When all are taken, a new connection takes the place of the oldest one
on which nobody has logged in yet; without one, of the one that has waited longest for its next request. 2. A
connection with a request that somebody sent who has logged in keeps its place. 3. When all places are kept so, there
are `HEALTH_PLACES` more, for questions that need no log-in (`HEALTH_PATHS`): whoever keeps the others does not make a
broker look dead. The oldest of these gives way. 4. Each step takes the same time, however many connections there are.
Not here: how long a connection may be silent (`connection.py`).
"""

from __future__ import annotations

from collections.abc import Callable

HEALTH_PATHS = frozenset((b"/healthz", b"/readyz"))
# A liveness and a readiness probe, a proxy's check and a person, each from a few machines.
HEALTH_PLACES = 16
STATE = "amqpd.place"
"""of a connection's state, which each of its requests has"""


class Place:
    """The place of one connection among those that the HTTP server may have."""

    def __init__(self, places: Places, cut: Callable[[], None]) -> None:
        self._places = places
        self.cut = cut
        self.known = False
        """somebody has logged in, in a request of this connection"""
        self.waiting = True
        """between two requests, or before the first"""

    def may_ask(self, path: bytes) -> bool:
        """Whether a request is answered: on places for health only what needs no log-in, until others are free."""
        return path in HEALTH_PATHS or self._places.has_more_than_health(self)

    def logged_in(self) -> None:
        self.known = True
        self._places.moved(self)

    def waits(self, waiting: bool) -> None:
        """For another request; or that has come."""
        self.waiting = waiting
        self._places.moved(self)

    def leave(self) -> None:
        """The connection has ended. Does nothing for one that gave way."""
        self._places.leave(self)


class Places:
    """The places of all connections of the HTTP server. The order of each dict is by age."""

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._strangers: dict[Place, None] = {}
        self._busy: dict[Place, None] = {}
        """a request of somebody who has logged in runs"""
        self._waiting: dict[Place, None] = {}
        """somebody has logged in, and may send another request"""
        self._health: dict[Place, None] = {}

    def enter(self, cut: Callable[[], None]) -> Place:
        """Of a new connection, which `cut` ends at once. Another one may have been ended for it."""
        taken = self._strangers if self._make_free() else self._health
        if taken is self._health and len(taken) >= HEALTH_PLACES:
            self._end(next(iter(taken)))
        place = Place(self, cut)
        taken[place] = None
        return place

    def leave(self, place: Place) -> None:
        for each in (self._strangers, self._busy, self._waiting, self._health):
            each.pop(place, None)

    def has_more_than_health(self, place: Place) -> bool:
        """From now on, if it is possible now."""
        if place in self._health and self._make_free():
            del self._health[place]
            self._strangers[place] = None
        return place not in self._health

    def moved(self, place: Place) -> None:
        """Between those that keep their place and those that give way."""
        if not place.known or place in self._health:
            return
        entered, left = (self._waiting, self._busy) if place.waiting else (self._busy, self._waiting)
        if place in self._strangers or place in left:
            self.leave(place)
            entered[place] = None

    def _make_free(self) -> bool:
        """There is a place, maybe because another connection gave way."""
        if len(self._strangers) + len(self._busy) + len(self._waiting) < self._connections_max:
            return True
        for each in (self._strangers, self._waiting):
            if each:
                self._end(next(iter(each)))
                return True
        return False

    def _end(self, place: Place) -> None:
        self.leave(place)
        place.cut()
