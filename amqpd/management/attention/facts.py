"""Facts that may need somebody: the form in which a node tells them, to itself and to the others of its cluster.

What comes in: rows. What goes out: the same, checked.
Rules: 1. One form for all kinds, so that a row of another node is checked in one place. 2. Numbers have their unit in
their names; `MORE` says how many facts of a kind are not told one by one.
Not here: where they come from (`watch.py`), what is said of them (`needs.py`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

DAMAGED: Final = "damaged"
"""a queue that stops at damaged messages: `first`, `last`, `messages` that are known to be"""
BROKEN: Final = "broken"
"""a queue in which a bug was met: nothing is done with it until a restart"""
NO_CONSUMERS: Final = "no_consumers"
"""a queue in which messages wait, and nobody consumes: `ready`, `oldest_s`"""
PREFETCH: Final = "prefetch"
"""a queue in which messages wait, whose consumers acknowledge nothing: `ready`, `consumers`, `unacked`, `idle_s`"""
REFUSING: Final = "refusing"
"""a full queue: `refused`, `last_s`, `consumers`; `max_length`, `max_length_bytes` where it has them"""
DEAD_LETTERS: Final = "dead_letters"
"""a queue to which dead letters came: `came`, `last_s`, `ready`, `consumers`"""
UNROUTABLE: Final = "unroutable"
"""an exchange: `dropped`, `returned`, `nacked`, `last_s`"""
BLOCKED: Final = "blocked"
"""connections that an alarm blocks: `connections`"""
JOURNAL: Final = "journal"
"""publishers wait for the journal, at each look of `seconds`; `name` is the journal's reason"""
CUT_OFF: Final = "cut_off"
"""sources that the node leads, or gave up, of which no majority answers: `sources`"""
MORE: Final = "more"
"""of the kind `name`: `count`"""

OF_QUEUES = (DAMAGED, BROKEN, NO_CONSUMERS, PREFETCH, REFUSING, DEAD_LETTERS)
WEIGHED_BY = {
    DAMAGED: ("messages",),
    NO_CONSUMERS: ("ready",),
    PREFETCH: ("ready",),
    REFUSING: ("refused",),
    DEAD_LETTERS: ("came",),
    UNROUTABLE: ("dropped", "returned", "nacked"),
    BLOCKED: ("connections",),
    JOURNAL: ("seconds",),
    CUT_OFF: ("sources",),
}
"""which numbers say how much it matters"""
EACH_MAX = 5
"""facts of one kind that are told one by one"""


class Fact(NamedTuple):
    """One fact that may need an operator's attention: its kind, what it is about, and numbers with their units."""

    kind: str
    vhost: str
    name: str
    """of a queue or an exchange; of a kind for `MORE`; the reason for `JOURNAL`"""
    numbers: dict[str, float]

    @property
    def weight(self) -> float:
        """What matters most has most."""
        return sum(self.numbers.get(name, 0) for name in WEIGHED_BY.get(self.kind, ()))

    @property
    def row(self) -> dict[str, Any]:
        """The fact as an object of JSON."""
        return self._asdict()


def fact_of(row: dict[str, Any]) -> Fact:
    """Of a row that `across_nodes/rows.py` has checked."""
    return Fact(row["kind"], row["vhost"], row["name"], row["numbers"])
