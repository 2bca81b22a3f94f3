"""How many bytes of bodies are held at a time, of all requests together.

What comes in: bytes as they come. What goes out: whether there is place for them.
Rules: 1. The first `FREE_BYTES` of each body are not counted: what changes a thing is smaller, and works while large
ones take all the place. 2. What a request holds it gives back when it ends.
Not here: the bound of one body (`shield.py`), of one that is refused anyway (nothing of it is held).
"""

from __future__ import annotations

# Three of the largest that are taken by default. Their clients have logged in, and a body that is not there within
# `connection.REQUEST_S` is given up. JSON is several times its text while it is read.
BYTES_MAX = 1 << 26
# Of `http.connections_max` bodies (500): 32 MiB.
FREE_BYTES = 1 << 16


class Held:
    """The bytes of bodies that all requests together hold, up to a bound."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0

    def take(self, before: int, bytes_: int) -> int | None:
        """Behind `before` bytes of a body, so many more: how many of them count, or None without place for them."""
        counted = max(0, before + bytes_ - max(before, FREE_BYTES))
        if counted and self.bytes + counted > self._bytes_max:
            return None
        self.bytes += counted
        return counted

    def give_back(self, counted: int) -> None:
        self.bytes -= counted
