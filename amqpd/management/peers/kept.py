"""Answers that are kept for some seconds, so that many who ask cost one question.

What comes in: values, by a key. What goes out: the same, while they are young.
Rules: 1. A value is kept for `KEPT_S` to twice that, and nothing is kept longer, whether somebody asks or not. 2.
While nothing is kept, nothing runs.
Not here: what is kept (`rows.py`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import trio

KEPT_S = 2.0
"""RabbitMQ's management keeps an answer five times as long as it took to make (`management_db_cache_multiplier`)."""


class Kept:
    """Answers that are kept for some seconds, in two generations; the older one is dropped as a whole."""

    def __init__(self) -> None:
        self._young: dict[Hashable, Any] = {}
        self._old: dict[Hashable, Any] = {}
        self._filled = trio.Event()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Hashable) -> Any:
        """None: it is not kept."""
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def put(self, key: Hashable, value: Any) -> None:
        """Not None."""
        self._young[key] = value
        self._filled.set()

    def clear(self) -> None:
        """What was kept is not true any more."""
        self._young, self._old = {}, {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not len(self):
                self._filled = trio.Event()
                await self._filled.wait()
            await trio.sleep(KEPT_S)
            self._young, self._old = {}, self._young
