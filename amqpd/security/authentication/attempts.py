"""Log-ins whose hash is waited for, by connection, and which of them outlive theirs.

What comes in: a connection's log-in begins, the connection ends, the log-in ends. What goes out: cancellation.
Rules: 1. A log-in whose connection has ended is cancelled: each waits as a task, and a full garbage collection that
finds 12,000 of them holds the message loop for 80 to 190 ms. 2. A few of each address are not, so that a client
behind a flood that tries again with the same password gets the answer to its first try; of the addresses with most of
them they make way for those with fewer. 3. What ended leaves both tables, whatever the outcome.
Not here: the hash, and in which order log-ins wait for it (`logins.py`), the answer (`process/services.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from amqpd.vocabulary.client import LoginClient

# A client has one log-in under way, or two, when it tries again before its first connection has ended; an address may
# be that of several clients.
ABANDONED_AN_ADDRESS_MAX = 10
# What a flood from any number of addresses may leave: a full collection takes 35 us for each (60 objects).
ABANDONED_MAX = 300


class Attempts:
    """The log-ins under way, by connection; those whose connection has ended are bounded by address."""

    def __init__(self) -> None:
        self._under_way: dict[LoginClient, tuple[trio.CancelScope, str]] = {}
        self._abandoned: dict[LoginClient, str] = {}
        """of these, whose connection has ended and that go on: their addresses"""
        self._counts: Counter[str] = Counter()
        """how many are abandoned, by address"""

    def begin(self, connection: LoginClient, address: str) -> None:
        """Before the task is started: its connection may end before its first step."""
        self._under_way[connection] = trio.CancelScope(), address

    @contextmanager
    def under_way(self, connection: LoginClient) -> Iterator[str]:
        """Around the verification; gives the address. What is behind it is left out when `abandon` cancelled it."""
        scope, address = self._under_way[connection]
        try:
            with scope:
                yield address
        finally:
            del self._under_way[connection]
            if connection in self._abandoned:
                self._forget(connection)

    def abandon(self, connection: LoginClient) -> None:
        """The connection has ended. A hash that has begun comes to its end in any case."""
        if connection not in self._under_way:
            return
        scope, address = self._under_way[connection]
        if self._counts[address] >= ABANDONED_AN_ADDRESS_MAX or not self._has_place(address):
            scope.cancel()
        else:
            self._abandoned[connection] = address
            self._counts[address] += 1

    def _has_place(self, address: str) -> bool:
        """For one more; another address's may have been given up for that."""
        if len(self._abandoned) < ABANDONED_MAX:
            return True
        greediest, count = self._counts.most_common(1)[0]
        if count <= self._counts[address] + 1:
            return False
        given_up = next(each for each, of in reversed(self._abandoned.items()) if of == greediest)
        self._under_way[given_up][0].cancel()
        self._forget(given_up)
        return True

    def _forget(self, connection: LoginClient) -> None:
        address = self._abandoned.pop(connection)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]
