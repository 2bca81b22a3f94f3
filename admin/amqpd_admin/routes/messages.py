"""Messages in a queue, one by one: looked at where they stand, deleted, moved. Our own; RabbitMQ has no such route.

What comes in: which messages, by position, id, message_id or headers. What goes out: rows; how many were meant, and
what was done with them.
Rules: 1. Nothing is done without `yes`: the answer is then what would be done. 2. An answer has a bound: of messages,
and of bytes of bodies. 3. Who accepts lines of JSON (`application/x-ndjson`) is told each second what is done so far,
and ends the act after a step by leaving; for others it goes on. What is refused within that second is a refusal as
elsewhere; later it is the last line.
Not here: what the words mean (`amqpd/management/messages/requests.py`), who may do what, and how
(`amqpd/management/messages/operations.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import trio
from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse

from amqpd.management.errors import BadArgument, ManagementError
from amqpd.management.messages.requests import MessagesRequest
from amqpd_admin.answers import reply
from amqpd_admin.bodies import body_of
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Entering
from amqpd_admin.paths import Name
from amqpd_admin.pieces import NO_CACHE, of_rows, written

router = api_router("messages", "/amqpd/messages")

COUNT_MAX = 500
BODIES_BYTES_MAX = 4 << 20
ANSWER_BYTES_MAX = 16 << 20
"""after which a list ends: who wants more asks from there on"""

LINES = "application/x-ndjson"

Pages = AsyncGenerator[list[dict[str, Any]], None]


@router.get("/{vhost}/{name}")
async def browse(
    vhost: Name,
    name: Name,
    who: Entering,
    state: Literal["ready", "unacked", "all"] = "ready",
    start: Annotated[int, Query(alias="from", ge=1)] = 1,
    count: Annotated[int, Query(ge=1, le=COUNT_MAX)] = 50,
    body: Annotated[int, Query(ge=0, description="bytes of each body")] = 0,
    message_id: str | None = None,
    header: Annotated[list[str] | None, Query(description="NAME, or NAME=VALUE")] = None,
) -> Response:
    """As they stand, from a position on (1 is the next that is delivered)."""
    if body * count > BODIES_BYTES_MAX:
        raise BadArgument(f"count and body together are more than {BODIES_BYTES_MAX} bytes: ask for less")
    headers = [[part, value if equals else None] for part, equals, value in map(_halves, header or ())]
    said = {"state": state, "from": start, "count": count, "body": body, "message_id": message_id, "headers": headers}
    # Whose they are while they are out is told who may see the connection.
    said["held_by"] = who.monitors
    rows: list[bytes] = []
    nbytes = 0
    wanted = MessagesRequest.of_listing({"vhost": vhost, "queue": name, **said})
    async with aclosing(who.parts.messages.list(wanted, who.operator)) as pages:
        async for page in pages:
            for row in page:
                rows.append(written(row))
                nbytes += len(rows[-1])
                if nbytes > ANSWER_BYTES_MAX:
                    return of_rows(rows)
            await trio.lowlevel.checkpoint()
    return of_rows(rows)


@router.post("/{vhost}/{name}/delete")
async def delete(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """`ids` (pairs of first and last), `from` and `count`, `message_id`, `headers` (pairs), or `all`; and `yes`."""
    body = await body_of(request)
    wanted = MessagesRequest.of_act({**body, "vhost": vhost, "queue": name})
    return await _answer(request, who.parts.messages.delete(wanted, who.operator))


@router.post("/{vhost}/{name}/move")
async def move(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """As `delete`; and `to_queue`, `to_vhost`."""
    body = await body_of(request)
    wanted = MessagesRequest.of_act({"to_vhost": vhost, **body, "vhost": vhost, "queue": name})
    return await _answer(request, who.parts.messages.move(wanted, who.operator))


async def _answer(request: Request, pages: Pages) -> Response:
    """What was said last, since with each step it is more; or all of it, as it is said (rule 3)."""
    told: dict[str, Any] = {"count": 0}
    if LINES not in request.headers.get("accept", ""):
        async with aclosing(pages):
            async for page in pages:
                told = page[-1] if page else told
        return reply(told)
    # Nothing is said before a second has passed, or the end: what is refused at once raises here.
    first = await anext(pages, [told])
    return StreamingResponse(_lines(first, pages), media_type=LINES, headers=NO_CACHE)


async def _lines(first: list[dict[str, Any]], pages: Pages) -> AsyncGenerator[bytes, None]:
    """One object in each; the last has `done`, or `error` and `reason` beside what was done by then."""
    told = first[-1] if first else {"count": 0}
    async with aclosing(pages):
        yield _line(told)
        try:
            async for page in pages:
                if page:
                    told = page[-1]
                    yield _line(told)
        except ManagementError as error:
            yield _line({**told, "error": error.kind, "reason": str(error)})
        else:
            yield _line({**told, "done": True})


def _line(told: dict[str, Any]) -> bytes:
    return written(told) + b"\n"


def _halves(text: str) -> tuple[str, str, str]:
    return text.partition("=")
