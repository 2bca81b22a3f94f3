"""Answers in JSON that may be very long: written and sent in pieces.

What comes in: values; or what was written of each already. What goes out: an answer, in one piece if it is short.
Rules: 1. Nothing is written in one go whose length grows with what is on the broker: a list is written a row at a
time, in steps (`amqpd/management/pacing.py`). 2. All is written before the answer begins: what fails is a refusal.
Not here: short answers (`answers.py`), which rows there are (`lists.py`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import trio
from starlette.responses import Response, StreamingResponse

from amqpd.management.pacing import each

# Hypercorn copies and encrypts what it is given in one step: well below a millisecond of that.
PIECE_BYTES = 32 * 1024
PARTS_TOGETHER = 1000
NO_CACHE = {"cache-control": "no-cache"}


def written(value: Any) -> bytes:
    """As `answers.Json` has it."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


async def reply_with(value: Any) -> Response:
    """A list, or an object that may have long lists."""
    return in_pieces(await each(_parts(value), lambda part: part))


def of_rows(rows: list[bytes], about: dict[str, Any] | None = None) -> Response:
    """A list of rows that are written; with `about`, an object that has its members, and the list as `items`."""
    if about is None:
        return in_pieces(rows, b"[", b",", b"]")
    return in_pieces(rows, written(about)[:-1] + b',"items":[', b",", b"]}")


def in_pieces(parts: list[bytes], head: bytes = b"", between: bytes = b"", tail: bytes = b"") -> Response:
    if len(parts) < PARTS_TOGETHER and sum(map(len, parts)) < PIECE_BYTES:
        text = head + between.join(parts) + tail
        return Response(text, media_type="application/json", headers=NO_CACHE)
    sent = _pieces(parts, head, between, tail)
    return StreamingResponse(sent, media_type="application/json", headers=NO_CACHE)


async def _pieces(parts: list[bytes], head: bytes, between: bytes, tail: bytes) -> AsyncIterator[bytes]:
    waiting: list[bytes] = []
    nbytes = 0
    for part in parts:
        waiting.append(part)
        nbytes += len(part)
        if nbytes >= PIECE_BYTES or len(waiting) == PARTS_TOGETHER:
            yield head + between.join(waiting)
            head, waiting, nbytes = between, [], 0
            await trio.lowlevel.checkpoint()
    yield (head + between.join(waiting) if waiting or head != between else b"") + tail


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, list):
        yield b"["
        for at, row in enumerate(value):
            yield (b"," if at else b"") + written(row)
        yield b"]"
    elif isinstance(value, dict):
        yield b"{"
        for at, (name, member) in enumerate(value.items()):
            yield (b"," if at else b"") + written(name) + b":"
            yield from _parts(member) if isinstance(member, list) else (written(member),)
        yield b"}"
    else:
        yield written(value)
