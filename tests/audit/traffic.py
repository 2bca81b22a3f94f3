"""Spool blocks of fixed traffic: what recording some messages puts into a file, for measurements of its size.

What comes in: how many messages a stretch has, which ids they have. What goes out: one spool file's octets.
Rules: equal arguments make equal octets.
Not here: traffic of a whole broker (`tests/cost/rig.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from amqpd.audit.kinds import ACKED, CONFIRMED, DELIVERED, PERSISTENT, ROUTED, WITH_PUBLISHED
from amqpd.audit.spool import SpoolBuffer

BEGUN_US = 1_795_348_800_000_000
EVENTS = 5
"""of each message: published, routed, confirmed, delivered, acked"""
LANES = 4
"""queues, each with a publisher and a consumer"""


def spool_of(
    stretches: int, count: int = 1, message_id: Callable[[int], str] | None = None, delivered_bytes: bool = True
) -> bytes:
    """`count` messages in each stretch; `delivered_bytes`: deliveries say how large their messages are."""
    chance, buffer, blocks = random.Random(1), SpoolBuffer(), []
    names = [
        (
            buffer.name({"vhost": "/", "queue": f"q{lane}", "queue_id": 256 * lane, "epoch": 3}),
            buffer.name(_client(lane, exchange="", routing_key=f"q{lane}")),
            buffer.name(_client(lane + LANES, consumer=f"ctag{lane}")),
        )
        for lane in range(LANES)
    ]
    first, now_us, publication = [0] * LANES, BEGUN_US, 1
    for stretch in range(stretches):
        lane = chance.randrange(LANES)
        queue, publisher, consumer = names[lane]
        body, seq, tag = 200 + 100 * chance.randrange(4), first[lane], first[lane] + 1
        text = buffer.name({"message_id": message_id(stretch), "correlation_id": None}) if message_id else 0
        # fmt: off
        buffer.put(ROUTED, WITH_PUBLISHED | PERSISTENT, 2, now_us, seq, count, publisher, queue, publication, tag,
                   body, text, 1)
        now_us += chance.randrange(50, 500)
        buffer.put(CONFIRMED, 0, 1, now_us, 0, count, publisher, 0, publication, tag, 0, 0, 1)
        buffer.put(DELIVERED, 0, 1, now_us, seq, count, consumer, queue, 0, 0, body if delivered_bytes else 0, 0, 1)
        # fmt: on
        now_us += chance.randrange(50, 500)
        buffer.put(ACKED, 0, 1, now_us, seq, count, 0, queue)
        first[lane] += count
        publication += count
        if stretch % 7 == 0:
            blocks.append(buffer.take())
    blocks.append(buffer.take())
    return b"".join(blocks)


def _client(number: int, **columns: str) -> dict[str, str]:
    name = f"127.0.0.1:{40_000 + number} -> 127.0.0.1:5672"
    return {"vhost": "/", "user": "guest", "connection": name, **columns}
