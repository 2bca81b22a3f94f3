"""The tables of a journal, and the order of its formats.

What comes in: nothing. What goes out: SQLAlchemy tables, `REVISIONS`, the pages' size.
Rules: 1. What belongs to one transaction of a source carries (source, epoch, idx), so that a tail that is not
committed can be undone: what is above an (epoch, idx) is deleted, and what that had replaced comes back from `former`
(`undoing.py`). The order is by (epoch, idx), never by idx alone. 2. A message row is found and recovered by its
index alone; the body is read only to be delivered. 3. What is not in a body has a checksum of its own
(`checksums.py`), and `source` counts rows and settled records, so that one that vanished is missed. 4. A change here
is a new file in `migrations/versions` and a new last entry of `REVISIONS`; a test compares the migrated tables with
these.
Not here: the statements (`statements.py`), opening and migrating a file (`database.py`).
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, LargeBinary, MetaData, Table, Text

from amqpd.journal.records import LOCAL

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""Formats that this code can read, oldest first; the last one is what it writes."""

SAME_TABLES = REVISIONS[-4:]
"""The tables that these formats have are the same; with 0005 the record of the local source may be behind its rows,
0006 has more tables, for sources that are replicated, and 0007 for operations of edges."""

APPLICATION_ID = 0x616D716A
"""'amqj' in the file's header (SQLite's PRAGMA application_id): this database is a journal of amqpd."""

PAGE_BYTES = 8192
"""Measured with `bench/journal_commit.py`, steady state, fsync 0.2 ms: a commit of one small row costs the same
with 4, 8 and 16 kB pages and 1.6 times as much with 32 kB; 2 MB of cold rows are deleted in 1.5 ms with
4 kB pages and in 0.85 ms with 8 kB; rows of 200 kB do not care."""

SOURCE = LOCAL
"""The local source, the only one of a node without replicas. It is never replicated, so what is stored of it is
committed. Its record counts the rows of all sources."""

SEQ_MAX = 2**63 - 1
"""The largest integer that SQLite stores: the end of every queue."""

metadata = MetaData()


def _integer(name: str, *, key: bool = False) -> Column[int]:
    return Column(name, Integer, primary_key=key, autoincrement=False, nullable=False)


def _origin() -> list[Column[int]]:
    """The transaction of a source that the row belongs to (rule 1)."""
    return [_integer("source"), _integer("epoch"), _integer("idx")]


batch = Table(
    "batch",
    metadata,
    # An alias of SQLite's rowid that only grows: rows are appended at the end of the tree, the cheapest insert.
    _integer("batch_id", key=True),
    _integer("queue_id"),
    _integer("first_seq"),
    _integer("last_seq"),
    _integer("nbytes"),
    _integer("persistent"),
    _integer("body_bytes"),
    _integer("published_ms"),
    _integer("deadline_bytes"),
    *_origin(),
    # Of the body and of what the row says, and in the upper half of the head alone: recovery reads no body.
    _integer("crc"),
    # The last one: what stands behind a body is found only by walking through its pages.
    Column("data", LargeBinary, nullable=False),
    # last_seq before first_seq: rows of a queue are disjoint, so `last_seq >= x` seeks to the row that holds x.
    Index(
        "batch_index",
        "queue_id",
        "last_seq",
        "first_seq",
        "nbytes",
        "persistent",
        "source",
        "epoch",
        "idx",
        "body_bytes",
        "published_ms",
        "deadline_bytes",
        "crc",
    ),
)

# Of rows with deadline_bytes > 0, which are few; comes and goes with them.
deadline = Table(
    "deadline",
    metadata,
    _integer("batch_id", key=True),
    *_origin(),
    _integer("crc"),
    Column("data", LargeBinary, nullable=False),
)

# How often a message came back. Written over: `former` has the version before until that is committed.
returned = Table(
    "returned",
    metadata,
    _integer("queue_id", key=True),
    _integer("seq", key=True),
    _integer("count"),
    *_origin(),
    _integer("crc"),
    sqlite_with_rowid=False,
)

settled = Table(
    "settled",
    metadata,
    _integer("queue_id", key=True),
    _integer("first_seq", key=True),
    _integer("last_seq", key=True),
    *_origin(),
    _integer("crc"),
    sqlite_with_rowid=False,
)

# What is to be deleted and is too much for one commit: rows up to this (epoch, idx), wholly inside the range, do not
# exist any more for `recover` and `read`, and leave the disk piece by piece once that is committed (`discards.py`).
discard = Table(
    "discard",
    metadata,
    _integer("discard_id", key=True),
    _integer("queue_id"),
    _integer("first_seq"),
    _integer("last_seq"),
    *_origin(),
    _integer("crc"),
    Index("discard_index", "queue_id", "first_seq", "last_seq", "epoch", "idx"),
)

# next_seq is a lower bound that is written when rows are deleted; while a queue has rows, they say the rest.
queue = Table(
    "queue",
    metadata,
    _integer("queue_id", key=True),
    _integer("next_seq"),
    _integer("delivered"),
    *_origin(),
    _integer("crc"),
)

# The former versions of records that a transaction of a replicated source replaced or removed, until it is committed;
# (source, epoch, idx) is that transaction. Empty while no source is replicated.
former = Table(
    "former",
    metadata,
    *(_integer(name, key=True) for name in ("source", "epoch", "idx")),
    # of which table, see FORMER_...
    _integer("kind", key=True),
    _integer("queue_id", key=True),
    # The two numbers that a record of any of these tables has beside the queue's.
    _integer("one", key=True),
    _integer("two", key=True),
    # The transaction, of the same source, that it was of.
    _integer("was_epoch"),
    _integer("was_idx"),
    _integer("crc"),
    sqlite_with_rowid=False,
)
FORMER_MARK, FORMER_RETURNED = 1, 2
"""`kind`: of `queue` (next_seq, delivered), `returned` (seq, count). A settled record is never written over: the
older one counts, and the id of a queue is used once."""

# What a source's log has of the operations of each forwarder's clients (docs/decisions/remote-protocol.md): the last
# incarnation that has ended, and of the one that lives (0: none) its mark, and outcomes as ranges (`mark_bytes.py`).
operation_mark = Table(
    "operation_mark",
    metadata,
    _integer("source", key=True),
    Column("forwarder", Text, primary_key=True, nullable=False),
    *(_integer(name) for name in ("ended", "incarnation", "mark", "epoch", "idx")),
    Column("outcomes", LargeBinary, nullable=False),
    _integer("crc"),
    sqlite_with_rowid=False,
)

# As `former`, of that table: what the transaction (source, epoch, idx) replaced or removed, until it is committed.
former_operation_mark = Table(
    "former_operation_mark",
    metadata,
    *(_integer(name, key=True) for name in ("source", "epoch", "idx")),
    Column("forwarder", Text, primary_key=True, nullable=False),
    *(_integer(name) for name in ("ended", "incarnation", "mark", "was_epoch", "was_idx")),
    Column("outcomes", LargeBinary, nullable=False),
    _integer("crc"),
    sqlite_with_rowid=False,
)

# The entries of a replicated source that are not known to be committed, in the order of (epoch, idx). An entry's
# payload is `control` and, end to end, what `rows` rows of `batch` from `first_row` on have (`payload.py`).
tail = Table(
    "tail",
    metadata,
    *(_integer(name, key=True) for name in ("source", "epoch", "idx")),
    _integer("before_epoch"),
    _integer("before_idx"),
    # Of the entry, as `amqpd.replication` has it; it is of the payload, too.
    _integer("checksum"),
    _integer("first_row"),
    _integer("rows"),
    Column("control", LargeBinary, nullable=False),
    _integer("crc"),
    sqlite_with_rowid=False,
)

# What a leader has sent of a source to stand in place of what stands here, while it is incomplete (`staging.py`):
# rows of the source in `batch` from `first_row` of the first record on, and in `control` all that is not rows.
staged = Table(
    "staged",
    metadata,
    *(_integer(name, key=True) for name in ("source", "number")),
    # See STAGED_...
    _integer("kind"),
    *(_integer(name) for name in ("epoch", "idx", "before_epoch", "before_idx", "checksum", "first_row", "rows")),
    Column("control", LargeBinary, nullable=False),
    _integer("crc"),
)
STAGED_BEGUN, STAGED_PART, STAGED_ENTRY = 0, 1, 2
"""`kind`: the first record, of which the rest of the columns means nothing; a part of the state (`state.py`); an
entry that came after it, as in `tail`."""

# Whose entries of a source are taken (`amqpd.peers.entry.Vote`): this disk's vote. The table `vote` and its column
# `incarnation`, the incarnation, keep the names that they have in data directories.
vote = Table(
    "seal",
    metadata,
    _integer("source", key=True),
    _integer("epoch"),
    Column("forwarder", Text, nullable=False),
    _integer("life"),
    _integer("crc"),
)

# The last transaction of each source. `reserved`: sequence numbers below it may have been given. With `replicated`
# what is above the committed (epoch, idx), a lower bound, may be undone; without, all that is stored is committed.
source = Table(
    "source",
    metadata,
    _integer("source", key=True),
    _integer("epoch"),
    _integer("idx"),
    _integer("reserved"),
    _integer("replicated"),
    _integer("committed_epoch"),
    _integer("committed_idx"),
    _integer("crc"),
    # How many records there are in `batch` and in `settled`, and the same numbers below zero: a flipped bit shows.
    _integer("rows"),
    _integer("rows_check"),
    _integer("settled"),
    _integer("settled_check"),
)

HEAD_COLUMNS = ("source", "epoch", "idx", "reserved", "replicated", "committed_epoch", "committed_idx", "crc")
"""of `source`, without its counts"""

GENERATION = "generation"
"""of `names`, where sources are replicated: which disk this is; one that was repaired is another"""

INCARNATION = "life"
"""of `names`, of a disk that was in a cluster: the last incarnation that it claimed"""

# What the file is called: `identity`, 32 hexadecimal digits drawn when it was made; of the metadata store beside it
# `metadata` (its identity) and `metadata_revision`.
names = Table(
    "names",
    metadata,
    Column("name", Text, primary_key=True, nullable=False),
    Column("value", Text, nullable=False),
    _integer("crc"),
)
