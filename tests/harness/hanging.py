"""A disk that hangs: calls wait until they are let go, as one that neither answers nor fails.

What comes in: a function. What goes out: one that waits before it does the same.
Rules: 1. Nothing waits for longer than a minute: a test that forgets to let go fails, and ends.
Not here: a real file system that hangs (`tests/faults/test_disk_hangs.py`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

FORGOTTEN_S = 60.0


class Hang:
    """`hangs(function)` waits until `let_go`."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self._waiting = threading.Semaphore(0)
        self.count = 0
        """how many calls have come"""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def hanging(*given: Any, **named: Any) -> Any:
            if not self._go.is_set():
                self.count += 1
                self._waiting.release()
                assert self._go.wait(FORGOTTEN_S), "nobody let it go"
            return function(*given, **named)

        return hanging

    def wait_called(self) -> None:
        """Until a call waits here."""
        assert self._waiting.acquire(timeout=FORGOTTEN_S), "it was not called"

    def let_go(self) -> None:
        """It answers, from now on at once."""
        self._go.set()


def shorten(monkeypatch: pytest.MonkeyPatch, **bounds_s: float) -> None:
    """Other bounds than the real ones, in all modules that have them by this name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("amqpd."):
            for bound, value in bounds_s.items():
                if hasattr(module, bound):
                    monkeypatch.setattr(module, bound, value)
