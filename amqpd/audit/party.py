"""Columns that many records share, named once in each file of the spool.

What comes in: the publisher of a message, its consumer, the receiver of a confirm. What goes out: the number of their
name.
Rules: a name's number is good for one file; in the next one it is named again.
Not here: what is recorded (`recorder.py`, `book.py`), where names are kept (`spool.py`).
"""

from __future__ import annotations

from typing import Any

from amqpd.audit.spool import SpoolBuffer
from amqpd.vocabulary.client import Client


class Party:
    """Columns that many records share, named once in each file: the publisher of a message, its consumer,
    the receiver of a confirm."""

    __slots__ = ("_columns", "_generation", "_name", "share")

    def __init__(self, columns: dict[str, Any], share: int = 0) -> None:
        """`share`: of its publications that are recorded in any case."""
        self._columns = columns
        self._generation = 0
        self._name = 0
        self.share = share

    def name(self, buffer: SpoolBuffer) -> int:
        if self._generation != buffer.generation:
            self._generation = buffer.generation
            self._name = buffer.name(self._columns)
        return self._name


def consuming(connection: Client, tag: str) -> Party:
    """The receiver of deliveries; basic.get has no consumer tag."""
    return Party({"connection": connection.name, "user": connection.user, "consumer": tag})
