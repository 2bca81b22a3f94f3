"""The kernel: the work that is done per message, behind one seam.

What comes in: received buffers and ranges. What goes out: `Run`s of publishes, encoded deliveries, ranges of
acknowledged delivery tags.
Rules: 1. pure and synchronous; 2. `reference.py` is the definition: any other build of the same interface must
give equal results for any bytes, cut anywhere; 3. nothing outside this package looks into a `Run`'s bytes,
except through its methods.
Not here: everything that AMQP says less often than once per message (`wire.py`, by pamqp), and what a publish
means (`channels.py`, `queues/`).
"""

from amqpd.kernel.pieces import LARGE_BYTES_MIN, Pieces, content_pieces, delivery_pieces, frame_due
from amqpd.kernel.reference import (
    INCOMPLETE,
    NAME,
    PIN_SHARE_MIN,
    Run,
    encode_content,
    encode_deliveries,
    scan_acks,
    scan_publishes,
)

__all__ = [
    "INCOMPLETE",
    "LARGE_BYTES_MIN",
    "NAME",
    "PIN_SHARE_MIN",
    "Pieces",
    "Run",
    "content_pieces",
    "delivery_pieces",
    "encode_content",
    "encode_deliveries",
    "frame_due",
    "scan_acks",
    "scan_publishes",
]
