"""How long each message took: from its publish to the confirm and to the delivery, from there to the acknowledgement.

What comes in: pieces of stretches. What goes out: intervals of messages to which the same happened, then durations.
Rules: 1. Only min and max, so the same row twice changes nothing. 2. What is not known is NONE.
Not here: pieces (`pieces.py`), histograms and percentiles (`histogram.py`), what the stream keeps between batches
(`slo_stream.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from amqpd_spark.pieces import ACKED, CONFIRMED, DELIVERED, NONE, OF_PUBLISHERS, OTHER, PUBLISHED, REFUSED, ROUTED
from amqpd_spark.rates import MINUTE_US
from amqpd_spark.stretches.chunk import Flags, Longs
from amqpd_spark.stretches.packed import Columns
from amqpd_spark.stretches.sums import joined
from amqpd_spark.stretches.sweep import swept

MEASURES = ("publish_to_confirm", "publish_to_deliver", "deliver_to_ack")
REFUSED_PUBLISH = len(MEASURES)
"""counted like a duration, at its publish: the refusal itself does not say which exchange it was"""
KEY = ("publisher", "key", "number", "count")
FACTS = ("flow", "place", "began", "first", "last", "done", "ended")
_GREATEST = np.iinfo(np.int64).max
_LEAST_OF = ("began", "first", "done")
"""a refusal, or an acknowledgement, is told once"""


def told(pieces: Columns) -> Columns:
    """KEY, and FACTS: what each piece says of its messages. Times are microseconds: began (published, routed), first
    and last (confirmed, delivered), done (acked, refused)."""
    at = np.flatnonzero(pieces["kind"] != OTHER)
    kind, us, flow, route = (pieces[name][at] for name in ("kind", "us", "flow", "route"))
    acked, refused = kind == ACKED, kind == REFUSED
    on_the_way = (kind == CONFIRMED) | (kind == DELIVERED)
    began = (kind == PUBLISHED) | (kind == ROUTED)
    way = _where(on_the_way, us)
    return {
        "publisher": np.isin(kind, OF_PUBLISHERS).astype(np.int64),
        "key": pieces["key"][at],
        "number": pieces["first"][at],
        "count": pieces["count"][at],
        "flow": np.where(kind == ROUTED, route, _where(kind == PUBLISHED, flow)),
        "place": _where(kind == DELIVERED, flow),
        "began": _where(began, us),
        "first": way,
        "last": way,
        "done": _where(acked | refused, us),
        # 1: the message is over; 2: and was acknowledged by its consumer, so a delivery must be known.
        "ended": np.where(acked, 2, _where(~began & (kind != DELIVERED), np.ones(len(at), np.int64))),
    }


def messages(told: Columns) -> Iterator[Columns]:
    """KEY (`count` messages from `number` on) and FACTS, of what was told of them in any mixture."""
    # A number of a publisher's and one of a queue's are of different keys.
    for part in swept(told["key"], told["number"], told["number"] + told["count"] - 1):
        made = {"key": part.key, "number": part.low, "count": part.high - part.low + 1}
        made["publisher"] = part.max(told["publisher"])
        for name in FACTS:
            if name in _LEAST_OF:
                least = part.min(np.where(told[name] == NONE, _GREATEST, told[name]))
                made[name] = np.where(least == _GREATEST, NONE, least)
            else:
                made[name] = part.max(told[name])
        yield made


def durations(of: Columns) -> Columns:
    """flow, minute, measure (its place in MEASURES, or REFUSED_PUBLISH), us, and `count`, of how many messages. The
    minute is that of the publish, for deliver_to_ack that of the last delivery."""
    publisher = of["publisher"] == 1
    # Where the log does not have the publish, the delivery still says which queue.
    flow = np.where(of["flow"] == NONE, of["place"], of["flow"])
    of = of | {"flow": flow}
    since = np.where(publisher, of["began"], of["last"])
    return joined(
        [
            _between(of, np.where(publisher, 0, 1), of["began"], of["first"]),
            _between(of, np.where(publisher, REFUSED_PUBLISH, 2), since, of["done"]),
        ]
    )


def _between(of: Columns, measure: Longs, since: Longs, until: Longs) -> Columns:
    at = np.flatnonzero((since != NONE) & (until != NONE))
    since, until = since[at], until[at]
    made = {"flow": of["flow"][at], "minute": since // MINUTE_US, "measure": measure[at]}
    # A clock may have been set back.
    return made | {"us": np.maximum(until - since, 0), "count": of["count"][at]}


def _where(meant: Flags, values: Longs) -> Longs:
    return np.where(meant, values, NONE)
