"""Mistakes that the law has to find: what all of them have.

What comes in: nothing. What goes out: hooks. A mistake is a class that changes some attributes of the shipped modules
while it is planted, or a leader when it begins; `rule` is the rule of docs/decisions/remote-protocol.md that it
breaks.
Not here: the mistakes (`bugs_of_edges.py`, `bugs_of_leaders.py`), the seeds that find them (`planted.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from inspect import getattr_static
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from tests.remote.simulation.led import Led


class NoBug:
    """As it ships."""

    rule = 0
    faults: dict[str, int] | None = None
    """what it needs: the name of a fault, and about how many ms are between two of them; nothing else goes wrong.
    None: as drawn"""
    drawn: dict[str, Any] = {}
    """attributes of the world that are so, in place of what is drawn"""

    @contextmanager
    def planted(self) -> Iterator[None]:
        yield

    def led(self, led: Led) -> None:
        """A leader has begun."""


class Patched(NoBug):
    """One attribute of the shipped modules is another."""

    where: Any = None
    name = ""
    instead: Any = None
    too: tuple[tuple[Any, str, Any], ...] = ()
    """more of them: where, name and what is there instead"""

    @contextmanager
    def planted(self) -> Iterator[None]:
        instead = getattr_static(self, "instead")
        with ExitStack() as patches:
            patches.enter_context(patch.object(self.where, self.name, getattr(instead, "__func__", instead)))
            for where, name, other in self.too:
                patches.enter_context(patch.object(where, name, other))
            yield
