"""A transaction of a channel, as far as the session knows it: what it settles waits for its commit.

What comes in: deliveries that are settled while it is open. What goes out: these, for the commit.
Not here: what it publishes, and the commit (`publishing/transaction.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from amqpd.session.unacked import Delivered


@mypyc_attr(allow_interpreted_subclasses=True)  # transactions are not compiled
class HeldBack(ABC):
    """A transaction, as far as it settles deliveries."""

    def __init__(self) -> None:
        self.settled: list[tuple[list[Delivered], bool | None]] = []

    @property
    @abstractmethod
    def messages(self) -> int:
        """How many it has published."""

    @property
    def acknowledgements(self) -> int:
        """How many deliveries it has settled."""
        return sum(entry.size for entries, _ in self.settled for entry in entries)

    @abstractmethod
    def settle(self, entries: list[Delivered], requeue: bool | None) -> None:
        """Keep it for the commit: acknowledged (None), or rejected, to be requeued or not. Raises
        AMQPPreconditionFailed when that is too much."""

    @abstractmethod
    def end(self) -> None:
        """It is committed or given up: what it held counts no more."""

    @abstractmethod
    def give_up(self) -> None:
        """Its publishes will never be; what it settled is still to be put back."""
