"""The alarms that are on: publishers wait while there is one.

What comes in: a kind of shortage, on or off. What goes out: the kinds that are on; a call for each that begins or
ends, and one when the last one ends.
Rules: 1. A kind is on or off: which source said so is the board's matter (`node/alarm_board.py`).
Not here: which connections are blocked, and told so (`session/intake.py`).

Source: https://www.rabbitmq.com/docs/alarms
"""

from __future__ import annotations

from collections.abc import Callable


class Alarms:
    """The kinds of alarms that are on at one node."""

    def __init__(self, cleared: Callable[[], None], told: Callable[[str, bool], None]) -> None:
        """`cleared` is called when none is on any more, `told` of each that begins (True) or ends."""
        self.kinds: set[str] = set()
        """memory, disk, or an operator's; asked before every publish"""
        self._cleared = cleared
        self._told = told

    def set(self, kind: str, on: bool) -> None:
        """It is short, or no longer."""
        if on == (kind in self.kinds):
            return
        self._told(kind, on)
        if on:
            self.kinds.add(kind)
        else:
            self.kinds.discard(kind)
            if not self.kinds:
                self._cleared()
