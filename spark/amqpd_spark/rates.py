"""What happened in each minute: to each queue, and to each exchange's publishes.

What comes in: the log's rows, as pieces. What goes out: a row for each minute and queue (exchange null), and for each
minute and exchange (queue null), with a column for each figure.
Rules: 1. Stretches are added up, never messages. 2. A row that comes twice counts once.
Not here: refused publishes: their row does not say the exchange, so they come from `latencies.py`.
"""

from __future__ import annotations

import numpy as np

from amqpd_spark.stretches.chunk import Chunk, Longs, Texts
from amqpd_spark.stretches.packed import Columns
from amqpd_spark.stretches.sums import grouped, joined, summed

MINUTE_US = 60_000_000
OF_EXCHANGES = ("published", "returned", "unroutable", "refused")
OF_QUEUES = ("routed", "delivered", "redelivered", "requeued", "acked", "rejected", "expired", "dropped")
FIGURES = (*OF_EXCHANGES, *OF_QUEUES)
KEYS = ("flow", "minute", "figure")
_DEAD_LETTERED = {"expired": "expired", "maxlen": "dropped", "rejected": "rejected", "delivery_limit": "rejected"}
NUMBERS = {name: number for number, name in enumerate(FIGURES)}
NO_FIGURE = -1


def figure_of(chunk: Chunk, events: Texts) -> Longs:
    """The number of what each row adds to, or NO_FIGURE; "redelivered" adds to "delivered" too."""
    known = {name: number for name, number in NUMBERS.items() if name not in ("redelivered", "refused")}
    figure = events.as_numbers(known, NO_FIGURE)
    # The broker's own publishes are of messages that it was given before.
    reason = chunk.texts("reason")
    figure[(figure == NUMBERS["published"]) & reason.are(lambda name: name is not None)] = NO_FIGURE
    figure[(figure == NUMBERS["delivered"]) & (chunk.flags("redelivered") == 1)] = NUMBERS["redelivered"]
    causes = {cause: NUMBERS[name] for cause, name in _DEAD_LETTERED.items()}
    dead = events.are(lambda name: name == "dead_lettered")
    return np.where(dead, reason.as_numbers(causes, NO_FIGURE), figure)


def of_pieces(pieces: Columns) -> Columns:
    """KEYS and `count`."""
    at = _once(pieces, np.flatnonzero(pieces["figure"] != NO_FIGURE))
    rows = {name: pieces[name][at] for name in ("flow", "figure", "count")}
    return added(rows | {"minute": pieces["us"][at] // MINUTE_US})


def of_refused(durations: Columns) -> Columns:
    figure = np.full(len(durations["flow"]), NUMBERS["refused"])
    return added({name: durations[name] for name in ("flow", "minute", "count")} | {"figure": figure})


def added(rows: Columns) -> Columns:
    return summed(rows, KEYS, ("count",)) if len(rows["flow"]) else {name: rows[name] for name in (*KEYS, "count")}


def wide(rows: Columns) -> Columns:
    """flow, minute, FIGURES."""
    groups = grouped([rows["flow"], rows["minute"]])
    made = {name: groups.heads(rows[name]) for name in ("flow", "minute")}
    for name, number in NUMBERS.items():
        meant = rows["figure"] == number
        if name == "delivered":
            meant |= rows["figure"] == NUMBERS["redelivered"]
        made[name] = groups.sum(np.where(meant, rows["count"], 0))
    return made


def long(rows: Columns) -> Columns:
    """KEYS and `count`, of what `wide` made."""
    held = []
    for name, number in NUMBERS.items():
        count = rows[name] - rows["redelivered"] if name == "delivered" else rows[name]
        # What has no figure but 0 has a row, too.
        at = np.flatnonzero(count) if number else np.arange(len(count))
        made = {key: rows[key][at] for key in ("flow", "minute")} | {"count": count[at]}
        held.append(made | {"figure": np.full(len(at), number)})
    return joined(held)


def _once(pieces: Columns, at: Longs) -> Longs:
    """Without pieces of rows that were there before."""
    row = pieces["row"][at]
    order = np.argsort(row)
    same = np.flatnonzero(np.diff(row[order]) == 0)
    # Most numbers are there once, so little is left to look at closely.
    again = np.zeros(len(at), np.bool_)
    again[order[same]] = again[order[same + 1]] = True
    close = at[again]
    if not len(close):
        return at
    groups = grouped([pieces[name][close] for name in ("row", "origin", "first")])
    return np.concatenate((at[~again], groups.heads(close)))
