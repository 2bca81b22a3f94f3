"""The kernel: the work that is done per message, behind one seam.

What comes in: received buffers and ranges. What goes out: `Run`s of publishes that are alike and batches (`Mixed`) of
others, encoded deliveries, ranges of acknowledged delivery tags.
Rules: 1. pure and synchronous; 2. `reference.py` is the definition: any other build of the same interface must
give equal results for any bytes, cut anywhere (`compiled.pyx` is one); 3. nothing outside this package looks into a
`Run`'s bytes, except through its methods; 4. one process has one kernel, chosen when it starts and never changed: the
runs of two kernels do not mix.
Not here: everything that AMQP says less often than once per message (`wire/frames.py`, by pamqp), and what a publish
means (`channels.py`, `queues/`); which kernel runs (`amqpd/compiled.py`), how it is built (`setup.py`).
"""

from typing import TYPE_CHECKING, Final

from amqpd import KERNEL
from amqpd.kernel import reference

# Every kernel has the types of the reference.
if TYPE_CHECKING or KERNEL == "python":
    from amqpd.kernel import reference as chosen
else:
    from amqpd.kernel import compiled as chosen

INCOMPLETE = chosen.INCOMPLETE
NAME = chosen.NAME
Mixed = chosen.Mixed
Run = chosen.Run
encode_ack = chosen.encode_ack
encode_content = chosen.encode_content
encode_deliveries = chosen.encode_deliveries
scan_acks = chosen.scan_acks
scan_batch = chosen.scan_batch
scan_publishes = chosen.scan_publishes

PIN_SHARE_MIN = reference.PIN_SHARE_MIN

# They work on the runs of the kernel above, and take it from here.
from amqpd.kernel import pieces  # noqa: E402

LARGE_BYTES_MIN: Final = pieces.LARGE_BYTES_MIN
Pieces = pieces.Pieces
content_pieces = pieces.content_pieces
delivery_pieces = pieces.delivery_pieces
bytes_to_frame_end = pieces.bytes_to_frame_end
publish_bytes_min = pieces.publish_bytes_min
