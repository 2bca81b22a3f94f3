"""Messages in a queue, one by one: looked at where they stand, deleted, moved. Our own; RabbitMQ has no such route.

What comes in: which messages, by position, id, message_id or headers. What goes out: rows; how many were meant, and
what was done with them.
Rules: 1. Nothing is done without `yes`: the answer is then what would be done. 2. An answer has a bound: of messages,
and of bytes of bodies.
Not here: what the words mean (`amqpd/management/messages/wishes.py`), who may do what, and how
(`amqpd/management/messages/operations.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import trio
from fastapi import Query, Request
from starlette.responses import Response

from amqpd.management.errors import BadArgument
from amqpd.management.messages.wishes import Wish
from amqpd_admin.answers import reply
from amqpd_admin.bodies import body_of
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Entering
from amqpd_admin.paths import Name
from amqpd_admin.pieces import of_rows, written

router = api_router("messages", "/amqpd/messages")

COUNT_MAX = 500
BODIES_BYTES_MAX = 4 << 20
ANSWER_BYTES_MAX = 16 << 20
"""after which a list ends: who wants more asks from there on"""

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
    wish = Wish.of_listing({"vhost": vhost, "queue": name, **said})
    async with aclosing(who.behind.messages.list(wish, who.operator)) as pages:
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
    wish = Wish.of_act({**body, "vhost": vhost, "queue": name})
    return reply(await _done(who.behind.messages.delete(wish, who.operator)))


@router.post("/{vhost}/{name}/move")
async def move(request: Request, vhost: Name, name: Name, who: Entering) -> Response:
    """As `delete`; and `to_queue`, `to_vhost`."""
    body = await body_of(request)
    wish = Wish.of_act({"to_vhost": vhost, **body, "vhost": vhost, "queue": name})
    return reply(await _done(who.behind.messages.move(wish, who.operator)))


async def _done(pages: Pages) -> dict[str, Any]:
    """What was said last: with each step it is more."""
    told: dict[str, Any] = {"count": 0}
    async with aclosing(pages):
        async for page in pages:
            for row in page:
                told = row
    return told


def _halves(text: str) -> tuple[str, str, str]:
    return text.partition("=")
