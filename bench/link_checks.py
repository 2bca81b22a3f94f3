"""What a link's checks cost: messages through `framed` and `Incoming`, in one process.

Run as `python -m bench.link_checks`. What goes out: for each size of a frame the time of a message without a check,
with a CRC-32 and with an authentication code, at both ends together, and the ratio.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from amqpd.peers.entry import START, Frame, new_entry
from amqpd.peers.links.framing import Check, Crc, Incoming, Mac, framed
from amqpd.peers.messages import Cut

BYTES = 50_000_000
MESSAGES_MAX = 10_000


class Unchecked(Crc):
    """As messages were until version 3."""

    def of(self, pieces: Iterable[bytes | memoryview]) -> bytes:
        return bytes(4)


def seconds(cut: Cut, messages: int, outgoing: Check, incoming: Check) -> float:
    taken = Incoming(incoming)
    begun = time.process_time()
    for _ in range(messages):
        data = b"".join(framed(cut, outgoing))
        at = 0
        while at < len(data):
            space = taken.space()
            nbytes = min(len(space), len(data) - at)
            space[:nbytes] = data[at : at + nbytes]
            taken.took(nbytes)
            at += nbytes
        assert taken.next() is not None
    return time.process_time() - begun


def main() -> None:
    key = bytes(32)
    print("payload bytes | no check, us | CRC-32 | ratio | code | ratio")
    for nbytes in (100, 1000, 10_000, 100_000, 1_000_000):
        entry = new_entry(1, (1, 2), START, bytes(nbytes))
        cut = Cut(1, 1, Frame(2, 1, (entry,), 1))
        messages = min(MESSAGES_MAX, BYTES // nbytes)
        times = []
        for checks in ((Unchecked(), Unchecked()), (Crc(), Crc()), (Mac(key), Mac(key))):
            times.append(min(seconds(cut, messages, *checks) for _ in range(3)) / messages * 1e6)
        none, crc, code = times
        print(f"{nbytes} | {none:.1f} | {crc:.1f} | {crc / none:.2f} | {code:.1f} | {code / none:.2f}")


if __name__ == "__main__":
    main()
