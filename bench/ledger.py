"""Counts deliveries of several publishers or queues that are mixed in one consumer's stream, one by one.

What comes in: chunks of the stream, cut anywhere. What goes out: `count`, and `next_of`: the sequence number
due from every stream. Rules: 1. every delivery's stamp is read; each stream's numbers are 0, 1, 2 without gap
or repetition; 2. delivery tags count up by one; 3. all deliveries have one size.
Not here: the cheaper counter for a single publisher (`count.py`).
"""

from __future__ import annotations

import struct
from collections import defaultdict

from bench.encode import SEQUENCE_BITS
from bench.errors import BenchError, name_of_frame
from bench.layout import Layout, learn_layout

_SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1


class Ledger:
    """Some 0.3 microseconds a delivery: for scenarios whose rate is bounded by round trips, or routing.

    With `queues`, one publisher's messages go round that many queues in turn: message `n` is number `n //
    queues` of stream `n % queues`."""

    def __init__(self, queues: int = 0) -> None:
        self.count = 0
        self._queues = queues
        self.next_of: defaultdict[int, int] = defaultdict(int)
        self.layout: Layout | None = None
        self._rest = bytearray()
        self._row = struct.Struct("")

    def feed(self, buffer: bytearray, size: int) -> int:
        """Take `buffer[:size]`. Returns `count`. Raises BenchError if a stream's next number is not the one
        due."""
        data = self._rest + buffer[:size]
        if self.layout is None:
            self.layout = learn_layout(data)
            if self.layout is None:
                self._rest = data
                return 0
            self._row = _row_of(self.layout)
        stride = self.layout.stride
        whole = len(data) - len(data) % stride
        next_of, tag_due, queues = self.next_of, self.count + 1, self._queues
        for kind, tag, stamped, end in self._row.iter_unpack(memoryview(data)[:whole]):
            if queues:
                sequence, stream = divmod(stamped, queues)
            else:
                stream, sequence = stamped >> SEQUENCE_BITS, stamped & _SEQUENCE_MASK
            if tag != tag_due or next_of[stream] != sequence or kind != 1 or end != 0xCE:
                at = (tag_due - self.count - 1) * stride
                raise BenchError(
                    f"delivery {tag} of stream {stream} is number {sequence}, due was {next_of[stream]} "
                    f"with tag {tag_due}: {name_of_frame(data[at:])}"
                )
            next_of[stream] = sequence + 1
            tag_due += 1
        self.count = tag_due - 1
        self._rest = data[whole:]
        return self.count


def _row_of(layout: Layout) -> struct.Struct:
    """The struct of one delivery: frame type, delivery tag, stamp, last end octet, the rest skipped."""
    to_stamp = layout.stamp_at - layout.tag_at - 8
    to_end = layout.stride - layout.stamp_at - 8 - 1
    return struct.Struct(f">B{layout.tag_at - 1}xQ{to_stamp}xQ{to_end}xB")
