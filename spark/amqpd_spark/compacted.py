"""What `compact` says of what it wrote: beside each hour's files which rows they have, and how far the log reaches.

What comes in: an inventory of the input, the hours that were written. What goes out: `date=D/hour=H/_rows.json`, and
`_log-<node>.json` beside the dates, as a broker has it; both read back.
Rules: 1. An hour that is written again loses what was said of it, for both are in one folder. 2. `_rows.json` goes
after the hour's files and `_log` after all: a kill between leaves less said, and nothing false. 3. What is damaged
counts as missing. 4. Rows that were taken out of the input's files are said in each hour that may have had them.
Not here: the rows (`compact.py`), what follows (`inventory.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta

from amqpd_spark.contiguity import Removed
from amqpd_spark.footers import LOG_FORMAT, ROWS_FILE, THREADS, Edge, Footers, checksum_of
from amqpd_spark.schema import FORMAT

Reached = dict[int, tuple[int, int]]
"""incarnation -> first and last row"""


@dataclass(frozen=True)
class Hour:
    """`files`: name -> rows; `removed`: what the input said."""

    files: dict[str, int]
    removed: tuple[Removed, ...] = ()


def hour(text: str | None) -> Hour | None:
    """None: it is damaged, or of a version that is not known."""
    try:
        told = json.loads(text or "")
        checksum = told.pop("crc")
        if checksum != checksum_of(told) or told["format"] != FORMAT:
            return None
        files = {str(name): int(rows) for name, rows in told["files"].items()}
        return Hour(files, tuple(Removed(*each) for each in told["removed"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def write_row_counts(footers: Footers, folder: str, hours: Iterable[str], removed: Sequence[Removed]) -> None:
    """Write how many rows each file of these hours has. `hours`: as "date=2026-11-22/hour=05", all of them just
    written."""

    def one(name: str) -> None:
        place = f"{folder.rstrip('/')}/{name}"
        rows = {
            path.rpartition("/")[2]: file.rows
            for path, size in footers.listed(place)
            if path.endswith(".parquet") and (file := footers.file(path, size)) is not None
        }
        known: dict[str, object] = {"format": FORMAT, "files": rows}
        known |= {"removed": [astuple(each) for each in removed if _meets(each, name)]}
        footers.write(f"{place}/{ROWS_FILE}", json.dumps({**known, "crc": checksum_of(known)}))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, hours))


def write_edges(
    footers: Footers, folder: str, given: Iterable[Edge], written: Mapping[str, Reached], begun: bool, ended: bool
) -> None:
    """`given`: of the input. `written`: of each node. `begun`, `ended`: the period has no begin, no end."""
    there = {edge.node: edge for edge in footers.edges([folder])}
    for edge in given:
        carried = _carried(there.get(edge.node), edge, written.get(edge.node, {}), begun, ended)
        if carried is not None:
            footers.write(f"{folder.rstrip('/')}/_log-{edge.node}.json", _text(carried))


def _carried(there: Edge | None, given: Edge, written: Reached, begun: bool, ended: bool) -> Edge | None:
    """Of a period: no more than what was written, for the rest may come with the next one."""
    incarnations, removed = dict(given.incarnations), given.removed
    if not (begun and ended):
        if not written:
            return there
        newest, oldest = max(written), min(written)
        if not ended:
            incarnations = {incarnation: last for incarnation, last in incarnations.items() if incarnation < newest}
            incarnations[newest] = written[newest][1]
        if not begun:
            incarnations = {incarnation: last for incarnation, last in incarnations.items() if incarnation >= oldest}
            removed = oldest, written[oldest][0] - 1
    if there is not None:
        incarnations |= {
            incarnation: max(last, incarnations.get(incarnation, 0))
            for incarnation, last in there.incarnations.items()
        }
        removed = there.removed
    return Edge(given.node, incarnations, removed)


def _text(edge: Edge) -> str:
    incarnations = {
        str(incarnation): {"last": last, "ended": False} for incarnation, last in sorted(edge.incarnations.items())
    }
    known: dict[str, object] = {"format": LOG_FORMAT, "node": edge.node, "incarnations": incarnations}
    known["removed"] = None if edge.removed is None else dict(zip(("incarnation", "last"), edge.removed, strict=True))
    known["from"] = "compact"
    return json.dumps({**known, "crc": checksum_of(known)})


def _meets(removed: Removed, name: str) -> bool:
    """Whether a row of the file may be of that hour."""
    date, hour = (part.partition("=")[2] for part in name.split("/"))
    begin = datetime.fromisoformat(f"{date}T{hour}:00").replace(tzinfo=UTC)
    end_us = (begin + timedelta(hours=1)).timestamp() * 1e6
    return (removed.from_us or 0) < end_us and (removed.to_us or end_us) >= begin.timestamp() * 1e6
