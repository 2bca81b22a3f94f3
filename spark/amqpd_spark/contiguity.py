"""Which rows of an incarnation no file has: ranges that do not meet.

What comes in: ranges of rows (of files, or found by reading them), how far each incarnation reached, what the broker
says that it did not record. What goes out: `Hole`s; of files that were changed, what follows from that.
Rules: 1. Rows are numbered from 1 within (node, incarnation), without a gap. 2. An edge has one neighbour only:
without an `Edge`, what was before the oldest row or behind the newest one is held against nobody. 3. What the broker
declared itself is a hole that is `declared`. 4. Rows that somebody took out of a file that `compact` wrote are no
hole, just as in a file of the broker: so that no loss is excused by deleting a row.
Not here: where the ranges come from (`inventory.py`, `present.py`), what a hole means for messages (`books/`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from amqpd_spark.footers import Edge, File

GAP_NEAR = 8
"""rows between a gap and the row that says it, at most: of the start of an incarnation"""
_SPOOL = re.compile(r"(.+)-(\d+)-(\d+)\.spool")


@dataclass(frozen=True)
class Hole:
    """Rows `first` to `last` of an incarnation that no file has. `after_us`, `before_us`: the last moment of what is
    before it, the first of what is behind it (None: nothing is). `declared`: the broker said so itself. `files`:
    numbers of the files beside it (None: not known)."""

    node: str
    incarnation: int
    first: int
    last: int
    after_us: int | None
    before_us: int | None
    declared: bool = False
    files: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class Removed:
    """A file that has fewer rows than were written into it; `first`, `last`: of the rows that it had."""

    path: str
    node: str
    incarnation: int
    first: int
    last: int
    gone: int
    from_us: int | None
    to_us: int | None


@dataclass(frozen=True)
class Gap:
    """A row with which the broker says what it did not record: `incarnation`, `number` of the row; `of_incarnation`,
    the incarnation that it speaks of; the rows, as far as it knows them; `file`, a spool file that was damaged."""

    node: str
    incarnation: int
    number: int
    reason: str
    of_incarnation: int | None = None
    rows_from: int | None = None
    rows_to: int | None = None
    file: str | None = None


@dataclass(frozen=True)
class Cut:
    """Paths of files that have others of their incarnation before them, or behind them, which were not looked at."""

    below: frozenset[str] = frozenset()
    above: frozenset[str] = frozenset()


NOTHING_CUT = Cut()


def of_node(node: str, files: Sequence[File], edge: Edge | None, cut: Cut) -> list[Hole]:
    """Holes of all incarnations of a node. `files`: ranges, each with first and last."""
    incarnations = {file.incarnation or 0: _sorted(files, file.incarnation) for file in files}
    if edge is not None:
        incarnations |= {incarnation: [] for incarnation in edge.incarnations if incarnation not in incarnations}
    holes: list[Hole] = []
    before_us = None
    oldest = min(incarnations, default=0)
    for incarnation in sorted(incarnations):
        mine = incarnations[incarnation]
        begun = any(file.path in cut.below for file in mine)
        reached = (mine[0].first or 0) - 1 if begun else _begin(incarnation, oldest, mine, edge)
        if reached is None:
            continue
        n: int | None = 0
        for file in mine:
            first, last = file.first or 0, file.last or 0
            if first > reached + 1:
                hole = Hole(
                    node, incarnation, reached + 1, first - 1, *_in_order(before_us, file.from_us), False, (n, file.n)
                )
                holes += apart(hole, file.declared)
            reached, n = max(reached, last), file.n
            before_us = max(before_us or 0, file.to_us or 0) or None
        open_end = edge is None or any(file.path in cut.above for file in mine)
        end = edge.incarnations.get(incarnation, 0) if edge is not None and not open_end else 0
        if end > reached:
            behind = [
                file.from_us
                for later, rest in incarnations.items()
                if later > incarnation
                for file in rest
                if file.from_us
            ]
            times = _in_order(before_us, min(behind, default=None))
            holes.append(Hole(node, incarnation, reached + 1, end, *times, False, (n, None)))
    return holes


def apart(hole: Hole, declared: Iterable[tuple[int, int]]) -> list[Hole]:
    """The parts of it that the broker declared, and those that it did not."""
    parts: list[Hole] = []
    at = hole.first
    for low, high in sorted(declared):
        low, high = max(low, at), min(high, hole.last)
        if high < low:
            continue
        if low > at:
            parts.append(replace(hole, first=at, last=low - 1))
        parts.append(replace(hole, first=low, last=high, declared=True))
        at = high + 1
    return [*parts, replace(hole, first=at)] if at <= hole.last else parts


def told_of(hole: Hole, gaps: Iterable[Gap]) -> list[Hole]:
    """Its parts, once the rows are read in which the broker says what it did not record. Those of earlier versions do
    not know the numbers: such a one stands right behind the hole, or names the spool file that was to fill it."""
    if hole.declared:
        return [hole]
    declared: list[tuple[int, int]] = []
    for gap in gaps:
        if gap.node != hole.node:
            continue
        if gap.rows_from is not None:
            if (gap.of_incarnation or gap.incarnation) == hole.incarnation:
                declared.append((gap.rows_from, hole.last if gap.rows_to is None else gap.rows_to))
        elif gap.reason == "disk_full":
            if gap.incarnation == hole.incarnation and hole.last < gap.number <= hole.last + GAP_NEAR:
                declared.append((hole.first, hole.last))
        elif gap.file is not None and _would_fill(hole, gap.file):
            declared.append((hole.first, hole.last))
    return apart(hole, declared)


def _would_fill(hole: Hole, spool: str) -> bool:
    name = _SPOOL.match(spool)
    before, behind = hole.files
    if name is None or before is None or (name[1], int(name[2])) != (hole.node, hole.incarnation):
        return False
    return before < int(name[3]) and (behind is None or int(name[3]) < behind)


def excused(holes: Iterable[Hole], changed: Sequence[Removed]) -> list[Hole]:
    """Without the holes that are rows which somebody took out of a file, as far as those are enough."""
    left = {at: each.gone for at, each in enumerate(changed)}
    kept = []
    for hole in holes:
        rows = hole.last - hole.first + 1
        by = next(
            (
                at
                for at, each in enumerate(changed)
                if not hole.declared and _touches(hole, each) and rows <= left[at]
            ),
            None,
        )
        if by is None:
            kept.append(hole)
        else:
            left[by] -= rows
    return kept


def _touches(hole: Hole, of: Removed) -> bool:
    mine = (hole.node, hole.incarnation) == (of.node, of.incarnation)
    return mine and hole.first <= of.last + 1 and hole.last >= of.first - 1


def _in_order(after_us: int | None, before_us: int | None) -> tuple[int | None, int | None]:
    """Times of ranges that were read are those of some rows around."""
    if after_us is not None and before_us is not None and after_us > before_us:
        return before_us, after_us
    return after_us, before_us


def _sorted(files: Sequence[File], incarnation: int | None) -> list[File]:
    return sorted(
        (file for file in files if file.incarnation == incarnation),
        key=lambda file: (file.first or 0, file.last or 0),
    )


def _begin(incarnation: int, oldest: int, files: Sequence[File], edge: Edge | None) -> int | None:
    """The row before the first one that must be there; None: nothing of that incarnation must be."""
    first = files[0].first if files else None
    if edge is not None and edge.removed is not None:
        if incarnation < edge.removed[0]:
            return None if first is None else first - 1
        # Whoever was killed between the `_log` and the files has some that are older than the edge.
        low = edge.removed[1] if incarnation == edge.removed[0] else 0
        return low if first is None else min(low, first - 1)
    # Without an edge, what was before the oldest file is held against nobody.
    return first - 1 if edge is None and incarnation == oldest and first is not None else 0
