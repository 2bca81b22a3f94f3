"""What the sums of fates say in all: what else has to be asked.

What comes in: `outcome`. What goes out: `Summary`, in the driver.
Rules: as many rows as there are queues and epochs go to the driver, from each task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from amqpd_spark.books.fates import ENDED
from amqpd_spark.tabular import Table, added, over

_HOW = {
    **dict.fromkeys(("entered", "stranger", "unrecorded"), "sum"),
    "low": "min",
    **dict.fromkeys(("any_entered", "suspects", "absent", "high"), "max"),
}
_SCHEMA = "slot bigint, " + ", ".join(f"{name} bigint" for name in _HOW)


@dataclass
class Summary:
    """`entered`, slot -> messages that the log saw enter; `unrecorded`, slot -> (least, greatest, how many) of such
    numbers; `suspects`: there are some, and of those that are `absent`; `before`: messages of before the log."""

    entered: dict[int, int] = field(default_factory=dict)
    unrecorded: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    suspects: bool = False
    absent: bool = False
    before: int = 0


def summary(outcome: Table) -> Summary:
    table = over(outcome, _told, _SCHEMA)
    sums = added([table if isinstance(table, pa.Table) else table.toArrow()], ["slot"], _HOW)
    made = Summary()
    for row in sums.to_pylist() if sums is not None else ():
        made.suspects |= row["suspects"] == 1
        made.absent |= row["absent"] == 1
        made.before += row["stranger"]
        if row["any_entered"]:
            made.entered[row["slot"]] = row["entered"]
        if row["unrecorded"]:
            made.unrecorded[row["slot"]] = row["low"], row["high"], row["unrecorded"]
    return made


def _told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sums = added(map(_flags, batches), ["slot"], _HOW)
    if sums is not None:
        yield from sums.to_batches()


def _flags(batch: pa.RecordBatch) -> pa.Table:
    rows = pa.Table.from_batches([batch])
    rows = rows.filter(pc.fill_null(pc.not_equal(rows.column("fate"), ENDED), True))
    fate, suspect, many = (rows.column(name) for name in ("fate", "suspect", "messages"))

    def is_true(flags: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.fill_null(flags, False)

    entered = pc.invert(pc.or_(is_true(rows.column("found")), is_true(rows.column("unseen"))))
    stranger = pc.and_(is_true(pc.equal(fate, "stranger")), pc.is_null(suspect))
    unrecorded = is_true(rows.column("unrecorded"))
    return pa.table(
        {
            "slot": rows.column("slot"),
            **{
                name: pc.if_else(flags, many, 0)
                for name, flags in (("entered", entered), ("stranger", stranger), ("unrecorded", unrecorded))
            },
            **{
                name: pc.if_else(unrecorded, rows.column(name), pa.scalar(None, pa.int64()))
                for name in ("low", "high")
            },
            "any_entered": entered.cast(pa.int64()),
            "suspects": pc.is_valid(suspect).cast(pa.int64()),
            "absent": is_true(pc.equal(suspect, "absent")).cast(pa.int64()),
        }
    )
