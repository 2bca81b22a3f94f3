"""The table `flow`: how many messages entered and how many ended, by the time at which each happened.

What comes in: sums of messages, by queue, window and fate. What goes out: a row for each place, virtual host, queue
and window in which something entered or ended.
Rules: it is what the log says, not what is concluded: an end that a kill has undone is counted, and so is the next
one of that message; what ended without a word, as a kill's victims do, is not. `books` has what became of messages,
by the time at which they entered.
Not here: what a page makes of it (`report_page/over_time.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from amqpd_spark.books.fates import ENDED
from amqpd_spark.books.ledger import KEYS, timed
from amqpd_spark.tabular import added

FLOW = "node string, vhost string, queue string, window timestamp, entered bigint, ended bigint"


def flow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Columns of `books.ledger.COLUMNS` to FLOW."""
    sums = added(map(_moved, batches), KEYS, {"entered": "sum", "ended": "sum"})
    if sums is not None:
        there = pc.or_(pc.greater(sums.column("entered"), 0), pc.greater(sums.column("ended"), 0))
        yield from timed(sums.filter(there)).to_batches()


def _moved(batch: pa.RecordBatch) -> pa.Table:
    rows = pa.Table.from_batches([batch])
    fate, of = rows.column("fate"), rows.column("messages")
    is_end = pc.fill_null(pc.equal(fate, ENDED), False)
    unknown = pc.or_(*(pc.fill_null(rows.column(name), False) for name in ("found", "unseen")))
    enters = pc.invert(pc.or_(unknown, pc.is_in(fate, pa.array(["stranger", ENDED]))))
    columns = {name: rows.column(name) for name in KEYS}
    return pa.table(columns | {"entered": pc.if_else(enters, of, 0), "ended": pc.if_else(is_end, of, 0)})
