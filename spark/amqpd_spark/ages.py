"""How long messages are in their queues: those that left, and those that are there still.

What comes in: the log's rows; the last incarnation of each place; the period's end. What goes out: a row for each
queue.
Rules: 1. Stretches go through one shuffle by (queue, epoch, block of numbers), so a busy queue is spread over all
tasks, and are cut at each other's edges there; the same row twice changes no minimum and no maximum. 2. A message is
there still when it entered, or was said to stand there, in the last incarnation of its place, and has no end in that
incarnation: an end before it did not count. What else has no end is a matter of `conservation`. 3. Of a source's
queue the place is the source, and an incarnation one of its epochs (`books/places.py`).
Not here: the other tables of `usage` (`usage.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqpd_spark.flows import number_of
from amqpd_spark.pieces import part_of, place_texts
from amqpd_spark.schema import ENDS, OF_QUEUES
from amqpd_spark.stretches.chunk import Chunk, Longs, combined
from amqpd_spark.stretches.packed import (
    Columns,
    hashed,
    packed,
    spread,
    together,
    unpacked,
)
from amqpd_spark.stretches.scan import ROWS, Function, Rows
from amqpd_spark.stretches.sums import joined, summed
from amqpd_spark.stretches.sweep import Part, cut, swept
from amqpd_spark.tabular import frame

QUEUE = ("node", "vhost", "queue")
"""of the tables: its place, and names"""
# Buckets of times are so much apart that a percentile is at most 2 % above the true one.
BUCKETS_PER_E = 50
COLUMNS = (
    *("event", "time", "node", "incarnation", "vhost", "queue", "queue_id", "epoch", "first", "count"),
    *("source", "source_epoch"),
)
_OTHER, _NAMED, _ROUTED, _STANDING, _ENDED = range(5)
"""kinds of rows; _NAMED: it only says what the queue is called"""
_KINDS = {
    **dict.fromkeys(OF_QUEUES, _NAMED),
    **dict.fromkeys(ENDS, _ENDED),
    "routed": _ROUTED,
    "standing": _STANDING,
}
_SEEN, _OVER = 1, 2
"""in the last incarnation of its place: it was there, it ended"""
_THERE = -1
"""in place of a bucket: of messages that are there"""
_NONE = np.iinfo(np.int64).max
_PIECES, _NAMES = "pieces", "names"
_WAITS = "number bigint, bucket int, messages bigint, wait bigint, oldest bigint, is_at_least boolean"
_FOUND = f"{_WAITS}, {', '.join(f'{name} string' for name in QUEUE)}"
_ARROW = pa.schema(
    [
        *(("number", pa.int64()), ("bucket", pa.int32()), ("messages", pa.int64()), ("wait", pa.int64())),
        *(("oldest", pa.int64()), ("is_at_least", pa.bool_())),
        *((name, pa.string()) for name in QUEUE),
    ]
)


def queue_ages(rows: Rows, last_incarnations: Mapping[str, int], end: datetime, parts: int) -> DataFrame:
    """Columns: node, vhost, queue, standing, oldest_since, oldest_age_s, oldest_is_at_least, ended, p50_ms, p99_ms,
    max_ms. `last_incarnations`: of each place. `parts`: tasks of the shuffle."""
    found = frame(
        rows.spark, rows.reduced(_pieces(last_incarnations, parts), COLUMNS, parts, _waits, _FOUND, again=True)
    )
    # A name may be null: that of an orphan, which other rows of its queue tell.
    names = found.where(F.col("messages").isNull()).groupBy("number").agg(F.max(F.struct(*QUEUE)).alias("name"))
    waits = found.where(F.col("messages").isNotNull()).drop(*QUEUE)
    named = waits.join(F.broadcast(names), ["number"]).select("*", *(F.col(f"name.{each}") for each in QUEUE))
    counted = named.groupBy(*QUEUE, "bucket").agg(
        F.sum("messages").alias("messages"),
        F.max("wait").alias("wait"),
        F.min(F.when(F.col("bucket") == _THERE, F.struct("oldest", "is_at_least"))).alias("oldest"),
    )
    return _summed_up(counted, end)


def _pieces(last_incarnations: Mapping[str, int], parts: int) -> Function:
    """The function of a task. Columns of _PIECES: key (queue and epoch), first, last (numbers of messages), number
    (of the queue), kind, us, current (whether it is of the last incarnation); of _NAMES: number and QUEUE."""

    def read(chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        names: set[tuple[int, str | None, str | None, str | None]] = set()
        held: list[Columns] = []
        for chunk in chunks:
            held.append(_of_chunk(chunk, last_incarnations, names))
            # Files may be small, and each time that something is sent has its price.
            if sum(len(each["key"]) for each in held) >= ROWS:
                yield from _sent(joined(held), parts)
                held = []
        if held:
            yield from _sent(joined(held), parts)
        if names:
            columns = zip(*names, strict=True)
            yield packed(_NAMES, pa.table(dict(zip(("number", *QUEUE), map(list, columns), strict=True))))

    return read


def _sent(made: Columns, parts: int) -> Iterator[pa.RecordBatch]:
    narrow = {name: column.astype(np.int8) for name, column in made.items() if name in ("kind", "current")}
    return spread(_PIECES, part_of(made["key"], made["first"], parts), parts, made | narrow)


def _of_chunk(
    chunk: Chunk, last_incarnations: Mapping[str, int], names: set[tuple[int, str | None, str | None, str | None]]
) -> Columns:
    kind = chunk.texts("event").as_numbers(_KINDS, _OTHER)
    at = np.flatnonzero(kind != _OTHER)
    places, vhosts, queues = place_texts(chunk), chunk.texts("vhost"), chunk.texts("queue")
    ids = chunk.longs("queue_id")
    codes, heads = combined([each[at] for each in (places.codes, ids, vhosts.codes, queues.codes)])
    numbers = np.zeros(len(heads), np.int64)
    for code, row in enumerate(at[heads].tolist() if len(at) else []):
        place = places.names[places.codes[row]]
        numbers[code] = number_of(place, int(ids[row]))
        names.add((int(numbers[code]), place, vhosts.names[vhosts.codes[row]], queues.names[queues.codes[row]]))
    incarnation = np.where(chunk.longs("source") > 0, chunk.longs("source_epoch"), chunk.longs("incarnation"))
    current = incarnation == places.as_numbers(last_incarnations, 0)
    first, count = chunk.longs("first")[at], chunk.longs("count")[at]
    meant = np.flatnonzero((kind[at] != _NAMED) & (count > 0))
    of, low, high = cut(first[meant], first[meant] + count[meant] - 1)
    row = at[meant][of]
    number = numbers[codes][meant][of]
    key = (hashed(number, chunk.longs("epoch")[row]) >> np.uint64(1)).astype(np.int64)
    facts = {"kind": kind[row], "us": chunk.longs("time")[row], "current": current[row].astype(np.int64)}
    return {"key": key, "first": low, "last": high, "number": number, **facts}


def _waits(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of a task of the shuffle. For each queue and bucket the messages that left, their longest wait in
    it; for _THERE those that are there, and `oldest` (microseconds)."""
    pieces: list[pa.Table] = []
    for what, _, table in unpacked(batches):
        if what == _NAMES:
            yield _batch({name: table.column(name) for name in table.column_names}, table.num_rows)
        else:
            pieces.append(table)
    piece = together(pieces)
    if not piece:
        return
    made = [_of_part(part, piece) for part in swept(piece["key"], piece["first"], piece["last"])]
    rows = joined(made)
    if not len(rows["number"]):
        return
    sums = summed(rows, ("number", "bucket"), ("messages",), ("wait", "newest"))
    there = sums["bucket"] == _THERE
    oldest = -sums.pop("newest")
    columns = {name: pa.array(column) for name, column in sums.items()} | {
        "wait": pa.array(sums["wait"], mask=there),
        "oldest": pa.array(oldest >> 1, mask=~there),
        "is_at_least": pa.array((oldest & 1) == 1, mask=~there),
    }
    yield _batch(columns, len(there))


def _batch(columns: Mapping[str, pa.Array | pa.ChunkedArray], rows: int) -> pa.RecordBatch:
    """With nulls for the columns that are not there."""
    filled = {field.name: columns.get(field.name, pa.nulls(rows, field.type)) for field in _ARROW}
    return pa.table(filled).cast(_ARROW).combine_chunks().to_batches()[0]


def _of_part(part: Part, piece: Columns) -> Columns:
    """Of each interval that is there or has left. `newest` is what is greater for what is less old."""
    kind, us, current = piece["kind"], piece["us"], piece["current"] == 1
    is_end = kind == _ENDED
    entered = part.min(np.where(kind == _ROUTED, us, _NONE))
    ended = part.min(np.where(is_end, us, _NONE))
    seen = part.min(np.where(is_end, _NONE, us))
    bits = part.any_bit(np.where(current, np.where(is_end, _OVER, _SEEN), 0))
    there = bits == _SEEN
    left = ~there & (entered != _NONE) & (ended != _NONE)
    wait: Longs = np.where(left, np.maximum(ended - np.where(left, entered, 0), 0), 0)
    bucket = np.ceil(np.log(wait + 1.0) * BUCKETS_PER_E).astype(np.int64)
    # What entered before the period is at least as old as the first time that it was seen.
    oldest = np.where(there, seen * 2 + (entered == _NONE), 0)
    made = {
        "number": part.max(piece["number"]),
        "bucket": np.where(there, _THERE, bucket),
        "messages": part.high - part.low + 1,
        "wait": wait,
        "newest": -oldest,
    }
    return {name: column[there | left] for name, column in made.items()}


def _summed_up(counted: DataFrame, end: datetime) -> DataFrame:
    queue = Window.partitionBy(*QUEUE)
    # Of figures, at most some thousand for each queue.
    up_to_here = queue.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    has_left = F.col("bucket") != _THERE
    left = F.when(has_left, F.col("messages")).otherwise(0)
    so_far = counted.withColumn("so_far", F.sum(left).over(up_to_here)).withColumn("left", F.sum(left).over(queue))
    edge = F.least(F.exp(F.col("bucket") / BUCKETS_PER_E) - 1, F.col("longest"))

    def percentile(share: float) -> Column:
        reached = has_left & (F.col("so_far") >= F.ceil(F.col("left") * share))
        return F.min(F.when(reached, edge)) / 1000

    summed = so_far.withColumn("longest", F.max("wait").over(queue)).groupBy(*QUEUE)
    age = F.lit(end).cast("timestamp")
    found = summed.agg(
        F.sum(F.when(has_left, 0).otherwise(F.col("messages"))).alias("standing"),
        F.min("oldest").alias("oldest"),
        F.sum(left).alias("ended"),
        percentile(0.5).alias("p50_ms"),
        percentile(0.99).alias("p99_ms"),
        (F.max("wait") / 1000).alias("max_ms"),
    )
    return found.select(
        *(*QUEUE, "standing"),
        F.timestamp_micros("oldest.oldest").alias("oldest_since"),
        ((F.unix_micros(age) - F.col("oldest.oldest")) / 1e6).alias("oldest_age_s"),
        F.col("oldest.is_at_least").alias("oldest_is_at_least"),
        *("ended", "p50_ms", "p99_ms", "max_ms"),
    )
