"""The alarms that are on, and which sources say so: publishers wait while there is one.

In a cluster they wait, too, while their node is not current (`cluster/currency.py`): that is no alarm, and nobody is
told of it, but they are stopped at the same place, which every publish passes.

What comes in: a kind of shortage, a source, on or off. What goes out: the kinds that are on; a call for each that
begins or ends, and one when the last one ends.
Rules: 1. A kind is on while any source says so: a watch of free space, a commit that found none, and an operator may
all speak of the disk, and none of them clears what another said. 2. What operators invent is bounded, because the
names of all alarms stand together in connection.blocked's short string.
Not here: when the watches speak (`process/alarms.py`, `journal/writer.py`), which connections are blocked, and told
so (`session/intake.py`).

Source: https://www.rabbitmq.com/docs/alarms
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

OPERATOR = "operator"
# "low on " and, joined by " & ": memory, disk and these, is less than 255 bytes.
NAME_BYTES_MAX = 32
OPERATOR_ALARMS_MAX = 4

NOT_CURRENT: Final = "not current"
"""among `kinds` while the node is not current; no alarm can have this name"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RefusedAlarm(ValueError):
    """A request to set or clear an alarm is refused; the text is one sentence for the operator."""


class Alarm(NamedTuple):
    """An alarm from one source: what is short, and since when."""

    kind: str
    source: str
    since: float
    """POSIX time"""


class Alarms:
    """The alarms that are on at one node, each with the sources that say so."""

    def __init__(self, cleared: Callable[[], None], told: Callable[[str, bool], None]) -> None:
        """`cleared` is called when none is on any more, `told` of each kind that begins (True) or ends."""
        self.kinds: set[str] = set()
        """memory, disk, or an operator's, or `NOT_CURRENT`; asked before every publish"""
        self._cleared = cleared
        self._told = told
        self._since: dict[tuple[str, str], float] = {}

    @property
    def by_source(self) -> list[Alarm]:
        """Sorted by kind and source."""
        return [Alarm(kind, source, since) for (kind, source), since in sorted(self._since.items())]

    @property
    def shortages(self) -> list[str]:
        """The kinds of the alarms that are on, sorted."""
        return sorted(self.kinds - {NOT_CURRENT})

    def set_current(self, current: bool) -> None:
        """The node has heard of all changes to the topology that it must know, or does not know whether it has."""
        if not current:
            self.kinds.add(NOT_CURRENT)
        elif NOT_CURRENT in self.kinds:
            self.kinds.discard(NOT_CURRENT)
            if not self.kinds:
                self._cleared()

    def put(self, kind: str, source: str, on: bool, now: float) -> bool:
        """The source says that the kind is short, or that it is no longer: whether the kind begins or ends with that.
        `now` is POSIX time."""
        if on:
            self._since.setdefault((kind, source), now)
        else:
            self._since.pop((kind, source), None)
        is_on = any(known == kind for known, _ in self._since)
        if is_on == (kind in self.kinds):
            return False
        self._told(kind, is_on)
        if is_on:
            self.kinds.add(kind)
        else:
            self.kinds.discard(kind)
            if not self.kinds:
                self._cleared()
        return True

    def set_by_operator(self, kind: str, now: float) -> bool:
        """Whether it is new. Raises RefusedAlarm."""
        if (kind, OPERATOR) in self._since:
            return False
        if len(kind) > NAME_BYTES_MAX or not _NAME.fullmatch(kind):
            raise RefusedAlarm(
                f"an alarm's name is at most {NAME_BYTES_MAX} letters, digits, dots, dashes and underscores: "
                f"memory, disk, or one of your own such as maintenance"
            )
        if sum(source == OPERATOR for _, source in self._since) >= OPERATOR_ALARMS_MAX:
            raise RefusedAlarm(f"there are {OPERATOR_ALARMS_MAX} alarms of operators already: clear one")
        self.put(kind, OPERATOR, True, now)
        return True

    def clear_by_operator(self, kind: str) -> bool:
        """Whether an operator had set it; clearing it twice is no error."""
        was_set = (kind, OPERATOR) in self._since
        self.put(kind, OPERATOR, False, 0)
        return was_set
