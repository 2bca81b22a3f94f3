"""Messages as applications send them: several sizes, keys and headers, an id and a time of their own.

What comes in: the number of the publisher. What goes out: the recipe of its ring. Bodies of 40 to 600 bytes, 200
routing keys of several lengths, three headers, a message-id and a timestamp that no other message has, of this lap
or another. Theory: the ring is BLOCKS blocks of SLOTS messages. What has a length (key, size, headers) belongs to
the slot, and is drawn once from SEED; so byte `j` of a slot's messages is one strided slice over the ring, and a
lap is stamped into ids and times with two thousand small assignments, some 50 ns a message. Rules: 1.
nothing is drawn while it is measured; 2. the first word of a key is its area: AREAS queues can share the messages,
by one binding each; 3. MARKER begins every body, and is nowhere else in a message.
Not here: the ring itself and its counter (`mixed.py`), what is made of the stamps (`mixed_ledger.py`).
"""

from __future__ import annotations

import random
import struct
from bisect import bisect_left
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple

from bench.recipes import header_payload

SEED = 17
SLOTS = 1024
BLOCKS = 16
KEYS = 200
AREAS = 4
BODY_BYTES_MIN, BODY_BYTES_MAX = 40, 600
MARKER = b"\xf5\xf6\xf7\xf8"
"""Everything else in bodies and properties is ASCII, or a number that is far smaller."""
STAMP = struct.Struct(">BBH")
"""After the marker: publisher, area, number of the message among those of its area in a lap."""
_TIMESTAMP = 0x6500_0000
"""A day in 2023; below it 16 bits for the place in the ring, above them the lap."""
_TIMESTAMP_DATE = datetime.fromtimestamp(_TIMESTAMP, UTC)
_LAST_BYTES = 36 + 8
"""Message-id and timestamp, the last two properties."""
_POOL_BYTES = 65_536
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Slot(NamedTuple):
    """What messages of a slot have in common. `number` counts the slots of the same area before it; the header is cut
    around what each message has of its own."""

    key: str
    area: int
    number: int
    body_bytes: int
    before_trace: bytes
    after_trace: bytes
    header_bytes: int


class Own(NamedTuple):
    """What a message has alone: the id without the lap's four digits, a trace id, where its text is in the pool."""

    message_id: bytes
    trace: bytes
    text_at: int


class ApplicationRecipe:
    """See `recipes.Recipe`. `publisher` is below 256; `persistent` sets the delivery mode."""

    messages = SLOTS * BLOCKS

    def __init__(self, publisher: int = 0, *, persistent: bool = False) -> None:
        self._publisher = publisher
        draw = random.Random(SEED)
        keys = [_key(draw, number) for number in range(KEYS)]
        counts = [0] * AREAS
        self._slots = []
        # Every key once, the others as they are drawn.
        chosen = keys + draw.choices(keys, k=SLOTS - KEYS)
        draw.shuffle(chosen)
        for key in chosen:
            slot = _slot(draw, key, counts, persistent=persistent)
            counts[slot.area] += 1
            self._slots.append(slot)
        self._a_block = counts
        self._pool = "".join(draw.choices(_LETTERS + '     {}:,"', k=_POOL_BYTES)).encode()
        self._own = [_own(publisher, position) for position in range(self.messages)]
        self._places = [[at for at, slot in enumerate(self._slots) if slot.area == area] for area in range(AREAS)]

    def key(self, position: int) -> str:
        return self._slots[position % SLOTS].key

    def header(self, position: int, lap: int) -> bytes:
        slot, own = self._slots[position % SLOTS], self._own[position]
        timestamp = _TIMESTAMP + (lap << 16) + position
        pieces = (
            slot.before_trace,
            own.trace,
            slot.after_trace,
            own.message_id,
            b"%04x" % lap,
            timestamp.to_bytes(8),
        )
        return b"".join(pieces)

    def body(self, position: int, lap: int) -> bytes:
        slot, own = self._slots[position % SLOTS], self._own[position]
        head = MARKER + STAMP.pack(
            self._publisher, slot.area, position // SLOTS * self._a_block[slot.area] + slot.number
        )
        return head + self._pool[own.text_at : own.text_at + slot.body_bytes - len(head)]

    def content_bytes(self, position: int) -> int:
        slot = self._slots[position % SLOTS]
        return len(slot.key) + slot.header_bytes + slot.body_bytes

    def body_bytes(self, position: int) -> int:
        return self._slots[position % SLOTS].body_bytes

    def stamp_lap(self, data: bytearray, offsets: list[int], lap: int) -> None:
        block_bytes = offsets[SLOTS]
        columns = [
            (field, bytes([value]) * BLOCKS)
            for field, (value, before) in enumerate(zip(_lap_bytes(lap), _lap_bytes(lap - 1), strict=True))
            if value != before
        ]
        for at, slot in enumerate(self._slots):
            body_at = offsets[at + 1] - 1 - slot.body_bytes
            # Four digits at the end of the id, and six bytes of the timestamp behind it.
            lap_at = body_at - 8 - 12
            for field, values in columns:
                data[lap_at + field :: block_bytes] = values

    def in_lap(self, area: int) -> int:
        """Messages of an area in one lap."""
        return self._a_block[area] * BLOCKS

    def of_area(self, area: int, published: int) -> int:
        """How many of the first `published` messages belong to `area`."""
        blocks, left = divmod(published, SLOTS)
        return blocks * self._a_block[area] + bisect_left(self._places[area], left)

    def position(self, area: int, number: int) -> int:
        """The place in the ring of an area's message `number` of a lap."""
        block, at = divmod(number, self._a_block[area])
        return block * SLOTS + self._places[area][at]


def _lap_bytes(lap: int) -> bytes:
    return b"%04x" % lap + (_TIMESTAMP + (lap << 16)).to_bytes(8)[:6]


def _key(draw: random.Random, number: int) -> str:
    words = ["".join(draw.choices(_LETTERS, k=draw.randint(3, 12))) for _ in range(draw.randint(1, 3))]
    return ".".join([f"area{number % AREAS}", *words, str(number)])


def _slot(draw: random.Random, key: str, counts: list[int], *, persistent: bool) -> Slot:
    body_bytes = draw.randint(BODY_BYTES_MIN, BODY_BYTES_MAX)
    trace = "t" * 16
    headers = {
        "tenant": "".join(draw.choices(_LETTERS, k=draw.randint(4, 20))),
        "trace": trace,
        "attempt": draw.randint(1, 9),
    }
    properties = {"headers": headers, "message_id": "0" * 36, "timestamp": _TIMESTAMP_DATE}
    header = header_payload(properties | ({"delivery_mode": 2} if persistent else {}), body_bytes)
    area = int(key[len("area")])
    before, after = header[:-_LAST_BYTES].split(trace.encode())
    return Slot(key, area, counts[area], body_bytes, before, after, len(header))


def _own(publisher: int, position: int) -> Own:
    digits = blake2b(b"%d/%d/%d" % (SEED, publisher, position), digest_size=24).hexdigest()
    message_id = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:28]))
    return Own(message_id.encode(), digits[28:44].encode(), int(digits[44:], 16) % (_POOL_BYTES - BODY_BYTES_MAX))
