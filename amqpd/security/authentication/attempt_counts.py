"""Counts of log-in attempts, by protocol and by where they come from.

What comes in: each attempt, with its verdict. What goes out: rows of counts.
Rules: 1. Sources are bounded: of more than `SOURCES_MAX` the one that was seen longest ago is forgotten, so a flood
of names or addresses costs no memory. 2. Counts begin with the process, or when they were deleted.
Not here: verdicts (`logins.py`), what is logged of an attempt (`connection.py`, `admin/amqpd_admin/login.py`).

Source for names: RabbitMQ's /api/auth/attempts/{node} and /api/auth/attempts/{node}/source.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator

AMQP, HTTP = "amqp091", "http"

SOURCES_MAX = 1_000
# A client may claim a name of any length.
NAME_CHARACTERS_MAX = 255

Source = tuple[str, str, str]
"""address, user's name, protocol"""


class LoginAttemptCounts:
    """Counts of the log-in attempts at one node, by protocol and by source."""

    def __init__(self) -> None:
        self._protocols: dict[str, Counter[bool]] = {}
        self._sources: OrderedDict[Source, Counter[bool]] = OrderedDict()

    def count(self, protocol: str, address: str, user: str, accepted: bool) -> None:
        self._protocols.setdefault(protocol, Counter())[accepted] += 1
        source = (address, user[:NAME_CHARACTERS_MAX], protocol)
        self._sources.setdefault(source, Counter())[accepted] += 1
        self._sources.move_to_end(source)
        if len(self._sources) > SOURCES_MAX:
            self._sources.popitem(last=False)

    def by_protocol(self) -> Iterator[dict[str, str | int]]:
        for protocol, counts in self._protocols.items():
            yield {"protocol": protocol, **_fields(counts)}

    def by_source(self) -> Iterator[dict[str, str | int]]:
        for (address, user, protocol), counts in self._sources.items():
            yield {"remote_address": address, "username": user, "protocol": protocol, **_fields(counts)}

    def forget(self) -> None:
        """Both counts begin at zero, as in RabbitMQ."""
        self._protocols.clear()
        self._sources.clear()

    def forget_sources(self) -> None:
        self._sources.clear()


def _fields(counts: Counter[bool]) -> dict[str, str | int]:
    return {
        "auth_attempts": counts.total(),
        "auth_attempts_failed": counts[False],
        "auth_attempts_succeeded": counts[True],
    }
