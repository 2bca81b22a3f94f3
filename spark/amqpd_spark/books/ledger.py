"""Rows of the table `books`: messages that entered in a window of time, by what became of them.

What comes in: sums of messages, by queue, window and fate. What goes out: a row for each place, virtual host, queue
and window, whose columns add up.
Rules: the function is called with all rows of a queue, in a task or in the driver.
Not here: fates (`outcome.py`), when messages ended (`over_time.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from amqpd_spark.books.fates import ENDED
from amqpd_spark.schema import ENDS
from amqpd_spark.tabular import added

QUEUE = ("node", "vhost", "queue")
KEYS = (*QUEUE, "window")
COLUMNS = ("node", "vhost", "queue", "window", "fate", "found", "unseen", "messages")
"""of sums of messages; `window` is where it starts, in microseconds, `fate` as in `outcome`"""
ENTRIES = ("accepted", "found", "unseen")
FATES = (*ENDS, "transient", "unconfirmed", "standing", "uncertain", "missing")
"""a message that was accepted, found in an anchor, or entered unseen, has one of them"""
BOOKS = ", ".join(
    (
        "node string, vhost string, queue string, window timestamp",
        *(f"{name} bigint" for name in (*ENTRIES, *FATES)),
    )
)


def booked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """COLUMNS to BOOKS."""
    columns = (*ENTRIES, *FATES)
    sums = added(map(_entries, batches), KEYS, dict.fromkeys(columns, "sum"))
    if sums is not None:
        yield from timed(sums).to_batches()


def timed(sums: pa.Table) -> pa.Table:
    """`window` as a time."""
    at = sums.schema.get_field_index("window")
    return sums.set_column(at, "window", sums.column("window").cast(pa.timestamp("us", "UTC")))


def _entries(batch: pa.RecordBatch) -> pa.Table:
    rows = pa.Table.from_batches([batch])
    fate = rows.column("fate")
    # Without a fate there are none here: suspects get theirs before.
    rows = rows.filter(pc.and_(pc.is_valid(fate), pc.invert(pc.is_in(fate, pa.array(["stranger", ENDED])))))
    fate, found, unseen = (rows.column(name) for name in ("fate", "found", "unseen"))
    are = {
        "accepted": pc.invert(pc.or_(found, unseen)),
        "found": found,
        "unseen": unseen,
        **{name: pc.equal(fate, name) for name in FATES},
    }
    of = rows.column("messages")
    return pa.table(
        {
            **{name: rows.column(name) for name in KEYS},
            **{name: pc.if_else(pc.fill_null(flags, False), of, 0) for name, flags in are.items()},
        }
    )
