"""How many messages reached no queue, and what became of them.

What comes in: an outcome for a number of messages that were published to an exchange. What goes out: counts, for each
virtual host and each exchange.
Rules: 1. A message that is returned and refused counts as both; dropped is only what nobody is told of. 2. The
counts of an exchange go with it; those of its virtual host stay until that goes; the totals stay.
Not here: which outcome it is (`publish.py`), by which policy (`topology/parameters.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from amqpd.vocabulary.records import Change, Delete

DROP, NACK = "drop", "nack"


class UnroutableOutcome(Enum):
    """The outcome of a message that reached no queue."""

    RETURNED = "returned"
    """basic.return: it was mandatory"""
    DROPPED = "dropped"
    NACKED = "nacked"
    """refused to a publisher that waits for confirms, because a policy says so"""
    REROUTED = "rerouted"
    """it went through the exchange that a policy names, and reached a queue there"""


class Unroutable:
    """Counts unroutable messages, by virtual host, by exchange and by outcome."""

    def __init__(self) -> None:
        self._by_exchange: dict[tuple[str, str], dict[UnroutableOutcome, int]] = {}
        self._by_vhost: dict[str, dict[UnroutableOutcome, int]] = {}
        self._totals: dict[UnroutableOutcome, int] = {}
        self._touched: set[tuple[str, str]] = set()

    def count(self, vhost: str, exchange: str | None, outcome: UnroutableOutcome, messages: int) -> None:
        """`exchange` is None when it is not there any more."""
        _add(self._totals, outcome, messages)
        _add(self._by_vhost.setdefault(vhost, {}), outcome, messages)
        if exchange is not None:
            _add(self._by_exchange.setdefault((vhost, exchange), {}), outcome, messages)
            self._touched.add((vhost, exchange))

    def take_touched(self) -> set[tuple[str, str]]:
        """The exchanges of which something was counted since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def totals(self) -> dict[UnroutableOutcome, int]:
        """Since the start, those of virtual hosts that are gone included."""
        return _all(self._totals)

    def vhosts(self) -> list[str]:
        """Those in which something was counted."""
        return list(self._by_vhost)

    def of_vhost(self, vhost: str) -> dict[UnroutableOutcome, int]:
        """The count of each outcome."""
        return _all(self._by_vhost.get(vhost, {}))

    def of_exchange(self, vhost: str, exchange: str) -> dict[UnroutableOutcome, int]:
        return _all(self._by_exchange.get((vhost, exchange), {}))

    def applied(self, changes: Sequence[Change]) -> None:
        """The topology has changed so."""
        forget_exchanges(changes, self._by_exchange)
        self._touched.intersection_update(self._by_exchange)
        for change in changes:
            if isinstance(change, Delete) and change.key[0] == "vhost":
                self._by_vhost.pop(change.key[1], None)


def forget_exchanges(changes: Sequence[Change], counts: dict[tuple[str, str], Any]) -> None:
    """The counts of exchanges that are gone with these changes, by virtual host and name, go too."""
    for change in changes:
        if isinstance(change, Delete):
            match change.key:
                case ("exchange", vhost, name):
                    counts.pop((vhost, name), None)
                case ("vhost", name):
                    for key in [key for key in counts if key[0] == name]:
                        del counts[key]


def _add(counts: dict[UnroutableOutcome, int], outcome: UnroutableOutcome, messages: int) -> None:
    counts[outcome] = counts.get(outcome, 0) + messages


def _all(counts: dict[UnroutableOutcome, int]) -> dict[UnroutableOutcome, int]:
    return {outcome: counts.get(outcome, 0) for outcome in UnroutableOutcome}
