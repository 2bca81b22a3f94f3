"""What the messages of a mixed ring are: each one's routing key, content header and body, from its place and the lap.

What comes in: a few numbers, the same for publisher and consumer. What goes out: recipes. Rule: a recipe is a pure
function of its arguments; nothing is drawn while it is used.
Not here: the messages of the scenarios `mixed*` (`applications.py`), the buffers made of them (`mixed.py`).
"""

from __future__ import annotations

from typing import Any, Protocol

from pamqp import commands, frame
from pamqp.header import ContentHeader

from bench.encode import STAMP

BODY_BYTES_MIN, BODY_BYTES_MAX = 40, 1000
_SIZE_STEP = 383
"""Coprime to the number of sizes (961 = 31 * 31): sizes go through all of them in an order without a
pattern."""


class Recipe(Protocol):
    """`position` is a message's place in the ring, 0 to `messages - 1`; `lap` says how often the ring went round
    before."""

    messages: int

    def key(self, position: int) -> str: ...

    def header(self, position: int, lap: int) -> bytes:
        """The payload of the content header frame; its length does not depend on the lap, nor does the body's."""

    def body(self, position: int, lap: int) -> bytes: ...

    def content_bytes(self, position: int) -> int:
        """Bytes of key, header and body together."""

    def stamp_lap(self, data: bytearray, offsets: list[int], lap: int) -> None:
        """Write what changes from `lap - 1` to `lap` into a ring, whose publish `i` ends at `offsets[i + 1]`."""


def header_payload(properties: dict[str, Any], body_bytes: int) -> bytes:
    """Of a content header frame (AMQP 0-9-1, 4.2.6.1), from the class to the last property."""
    head = ContentHeader(body_size=body_bytes, properties=commands.Basic.Properties(**properties))
    return frame.marshal(head, 1)[7:-1]


def mixed_message(number: int) -> tuple[str, int]:
    """(routing key, body size) of message `number` of a `KeysRecipe`; keys have `key.` and 1 to 5 words of several
    lengths."""
    sizes = BODY_BYTES_MAX - BODY_BYTES_MIN + 1
    words = [f"w{number * (word + 3) % 9973}" for word in range(number % 5)]
    return ".".join(["key", str(number), *words]), BODY_BYTES_MIN + number * _SIZE_STEP % sizes


class KeysRecipe:
    """Every message has another key and size, and no properties; numbered within the ring, the same in every lap."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self._empty = header_payload({}, 0)

    def key(self, position: int) -> str:
        return mixed_message(position)[0]

    def header(self, position: int, lap: int) -> bytes:
        # Class and weight before the body's size, no flag of a property after it.
        return self._empty[:4] + mixed_message(position)[1].to_bytes(8) + self._empty[12:]

    def body(self, position: int, lap: int) -> bytes:
        return STAMP.pack(position).ljust(mixed_message(position)[1], b".")

    def content_bytes(self, position: int) -> int:
        key, body_bytes = mixed_message(position)
        return len(key) + len(self._empty) + body_bytes

    def stamp_lap(self, data: bytearray, offsets: list[int], lap: int) -> None:
        """Nothing to do: the numbers are those of the ring."""
