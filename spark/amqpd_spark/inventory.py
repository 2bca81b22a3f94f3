"""What the log's folders hold, before a job looks at them: their files, and which rows are not there.

What comes in: the folders of the log, a period. What goes out: `Inventory`.
Rules: 1. Footers are read, on the driver, through Spark's own view of files: so the log may be on anything that the
jobs can read. 2. A footer decides, never a file's name. 3. What is not the log's is passed over and counted; what is,
and cannot be read, is refused with a sentence that names the file. 4. Where a file has fewer rows than it had, they
were removed. Of rows that no file has, `contiguity.py` judges, over all files together: whoever adds a file hides
nothing. Where a footer does not say which rows there are, they are read. 5. What `generate` made has numbers with
gaps by design, and counts for nothing in this. 6. What retention took is no hole: `_log-<node>.json` says how far
that is, and how far each incarnation reached; without it, the oldest and the newest file cannot be missed.
Not here: one footer (`footers.py`); numbers that are read (`present.py`); what a hole means for messages (`books/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from amqpd_spark import compacted, present
from amqpd_spark.compacted import Hour
from amqpd_spark.contiguity import NOTHING_CUT, Cut, Gap, Hole, Removed, excused, of_node, told_of
from amqpd_spark.door import Refused
from amqpd_spark.files import plain
from amqpd_spark.footers import BROKER, GENERATE, ROWS_FILE, THREADS, UNKNOWN, Edge, File, Footers, named

__all__ = ["Cut", "Gap", "Hole", "Inventory", "Read", "Removed", "judged", "remarks", "take"]

FOOTERS_MAX = 20_000
"""files; some milliseconds each, and more on a store of objects"""
FOLDER_SLACK = timedelta(hours=2)
"""between an event and the hour of its file's folder, at most, and then one"""


@dataclass(frozen=True)
class Inventory:
    """`foreign`: paths that were passed over. `unchecked`: files of whose rows none is missed, for their numbers jump
    by design. `edges`: nodes with a `_log` file; `reach`: what those say."""

    files: list[File]
    holes: list[Hole] = field(default_factory=list)
    removed_rows: list[Removed] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    unchecked: int = 0
    edges: tuple[str, ...] = ()
    reach: tuple[Edge, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def lost(self) -> list[Hole]:
        """Holes that the broker knows nothing of."""
        return [hole for hole in self.holes if not hole.declared]


@dataclass(frozen=True)
class Read:
    """What was read beside footers: `ranges` of rows, as if each were a file; `changed`: of files that `compact`
    wrote, or that it found changed; `gaps`, as the broker says them; `unchecked` as in `Inventory`."""

    ranges: Sequence[File] = ()
    changed: Sequence[Removed] = ()
    gaps: Sequence[Gap] = ()
    unchecked: int = 0


NOTHING_READ = Read()


def take(
    spark: SparkSession,
    folders: Sequence[str],
    since: datetime | None = None,
    until: datetime | None = None,
    holes: bool = True,
) -> Inventory:
    """Of the files that may have events of the period, and of each incarnation the ones before and behind them.
    Without `holes` it is not asked what is missing, which may need all rows' numbers. Raises Refused."""
    footers = Footers(spark)
    # Before the files are listed: what the broker writes meanwhile is only more than it says there.
    edges = footers.edges(folders)
    listed: list[tuple[str, int]] = []
    foreign: list[str] = []
    told: list[str] = []
    for folder in folders:
        for path, size in footers.listed(folder):
            if path.endswith(".parquet"):
                listed.append((path, size))
            else:
                (told if path.endswith(f"/{ROWS_FILE}") else foreign).append(path)
    meant, cut = _meant(listed, since, until)
    if len(meant) > FOOTERS_MAX:
        raise Refused(
            f"{', '.join(folders)}: {len(meant):,} files are too many for one job: make fewer of them with "
            "`amqpd-spark compact`, or give --since and --until"
        )
    with ThreadPoolExecutor(THREADS) as pool:
        read = list(pool.map(lambda each: footers.file(*each), meant))
        hours = dict(zip(told, pool.map(lambda path: compacted.hour(footers.text(path)), told), strict=True))
    files = [file for file in read if isinstance(file, File)]
    foreign += [path for (path, _), file in zip(meant, read, strict=True) if file is None]
    if not holes:
        return judged(files, foreign)
    more = _read(spark, files, {path.rpartition("/")[0]: hour for path, hour in hours.items() if hour is not None})
    found = judged(files, foreign, edges, since, until, cut, more)
    if found.lost and (gaps := present.gaps(spark, files)):
        more = Read(more.ranges, more.changed, gaps, more.unchecked)
        return judged(files, foreign, edges, since, until, cut, more)
    return found


def _read(spark: SparkSession, files: Sequence[File], hours: dict[str, Hour]) -> Read:
    """`hours`: folder -> what `compact` says of it."""
    ranges: list[File] = []
    unchecked = sum(file.made_by == GENERATE for file in files)
    dumb = [file for file in files if file.first is None and file.made_by != GENERATE]
    unknown = [file for file in dumb if file.made_by == UNKNOWN]
    if known := [file for file in dumb if file.made_by != UNKNOWN]:
        ranges += present.ranges(spark, known)[0]
    if unknown:
        found, left_out = present.ranges(spark, unknown, sparse=False)
        ranges += found
        unchecked += len(unknown) if left_out else 0
    changed = {astuple(each): each for hour in hours.values() for each in hour.removed}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        gone = hours[folder].files.get(name, 0) - file.rows if folder in hours else 0
        if gone > 0:
            changed |= {astuple(each): each for each in present.spans(spark, file.path, gone)}
    return Read(ranges, list(changed.values()), (), unchecked)


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
    read: Read = NOTHING_READ,
) -> Inventory:
    """What follows from the footers. `cut`: files beyond which the log was not looked at."""
    known: dict[str, Edge] = {}
    for each in edges:
        known[each.node] = each.with_other(known[each.node]) if each.node in known else each
    told = [file for file in files if file.made_by == BROKER and file.first is not None]
    ranges = [*told, *read.ranges]
    # Ranges that were read are of no file of their own: of a period, their ends are not those of the log.
    cut = Cut(cut.below | ({""} if since else set()), cut.above | ({""} if until else set()))
    holes: list[Hole] = []
    for node in sorted({str(each.node) for each in ranges} | known.keys()):
        found = of_node(node, [each for each in ranges if each.node == node], known.get(node), cut)
        holes += [part for hole in found for part in told_of(hole, read.gaps)]
    removed = [
        Removed(
            file.path, str(file.node), file.incarnation or 0, file.first or 0, file.last or 0, gone, *_period(file)
        )
        for file in told
        if (gone := (file.last or 0) - (file.first or 0) + 1 - file.rows) > 0
    ]
    period = _us(since), _us(until)
    return Inventory(
        list(files),
        [hole for hole in excused(holes, read.changed) if _meets(hole.after_us, hole.before_us, period)],
        [each for each in [*removed, *_each_once(read.changed)] if _meets(each.from_us, each.to_us, period)],
        sorted(foreign),
        read.unchecked,
        tuple(sorted(known)),
        tuple(known.values()),
    )


def _each_once(changed: Iterable[Removed]) -> list[Removed]:
    """One for each file: of which incarnation the rows were that are gone is not known."""
    return list({each.path: each for each in reversed(list(changed))}.values())


def _meant(
    listed: Sequence[tuple[str, int]], since: datetime | None, until: datetime | None
) -> tuple[list[tuple[str, int]], Cut]:
    """Those of the period, and of each incarnation one before and one behind it; and beyond which there are more."""
    if since is None and until is None:
        return list(listed), NOTHING_CUT
    incarnations: dict[Any, list[tuple[Any, tuple[str, int]]]] = {}
    for path, size in listed:
        name = named(path)
        incarnations.setdefault(name[:2], []).append(((name[2] is None, name[2] or name[3], path), (path, size)))
    low = f"{since - FOLDER_SLACK:%Y-%m-%d %H}" if since is not None else ""
    high = f"{until:%Y-%m-%d %H}" if until is not None else "9"
    meant: list[tuple[str, int]] = []
    below, above = set(), set()
    for of_incarnation in incarnations.values():
        ordered = [each for _, each in sorted(of_incarnation, key=lambda each: each[0])]
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
