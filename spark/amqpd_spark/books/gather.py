"""What a task brings back of the rows that it sees, for the books.

What comes in: chunks of the log. What goes out: rows of SCHEMA, some for each queue and incarnation.
Rules: 1. Sums, least and greatest numbers, and runs of numbers; rows themselves only of events that are as many as
starts of a broker, or as anchors. 2. Of publications that were told to their publisher only those come back of which
this task has seen nothing else.
Not here: what the driver makes of it (`digest.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from amqpd_spark.books.moments import KINDS
from amqpd_spark.books.places import Places
from amqpd_spark.schema import ENDS, PUBLISHED
from amqpd_spark.stretches.chunk import Chunk, Flags, Longs, Texts, combined
from amqpd_spark.stretches.runs import Runs, all_of, joined, without

KIND = {name: code for code, name in enumerate(KINDS) if name}
ROUTED, STANDING = KIND["routed"], KIND["standing"]
RARE = ("gap", "started", "stopped", "source_begins", "source_ends")
COLUMNS = (
    *("event", "time", "node", "incarnation", "number", "vhost", "queue", "queue_id", "epoch", "first", "count"),
    *("publication", "reason", "detail", "source", "source_epoch"),
)
_TYPES = {
    **dict.fromkeys(("what", "node", "at_node", "vhost", "queue", "event", "reason", "detail"), "string"),
    **dict.fromkeys(("incarnation", "at_incarnation", "epoch"), "int"),
    **dict.fromkeys(("queue_id", "low", "high", "number"), "bigint"),
    **dict.fromkeys(("lows", "highs"), "binary"),
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
_OF_ARROW = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
_ARROW = pa.schema([(name, _OF_ARROW[kind]) for name, kind in _TYPES.items()])
OF_QUEUE = ("node", "queue_id", "epoch", "vhost", "queue", "at_node", "at_incarnation")


class Gather:
    """The function of a task. `publications`: and what was told to publishers."""

    def __init__(self, publications: bool) -> None:
        self.publications = publications

    def __call__(self, chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        found = _Found(self.publications)
        for chunk in chunks:
            found.take(chunk)
        yield pa.RecordBatch.from_pylist(list(found.rows()), _ARROW)


class _Found:
    """What a task has found so far."""

    def __init__(self, publications: bool) -> None:
        self.publications = publications
        self.queues: dict[tuple[Any, ...], list[int | None]] = {}
        self.incarnations: set[tuple[Any, ...]] = set()
        self.runs: dict[tuple[Any, ...], list[Runs]] = defaultdict(list)
        self.rare: list[dict[str, Any]] = []

    def take(self, chunk: Chunk) -> None:
        events, places = chunk.texts("event"), Places(chunk)
        kind = events.as_numbers(KIND, 0)
        count = chunk.longs("count")
        _, rows = combined([*places.columns, places.incarnation, places.at_incarnation])
        self.incarnations |= {
            (places.name(row), int(places.incarnation[row]), *places.leader(row)) for row in rows.tolist()
        }
        in_queues = (kind > 0) & (count > 0)
        self._queues(chunk, places, in_queues, kind, count)
        self._stands(chunk, places, (kind == STANDING) & (count > 0))
        if self.publications:
            self._publications(chunk, places, events, count)
        self._rare(chunk, places, events, events.are(lambda name: name in RARE) | ((kind == STANDING) & (count == 0)))

    def _queues(self, chunk: Chunk, places: Places, meant: Flags, kind: Longs, count: Longs) -> None:
        at = np.flatnonzero(meant)
        if not len(at):
            return
        vhosts, queues = chunk.texts("vhost"), chunk.texts("queue")
        ids, epochs = chunk.longs("queue_id"), chunk.longs("epoch")
        keys = [
            each[at] for each in (*places.columns, places.at_incarnation, ids, epochs, vhosts.codes, queues.codes)
        ]
        codes, heads = combined(keys)
        first = chunk.longs("first")[at]
        last = first + count[at] - 1
        routed = kind[at] == ROUTED
        low = np.full(len(heads), np.iinfo(np.int64).max)
        high = np.full(len(heads), -1)
        np.minimum.at(low, codes[routed], first[routed])
        np.maximum.at(high, codes[routed], last[routed])
        for code, head in enumerate(at[heads].tolist()):
            key = (
                *(places.name(head), int(ids[head]), int(epochs[head]), vhosts.names[vhosts.codes[head]]),
                *(queues.names[queues.codes[head]], *places.leader(head)),
            )
            known = self.queues.setdefault(key, [None, None])
            if high[code] >= 0:
                known[0] = int(low[code]) if known[0] is None else min(known[0], int(low[code]))
                known[1] = int(high[code]) if known[1] is None else max(known[1], int(high[code]))

    def _stands(self, chunk: Chunk, places: Places, meant: Flags) -> None:
        at = np.flatnonzero(meant)
        if not len(at):
            return
        ids, number = chunk.longs("queue_id"), chunk.longs("number")[at]
        codes, heads = combined([*(each[at] for each in (*places.columns, places.incarnation, ids))])
        for key, low, high in zip(*joined(codes, number, number), strict=True):
            row = at[heads[key]]
            name = "stands", places.name(row), int(places.incarnation[row]), int(ids[row])
            self.runs[name].append((np.zeros(1, np.int64), np.array([low]), np.array([high])))

    def _publications(self, chunk: Chunk, places: Places, events: Texts, count: Longs) -> None:
        publication = chunk.longs("publication")
        of_publisher = (publication > 0) & (count > 0)
        for what, names in (("published", PUBLISHED), ("confirmed", ("confirmed",))):
            at = np.flatnonzero(of_publisher & events.are(lambda name, names=names: name in names))  # type: ignore[misc]
            if not len(at):
                continue
            low = publication[at]
            codes, heads = combined([places.nodes.codes[at], places.at_incarnation[at]])
            key, lows, highs = joined(codes, low, low + count[at] - 1)
            for code, head in enumerate(heads.tolist()):
                mine = key == code
                zeros = np.zeros(int(mine.sum()), np.int64)
                self.runs[what, *places.leader(at[head])].append((zeros, lows[mine], highs[mine]))

    def _rare(self, chunk: Chunk, places: Places, events: Texts, meant: Flags) -> None:
        at = np.flatnonzero(meant)
        if not len(at):
            return
        table = chunk.table.take(pa.array(at))
        # Times as the others: numbers of a column that rows of this kind do not use.
        us, ids, first = chunk.longs("time")[at], chunk.longs("queue_id")[at], chunk.longs("first")[at]
        number = chunk.longs("number")[at]
        names = ("event", "reason", "detail")
        texts = [table.column(name).cast(pa.string()).to_pylist() for name in names]
        for i, row in enumerate(at.tolist()):
            node, incarnation = places.leader(row)
            whose = {
                "node": places.name(row),
                "incarnation": int(places.incarnation[row]),
                "at_node": node,
                "at_incarnation": incarnation,
            }
            figures = {"queue_id": int(ids[i]), "number": int(number[i]), "low": int(first[i]), "high": int(us[i])}
            said = {name: text[i] for name, text in zip(names, texts, strict=True)}
            self.rare.append({"what": "rare", **whose, **figures, **said})

    def rows(self) -> Iterator[dict[str, Any]]:
        yield from self.rare
        for place, incarnation, node, at_incarnation in self.incarnations:
            yield {
                "what": "incarnation",
                "node": place,
                "incarnation": incarnation,
                "at_node": node,
                "at_incarnation": at_incarnation,
            }
        for key, (low, high) in self.queues.items():
            yield {"what": "queue", **dict(zip(OF_QUEUE, key, strict=True)), "low": low, "high": high}
        runs = {key: joined(*all_of(parts)) for key, parts in self.runs.items()}
        for key, found in runs.items():
            what, node, incarnation, *rest = key
            covers = runs.get(("published", node, incarnation)) if what == "confirmed" else None
            _, lows, highs = found if covers is None else without(found, covers)
            of_queue = {"queue_id": rest[0]} if rest else {}
            # Where publications are numbered with gaps, there is a run for each: nothing is smaller than octets.
            many = {"lows": lows.tobytes(), "highs": highs.tobytes()}
            yield {"what": what, "node": node, "incarnation": incarnation, **of_queue, **many}


def is_end(kind: Longs) -> Flags:
    low, high = KIND[ENDS[0]], KIND[ENDS[-1]]
    return np.asarray((kind >= low) & (kind <= high))
