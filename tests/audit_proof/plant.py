"""Faults, planted by editing the log of a run that had none.

What comes in: the folder of a log. What goes out: the same with a lost message, a message that was acknowledged
twice, and a delivery of what was never published; the messages' names.
Rules: files stay what they are except for the rows that make the fault, and have all rows that their footers name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.faults.unpromised import QUEUES as UNPROMISED

# Behind everything that the incarnation of a broker numbers.
NUMBER = 1 << 40
_first = itemgetter("first")


class Named(NamedTuple):
    queue_id: int
    epoch: int
    seq: int


def files(events: Path) -> list[Path]:
    return sorted(events.glob("date=*/hour=*/*.parquet"), key=lambda path: path.stat().st_size, reverse=True)


def _last_acked(path: Path) -> Iterator[Named]:
    """The last message of each stretch, from the end of the file on."""
    for row in reversed(_rows(path, "acked")):
        if row["queue"] not in UNPROMISED:
            yield Named(row["queue_id"], row["epoch"], row["first"] + row["count"] - 1)


class _Stretches:
    """Rows of a log by which message they hold; a million of them, and a million questions."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for row in rows:
            self._rows.setdefault((row["queue_id"], row["epoch"]), []).append(row)
        self._ends: dict[tuple[int, int], list[int]] = {}
        """how far the rows reach that begin up to each one"""
        for key, each in self._rows.items():
            each.sort(key=_first)
            self._ends[key] = list(accumulate([row["first"] + row["count"] for row in each], max))

    def find(self, named: Named) -> dict[str, Any] | None:
        """Of rows of which none holds a message of another."""
        rows = self._rows.get(named[:2], [])
        at = bisect_right(rows, named.seq, key=_first) - 1
        return rows[at] if at >= 0 and _holds(rows[at], named) else None

    def __contains__(self, named: Named) -> bool:
        at = bisect_right(self._rows.get(named[:2], []), named.seq, key=_first) - 1
        return at >= 0 and named.seq < self._ends[named[:2]][at]


def _confirmed(path: Path) -> Iterator[Named]:
    """Messages that came into their queues in this file, were acknowledged, and whose publishers had a confirm. A
    consumer may have acknowledged one before that, and a kill taken the confirm; and dead letters have none."""
    came = _Stretches(_rows(path, "routed"))
    table = pq.ParquetFile(path).read(["event", "publication", "count"])
    table = table.filter(pc.equal(table["event"], "confirmed")).sort_by("publication")
    told = list(zip(table["publication"].to_pylist(), table["count"].to_pylist(), strict=True))
    for named in _last_acked(path):
        routed = came.find(named)
        if routed is not None:
            publication = routed["publication"] + named.seq - routed["first"]
            at = bisect_right(told, publication, key=itemgetter(0)) - 1
            if at >= 0 and publication < sum(told[at]):
                yield named


def _rows(path: Path, event: str) -> list[dict[str, Any]]:
    """Of messages that came in the incarnation that the row is of, or in that epoch of a source."""
    return [row for row in _all_rows(path, event) if (row["source_epoch"] or row["incarnation"]) == row["epoch"]]


def _all_rows(path: Path, event: str) -> list[dict[str, Any]]:
    table = pq.ParquetFile(path).read()
    kept = table.filter(pc.and_(pc.equal(table["event"], event), pc.not_equal(table["queue_id"], 0)))
    rows: list[dict[str, Any]] = kept.to_pylist()
    return rows


def lose(events: Path) -> Named:
    """Everything that says how a message left its queue is gone. One whose publisher was told that it is safe, and
    whose acknowledgement no kill undid: of others the log says what became of them all the same."""
    back = _Stretches(row for each in files(events) for row in _all_rows(each, "standing"))
    lost = next(last for path in files(events) for last in _confirmed(path) if last not in back)
    for each in files(events):
        table = pq.ParquetFile(each).read()
        rows, changed = [], False
        for at, batch in enumerate(table.to_batches()):
            del at
            for old in batch.to_pylist():
                if old["event"] in ("acked", "delivered", "requeued") and _holds(old, lost):
                    changed = True
                    rows += _without(old, lost)
                else:
                    rows.append(old)
        if changed:
            pq.write_table(pa.Table.from_pylist(rows, table.schema), each)
    return lost


def acknowledge_twice(events: Path, but: Named) -> Named:
    path = files(events)[0]
    row = next(row for row in _rows(path, "acked") if not _holds(row, but))
    _add(path, {**row, "number": NUMBER, "count": 1})
    return Named(row["queue_id"], row["epoch"], row["first"])


def deliver_what_was_never_published(events: Path) -> Named:
    path = files(events)[0]
    row = _rows(path, "delivered")[0]
    number = row["first"] + (1 << 30)
    _add(path, {**row, "number": NUMBER + 1, "count": 1, "first": number})
    return Named(row["queue_id"], row["epoch"], number)


def _holds(row: dict[str, Any], named: Named) -> bool:
    same = (row["queue_id"], row["epoch"]) == (named.queue_id, named.epoch)
    return same and row["first"] <= named.seq < row["first"] + row["count"]


def _without(row: dict[str, Any], named: Named) -> list[dict[str, Any]]:
    """The stretch before the message. (It is the last one of its stretch in the row that it was taken from; what
    stands behind it in other rows is a stretch of its own.)"""
    before, behind = named.seq - row["first"], row["first"] + row["count"] - 1 - named.seq
    parts = [{**row, "count": before}] if before else []
    if behind:
        number = NUMBER + 2 + row["number"] if before else row["number"]
        parts.append({**row, "first": named.seq + 1, "count": behind, "number": number})
    return parts or [_nothing(row)]


def _nothing(row: dict[str, Any]) -> dict[str, Any]:
    """In the place of a row, so that the file has all that its footer says: what is planted is a message's fault,
    not the log's."""
    kept = {name: row[name] for name in ("time", "node", "incarnation", "number")}
    none = {name: 0 if isinstance(value, int) else None for name, value in row.items()}
    none |= {name: False for name, value in row.items() if isinstance(value, bool)}
    return {**none, **kept, "event": "bound", "count": 1, "object": "exchange planted"}


def _add(path: Path, row: dict[str, Any]) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(pa.concat_tables([table, pa.Table.from_pylist([row], table.schema)]), path)
