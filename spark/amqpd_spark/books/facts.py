"""Each message's facts, from all its rows: the one heavy stage.

What comes in: the log's rows. What goes out: `facts`: a row for each interval of messages to which the same rows
happened, and what they come to; of messages that were routed once, ended once and never stood in an anchor, only
their number, by window and fate.
Rules: 1. One shuffle, of stretches and not of messages, by (slot, block of numbers): a hot queue is spread over all
tasks. 2. No aggregate counts rows: the same row twice changes nothing.
Not here: what follows for a message (`fates.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from amqpd_spark.books.gather import KIND, ROUTED, STANDING, is_end
from amqpd_spark.books.moments import KINDS, LAST_KIND, LIFE_SHIFT, NUMBER_MAX, NUMBER_SHIFT
from amqpd_spark.books.places import Places
from amqpd_spark.books.repeated import folded, held
from amqpd_spark.flows import number_of
from amqpd_spark.pieces import PIECES, part_of
from amqpd_spark.stretches.chunk import Chunk, Flags, Longs, combined
from amqpd_spark.stretches.packed import SCHEMA, Columns, mapped, sent, spread, unpacked
from amqpd_spark.stretches.scan import Rows
from amqpd_spark.stretches.sweep import Part, cut, swept

LIVES_MAX = 62
"""of a message, that are told apart when its ends are counted; later ones count as one"""
_COLUMNS = (
    *("event", "time", "node", "life", "number", "queue_id", "epoch", "first", "count", "publication"),
    *("connection", "persistent", "source", "source_epoch"),
)
PERSISTENT, KNOWN, OWN = 1, 2, 4
"""bits of a row's flags: it is, it is known whether it is; it is the broker's own publish"""
ENDED = "ended"
_NONE = -1
_MOMENTS = ("seen_first", "last", "routed", "stood", "end_first", "end_last", "end_back", "end_lives")
_FACTS = {
    **dict.fromkeys(("slot", "first", "high", "messages", "us", "publication", *_MOMENTS), "bigint"),
    "plain": "string",
    **dict.fromkeys(("persistent", "own", "at_home"), "boolean"),
    **dict.fromkeys(("ends", "stands"), "array<bigint>"),
}
_TYPES = {"bigint": pa.int64(), "string": pa.string(), "boolean": pa.bool_(), "array<bigint>": pa.list_(pa.int64())}
_ARROW = pa.schema([(name, _TYPES[kind]) for name, kind in _FACTS.items()])
_LEAST = np.iinfo(np.int64).min
_GREATEST = np.iinfo(np.int64).max


def facts(rows: Rows, parts: int, window_us: int) -> DataFrame:
    """Columns: slot, first, `high` (the last number), `messages`; `plain`: the fate of plain ones, whose numbers lie
    between first and high, or ENDED: no messages' fate, but how many ended in a window; else null; `us` of the first
    event, of plain ones the window's begin. Of others what `fates.py` takes: persistent, publication (of the first
    message), own, moments, `end_back` (for the first end), `end_lives` (bits, of lives from the epoch on), at_home;
    `ends` and `stands` (moments) where it has both. `parts`: tasks of the shuffle."""
    cut = rows.mapped(_Pieces(parts), _COLUMNS, SCHEMA)
    return mapped(sent(cut, parts), _Facts(window_us), ", ".join(f"{name} {kind}" for name, kind in _FACTS.items()))


class _Pieces:
    """The function of a task of the scan: each row's stretch, sent to the task of its block. `parts`: of these."""

    def __init__(self, parts: int) -> None:
        self.parts = parts

    def __call__(self, chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            pieces = folded(_cut(_stretches(chunk)))
            part = part_of(pieces["slot"], pieces["first"], self.parts)
            yield from spread(PIECES, part, self.parts, pieces)


def _stretches(chunk: Chunk) -> Columns:
    kind = chunk.texts("event").as_numbers(KIND, 0)
    count = chunk.longs("count")
    at = np.flatnonzero((kind > 0) & (count > 0))
    places, ids, epoch = Places(chunk), chunk.longs("queue_id")[at], chunk.longs("epoch")[at]
    codes, heads = combined([*(column[at] for column in places.columns), ids, epoch])
    names = [number_of(places.name(at[head]), int(ids[head]), int(epoch[head])) for head in heads.tolist()]
    routed = kind[at] == ROUTED
    persistent = chunk.flags("persistent")[at]
    flags = np.where(persistent >= 0, persistent * PERSISTENT + KNOWN, 0)
    flags += np.where(routed & chunk.are_null("connection")[at], OWN, 0)
    first = chunk.longs("first")[at]
    return {
        "slot": np.array(names, np.int64)[codes],
        "first": first,
        "last": first + count[at] - 1,
        "at": (places.life[at] << LIFE_SHIFT) + (chunk.longs("number")[at] << NUMBER_SHIFT) + kind[at],
        "us": chunk.longs("time")[at],
        "epoch": epoch,
        # Of an end it would be the letter's.
        "publication": np.where(routed, chunk.longs("publication")[at], 0),
        "flags": flags,
    }


def _cut(stretches: Columns) -> Columns:
    """At the blocks' edges."""
    of, low, high = cut(stretches["first"], stretches["last"])
    pieces = {name: column[of] for name, column in stretches.items()}
    publication = pieces["publication"]
    moved = np.where(publication > 0, publication + low - pieces["first"], publication)
    return pieces | {"first": low, "last": high, "publication": moved}


class _Facts:
    """The function of a task of the shuffle, which has all pieces of its blocks."""

    def __init__(self, window_us: int) -> None:
        self.window_us = window_us

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        piece = held(table for _, _, table in unpacked(batches))
        if not piece:
            return
        sums = _Sums(self.window_us)
        for part in swept(piece["slot"], piece["first"], piece["last"]):
            made = _of_part(part, piece)
            plain = _is_plain(made)
            sums.add({name: each[plain] for name, each in made.items()})
            others = np.flatnonzero(~plain)
            if len(others):
                yield _open({name: each[others] for name, each in made.items()}, others, part, piece["at"])
        sums.add_ended(piece)
        yield pa.RecordBatch.from_pylist(list(sums.rows()), _ARROW)


class _Sums:
    """Of messages, by slot, window and kind (0: ended)."""

    def __init__(self, window_us: int) -> None:
        self.window_us = window_us
        self._of: dict[tuple[int, int, int], list[int]] = defaultdict(lambda: [_GREATEST, -1, 0])

    def add(self, made: dict[str, Longs]) -> None:
        self._add(made["slot"], made["us"], made["end_last"] & LAST_KIND, made["first"], made["high"])

    def add_ended(self, piece: dict[str, Longs]) -> None:
        """By the time of the end, whatever was concluded of the message; a row that is there twice counts once."""
        at = np.flatnonzero(is_end(piece["at"] & LAST_KIND))
        # A row's pieces are of several blocks.
        order = at[np.lexsort((piece["first"][at], piece["at"][at], piece["slot"][at]))]
        again = np.ones(max(len(order) - 1, 0), np.bool_)
        for name in ("first", "at", "slot"):
            again &= np.diff(piece[name][order]) == 0
        once = order[np.concatenate(([False], again))[: len(order)] == 0]
        nothing = np.zeros(len(once), np.int64)
        self._add(piece["slot"][once], piece["us"][once], nothing, piece["first"][once], piece["last"][once])

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

    def rows(self) -> Iterator[dict[str, object]]:
        for (slot, window, kind), (low, high, many) in self._of.items():
            yield {
                "slot": slot,
                "us": window * self.window_us,
                "plain": KINDS[kind] or ENDED,
                "first": low,
                "high": high,
                "messages": many,
            }


def _of_part(part: Part, piece: dict[str, Longs]) -> dict[str, Longs]:
    """_NONE: there is none."""
    at, kind = piece["at"], piece["at"] & LAST_KIND
    ended, routed, stands = is_end(kind), kind == ROUTED, kind == STANDING
    life = at >> LIFE_SHIFT
    lives = np.minimum(np.maximum(life - piece["epoch"], 0), LIVES_MAX)
    back = (life << LIFE_SHIFT) + ((NUMBER_MAX - ((at >> NUMBER_SHIFT) & NUMBER_MAX)) << NUMBER_SHIFT)
    flags = piece["flags"]
    known = (flags & KNOWN) > 0
    # As of number 0: then it is the same for all that came of one publish, and moves with the message.
    base = np.where(piece["publication"] > 0, piece["publication"] - piece["first"], _LEAST)
    publication = part.max(base)
    end_first = part.min(np.where(ended, at, _GREATEST))
    return {
        "slot": part.key,
        "first": part.low,
        "high": part.high,
        "messages": part.high - part.low + 1,
        "us": part.min(piece["us"]),
        "persistent": part.max(np.where(known, flags & PERSISTENT, _NONE)),
        "publication": np.where(publication == _LEAST, 0, publication + part.low),
        "own": part.max(np.where(routed, (flags & OWN) // OWN, _NONE)),
        "seen_first": part.min(at),
        "last": part.max(at),
        "routed": part.max(np.where(routed, at, _NONE)),
        "stood": part.max(np.where(stands, at, _NONE)),
        "end_first": np.where(end_first == _GREATEST, _NONE, end_first),
        "end_last": part.max(np.where(ended, at, _NONE)),
        "end_back": part.max(np.where(ended, back, _NONE)),
        "end_lives": part.any_bit(np.where(ended, np.int64(1) << lives, 0)),
        "at_home": part.max((stands & (life == piece["epoch"])).astype(np.int64)),
    }


def _is_plain(made: dict[str, Longs]) -> Flags:
    """Nothing can be wrong with it: it entered, and one row ended it."""
    one_end = (made["end_first"] >= 0) & (made["end_first"] == made["end_last"])
    return np.asarray((made["routed"] >= 0) & (made["stood"] < 0) & one_end)


def _open(made: dict[str, Longs], which: Longs, part: Part, at: Longs) -> pa.RecordBatch:
    came_back = (made["stood"] >= 0) & (made["end_first"] >= 0)
    columns: dict[str, pa.Array] = {"plain": pa.nulls(len(which), pa.string())}
    for name, values in made.items():
        if name in ("slot", "first", "high", "messages", "us", "publication", "seen_first", "last", "end_lives"):
            columns[name] = pa.array(values)
        elif name in ("persistent", "own", "at_home"):
            columns[name] = pa.array(values == 1, mask=values == _NONE)
        else:
            columns[name] = pa.array(values, mask=values == _NONE)
    pairs = zip(which.tolist(), came_back.tolist(), strict=True)
    moments = [np.sort(at[part.stretches(of)]) if back else None for of, back in pairs]
    columns["ends"] = _lists(moments, is_end)
    columns["stands"] = _lists(moments, lambda kind: kind == STANDING)
    return pa.RecordBatch.from_arrays([columns[name] for name in _FACTS], schema=_ARROW)


def _lists(moments: list[Longs | None], are_meant: Callable[[Longs], Flags]) -> pa.Array:
    lists = [None if each is None else each[are_meant(each & LAST_KIND)] for each in moments]
    return pa.array(lists, pa.list_(pa.int64()))
