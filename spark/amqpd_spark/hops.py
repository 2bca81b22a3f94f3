"""Following messages through the log, hop by hop.

What comes in: events, and names to begin with: of a publication, of a message in a queue. What goes out: the
`Incarnations` that they belong to: all names that are tied to each other, and all events of those.
Rules: 1. Stretches are never made messages of: a name is looked for by first <= number < first + count. 2. A row
that has a publication and a message of a queue ties the two: `routed`, and the ends that something came of. They are
followed both ways, so a dead letter leads to where it came from. 3. What comes to the driver is bounded: by
`messages` names, and by ROWS_MAX rows for each look at the log; `Incarnations.cut` says so when a bound was met. 4. A
message is named by the `place` of its queue: a source, which several nodes keep, or the node.
Not here: what a person asks with, and reads (`trace.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from amqpd_spark.books.places import place
from amqpd_spark.schema import COLUMNS, OF_QUEUES, PUBLISHED, STRETCH_MAX

# A message that goes to and fro for ever has any number of events; nobody reads more than this.
ROWS_MAX = 100_000
# This many ranges of numbers are one filter, which Parquet's statistics help with; more of them are a join.
LISTED_MAX = 50

TIES = ("routed", "dead_lettered", "moved", "released")
TOLD = ("confirmed", "refused")


class Name(NamedTuple):
    """One publication or message in a queue, among all brokers and for ever."""

    kind: str
    key: tuple[Any, ...]
    number: int


@dataclass(frozen=True)
class Kind:
    """`key`: columns of the log, and `place`."""

    key: tuple[str, ...]
    number: str
    lowest: int
    events: tuple[str, ...]


KINDS = {
    "publication": Kind(("node", "incarnation"), "publication", 1, (*PUBLISHED, *TOLD, *TIES[1:])),
    "message": Kind(("place", "queue_id", "epoch"), "first", 0, (*OF_QUEUES, "standing")),
}
_ARROW = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32()}
_KEPT = [name for name in COLUMNS if name not in ("time", "auto", "address", "object", "detail")]


def name_of(kind: str, row: Row, offset: int) -> Name:
    """Of the message `offset` of a stretch."""
    return Name(kind, tuple(row[column] for column in KINDS[kind].key), row[KINDS[kind].number] + offset)


class Sought:
    """Names of one kind, to be found in stretches."""

    def __init__(self, kind: str, names: Iterable[Name]) -> None:
        self.kind = kind
        self._numbers: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for each in sorted({name for name in names if name.kind == kind}, key=lambda name: name.number):
            self._numbers[each.key].append(each.number)
        # (*key, first, last): neighbours together, so that a whole stretch is one line of a filter or join.
        self.ranges = list(self._in_ranges())

    def offsets(self, row: Row) -> list[int]:
        """Which messages of a stretch are among them."""
        kind = KINDS[self.kind]
        start = row[kind.number]
        if row["event"] not in kind.events or start < kind.lowest:
            return []
        numbers = self._numbers.get(tuple(row[column] for column in kind.key), [])
        found = numbers[bisect_left(numbers, start) : bisect_left(numbers, start + row["count"])]
        return [number - start for number in found]

    def condition(self) -> Column:
        """A stretch holds one of them; for at most LISTED_MAX ranges."""
        kind = KINDS[self.kind]
        any_of = F.lit(False)
        for *key, low, high in self.ranges:
            same = [_column(column).eqNullSafe(F.lit(value)) for column, value in zip(kind.key, key, strict=True)]
            any_of |= reduce(and_, same) & self._meets(F.lit(low), F.lit(high))
        return F.col("event").isin(*kind.events) & any_of

    def joined(self, events: DataFrame) -> DataFrame:
        """Stretches that hold one of them, for any number of ranges."""
        kind = KINDS[self.kind]
        names = [*(f"_{column}" for column in kind.key), "_low", "_high"]
        types = [*(_ARROW[_type(column)] for column in kind.key), pa.int64(), pa.int64()]
        values = zip(*self.ranges, strict=True)
        table = pa.table([pa.array(column, type_) for column, type_ in zip(values, types, strict=True)], names=names)
        same = [_column(column).eqNullSafe(F.col(f"_{column}")) for column in kind.key]
        on = [*same, self._meets(F.col("_low"), F.col("_high"))]
        known = events.where(F.col("event").isin(*kind.events))
        return known.join(F.broadcast(events.sparkSession.createDataFrame(table)), on, "left_semi")

    def _meets(self, low: Column, high: Column) -> Column:
        kind = KINDS[self.kind]
        start = F.col(kind.number)
        # The lower bound adds nothing but what Parquet's statistics can answer.
        near = (start >= kind.lowest) & (start > low - STRETCH_MAX) & (start <= high)
        return near & (start + F.col("count") > low)

    def _in_ranges(self) -> Iterator[tuple[Any, ...]]:
        for key, numbers in self._numbers.items():
            low = high = numbers[0]
            for number in numbers[1:]:
                if number != high + 1:
                    yield (*key, low, high)
                    low = number
                high = number
            yield (*key, low, high)


@dataclass
class Incarnations:
    """`entries`: for each event of each message: which incarnation it belongs to (0, 1, ...), the event's row, which
    message of the stretch is meant. `cut`: which bound was met, or empty."""

    entries: list[tuple[int, Row, int]] = field(default_factory=list)
    cut: str = ""


class _Groups:
    """Names that are tied to each other, directly or not."""

    def __init__(self) -> None:
        self._above: dict[Name, Name] = {}

    def __contains__(self, name: Name) -> bool:
        return name in self._above

    def __len__(self) -> int:
        return len(self._above)

    def names(self) -> list[Name]:
        return list(self._above)

    def add(self, name: Name) -> None:
        self._above.setdefault(name, name)

    def tie(self, one: Name, other: Name) -> None:
        self._above[self.root(one)] = self.root(other)

    def root(self, name: Name) -> Name:
        while self._above[name] != name:
            self._above[name] = self._above[self._above[name]]
            name = self._above[name]
        return name


def matching(events: DataFrame, condition: Column, limit: int) -> list[Row]:
    """The first rows for which the condition holds, as the driver needs them: `us` is the time in microseconds. A
    file that came twice gives the same row twice."""
    return _collect(events.where(condition), limit)


def follow(events: DataFrame, names: Iterable[Name], hops: int, messages: int) -> Incarnations:
    """Everything that the names are tied to, in at most that many hops; each hop is a look at the whole log."""
    groups, incarnations = _Groups(), Incarnations()
    for name in list(dict.fromkeys(names))[:messages]:
        groups.add(name)
    frontier = groups.names()
    ties = events.where(F.col("event").isin(*TIES) & (F.col("publication") > 0))
    for _ in range(hops):
        frontier = _hop(ties, frontier, groups, incarnations, messages)
        if not frontier:
            break
    else:
        incarnations.cut = incarnations.cut or f"after {hops} hops"
    _gather(events, groups, incarnations)
    return incarnations


def _hop(
    ties: DataFrame, frontier: list[Name], groups: _Groups, incarnations: Incarnations, messages: int
) -> list[Name]:
    """Names that were not known before."""
    sought = [Sought("publication", frontier), Sought("message", frontier)]
    new = []
    for row in _look(ties, sought, incarnations):
        for offset in sorted({offset for each in sought for offset in each.offsets(row)}):
            pair = name_of("publication", row, offset), name_of("message", row, offset)
            unknown = [name for name in pair if name not in groups]
            if unknown and len(groups) + len(unknown) > messages:
                incarnations.cut = f"at {messages:,} messages"
                continue
            for name in unknown:
                groups.add(name)
                new.append(name)
            groups.tie(*pair)
    return new


def _gather(events: DataFrame, groups: _Groups, incarnations: Incarnations) -> None:
    """All events of the names."""
    order: dict[Name, int] = {}
    sought = [Sought(kind, groups.names()) for kind in KINDS]
    for row in _look(events, sought, incarnations):
        found = dict.fromkeys((each.kind, offset) for each in sought for offset in each.offsets(row))
        seen = set()
        for kind, offset in found:
            incarnation = order.setdefault(groups.root(name_of(kind, row, offset)), len(order))
            if (incarnation, offset) not in seen:
                seen.add((incarnation, offset))
                incarnations.entries.append((incarnation, row, offset))
    incarnations.entries.sort(
        key=lambda entry: (entry[0], entry[1]["us"], entry[1]["incarnation"], entry[1]["number"], entry[2])
    )


def _look(events: DataFrame, sought: list[Sought], incarnations: Incarnations) -> list[Row]:
    sought = [each for each in sought if each.ranges]
    if not sought:
        return []
    if sum(len(each.ranges) for each in sought) <= LISTED_MAX:
        hits = events.where(reduce(or_, [each.condition() for each in sought]))
    else:
        hits = reduce(DataFrame.unionByName, [each.joined(events) for each in sought])
    rows = _collect(hits, ROWS_MAX + 1)
    if len(rows) > ROWS_MAX:
        incarnations.cut = f"at {ROWS_MAX:,} events"
    unique = {(row["node"], row["incarnation"], row["number"]): row for row in rows[:ROWS_MAX]}
    return list(unique.values())


def _collect(rows: DataFrame, limit: int) -> list[Row]:
    narrow = rows.select(F.unix_micros("time").alias("us"), place().alias("place"), *_KEPT)
    return narrow.orderBy("us", "node", "incarnation", "number").limit(limit).collect()


def _column(name: str) -> Column:
    """Of a kind's key."""
    return place() if name == "place" else F.col(name)


def _type(name: str) -> str:
    return "string" if name == "place" else COLUMNS[name].simpleString()
