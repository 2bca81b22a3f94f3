"""The kinds of records: what an event is called, and why it happened.

What comes in: nothing. What goes out: a number for each kind, `NAMES` for the log's columns.
Rules: the numbers stand in spool files, which an upgraded broker still has to read: none is ever given to another
kind.
Not here: a record's layout (`spool.py`).
"""

from __future__ import annotations

from typing import Final

# The ends of a message in a queue, which are also the causes that queues name when something leaves them.
ACKED: Final = 0
EXPIRED: Final = 1
DROPPED: Final = 2
REJECTED: Final = 3
OVER_DELIVERY_LIMIT: Final = 4
DEAD_EXPIRED: Final = 5
DEAD_DROPPED: Final = 6
DEAD_REJECTED: Final = 7
DEAD_DELIVERY_LIMIT: Final = 8
PURGED: Final = 9
QUEUE_DELETED: Final = 10
WITHDRAWN: Final = 11
MOVED: Final = 12
RELEASED: Final = 13
AUTO_ACKED: Final = 14
"""with its delivery: that record says so (WITH_ACKED)"""

ROUTED: Final = 20
DELIVERED: Final = 21
REQUEUED: Final = 22
STANDING: Final = 23
"""a stretch behind one of the next four"""
ANCHOR_RECOVERED: Final = 24
ANCHOR_STOPPED: Final = 25
ANCHOR_LEVEL: Final = 26
ANCHOR_GAP: Final = 27

PUBLISHED: Final = 30
RETURNED: Final = 31
UNROUTABLE: Final = 32
CONFIRMED: Final = 33
REFUSED: Final = 34

NAMES: Final[dict[int, tuple[str, str | None]]] = {
    ACKED: ("acked", None),
    EXPIRED: ("expired", None),
    DROPPED: ("dropped", None),
    REJECTED: ("rejected", "rejected"),
    OVER_DELIVERY_LIMIT: ("rejected", "delivery_limit"),
    DEAD_EXPIRED: ("dead_lettered", "expired"),
    DEAD_DROPPED: ("dead_lettered", "maxlen"),
    DEAD_REJECTED: ("dead_lettered", "rejected"),
    DEAD_DELIVERY_LIMIT: ("dead_lettered", "delivery_limit"),
    PURGED: ("purged", "purge"),
    QUEUE_DELETED: ("purged", "deleted"),
    WITHDRAWN: ("purged", "operator"),
    MOVED: ("moved", None),
    RELEASED: ("released", None),
    ROUTED: ("routed", None),
    DELIVERED: ("delivered", None),
    REQUEUED: ("requeued", None),
    STANDING: ("standing", None),
    ANCHOR_RECOVERED: ("standing", "recovered"),
    ANCHOR_STOPPED: ("standing", "stopped"),
    ANCHOR_LEVEL: ("standing", "level"),
    ANCHOR_GAP: ("standing", "gap"),
    PUBLISHED: ("published", None),
    RETURNED: ("returned", None),
    UNROUTABLE: ("unroutable", None),
    CONFIRMED: ("confirmed", None),
    REFUSED: ("refused", None),
}
"""kind -> event, reason"""

# Flags of a record.
PERSISTENT: Final = 1
REDELIVERED: Final = 2
WITH_PUBLISHED: Final = 4
"""of `routed`: the event `published` goes before it, for the same messages"""
WITH_ACKED: Final = 8
"""of `delivered`: the consumer asked for no acknowledgements, so the event `acked` follows"""
