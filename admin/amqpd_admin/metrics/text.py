"""The text of very many samples, in pieces.

What comes in: families with their rows. What goes out: pieces of text, to be sent as they come.
Rules: 1. After `SLICE` samples the broker goes on. 2. Rows are taken when their turn comes, so that they need not be
in memory together. 3. Small families go together in one piece.
Not here: one piece (`families.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterator
from itertools import islice

import trio

from amqpd_admin.metrics.families import Part, written

# About a millisecond of text.
SLICE = 100
PIECE_BYTES = 16 * 1024


async def text(parts: AsyncIterable[Part]) -> AsyncIterator[bytes]:
    """All of it."""
    waiting: list[bytes] = []
    nbytes = since = 0
    async for family, rows in parts:
        left: Iterator[object] = iter(rows)
        head = True
        while some := list(islice(left, SLICE)):
            piece = written(family, some, head)  # type: ignore[arg-type]
            head = False
            waiting.append(piece)
            nbytes += len(piece)
            since += len(some)
            if since >= SLICE:
                since = 0
                await trio.lowlevel.checkpoint()
            if nbytes >= PIECE_BYTES:
                yield b"".join(waiting)
                waiting, nbytes = [], 0
    if waiting:
        yield b"".join(waiting)
