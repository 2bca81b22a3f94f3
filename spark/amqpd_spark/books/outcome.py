"""What became of all messages: sums of those that are nothing special, and a row for each suspect.

What comes in: the log's rows, what is known of queues. What goes out: `outcome`.
Rules: 1. One shuffle; each task has all that is known of its messages, and adds up what it can. 2. A suspect is a row
of its own: they are few, or something is very wrong.
Not here: facts (`facts.py`) and fates (`fates.py`), what becomes of suspects (`suspects.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from amqpd_spark.books.facts import COLUMNS, Pieces, facts, is_plain
from amqpd_spark.books.fates import ENDED, FATE_NAMES, SUSPECTS, Fate, fates
from amqpd_spark.books.gather import is_end
from amqpd_spark.books.lookup import Lookup
from amqpd_spark.books.moments import LAST_KIND, NONE
from amqpd_spark.books.repeated import held
from amqpd_spark.books.returned import Returned
from amqpd_spark.stretches.chunk import Longs, combined
from amqpd_spark.stretches.packed import Columns, unpacked
from amqpd_spark.stretches.scan import Rows
from amqpd_spark.stretches.sweep import Part, swept
from amqpd_spark.tabular import Table

MOMENTS = ("routed", "last", "end_first", "end_last", "after")
"""columns of a suspect: when it entered, was seen last, ended first and last, the first anchor after all that"""
BACK = tuple(f"back_{name}" for name in Returned._fields)
"""of a suspect that returned"""
_TYPES = {
    **dict.fromkeys(("slot", "window", "messages", "low", "high", "seq", "publication", *MOMENTS, *BACK), "bigint"),
    **dict.fromkeys(("fate", "suspect"), "string"),
    **dict.fromkeys(("found", "unseen", "unrecorded", "own"), "boolean"),
}
_OF_ARROW = {"bigint": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}
_ARROW = pa.schema([(name, _OF_ARROW[kind]) for name, kind in _TYPES.items()])
_FOUND, _UNSEEN, _UNRECORDED = 1 << 8, 1 << 9, 1 << 10
"""of a sum's kind, beside its fate"""
_SUSPECTS_AT_ONCE = 1 << 16
_GREATEST = np.iinfo(np.int64).max


def outcome(rows: Rows, parts: int, window_us: int, known: Lookup, cut: bool) -> Table:
    """Columns: slot, `window` (its start, in microseconds), `fate` (or ENDED: how many ended in the window; null: not
    known yet), `found` (first seen in an anchor), `unseen` (it may have entered in a hole of the log), `unrecorded`,
    `suspect` (null, or why), of suspects `seq`, `publication`, `own` (the broker published it), `MOMENTS` and `BACK`;
    `messages`, `low` and `high` (their numbers). `parts`: tasks of the shuffle. `cut`: the log was read from some
    time on."""
    columns = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
    return rows.reduced(Pieces(parts), COLUMNS, parts, _Outcome(window_us, known, cut), columns, again=True)


class _Outcome:
    """The function of a task of the shuffle, which has all pieces of its blocks."""

    def __init__(self, window_us: int, known: Lookup, cut: bool) -> None:
        self.window_us, self.known, self.cut = window_us, known, cut

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        piece = held(table for _, _, table in unpacked(batches))
        if not piece:
            return
        sums = _Sums(self.window_us)
        for part in swept(piece["slot"], piece["first"], piece["last"]):
            made = facts(part, piece)
            plain = is_plain(made)
            simple = _at(made, np.flatnonzero(plain))
            sums.add(simple, simple["end_last"] & LAST_KIND)
            others = np.flatnonzero(~plain)
            if len(others):
                yield from self._others(_at(made, others), others, part, piece["at"], sums)
        sums.add_ended(piece)
        yield sums.rows()

    def _others(self, made: Columns, which: Longs, part: Part, at: Longs, sums: _Sums) -> Iterator[pa.RecordBatch]:
        """`which`: their places in `part`. `at`: the moments of all pieces."""
        fate = fates(made, lambda row: at[part.stretches(int(which[row]))], self.known, self.cut)
        calm = np.flatnonzero(fate.suspect == 0)
        sums.add(_at(made, calm), _kind(fate)[calm])
        suspects = np.flatnonzero(fate.suspect != 0)
        # An interval is no longer than a block.
        shares = np.cumsum(made["messages"][suspects]) // _SUSPECTS_AT_ONCE
        for share in np.unique(shares).tolist():
            yield _suspects(made, fate, suspects[shares == share], self.window_us)


class _Sums:
    """Of messages, by slot, window and kind: a fate, and bits."""

    def __init__(self, window_us: int) -> None:
        self.window_us = window_us
        self._of: dict[tuple[int, int, int], list[int]] = defaultdict(lambda: [_GREATEST, -1, 0])

    def add(self, made: Columns, kind: Longs) -> None:
        self._add(made["slot"], made["us"], kind, made["first"], made["high"])

    def add_ended(self, piece: Columns) -> None:
        """By the time of the end, whatever was concluded of the message; a row that is there twice counts once."""
        at = np.flatnonzero(is_end(piece["at"] & LAST_KIND))
        # A row's pieces are of several blocks.
        order = at[np.lexsort((piece["first"][at], piece["at"][at], piece["slot"][at]))]
        again = np.ones(max(len(order) - 1, 0), np.bool_)
        for name in ("first", "at", "slot"):
            again &= np.diff(piece[name][order]) == 0
        once = order[np.concatenate(([False], again))[: len(order)] == 0]
        kind = np.full(len(once), FATE_NAMES.index(ENDED))
        self._add(piece["slot"][once], piece["us"][once], kind, piece["first"][once], piece["last"][once])

    def _add(self, slot: Longs, us: Longs, kind: Longs, low: Longs, high: Longs) -> None:
        if not len(slot):
            return
        window = us // self.window_us
        codes, heads = combined([slot, window, kind])
        least, greatest = np.full(len(heads), _GREATEST), np.full(len(heads), -1)
        np.minimum.at(least, codes, low)
        np.maximum.at(greatest, codes, high)
        many = np.bincount(codes, weights=high - low + 1, minlength=len(heads))
        for code, head in enumerate(heads.tolist()):
            of = self._of[int(slot[head]), int(window[head]), int(kind[head])]
            of[:] = min(of[0], int(least[code])), max(of[1], int(greatest[code])), of[2] + round(many[code])

    def rows(self) -> pa.RecordBatch:
        keys = np.array(list(self._of), np.int64).reshape(-1, 3).T
        sums = np.array(list(self._of.values()), np.int64).reshape(-1, 3).T
        kind = keys[2]
        return _batch(
            {
                "slot": pa.array(keys[0]),
                "window": pa.array(keys[1] * self.window_us),
                "fate": _named(FATE_NAMES, kind & (_FOUND - 1)),
                "found": pa.array(kind & _FOUND > 0),
                "unseen": pa.array(kind & _UNSEEN > 0),
                "unrecorded": pa.array(kind & _UNRECORDED > 0),
                "low": pa.array(sums[0]),
                "high": pa.array(sums[1]),
                "messages": pa.array(sums[2]),
            },
            len(kind),
        )


def _kind(fate: Fate) -> Longs:
    bits = fate.found * _FOUND + fate.unseen * _UNSEEN + fate.unrecorded * _UNRECORDED
    return np.asarray(fate.fate + bits, np.int64)


def _suspects(made: Columns, fate: Fate, which: Longs, window_us: int) -> pa.RecordBatch:
    """Each of these intervals' messages."""
    many = made["messages"][which]
    of = np.repeat(np.arange(len(which)), many)
    offset = np.arange(len(of)) - np.repeat(np.cumsum(many) - many, many)
    rows = which[of]
    publication = made["publication"][rows]
    seq = made["first"][rows] + offset
    own = made["own"][rows]
    times = {**made, "after": fate.after}
    return _batch(
        {
            "slot": pa.array(made["slot"][rows]),
            "window": pa.array(made["us"][rows] // window_us * window_us),
            "fate": _named(FATE_NAMES, fate.fate[rows]),
            "suspect": _named(SUSPECTS, fate.suspect[rows]),
            "found": pa.array(fate.found[rows]),
            "unseen": pa.array(fate.unseen[rows]),
            "unrecorded": pa.array(fate.unrecorded[rows]),
            "own": pa.array(own == 1, mask=own == NONE),
            "publication": pa.array(np.where(publication > 0, publication + offset, publication)),
            **{name: pa.array(times[name][rows], mask=times[name][rows] == NONE) for name in MOMENTS},
            **{name: column.take(pa.array(of)) for name, column in _back(fate, which).items()},
            **dict.fromkeys(("seq", "low", "high"), pa.array(seq)),
            "messages": pa.array(np.ones(len(rows), np.int64)),
        },
        len(rows),
    )


def _back(fate: Fate, which: Longs) -> dict[str, pa.Array]:
    rows = [fate.returned.get(row, (None,) * len(BACK)) for row in which.tolist()]
    return {name: pa.array(column, pa.int64()) for name, column in zip(BACK, zip(*rows, strict=True), strict=True)}


def _at(made: Columns, rows: Longs) -> Columns:
    return {name: column[rows] for name, column in made.items()}


def _named(names: tuple[str, ...], of: Longs) -> pa.Array:
    """null for the first one."""
    return pa.array([name or None for name in names], pa.string()).take(pa.array(of))


def _batch(columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
