"""What happens next: events in the order of their times, drawn by chance."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from itertools import count


class Clock:
    """Time passes from event to event, in milliseconds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_ms = 0.0
        self.counts: Counter[str] = Counter()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    @property
    def now_s(self) -> float:
        return self.now_ms / 1000

    def after(self, low_ms: float, high_ms: float, what: Callable[[], None]) -> None:
        self.at(self.now_ms + low_ms + (high_ms - low_ms) * self.chance.random(), what)

    def at(self, at_ms: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._order), what))

    def run_until(self, ends_ms: float) -> None:
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= ends_ms:
            self.now_ms, _, what = pop(events)
            what()
        self.now_ms = ends_ms
