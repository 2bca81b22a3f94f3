"""What messages stand in, as the audit log covers it: queues, delayed messages, orphans.

What comes in: nothing. What goes out: `Audited`.
Rules: it is asked for its books and figures, never for a message.
Not here: which there are (`node/node.py`), what is recorded of them (`coverage.py`, `anchors.py`, `counts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from amqpd.audit.book import Book
from amqpd.queues.facts import Facts
from amqpd.queues.messages import Messages
from amqpd.queues.states import QueueState
from amqpd.vocabulary.records import QueueRecord


class Audited(Protocol):
    """Messages of one owner, with the books that the audit log keeps of them."""

    record: QueueRecord
    """the virtual host is empty where it is not known"""
    state: QueueState
    facts: Facts
    audit_level: str | None
    """their own; None: that of the virtual host"""
    recorded_share: int
    """of them, that has books"""

    @property
    def ready_count(self) -> int:
        """Messages that nobody has yet."""
        ...

    @property
    def unacked_count(self) -> int:
        """Messages that somebody has."""
        ...

    def levels(self) -> Iterable[Messages]:
        """All of them, with a book for each level."""
        ...

    def keep_books(self, open_book: Callable[[Messages], Book] | None) -> None:
        """Record them in these books from now on; None: do not."""
        ...
