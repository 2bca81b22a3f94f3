"""What the books need beside messages: one look at all rows, of which little comes back.

What comes in: the log's rows. What goes out: `Digest`: queues and incarnations that there are, anchors' headers,
gaps, and what publishers were told and the log does not say otherwise.
Rules: 1. The same row twice changes nothing. 2. It is for the driver: as much as there are queues and incarnations.
Not here: the look itself (`gather.py`); what follows (`queues.py`, `fates.py`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from amqpd_spark.books.gather import COLUMNS, SCHEMA, Gather
from amqpd_spark.books.places import Incarnation
from amqpd_spark.stretches.runs import Runs, all_of, joined, without
from amqpd_spark.stretches.scan import Rows

QueueKey = tuple[str | None, int, int]
"""place, queue_id, epoch"""


@dataclass
class Known:
    """Of one queue and epoch: names; `first` and `last` that was routed, and whose publications those were."""

    vhost: str | None = None
    queue: str | None = None
    first: int | None = None
    last: int | None = None
    at_node: str | None = None
    at_incarnation: int | None = None


@dataclass(frozen=True)
class Rare:
    """A row of `gather.RARE`, or the header of an anchor (`first`: the next number to be given out)."""

    event: str
    node: str | None
    incarnation: int
    at_node: str | None
    at_incarnation: int
    number: int
    us: int
    queue_id: int
    first: int
    reason: str | None
    detail: str | None


@dataclass
class Digest:
    """`stands`: (place, queue_id, incarnation) -> runs of the numbers of rows that follow headers. `leaders`: of each
    incarnation, whose log it is in. `untold`: (node, incarnation, low, high), publications that were confirmed and of
    which nothing else is known."""

    queues: dict[QueueKey, Known] = field(default_factory=dict)
    rare: list[Rare] = field(default_factory=list)
    stands: dict[tuple[str | None, int, int], Runs] = field(default_factory=dict)
    leaders: dict[Incarnation, set[Incarnation]] = field(default_factory=lambda: defaultdict(set))
    untold: list[tuple[str | None, int, int, int]] = field(default_factory=list)

    def of(self, *events: str) -> list[Rare]:
        """Rows of these events, each once."""
        return [row for row in self.rare if row.event in events]


def digest(rows: Rows, publications: bool = True) -> Digest:
    """Without `publications` there is no `untold`, which takes a run for each gap in their numbers."""
    return _merged(rows.brought(Gather(publications), COLUMNS, SCHEMA))


def _merged(found: pa.Table) -> Digest:
    made = Digest()
    rare: dict[Rare, None] = {}
    parts: dict[tuple[Any, ...], list[Runs]] = defaultdict(list)
    for row in found.to_pylist():
        node, incarnation, low, high = row["node"], row["incarnation"], row["low"], row["high"]
        if row["what"] == "rare":
            names = (
                "event",
                "node",
                "incarnation",
                "at_node",
                "at_incarnation",
                "number",
                "queue_id",
                "reason",
                "detail",
            )
            rare[Rare(us=high, first=low, **{name: row[name] for name in names})] = None
        elif row["what"] == "incarnation":
            made.leaders[node, incarnation].add((row["at_node"], row["at_incarnation"]))
        elif row["what"] == "queue":
            _take(made.queues.setdefault((node, row["queue_id"], row["epoch"]), Known()), row)
        else:
            lows, highs = (np.frombuffer(row[name], np.int64) for name in ("lows", "highs"))
            parts[row["what"], node, row["queue_id"], incarnation].append((np.zeros_like(lows), lows, highs))
    made.rare = sorted(rare, key=lambda row: (row.node or "", row.incarnation, row.number))
    runs = {key: joined(*all_of(each)) for key, each in parts.items()}
    for (what, node, queue_id, incarnation), each in runs.items():
        if what == "stands":
            made.stands[node, queue_id, incarnation] = each
        elif what == "confirmed":
            covers = runs.get(("published", node, None, incarnation))
            _, lows, highs = each if covers is None else without(each, covers)
            made.untold += [(node, incarnation, *pair) for pair in zip(lows.tolist(), highs.tolist(), strict=True)]
    return made


def _take(known: Known, row: dict[str, Any]) -> None:
    known.vhost, known.queue = _least(known.vhost, row["vhost"]), _least(known.queue, row["queue"])
    if row["low"] is None:
        return
    known.first = _least(known.first, row["low"])
    known.last = row["high"] if known.last is None else max(known.last, row["high"])
    known.at_node, known.at_incarnation = (
        _least(known.at_node, row["at_node"]),
        _least(known.at_incarnation, row["at_incarnation"]),
    )


def _least(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)
