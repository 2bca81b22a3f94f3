"""Bodies of requests, as RabbitMQ reads them.

What comes in: a request. What goes out: its JSON object; members of it, of their kinds.
Rules: 1. No body, and `null`, are an object without members. 2. What content type a body is said to have counts for
nothing: curl says that of a form. 3. A member of another kind is refused with its name. 4. No more of a body is held
than it may have, and none holds the interpreter for long: a longer one than `BYTES_MAX` has one long text in it. 5.
What is nested deeper than `LEVELS_MAX`, and numbers that are none in JSON, are refused here; what texts may have in
them is said by what would keep them (`amqpd/management/`): a name may be octets that are no UTF-8, which JSON spells
as half surrogates.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import aclosing
from typing import Any

import trio
from fastapi import Request
from starlette.requests import ClientDisconnect

from amqpd.definitions.pieces import Pieces, TooLarge
from amqpd.wire.values import NESTING_MAX
from amqpd_admin.answers import bad_request

Body = dict[str, Any]
BYTES_MAX = 1 << 18
"""JSON is read in one go: some milliseconds. What describes a thing is far smaller; a message says its own bound"""
MEMBERS_MAX = 100
"""of a longer one"""
LINES_MIN = 4
"""so many missing members are said on lines of their own, as in RabbitMQ"""
LEVELS_MAX = 2 * NESTING_MAX
"""arguments, which may have the half, are nested in a body, and in parameters maybe again"""


async def body_of(request: Request, bytes_max: int = BYTES_MAX) -> Body:
    """Raises Refusal."""
    text = await octets_of(request, bytes_max)
    if text.strip() in (b"", b"null", b"undefined"):
        return {}
    try:
        if len(text) <= BYTES_MAX:
            found = json.loads(text, parse_constant=_no_number)
        else:
            found = await trio.to_thread.run_sync(_in_pieces, text)
    except TooLarge as error:
        raise bad_request(f"the request body is too large: {error}") from None
    except (ValueError, RecursionError):
        raise bad_request("not_json") from None
    if isinstance(found, str):
        said = "the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"
        raise bad_request(f"invalid payload: {said}")
    if not isinstance(found, dict):
        raise bad_request("not_json")
    _check(found)
    return found


async def octets_of(request: Request, bytes_max: int) -> bytes:
    """A body as it came. Raises Refusal."""
    held = bytearray()
    try:
        async with aclosing(request.stream()) as pieces:
            async for piece in pieces:
                held += piece
                if len(held) > bytes_max:
                    raise bad_request("Exceeded HTTP request body size limit")
    except ClientDisconnect:
        raise bad_request("the client left before its request was whole") from None
    return bytes(held)


def need(body: Body, *names: str) -> None:
    """All of these must be there. Raises Refusal, which names those that are not."""
    absent = [f"{{key_missing,{name}}}" for name in names if body.get(name) is None]
    if absent:
        between = "," if len(absent) < LINES_MIN else ",\n "
        raise bad_request(f"[{between.join(absent)}]")


def text(body: Body, name: str, default: str | None = None) -> str:
    """Raises Refusal, also when it is missing and has no default."""
    value = body.get(name, default)
    if value is None:
        need(body, name)
    if not isinstance(value, str):
        raise bad_request(f"{name} must be a text")
    return value


def flag(body: Body, name: str, default: bool) -> bool:
    """Also as a text, as some tools have it."""
    value = body.get(name, default)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise bad_request(["not_boolean", value] if isinstance(value, str) else f"{name} must be true or false")
    return value


def number(body: Body, name: str, default: int | None = None) -> int:
    """Also as a text."""
    value = body.get(name, default)
    if isinstance(value, str) and re.fullmatch("-?[0-9]{1,18}", value):
        value = int(value)
    if value is None:
        need(body, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(["not_integer", value] if isinstance(value, str) else f"{name} must be a number")
    return value


def table(body: Body, name: str) -> Body:
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} must be an object")
    return value


def _in_pieces(text: bytes) -> Body:
    """Its only long members are texts. Raises TooLarge, ValueError."""
    found: Body = {}
    for name, number, value in Pieces(text, _no_number):
        if number is not None:
            raise TooLarge(f"only texts and objects of {BYTES_MAX} bytes are taken in one of more than that")
        found[name] = value
        if len(found) > MEMBERS_MAX:
            raise TooLarge(f"it has more than {MEMBERS_MAX} members")
    return found


def _check(body: Body) -> None:
    """Raises Refusal."""
    level: list[Any] = [body]
    for _ in range(LEVELS_MAX):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, float) and not math.isfinite(each):
                raise bad_request("a number of the body is too large")
        if not inner:
            return
        level = inner
    raise bad_request(f"the request body is nested deeper than {LEVELS_MAX} levels")


def _no_number(name: str) -> None:
    """NaN and Infinity are Python's, not JSON's (RFC 8259 section 6)."""
    raise ValueError(name)
