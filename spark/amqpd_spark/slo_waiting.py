"""What the stream of `slo` keeps between batches, as columns: messages that are not over, and sums of batches.

What comes in: tables of batches before; packed pieces. What goes out: messages as rows, sums as packed columns.
Rules: 1. `count` messages to which the same happened are one row. 2. What is not known is null in a table, and NONE
in a column.
Not here: when a message is over (`slo_stream.py`), what is told of it (`latencies.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark import histogram, latencies, rates
from amqpd_spark.flows import NAMES, Flows
from amqpd_spark.latencies import FACTS, KEY, MEASURES
from amqpd_spark.pieces import NAMES as MET
from amqpd_spark.pieces import NONE, PIECES, part_of
from amqpd_spark.slo_sums import HISTOGRAM, RATES, Shares, of_messages, sorted_out
from amqpd_spark.stretches import scan
from amqpd_spark.stretches.chunk import Chunk
from amqpd_spark.stretches.packed import (
    SCHEMA,
    Columns,
    Function,
    mapped,
    of_columns,
    packed,
    spread,
    together,
    unpacked,
)
from amqpd_spark.stretches.sums import joined

MESSAGES, WAITING = "messages", "waiting"
_COLUMNS = (*KEY, *FACTS)
_TABLE = ", ".join(f"{name} {'boolean' if name == 'publisher' else 'bigint'}" for name in _COLUMNS)


def waiting(rows: DataFrame, parts: int) -> DataFrame:
    """Messages of a table, packed for the task that gets their pieces."""

    def read(chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            made = _messages(chunk)
            yield from spread(WAITING, part_of(made["key"], made["number"], parts), parts, made)

    return scan.of_dataframe(rows).mapped(read, _COLUMNS, SCHEMA)


def merged(shares: Shares) -> Function:
    """Of a task that has all of its messages: MESSAGES, as far as they are known now, and RATES of the pieces."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables, met = sorted_out(batches)
        pieces, before = together(tables.pop(PIECES, [])), together(tables.pop(WAITING, []))
        told = [*([latencies.told(pieces)] if pieces else []), *([before] if before else [])]
        for messages in latencies.messages(joined(told)) if told else ():
            yield packed(MESSAGES, of_columns(messages))
        yield from of_messages((), [rates.of_pieces(pieces)] if pieces else [], shares)
        yield from met

    return read


def as_rows(made: DataFrame) -> DataFrame:
    """The MESSAGES of what `merged` made."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, _, table in unpacked(batches):
            columns = together([table])
            arrays = {name: pa.array(column, mask=column == NONE) for name, column in columns.items()}
            arrays["publisher"] = pa.array(columns["publisher"] == 1)
            yield from pa.table({name: arrays[name] for name in _COLUMNS}).to_batches()

    return mapped(made.where(F.col("what") == MESSAGES), read, _TABLE)


def sums_of(messages: DataFrame, shares: Shares) -> DataFrame:
    """HISTOGRAM and RATES of messages of a table."""

    def read(chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        return of_messages(map(_messages, chunks), (), shares)

    return scan.of_dataframe(messages).mapped(read, _COLUMNS, SCHEMA)


def histograms(rows: DataFrame, shares: Shares) -> DataFrame:
    """Of a table, packed again."""
    figures = (*histogram.FIGURES, "bucket")

    def read(chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        flows = Flows()
        for chunk in chunks:
            made = _named(chunk, flows) | {name: chunk.longs(name) for name in figures}
            measures = {name: number for number, name in enumerate(MEASURES)}
            made["measure"] = chunk.texts("measure").as_numbers(measures, NONE)
            yield from spread(HISTOGRAM, shares.part(made), shares.parts, made)
        yield packed(MET, flows.table())

    return scan.of_dataframe(rows).mapped(read, (*NAMES, "minute", "measure", *figures), SCHEMA)


def figures(rows: DataFrame, shares: Shares) -> DataFrame:
    """Of a table of rates, packed again."""

    def read(chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        flows = Flows()
        for chunk in chunks:
            made = rates.long(_named(chunk, flows) | {name: chunk.longs(name) for name in rates.FIGURES})
            yield from spread(RATES, shares.part(made), shares.parts, made)
        yield packed(MET, flows.table())

    return scan.of_dataframe(rows).mapped(read, (*NAMES, "minute", *rates.FIGURES), SCHEMA)


def _messages(chunk: Chunk) -> Columns:
    made = {name: chunk.longs(name, NONE) for name in _COLUMNS if name != "publisher"}
    return made | {"publisher": chunk.flags("publisher")}


def _named(chunk: Chunk, flows: Flows) -> Columns:
    texts = [chunk.texts(name) for name in NAMES]
    flow = flows.numbers([text.codes for text in texts], [text.names for text in texts])
    return {"flow": flow, "minute": np.asarray(chunk.longs("minute") // rates.MINUTE_US)}
