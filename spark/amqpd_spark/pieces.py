"""What `slo` takes of the log's rows, cut so that a hot queue is spread over tasks.

What comes in: chunks of the log. What goes out: packed PIECES, for the task that gets all of their (key, block), and
NAMES of flows.
Rules: 1. One shuffle for everything, of stretches and not of messages: they are cut at multiples of BLOCK. 2. A row
that is in two files comes to one task twice, and is known there by (`origin`, `row`, `first`). 3. Only numbers are
sent, and each task's names once.
A publisher's message is (node, incarnation, publication), a queue's (node, queue_id, epoch, number).
Not here: messages (`latencies.py`), what happened in each minute (`rates.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from amqpd_spark.books.places import PLACE
from amqpd_spark.flows import Flows, number_of
from amqpd_spark.rates import NO_FIGURE, figure_of
from amqpd_spark.schema import ENDS, OF_PUBLICATIONS
from amqpd_spark.stretches.chunk import Chunk, Flags, Longs, Texts, combined
from amqpd_spark.stretches.packed import Columns, hashed, packed, spread
from amqpd_spark.stretches.scan import ROWS
from amqpd_spark.stretches.sums import joined
from amqpd_spark.stretches.sweep import BLOCK_BITS

COLUMNS = (
    *("event", "time", "node", "incarnation", "number", "vhost", "queue", "queue_id", "epoch", "first", "count"),
    *("publication", "confirm_tag", "exchange", "reason", "redelivered", "auto", "source"),
)
OTHER, PUBLISHED, ROUTED, CONFIRMED, DELIVERED, ACKED, REFUSED, ENDED = range(8)
"""kinds of pieces: of no measure; ACKED: by its consumer, else it is ENDED"""
_KINDS = {
    **dict.fromkeys(ENDS, ENDED),
    "published": PUBLISHED,
    "routed": ROUTED,
    "confirmed": CONFIRMED,
    "delivered": DELIVERED,
    "acked": ACKED,
    "refused": REFUSED,
}
OF_PUBLISHERS = (PUBLISHED, CONFIRMED, REFUSED)
NONE = int(np.iinfo(np.int64).min)
"""of a flow or a time that a piece does not have; a time before 1970 is one"""
PIECES, NAMES = "pieces", "names"
_NARROW = {"kind": np.int8, "figure": np.int8, "count": np.int32}


def pieces(parts: int) -> Callable[[Iterator[Chunk]], Iterator[pa.RecordBatch]]:
    """The function of a task. Columns of PIECES: key, first, count (numbers of the messages), kind, us; `flow` (of a
    queue, or of an exchange), of ROUTED `route` (of both); origin, row, and the `figure` that it adds to."""

    def read(chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        flows = Flows()
        held: list[Columns] = []
        for chunk in chunks:
            held += _cut(_of_chunk(chunk, flows))
            # Files may be small, and each time that something is sent has its price.
            if sum(len(each["key"]) for each in held) >= ROWS:
                yield from _sent(held, parts)
                held = []
        if held:
            yield from _sent(held, parts)
        yield packed(NAMES, flows.table())

    return read


def _sent(held: list[Columns], parts: int) -> Iterator[pa.RecordBatch]:
    made = joined(held)
    columns = {name: column.astype(_NARROW.get(name, np.int64)) for name, column in made.items()}
    return spread(PIECES, part_of(made["key"], made["first"], parts), parts, columns)


def part_of(key: Longs, number: Longs, parts: int) -> Longs:
    """The task that gets these messages: all that is said of one gets to the same."""
    return (hashed(key, number >> BLOCK_BITS) % np.uint64(parts)).astype(np.int64)


def _of_chunk(chunk: Chunk, flows: Flows) -> Columns:
    events, count, row = chunk.texts("event"), chunk.longs("count"), chunk.longs("number")
    kind = events.as_numbers(_KINDS, OTHER)
    kind[(kind == ACKED) & (chunk.flags("auto") != 0)] = ENDED
    of_publisher = np.isin(kind, OF_PUBLISHERS)
    kind[(count <= 0) | (of_publisher & (chunk.longs("confirm_tag") <= 0))] = OTHER
    figure = figure_of(chunk, events)
    at = np.flatnonzero((kind != OTHER) | (figure != NO_FIGURE))
    kind, figure, row = kind[at], figure[at], row[at]
    of_publisher = np.isin(kind, OF_PUBLISHERS)
    nodes = chunk.texts("node")
    origin = _numbers(nodes, at, chunk.longs("incarnation"))
    queue = _numbers(nodes, at, chunk.longs("queue_id"), chunk.longs("epoch"))
    first = np.where(of_publisher, chunk.longs("publication")[at], chunk.longs("first")[at])
    flow, route = _flows(chunk, at, events.are(lambda name: name in OF_PUBLICATIONS)[at], kind == ROUTED, flows)
    return {
        "key": np.where(of_publisher | (kind == OTHER), origin, queue),
        "first": np.where(kind == OTHER, row, first),
        "count": count[at],
        "kind": kind,
        "us": chunk.longs("time")[at],
        "flow": flow,
        "route": route,
        "origin": origin,
        "row": row,
        "figure": figure,
    }


def _numbers(nodes: Texts, at: Longs, *of: Longs) -> Longs:
    """Of each of the rows `at`, for its node and the others."""
    if not len(at):
        return at
    columns = [each[at] for each in of]
    codes, heads = combined([nodes.codes[at], *columns])
    keys = zip(nodes.codes[at][heads].tolist(), *(each[heads].tolist() for each in columns), strict=True)
    return np.array([number_of(nodes.names[node], *key) for node, *key in keys], np.int64)[codes]


def _flows(chunk: Chunk, at: Longs, of_exchange: Flags, routed: Flags, flows: Flows) -> tuple[Longs, Longs]:
    texts = [place_texts(chunk), *(chunk.texts(name) for name in ("vhost", "exchange", "queue"))]
    place, vhost, exchange, queue = (text.codes[at] for text in texts)
    names = [text.names for text in texts]
    none = [len(each) - 1 for each in names]
    node = chunk.texts("node").codes[at]
    alone = [np.where(of_exchange, node, place), vhost]
    alone += [np.where(of_exchange, exchange, none[2]), np.where(of_exchange, none[3], queue)]
    route = np.full(len(at), NONE)
    route[routed] = flows.numbers([each[routed] for each in (place, vhost, exchange, queue)], names)
    return flows.numbers(alone, names), route


def place_texts(chunk: Chunk) -> Texts:
    """Of each row where its queue is; codes of nodes are those of `node`."""
    nodes, source = chunk.texts("node"), chunk.longs("source")
    sources = np.unique(source[source > 0])
    codes = np.where(source > 0, len(nodes.names) + np.searchsorted(sources, source), nodes.codes)
    return Texts(codes, [*nodes.names, *(f"{PLACE}{number}" for number in sources.tolist())])


def _cut(columns: Columns) -> Iterator[Columns]:
    """At the blocks' edges."""
    while len(columns["key"]):
        first, count = columns["first"], columns["count"]
        left = np.where(columns["kind"] == OTHER, count, ((first >> BLOCK_BITS) + 1 << BLOCK_BITS) - first)
        yield columns | {"count": np.minimum(count, left)}
        over = np.flatnonzero(count > left)
        rest = {name: column[over] for name, column in columns.items()}
        columns = rest | {"first": (first + left)[over], "count": (count - left)[over]}
