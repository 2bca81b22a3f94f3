"""Each message's facts, from all its rows.

What comes in: the log's rows; later all pieces of some messages. What goes out: pieces of stretches, each for the
task of its block; then the facts of each interval of messages to which the same rows happened.
Rules: 1. One shuffle, of stretches and not of messages, by (slot, block of numbers): a hot queue is spread over all
tasks. 2. No aggregate counts rows: the same row twice changes nothing.
Not here: what follows for a message (`fates.py`), what goes on to Spark's SQL (`outcome.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from amqpd_spark.books.gather import KIND, ROUTED, STANDING, is_end
from amqpd_spark.books.moments import INCARNATION_SHIFT, LAST_KIND, NONE, NUMBER_MAX, NUMBER_SHIFT
from amqpd_spark.books.places import Places
from amqpd_spark.books.repeated import folded
from amqpd_spark.flows import number_of
from amqpd_spark.pieces import PIECES, part_of
from amqpd_spark.stretches.chunk import Chunk, Flags, combined
from amqpd_spark.stretches.packed import Columns, spread
from amqpd_spark.stretches.sweep import Part, cut

COLUMNS = (
    *("event", "time", "node", "incarnation", "number", "queue_id", "epoch", "first", "count", "publication"),
    *("connection", "persistent", "source", "source_epoch"),
)
INCARNATIONS_MAX = 62
"""of a message, that are told apart when its ends are counted; later ones count as one"""
PERSISTENT, KNOWN, OWN = 1, 2, 4
"""bits of a row's flags: it is, it is known whether it is; it is the broker's own publish"""
_LEAST = np.iinfo(np.int64).min
_GREATEST = np.iinfo(np.int64).max


class Pieces:
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
        "at": (places.incarnation[at] << INCARNATION_SHIFT) + (chunk.longs("number")[at] << NUMBER_SHIFT) + kind[at],
        "us": chunk.longs("time")[at],
        "epoch": epoch,
        # Of an end it would be the dead letter's.
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


def facts(part: Part, piece: Columns) -> Columns:
    """Of each interval: slot, first, `high` (its last number), messages, us (of its first event), persistent,
    publication (of the first message), own, moments, `end_back` (for the first end), `end_incarnations` (bits, of
    incarnations from the epoch on), of_own_epoch. NONE: there is none, or it is not known."""
    at, kind = piece["at"], piece["at"] & LAST_KIND
    ended, routed, stands = is_end(kind), kind == ROUTED, kind == STANDING
    incarnation = at >> INCARNATION_SHIFT
    incarnations = np.minimum(np.maximum(incarnation - piece["epoch"], 0), INCARNATIONS_MAX)
    back = (incarnation << INCARNATION_SHIFT) + ((NUMBER_MAX - ((at >> NUMBER_SHIFT) & NUMBER_MAX)) << NUMBER_SHIFT)
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
        "persistent": part.max(np.where(known, flags & PERSISTENT, NONE)),
        "publication": np.where(publication == _LEAST, 0, publication + part.low),
        "own": part.max(np.where(routed, (flags & OWN) // OWN, NONE)),
        "seen_first": part.min(at),
        "last": part.max(at),
        "routed": part.max(np.where(routed, at, NONE)),
        "stood": part.max(np.where(stands, at, NONE)),
        "end_first": np.where(end_first == _GREATEST, NONE, end_first),
        "end_last": part.max(np.where(ended, at, NONE)),
        "end_back": part.max(np.where(ended, back, NONE)),
        "end_incarnations": part.any_bit(np.where(ended, np.int64(1) << incarnations, 0)),
        "of_own_epoch": part.max((stands & (incarnation == piece["epoch"])).astype(np.int64)),
    }


def is_plain(made: Columns) -> Flags:
    """Nothing can be wrong with it: it entered, and one row ended it."""
    one_end = (made["end_first"] >= 0) & (made["end_first"] == made["end_last"])
    return np.asarray((made["routed"] >= 0) & (made["stood"] < 0) & one_end)
