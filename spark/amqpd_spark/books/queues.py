"""What is known of each queue and incarnation: the small table that all messages are held against.

What comes in: the digest of the log, and its holes. What goes out: `Slot`, one for each (place, queue_id, epoch): its
names, and what the log should have of it; `Moments`, one for each queue: of its anchors, of the broker's gaps.
Rules: 1. An anchor (the header of `standing` rows) counts when all its stretches are in the log: from half of one
nothing can be concluded. 2. A gap of a node is one of the sources that it was the leader of then; so is a hole of the
log, and an epoch that has no rows may lie in any hole. 3. As many as queues times incarnations: on the driver, and
from there to every task (up to `SMALL`). What holds for all incarnations of a queue is there once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.books.digest import Digest, Rare
from amqpd_spark.books.moments import INCARNATION_SHIFT, KINDS, LAST_KIND, NUMBER_MAX, NUMBER_SHIFT
from amqpd_spark.books.places import PLACE, Incarnation
from amqpd_spark.books.returned import Proof
from amqpd_spark.flows import number_of
from amqpd_spark.inventory import Hole
from amqpd_spark.session import kept

QUEUE = ("node", "queue_id")
SMALL = 500_000
"""rows; some 100 octets each, in each executor"""
_STANDING = KINDS.index("standing")

Span = tuple[int, int]
"""moments, from and to"""


@dataclass(frozen=True)
class Anchor:
    """A whole one. `next`: the next number to be given out; `follow`: how many stretches; `at`: a moment."""

    node: str | None
    queue_id: int
    incarnation: int
    number: int
    reason: str | None
    next: int
    follow: int
    at: int


@dataclass(frozen=True)
class Slot:
    """`slot`: its name in shuffles; `of`: its queue's. `first`, `last` routed (None: none); `last_incarnation`: of
    the node;
    `begun`: the log has the start of the incarnation `epoch`; `recorded`: and should have what entered in it;
    PUBLISHER: of what was routed."""

    slot: int
    of: int
    node: str | None
    queue_id: int
    epoch: int
    vhost: str | None
    queue: str | None
    first: int | None
    last: int | None
    last_incarnation: int
    at_node: str | None
    at_incarnation: int | None
    begun: bool
    recorded: bool


@dataclass(frozen=True)
class Moments:
    """`anchors`, `gaps`: sorted, of the queue and of the node; `stops`: incarnations whose end has an anchor;
    `log_holes`: of the place; `proofs`: anchors after which an end that they know of cannot be undone, and whether
    one `stopped` the incarnation."""

    of: int
    node: str | None
    queue_id: int
    anchors: list[int]
    gaps: list[int]
    stops: list[int]
    log_holes: list[dict[str, int]]
    proofs: list[Proof]


_SPAN = [("from", pa.int64()), ("to", pa.int64())]
_SLOTS = pa.schema(
    [
        *(("slot", pa.int64()), ("of", pa.int64()), ("node", pa.string()), ("queue_id", pa.int64())),
        *(("epoch", pa.int32()), ("vhost", pa.string()), ("queue", pa.string())),
        *(("first", pa.int64()), ("last", pa.int64()), ("last_incarnation", pa.int32())),
        *(("at_node", pa.string()), ("at_incarnation", pa.int32()), ("begun", pa.bool_()), ("recorded", pa.bool_())),
    ]
)
_MOMENTS = pa.schema(
    [
        *(("of", pa.int64()), ("node", pa.string()), ("queue_id", pa.int64())),
        ("anchors", pa.list_(pa.int64())),
        ("stops", pa.list_(pa.int32())),
        ("log_holes", pa.list_(pa.struct(_SPAN))),
    ]
)


@dataclass(frozen=True)
class Known:
    """For joins: rows of `Slot`, and of `Moments` what `fates.py` is not alone in asking for."""

    slots: DataFrame
    moments: DataFrame

    def with_moments(self, rows: DataFrame, *names: str) -> DataFrame:
        """`rows`, which have `of`, with these of their queue in its place."""
        return rows.join(self.moments.select("of", *names), "of", "left").drop("of")


def settled(table: DataFrame) -> DataFrame:
    """Computed once, and from then on given to every task whole if it is small."""
    return counted(table)[0]


def counted(table: DataFrame) -> tuple[DataFrame, int]:
    """`settled`, and the number of rows. What follows is planned without the steps that led here."""
    once = kept(table)
    rows = once.count()
    if rows > SMALL:
        # The only way to cut a plan without the driver: a lost executor ends the job.
        return once.localCheckpoint(), rows
    found = once.toArrow()
    once.unpersist()
    return F.broadcast(table.sparkSession.createDataFrame(found)), rows


def in_queues() -> Column:
    """Rows that are about messages in a queue, not an anchor's header."""
    return F.col("event").isin(list(KINDS[1:])) & (F.col("count") > 0)


def tables(spark: SparkSession, slots: Sequence[Slot], moments: Sequence[Moments]) -> Known:
    def table(rows: pa.Table) -> DataFrame:
        made = spark.createDataFrame(rows)
        return F.broadcast(made) if rows.num_rows <= SMALL else made

    return Known(table(of_slots(slots)), table(pa.Table.from_pylist([vars(row) for row in moments], _MOMENTS)))


def of_slots(slots: Sequence[Slot]) -> pa.Table:
    return pa.Table.from_pylist([vars(row) for row in slots], _SLOTS)


def anchors(found: Digest) -> list[Anchor]:
    """In order."""
    headers: dict[tuple[str | None, int, int, int], list[Rare]] = defaultdict(list)
    for row in found.of("standing"):
        headers[row.node, row.queue_id, row.incarnation, row.number].append(row)
    made = [_anchor(key, rows) for key, rows in headers.items()]
    return sorted((each for each in made if _is_whole(each, found)), key=lambda each: each.at)


def _anchor(key: tuple[str | None, int, int, int], rows: Sequence[Rare]) -> Anchor:
    reasons = [row.reason for row in rows if row.reason is not None]
    follow = min((int(row.detail) for row in rows if row.detail and row.detail.isdecimal()), default=0)
    next_number = min(row.first for row in rows)
    return Anchor(*key, min(reasons, default=None), next_number, follow, _moment(key[2], key[3]) + _STANDING)


def _is_whole(anchor: Anchor, found: Digest) -> bool:
    if not anchor.follow:
        return True
    runs = found.stands.get((anchor.node, anchor.queue_id, anchor.incarnation))
    if runs is None:
        return False
    low, high = anchor.number + 1, anchor.number + anchor.follow
    at = int(np.searchsorted(runs[1], low, "right")) - 1
    # What is contiguous is one run, so it is in one or not whole.
    return at >= 0 and int(runs[2][at]) >= high


def slots(found: Digest, heads: Sequence[Anchor]) -> list[Slot]:
    """`heads`: the anchors."""
    incarnations: dict[str | None, set[int]] = defaultdict(set)
    for node, incarnation in found.leaders:
        incarnations[node].add(incarnation)
    starts = {(row.node, row.incarnation) for row in found.of("started", "source_begins")}
    anchored = {(anchor.node, anchor.queue_id, anchor.incarnation) for anchor in heads}
    made = []
    for (node, queue_id, epoch), told in found.queues.items():
        begun = (node, epoch) in starts
        has_word = told.first is not None or (node, queue_id, epoch) in anchored
        made.append(
            Slot(
                *(number_of(node, queue_id, epoch), number_of(node, queue_id), node, queue_id, epoch),
                *(told.vhost, told.queue, told.first, told.last, max(incarnations[node], default=0)),
                *(told.at_node, told.at_incarnation, begun, begun and has_word),
            )
        )
    return made


def moments(found: Digest, heads: Sequence[Anchor], holes: Sequence[Hole] = ()) -> list[Moments]:
    """`heads`: the anchors. `holes`: of the log."""
    unflushed = {(row.node, row.incarnation) for row in found.of("stopped") if _said(row, "flushed") is False}
    gaps = {node: sorted(each) for node, each in _gaps(found).items()}
    spans = log_holes(found, holes)
    of_place = {place: [{"from": low, "to": high} for low, high in each] for place, each in spans.items()}
    own: dict[tuple[str | None, int], list[Anchor]] = defaultdict(list)
    for anchor in heads:
        own[anchor.node, anchor.queue_id].append(anchor)
    made = []
    for node, queue_id in dict.fromkeys((node, queue_id) for node, queue_id, _ in found.queues):
        mine = own.get((node, queue_id), [])
        made.append(
            Moments(
                *(number_of(node, queue_id), node, queue_id, sorted({anchor.at for anchor in mine})),
                *(gaps.get(node, []), sorted({each.incarnation for each in mine if each.reason == "stopped"})),
                *(of_place.get(node, []), _proofs(mine, unflushed)),
            )
        )
    return made


def _proofs(anchors: Sequence[Anchor], unflushed: set[Incarnation]) -> list[Proof]:
    found = (_proof(anchor, (anchor.node, anchor.incarnation) in unflushed) for anchor in anchors)
    return [each for each in found if each is not None]


def _proof(anchor: Anchor, unflushed: bool) -> Proof | None:
    """None: the anchor is none. `unflushed`: the stop of its incarnation did not wait for the disk."""
    stops = anchor.reason == "stopped" and not unflushed
    if not stops and anchor.reason != "recovered":
        return None
    last = anchor.at + (anchor.follow << NUMBER_SHIFT) + LAST_KIND
    return Proof(anchor.at, last, stops)


def _gaps(found: Digest) -> dict[str | None, set[int]]:
    """Of nodes, and of sources: what lies in an epoch of one, or may have taken its end."""
    told = found.of("gap")
    made: dict[str | None, set[int]] = defaultdict(set)
    for row in told:
        made[row.node].add(_moment(row.incarnation, row.number))
    if not told:
        return made
    ends = _of_epochs(found, "source_ends", min)
    for (place, incarnation), leaders in found.leaders.items():
        if not _is_source(place):
            continue
        for node, at_incarnation in leaders:
            ended = ends.get((place, incarnation, node, at_incarnation))
            for row in told:
                if row.at_node != node:
                    continue
                before = _said(row, "incarnation")
                if row.at_incarnation == at_incarnation and (ended is None or row.number < ended):
                    made[place].add(_moment(incarnation, row.number))
                elif ended is None and at_incarnation == (
                    row.at_incarnation - 1 if not isinstance(before, int) else before
                ):
                    made[place].add(_moment(incarnation, NUMBER_MAX))
    return made


def log_holes(found: Digest, holes: Sequence[Hole]) -> dict[str | None, list[Span]]:
    """Of each place that has one."""
    if not holes:
        return {}
    spans: dict[str | None, set[Span]] = defaultdict(set)
    for hole in holes:
        spans[hole.node].add(_span(hole.incarnation, hole.first, hole.last))
    begins, ends = _of_epochs(found, "source_begins", min), _of_epochs(found, "source_ends", max)
    epochs: dict[str | None, set[int]] = defaultdict(set)
    for (place, incarnation), leaders in found.leaders.items():
        if not _is_source(place):
            continue
        epochs[place].add(incarnation)
        for node, at_incarnation in leaders:
            begun, ended = (each.get((place, incarnation, node, at_incarnation)) for each in (begins, ends))
            for hole in holes:
                mine = (hole.node, hole.incarnation) == (node, at_incarnation)
                if mine and (ended is None or ended > hole.first) and (begun is None or begun < hole.last):
                    spans[place].add(_span(incarnation, hole.first, hole.last))
    for place, there in epochs.items():
        for missing in {*range(1, max(there) + 1)} - there:
            spans[place].add(_span(missing, 0, NUMBER_MAX))
    return {place: sorted(each) for place, each in spans.items()}


def _of_epochs(found: Digest, event: str, choose: Any) -> dict[tuple[str | None, int, str | None, int], int]:
    """(source, epoch, node, incarnation) -> number of the row."""
    numbers = defaultdict(list)
    for row in found.of(event):
        numbers[row.node, row.incarnation, row.at_node, row.at_incarnation].append(row.number)
    return {key: choose(each) for key, each in numbers.items()}


def _is_source(place: str | None) -> bool:
    return place is not None and place.startswith(PLACE)


def _said(row: Rare, key: str) -> Any:
    try:
        return json.loads(row.detail or "{}").get(key)
    except (ValueError, AttributeError):
        return None


def _moment(incarnation: int, number: int) -> int:
    return (incarnation << INCARNATION_SHIFT) + (number << NUMBER_SHIFT)


def _span(incarnation: int, low: int, high: int) -> Span:
    return _moment(incarnation, low), _moment(incarnation, high) + LAST_KIND
