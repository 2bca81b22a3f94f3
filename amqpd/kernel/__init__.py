"""The kernel: the work that is done per message, behind one seam.

What comes in: received buffers and ranges. What goes out: `Run`s of publishes, encoded deliveries, ranges of
acknowledged delivery tags.
Rules: 1. pure and synchronous; 2. `reference.py` is the definition: any other build of the same interface must
give equal results for any bytes, cut anywhere (`compiled.pyx` is one); 3. nothing outside this package looks into a
`Run`'s bytes, except through its methods; 4. one process has one kernel, chosen when it starts and never changed: the
runs of two kernels do not mix.
Not here: everything that AMQP says less often than once per message (`wire.py`, by pamqp), and what a publish
means (`channels.py`, `queues/`); which kernel runs (`amqpd/compiled.py`), how it is built (`setup.py`).
"""

from typing import TYPE_CHECKING

from amqpd import KERNEL

# Every kernel has the types of the reference.
if TYPE_CHECKING or KERNEL == "python":
    from amqpd.kernel.reference import (
        INCOMPLETE,
        NAME,
        Run,
        encode_content,
        encode_deliveries,
        scan_acks,
        scan_publishes,
    )
else:
    from amqpd.kernel.compiled import (
        INCOMPLETE,
        NAME,
        Run,
        encode_content,
        encode_deliveries,
        scan_acks,
        scan_publishes,
    )

# They work on the runs of the kernel above.
from amqpd.kernel.pieces import LARGE_BYTES_MIN, Pieces, content_pieces, delivery_pieces, frame_due, publish_due
from amqpd.kernel.reference import PIN_SHARE_MIN

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
    "publish_due",
    "scan_acks",
    "scan_publishes",
]
