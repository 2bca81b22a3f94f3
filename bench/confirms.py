"""Counts publisher confirms from the received bytes of one confirming channel.

What comes in: chunks of the stream, cut anywhere. What goes out: how many publishes are settled. Rules: 1.
every publish is confirmed exactly once, in any order, single or multiple; a second confirm, a confirm of what
was not published and a nack are errors; 2. `basic.ack` and `basic.nack` are both 21 bytes, so a chunk is
unpacked by stride, without a frame parser; 3. anything else on the connection is an error that names the
frame.
Not here: deliveries (`count.py`), sending acks (`encode.py`).
"""

from __future__ import annotations

import struct

from bench.errors import BenchError, name_of_frame

_CONFIRM = struct.Struct(">BHIIQBB")
CONFIRM_BYTES = _CONFIRM.size
_ACK, _NACK = 60 << 16 | 80, 60 << 16 | 120


class Confirms:
    """`settled` publishes of those that were sent; `floor` is the tag up to which all are settled."""

    def __init__(self) -> None:
        self.floor = 0
        self.frames = 0
        self._above: set[int] = set()
        self._rest = b""

    @property
    def settled(self) -> int:
        return self.floor + len(self._above)

    def feed(self, chunk: bytes, published: int) -> int:
        """Take a received chunk; `published` is the highest tag sent so far. Returns `settled`.

        Raises BenchError for a nack, a repeated or unknown tag, or another frame than a confirm."""
        data = self._rest + chunk if self._rest else chunk
        whole = len(data) - len(data) % CONFIRM_BYTES
        self._rest = data[whole:]
        floor, above = self.floor, self._above
        at = 0
        for kind, _, size, method, tag, multiple, end in _CONFIRM.iter_unpack(memoryview(data)[:whole]):
            if method != _ACK or kind != 1 or size != 13 or end != 0xCE:
                raise BenchError(self._explain(data[at:], method, tag))
            at += CONFIRM_BYTES
            if tag == floor + 1 or (multiple & 1 and floor < tag <= published):
                floor = tag
            elif multiple & 1 or tag <= floor or tag in above or tag > published:
                self.floor = floor
                raise BenchError(f"confirm of tag {tag} after {floor} were settled and {published} published")
            else:
                above.add(tag)
                continue
            if above:
                floor = self._join(floor, multiple)
        if self._rest and self._rest[0] != 1:
            raise BenchError(f"not a confirm: {name_of_frame(self._rest)}")
        self.frames += whole // CONFIRM_BYTES
        self.floor = floor
        return floor + len(above)

    def _join(self, floor: int, multiple: int) -> int:
        """The floor rises over single confirms that came early."""
        above = self._above
        if multiple & 1:
            above.difference_update([tag for tag in above if tag <= floor])
        while floor + 1 in above:
            floor += 1
            above.discard(floor)
        return floor

    @staticmethod
    def _explain(data: bytes, method: int, tag: int) -> str:
        if method == _NACK:
            return f"the broker refused message {tag} (basic.nack)"
        return f"not a confirm: {name_of_frame(data)}"
