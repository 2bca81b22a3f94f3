"""What the journal's small tables hold, told once: for the check that looks at each record, and for the repair.

What comes in: nothing. What goes out: `KINDS`; the columns of a row's index entry, and whether they fit.
Rules: what a record is for, and what its loss means to messages, stands beside its columns.
Not here: the tables (`journal/sqlite/schema.py`), the checksums (`journal/sqlite/checksums.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from amqpd.checking.reading import Row, checksum_matches
from amqpd.journal.sqlite import checksums

ORIGIN = ("source", "epoch", "idx")


class Kind(NamedTuple):
    """One of the journal's small tables: its columns, its checksum, and the words for a damage in it."""

    table: str
    columns: tuple[str, ...]
    """those that the checksum is of, in its order"""
    made: Callable[..., int]
    places: tuple[int, int, int]
    """of the queue's number, the first and the last message among the columns; -1: it has none"""
    key: str
    text: str
    means: str
    """what is lost without the record"""

    @property
    def sql(self) -> str:
        return f"SELECT {', '.join(self.columns)}, crc FROM {self.table} ORDER BY {self.key}"

    def checksum_matches(self, row: Row) -> bool:
        return checksum_matches(self.made, *row[:-1], crc=row[-1])

    def about(self, row: Row) -> tuple[int | None, int | None, int | None]:
        """(the queue's number, first, last) as far as they are numbers."""
        found = [row[at] if at >= 0 and type(row[at]) is int else None for at in self.places]
        return found[0], found[1], found[2]


SETTLED = Kind(
    "settled",
    ("queue_id", "first_seq", "last_seq", *ORIGIN),
    checksums.of_settled,
    (0, 1, 2),
    "queue_id, first_seq, last_seq",
    "the record that {messages} of {queue} are settled does not fit its checksum",
    "settled messages may come back, flagged as redelivered",
)
MARK = Kind(
    "queue",
    ("queue_id", "next_seq", "delivered", *ORIGIN),
    checksums.of_mark,
    (0, -1, -1),
    "queue_id",
    "the record of what was delivered of {queue} does not fit its checksum",
    "all its messages come flagged as redelivered",
)
DISCARD = Kind(
    "discard",
    ("discard_id", "queue_id", "first_seq", "last_seq", *ORIGIN),
    checksums.of_discard,
    (1, 2, 3),
    "discard_id",
    "the record of the deletion of {messages} of {queue} does not fit its checksum",
    "deleted messages may come back, flagged as redelivered",
)
RETURNED = Kind(
    "returned",
    ("queue_id", "seq", "count", *ORIGIN),
    checksums.of_returned,
    (0, 1, 1),
    "queue_id, seq",
    "the record of how often {messages} of {queue} came back does not fit its checksum",
    "the message may come back more often than its delivery limit allows",
)
FORMER = Kind(
    "former",
    (*ORIGIN, "kind", "queue_id", "one", "two", "was_epoch", "was_idx"),
    checksums.of_former,
    (4, -1, -1),
    "source, epoch, idx, kind, queue_id, one, two",
    "the former version of a record of {queue} does not fit its checksum",
    "what another leader's log replaces cannot be undone to that version",
)
TAIL = Kind(
    "tail",
    (*ORIGIN, "before_epoch", "before_idx", "checksum", "first_row", "rows", "control"),
    checksums.of_tail,
    (-1, -1, -1),
    "source, epoch, idx",
    "the record of an entry of a replicated source does not fit its checksum",
    "what this disk has of such sources counts as committed here, and its leaders admit it again",
)
VOTE = Kind(
    "seal",
    ("source", "epoch", "forwarder", "life"),
    checksums.of_vote,
    (-1, -1, -1),
    "source",
    "the record of who is the leader of a source does not fit its checksum",
    "this disk's vote is forgotten, and its leaders admit it again",
)
OPERATIONS = Kind(
    "operation_mark",
    ("source", "forwarder", "ended", "incarnation", "mark", "epoch", "idx", "outcomes"),
    checksums.of_operation_mark,
    (-1, -1, -1),
    "source, forwarder",
    "the record of how far another node's operations are done does not fit its checksum",
    "what clients of that node have sent and not heard of may be done twice",
)
FORMER_OPERATIONS = Kind(
    "former_operation_mark",
    (*ORIGIN, "forwarder", "ended", "incarnation", "mark", "was_epoch", "was_idx", "outcomes"),
    checksums.of_former_operation_mark,
    (-1, -1, -1),
    "source, epoch, idx, forwarder",
    "the former record of how far another node's operations were done does not fit its checksum",
    "what another leader's log replaces cannot be undone to that version",
)
KINDS = (SETTLED, MARK, DISCARD, RETURNED, FORMER, TAIL, VOTE, OPERATIONS, FORMER_OPERATIONS)

HEAD = (
    "queue_id",
    "first_seq",
    "last_seq",
    "persistent",
    "nbytes",
    *ORIGIN,
    "body_bytes",
    "published_ms",
    "deadline_bytes",
    "crc",
)
"""of a row of messages, in the order of the checksum; `crc` has it in its upper half"""
_HEAD = ", ".join(HEAD)
INDEX = f"SELECT batch_id, {_HEAD} FROM batch INDEXED BY batch_index ORDER BY queue_id, last_seq, first_seq"
INDEX_BACKWARDS = INDEX.replace("queue_id, last_seq, first_seq", "queue_id DESC, last_seq DESC, first_seq DESC")
TABLE = f"SELECT batch_id, {_HEAD} FROM batch NOT INDEXED"


class MessageRowHead(NamedTuple):
    """The columns of a row of messages without its bodies, as they were read: a damaged one may have anything
    there."""

    queue_id: Any
    first_seq: Any
    last_seq: Any
    persistent: Any
    nbytes: Any
    source: Any
    epoch: Any
    idx: Any
    body_bytes: Any
    published_ms: Any
    deadline_bytes: Any
    crc: Any

    @property
    def checksum_matches(self) -> bool:
        """Rows of formats before 0003 have no checksum of this."""
        if any(type(value) is not int for value in self):
            return False
        upper = self.crc >> checksums.HEAD_SHIFT
        return upper == 0 or checksum_matches(checksums.of_head, *self[:-1], crc=upper)

    @property
    def about(self) -> tuple[int | None, int | None, int | None]:
        found = [value if type(value) is int else None for value in self[:3]]
        return found[0], found[1], found[2]
