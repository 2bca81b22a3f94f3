"""Messages that are delivered and requeued again and again: their rows as two.

What comes in: pieces of stretches, as `facts.py` cuts them. What goes out: the same; but of all rows of one stretch
that neither begin nor end a message, nor say where it stands, there are two: the first moment's, and the last one's.
Rules: 1. What `facts.py` makes of them stays the same. 2. Rows are looked at by sorting once; where few are of the
same stretch, as in most logs, nothing more is done. 3. Memory follows the stretches, not how often they come.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from amqpd_spark.books.gather import ROUTED, STANDING, is_end
from amqpd_spark.books.moments import LAST_KIND
from amqpd_spark.stretches.chunk import Longs
from amqpd_spark.stretches.packed import Columns, hashed, of_columns, together
from amqpd_spark.stretches.sums import grouped, joined

HELD_ROWS = 1 << 20
"""of a task, before it looks whether they can be fewer"""
_STRETCH = ("slot", "first", "last")
_WORTH = 4
"""rows of a stretch, on average, for which it is done"""


def folded(pieces: Columns) -> Columns:
    kind = pieces["at"] & LAST_KIND
    decides = is_end(kind) | (kind == ROUTED) | (kind == STANDING)
    others = np.flatnonzero(~decides)
    if not len(others) or _stretches(pieces, others) * _WORTH > len(others):
        return pieces
    rows = {name: column[others] for name, column in pieces.items()}
    groups = grouped([rows[name] for name in _STRETCH])
    one = {name: groups.heads(rows[name]) for name in (*_STRETCH, "epoch", "publication")}
    one["us"] = -groups.max(-rows["us"])
    one["flags"] = np.bitwise_or.reduceat(rows["flags"][groups.order], groups.starts)
    last = groups.max(rows["at"])
    first = -groups.max(-rows["at"])
    kept = {name: column[decides] for name, column in pieces.items()}
    return joined([kept, *({**one, "at": at} for at in (first, last))])


def held(tables: Iterable[pa.Table]) -> Columns:
    """All rows of a task, folded. {}: there are none."""
    waiting: list[pa.Table] = []
    rows, limit = 0, HELD_ROWS
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        if rows >= limit:
            waiting = [of_columns(folded(together(waiting)))]
            rows = waiting[0].num_rows
            # What does not become fewer is not tried again and again.
            limit = max(HELD_ROWS, 2 * rows)
    return together(waiting)


def _stretches(pieces: Columns, rows: Longs) -> int:
    """How many there are, or one or two fewer."""
    names = hashed(*(pieces[name][rows] for name in _STRETCH))
    names.sort()
    return 1 + int(np.count_nonzero(np.diff(names)))
