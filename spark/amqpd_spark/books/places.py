"""Where a queue is, for the books: at a node, or in a source that several nodes keep.

What comes in: rows of several nodes. What goes out: of each row's queue the place: of a source's the source, and its
epoch instead of an incarnation; else the node and its incarnation. Whose log it is stays beside it (`PUBLISHER`).
Rules: 1. An epoch of a source takes the place of a node's incarnation, and the anchor with which the next epoch
begins that of the next start: so what holds for the queues of one node over its incarnations holds for those of a
source over its leaders (docs/decisions/audit-epochs.md). 2. An epoch has one writer, so the numbers of its events in
that node's log are in the order in which things happened. 3. Publications and confirms are the node's.
Not here: what is concluded (`fates.py`, `suspects.py`, `origins.py`).
"""

from __future__ import annotations

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqpd_spark.stretches.chunk import Chunk, Longs

PUBLISHER = ("at_node", "at_incarnation")
"""whose number a publication is"""
PLACE = "source "

Incarnation = tuple[str | None, int]
"""of a node, or an epoch of a source"""


def placed(events: DataFrame) -> DataFrame:
    """With `PUBLISHER`; of a source's queue `node` is the source, and `incarnation` its epoch."""
    named = events.withColumns({"at_node": F.col("node"), "at_incarnation": F.col("incarnation")})
    incarnation = F.when(_of_source(), F.col("source_epoch")).otherwise(F.col("incarnation"))
    return named.withColumns({"node": place(), "incarnation": incarnation})


def place() -> Column:
    """Where the queue of an event is: "source 5", or the node that wrote of it."""
    return F.when(_of_source(), F.concat(F.lit(PLACE), F.col("source"))).otherwise(F.col("node"))


def _of_source() -> Column:
    return F.coalesce(F.col("source"), F.lit(0)) > 0


def in_source(node: Column) -> Column:
    """Whether the place is one."""
    return node.startswith(PLACE)


class Places:
    """The same, of a chunk of the log. `incarnation`, `at_incarnation`: of each row."""

    def __init__(self, chunk: Chunk) -> None:
        self.nodes = chunk.texts("node")
        self.at_incarnation = chunk.longs("incarnation")
        self.source = chunk.longs("source")
        of_source = self.source > 0
        self.incarnation = np.where(of_source, chunk.longs("source_epoch"), self.at_incarnation)

    def name(self, row: int) -> str | None:
        """`place` of a row."""
        source = int(self.source[row])
        return f"{PLACE}{source}" if source > 0 else self.nodes.names[self.nodes.codes[row]]

    def leader(self, row: int) -> Incarnation:
        """PUBLISHER of a row."""
        return self.nodes.names[self.nodes.codes[row]], int(self.at_incarnation[row])

    @property
    def columns(self) -> tuple[Longs, ...]:
        """That tell places apart; nodes' names too where there are sources, for publications are theirs."""
        return self.nodes.codes, np.maximum(self.source, 0)
