"""Rows of the table `findings`: what must not be, and what cannot be known.

What comes in: what the driver knows of the log; suspects and holes, as Spark has them. What goes out: their rows.
Rules: a column that a finding does not have is null.
Not here: how they are found (`suspects.py`, `spans.py`, `summary.py`), how they are printed (`conservation.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark.books.digest import Digest
from amqpd_spark.books.queues import Slot
from amqpd_spark.books.summary import Summary
from amqpd_spark.books.suspects import OF_ENTRY, suspect_detail
from amqpd_spark.files import plain
from amqpd_spark.inventory import Hole, Inventory, Removed

FAULTS = ("missing", "returned_from_the_dead", "ended_twice", "ended_yet_standing", "never_routed", "hole")
LOG_FAULTS = ("log_hole", "rows_removed")
"""of the log, not of the broker"""
DOUBTS = ("unrecorded", "confirmed_unpublished", "gap")
NAMED = ("node", "vhost", "queue", "queue_id", "epoch")
IN_ORDER = (*NAMED, "first", "incarnation", "rows_from", "entered", "last_seen")
"""as findings of a kind are printed"""
_KINDS = {
    **dict.fromkeys(("kind", "node", "vhost", "queue"), "string"),
    "incarnation": "int",
    "queue_id": "bigint",
    "epoch": "int",
    **dict.fromkeys(("first", "count", "publication", "confirm_tag"), "bigint"),
    **dict.fromkeys(("exchange", "routing_key", "user", "connection"), "string"),
    "channel": "int",
    **dict.fromkeys(("message_id", "correlation_id"), "string"),
    **dict.fromkeys(("entered", "last_seen"), "timestamp"),
    "detail": "string",
    **dict.fromkeys(("rows_from", "rows_to"), "bigint"),
}
FINDINGS = ", ".join(f"{name} {kind}" for name, kind in _KINDS.items())
_NEVER_ROUTED = "never routed, between two that were"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Finding = dict[str, object]
"""columns of FINDINGS"""


def of_gaps(seen: Digest) -> list[Finding]:
    """What the broker says it did not record."""
    made: list[Finding] = []
    for row in seen.of("gap"):
        begin = _begin(row.detail)
        told = " ".join(["not recorded:", *(each for each in (row.reason, "from", begin) if each is not None)])
        where = {"node": row.node, "incarnation": row.incarnation, "entered": _time(begin), "last_seen": _at(row.us)}
        made.append({"kind": "gap", "detail": told, **where})
    return made


def of_log(inventory: Inventory) -> list[Finding]:
    """What is wrong with the log itself."""

    def row(kind: str, of: Hole | Removed, begin: int | None, end: int | None, told: str) -> Finding:
        rows = {"node": of.node, "incarnation": of.incarnation, "rows_from": of.first, "rows_to": of.last}
        return {"kind": kind, "detail": told, "entered": _at(begin), "last_seen": _at(end), **rows}

    holes = [
        row("log_hole", hole, hole.after_us, hole.before_us, _rows_of(hole) + _between(hole))
        for hole in inventory.lost
    ]
    return holes + [
        row(
            "rows_removed", each, each.from_us, each.to_us, f"{each.gone:,} of {_rows_of(each)} of {plain(each.path)}"
        )
        for each in inventory.removed_rows
    ]


def of_unrecorded(sums: Summary, slots: Sequence[Slot]) -> list[Finding]:
    made: list[Finding] = []
    for slot in slots:
        if (numbers := sums.unrecorded.get(slot.slot)) is not None:
            low, high, many = numbers
            told = f"in an anchor, and never routed; numbers {low} to {high}"
            named = {name: getattr(slot, name) for name in NAMED}
            made.append({"kind": "unrecorded", "first": low, "count": many, "detail": told, **named})
    return made


def of_untold(seen: Digest, lost: Sequence[Hole]) -> list[Finding]:
    # What is known of them may be in the hole.
    incarnations = {(hole.node, hole.incarnation) for hole in lost}
    told = {"kind": "confirmed_unpublished", "detail": "confirmed, and never published"}
    return [
        {"node": node, "incarnation": incarnation, "publication": low, "count": high - low + 1, **told}
        for node, incarnation, low, high in seen.untold
        if (node, incarnation) not in incarnations
    ]


def of_messages(suspects: DataFrame) -> DataFrame:
    """`suspects`: as `suspects.resolved` has them."""
    detail = F.when(F.lit(False), F.lit(""))
    for kind in FAULTS[:-1]:
        detail = detail.when(F.col("kind") == kind, suspect_detail(kind))
    entry = [F.col(name) for name in OF_ENTRY if name != "time"]
    return _findings(
        suspects.where(F.col("kind").isNotNull())
        .withColumn("detail", detail)
        .select(
            *(*NAMED, "kind", "detail", F.col("epoch").alias("incarnation"), F.col("seq").alias("first")),
            *(F.lit(1).cast("long").alias("count"), *entry, F.col("time").alias("entered")),
            F.col("last_time").alias("last_seen"),
        )
    )


def of_holes(holes: DataFrame) -> DataFrame:
    """`holes`: as `spans.holes` has them."""
    numbers = F.col("low").alias("first"), (F.col("high") - F.col("low") + 1).alias("count")
    told = F.lit("hole").alias("kind"), F.lit(_NEVER_ROUTED).alias("detail")
    return _findings(holes.select(*NAMED, *numbers, *told))


def _findings(rows: DataFrame) -> DataFrame:
    def column(name: str) -> Column:
        return F.col(name) if name in rows.columns else F.lit(None)

    return rows.select(*(column(name).cast(kind).alias(name) for name, kind in _KINDS.items()))


def _rows_of(of: Hole | Removed) -> str:
    return f"rows {of.first:,} to {of.last:,}"


def _between(hole: Hole) -> str:
    ends = [f"{_at(us):%Y-%m-%d %H:%M:%S}" if us else "" for us in (hole.after_us, hole.before_us)]
    period = {
        (True, True): f", between {ends[0]} and {ends[1]}",
        (True, False): f", after {ends[0]}",
        (False, True): f", before {ends[1]}",
        (False, False): "",
    }[bool(ends[0]), bool(ends[1])]
    return f"{period}: a file of the log is not there"


def _begin(detail: str | None) -> str | None:
    """Of a gap, as the broker has written it."""
    try:
        begin = json.loads(detail or "{}").get("from")
    except (ValueError, AttributeError, RecursionError):
        return None
    # What no text can have, as half a pair of UTF-16, is a question mark.
    return None if begin is None else str(begin).encode(errors="replace").decode()


def _time(written: str | None) -> datetime | None:
    """None: it is none, or of no year that a datetime has."""
    try:
        made = datetime.fromisoformat(written or "")
        return made.replace(tzinfo=UTC) if made.tzinfo is None else made.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _at(us: int | None) -> datetime | None:
    try:
        return None if us is None else _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return None
