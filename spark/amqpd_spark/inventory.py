"""What the log's folder holds, before a row of it is read: its files, and which rows are not there.

What comes in: the folders of the log, a period. What goes out: `Inventory`.
Rules: 1. Only footers are read, on the driver, through Spark's own view of files: so the log may be on anything that
the jobs can read. 2. A footer decides, never a file's name. 3. What is not the log's is passed over and counted; what
is, and cannot be read, is refused with a sentence that names the file. 4. Rows are numbered from 1 within (node,
life), without a gap: where the ranges of files do not meet, a file was lost. Where a file has fewer rows than it had,
they were removed. 5. What retention took is no hole: `_log-<node>.json` says how far that is, and how far each life
reached; without it, the oldest and the newest file cannot be missed.
Not here: one footer (`footers.py`); what a hole means for messages (`books/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from amqpd_spark.door import Refused
from amqpd_spark.footers import BROKER, Edge, File, Footers, named, plain

FOOTERS_MAX = 20_000
"""files; some milliseconds each, and more on a store of objects"""
THREADS = 16
FOLDER_SLACK = timedelta(hours=2)
"""between an event and the hour of its file's folder, at most, and then one"""


@dataclass(frozen=True)
class Hole:
    """Rows `first` to `last` of a life that no file has. `after_us`, `before_us`: the last moment of what is before
    it, the first of what is behind it (None: nothing is). `declared`: the broker said so itself."""

    node: str
    life: int
    first: int
    last: int
    after_us: int | None
    before_us: int | None
    declared: bool = False


@dataclass(frozen=True)
class Removed:
    """A file that has fewer rows than were written into it."""

    path: str
    node: str
    life: int
    first: int
    last: int
    gone: int
    from_us: int | None
    to_us: int | None


@dataclass(frozen=True)
class Inventory:
    """`foreign`: paths that were passed over. `duplicates`: rows may be in several files. `unchecked`: files that a
    broker did not write, so that nothing follows from their rows' numbers. `edges`: nodes with a `_log` file."""

    files: list[File]
    holes: list[Hole] = field(default_factory=list)
    removed_rows: list[Removed] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    duplicates: bool = False
    unchecked: int = 0
    edges: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def lost(self) -> list[Hole]:
        """Holes that the broker knows nothing of."""
        return [hole for hole in self.holes if not hole.declared]


@dataclass(frozen=True)
class Cut:
    """Paths of files that have others of their life before them, or behind them, which were not looked at."""

    below: frozenset[str] = frozenset()
    above: frozenset[str] = frozenset()


NOTHING_CUT = Cut()


def take(
    spark: SparkSession,
    folders: Sequence[str],
    since: datetime | None = None,
    until: datetime | None = None,
) -> Inventory:
    """Of the files that may have events of the period, and of each life the ones before and behind them. Raises
    Refused."""
    footers = Footers(spark)
    # Before the files are listed: what the broker writes meanwhile is only more than it says there.
    edges = footers.edges(folders)
    listed: list[tuple[str, int]] = []
    foreign: list[str] = []
    for folder in folders:
        for path, size in footers.listed(folder):
            if path.endswith(".parquet"):
                listed.append((path, size))
            else:
                foreign.append(path)
    meant, cut = _meant(listed, since, until)
    if len(meant) > FOOTERS_MAX:
        raise Refused(
            f"{', '.join(folders)}: {len(meant):,} files are too many for one job: make fewer of them with "
            "`amqpd-spark compact`, or give --since and --until"
        )
    with ThreadPoolExecutor(THREADS) as pool:
        read = list(pool.map(lambda each: footers.file(*each), meant))
    files = [file for file in read if isinstance(file, File)]
    foreign += [path for (path, _), file in zip(meant, read, strict=True) if file is None]
    return judged(files, foreign, edges, since, until, cut)


def remarks(found: Inventory) -> list[str]:
    """What a person is to know of it, a sentence each; holes are told by `conservation`."""
    if not found.foreign:
        return []
    first = plain(found.foreign[0])
    if len(found.foreign) == 1:
        return [f"1 file that is not amqpd's was passed over: {first}"]
    return [f"{len(found.foreign):,} files that are not amqpd's were passed over: first {first}"]


def judged(
    files: Sequence[File],
    foreign: Sequence[str],
    edges: Iterable[Edge] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    cut: Cut = NOTHING_CUT,
) -> Inventory:
    """What follows from the footers. `cut`: files beyond which the log was not looked at."""
    known = {edge.node: edge for edge in edges}
    told = [file for file in files if file.made_by == BROKER and file.first is not None]
    unchecked = len(files) - len(told)
    holes: list[Hole] = []
    duplicates = bool(unchecked)
    # Rows may be in a file that does not say which it has: then nothing is missed.
    for node in sorted({str(file.node) for file in told} | known.keys()) if not unchecked else ():
        mine = [file for file in told if file.node == node]
        found, twice = _of_node(node, mine, known.get(node), cut)
        holes += found
        duplicates = duplicates or twice
    removed = [
        Removed(file.path, str(file.node), file.life or 0, file.first or 0, file.last or 0, gone, *_period(file))
        for file in told
        if (gone := (file.last or 0) - (file.first or 0) + 1 - file.rows) > 0
    ]
    period = _us(since), _us(until)
    return Inventory(
        list(files),
        [hole for hole in holes if _meets(hole.after_us, hole.before_us, period)],
        [each for each in removed if _meets(each.from_us, each.to_us, period)],
        sorted(foreign),
        duplicates,
        unchecked,
        tuple(sorted(known)),
    )


def _of_node(node: str, files: Sequence[File], edge: Edge | None, cut: Cut) -> tuple[list[Hole], bool]:
    """Holes of all lives of a node, and whether a row is in two files."""
    lives = {file.life or 0: _sorted(files, file.life) for file in files}
    if edge is not None:
        lives |= {life: [] for life in edge.lives if life not in lives}
    holes: list[Hole] = []
    twice, before_us = False, None
    oldest = min(lives, default=0)
    for life in sorted(lives):
        mine = lives[life]
        begun = any(file.path in cut.below for file in mine)
        reached = (mine[0].first or 0) - 1 if begun else _begin(life, oldest, mine, edge)
        if reached is None:
            continue
        for file in mine:
            first, last = file.first or 0, file.last or 0
            if first > reached + 1:
                holes += _apart(Hole(node, life, reached + 1, first - 1, before_us, file.from_us), file.declared)
            twice = twice or first <= reached
            reached = max(reached, last)
            before_us = max(before_us or 0, file.to_us or 0) or None
        open_end = edge is None or any(file.path in cut.above for file in mine)
        end = edge.lives.get(life, 0) if edge is not None and not open_end else 0
        if end > reached:
            behind = [file.from_us for later, rest in lives.items() if later > life for file in rest if file.from_us]
            holes.append(Hole(node, life, reached + 1, end, before_us, min(behind, default=None)))
    return holes, twice


def _sorted(files: Sequence[File], life: int | None) -> list[File]:
    return sorted((file for file in files if file.life == life), key=lambda file: (file.first or 0, file.last or 0))


def _begin(life: int, oldest: int, files: Sequence[File], edge: Edge | None) -> int | None:
    """The row before the first one that must be there; None: nothing of that life must be."""
    first = files[0].first if files else None
    if edge is not None and edge.removed is not None:
        if life < edge.removed[0]:
            return None if first is None else first - 1
        # Whoever was killed between the `_log` and the files has some that are older than the edge.
        low = edge.removed[1] if life == edge.removed[0] else 0
        return low if first is None else min(low, first - 1)
    # Without an edge, what was before the oldest file is held against nobody.
    return first - 1 if edge is None and life == oldest and first is not None else 0


def _apart(hole: Hole, declared: Sequence[tuple[int, int]]) -> list[Hole]:
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


def _meant(
    listed: Sequence[tuple[str, int]], since: datetime | None, until: datetime | None
) -> tuple[list[tuple[str, int]], Cut]:
    """Those of the period, and of each life one before and one behind it; and beyond which there are more."""
    if since is None and until is None:
        return list(listed), NOTHING_CUT
    lives: dict[Any, list[tuple[Any, tuple[str, int]]]] = {}
    for path, size in listed:
        name = named(path)
        lives.setdefault(name[:2], []).append(((name[2] is None, name[2] or name[3], path), (path, size)))
    low = f"{since - FOLDER_SLACK:%Y-%m-%d %H}" if since is not None else ""
    high = f"{until:%Y-%m-%d %H}" if until is not None else "9"
    meant: list[tuple[str, int]] = []
    below, above = set(), set()
    for of_life in lives.values():
        ordered = [each for _, each in sorted(of_life, key=lambda each: each[0])]
        hours = [named(path)[3] or low for path, _ in ordered]
        begin = next((index for index, hour in enumerate(hours) if hour >= low), len(hours)) - 1
        end = next((index for index, hour in enumerate(hours) if hour > high), len(hours)) + 1
        part = ordered[max(begin, 0) : end]
        if begin > 0:
            below.add(part[0][0])
        if end < len(ordered):
            above.add(part[-1][0])
        meant += part
    return meant, Cut(frozenset(below), frozenset(above))


def _period(file: File) -> tuple[int | None, int | None]:
    return file.from_us, file.to_us


def _us(time: datetime | None) -> int | None:
    return None if time is None else int(time.astimezone(UTC).timestamp() * 1_000_000)


def _meets(begin: int | None, end: int | None, period: tuple[int | None, int | None]) -> bool:
    since, until = period
    before = since is not None and end is not None and end < since
    behind = until is not None and begin is not None and begin >= until
    return not (before or behind)
