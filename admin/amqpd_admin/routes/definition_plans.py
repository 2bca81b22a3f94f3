"""What a document of definitions would change, and the change: our own; RabbitMQ has no such routes.

What comes in: a document; the virtual host that it is for, or none; `prune`, `skip_conflicts`. What goes out: what
would be changed, or what was.
Rules: 1. The plan says what the change would do, by the same comparison. 2. All or nothing: what exists otherwise
stops it with 409 and the plan, unless `skip_conflicts` leaves it as it is. 3. For administrators.
Not here: the comparison (`amqpd/definitions/`), RabbitMQ's own import (`definitions.py`).
"""

from __future__ import annotations

from typing import Annotated

import trio
from fastapi import Query, Request
from starlette.responses import Response

from amqpd.definitions.description import difference_as_json, summary
from amqpd.definitions.difference import Difference
from amqpd.definitions.document import Definitions
from amqpd.management.metadata import definitions
from amqpd_admin.answers import reply
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Administrator, Who
from amqpd_admin.pieces import reply_with
from amqpd_admin.routes.definitions import placing, read

router = api_router("definitions", "/amqpd/definitions")

Vhost = Annotated[str | None, Query(description="everything in the document is taken as being in it")]
Prune = Annotated[bool, Query(description="remove what the document does not name, in the sections that it has")]
Skip = Annotated[bool, Query(description="leave queues and exchanges as they are where the document says otherwise")]
Full = Annotated[bool, Query(description="each thing, and not only the first ones of a kind")]


@router.post("/plan")
async def plan(
    request: Request, who: Administrator, vhost: Vhost = None, prune: Prune = False, full: Full = False
) -> Response:
    """Nothing is changed. `summary`; `changes` by section and action; `unchanged`, how many by section;
    `conflicts`, what exists otherwise; `left_out`, what is not taken in; `kept`, what `prune` leaves."""
    wanted = await _read(request, who, vhost)
    found = await definitions.planned(who.parts.metadata, wanted, prune=prune)
    return await reply_with(await _facts(found, full))


@router.post("/apply")
async def apply(
    request: Request,
    who: Administrator,
    vhost: Vhost = None,
    prune: Prune = False,
    skip_conflicts: Skip = False,
    full: Full = False,
) -> Response:
    """The same, done; `summary` says so."""
    wanted = await _read(request, who, vhost)
    try:
        found = await definitions.import_definitions(
            who.parts.metadata,
            wanted,
            prune=prune,
            skip_conflicts=skip_conflicts,
            place=await placing(who, wanted, request.app.state.settings.cluster_copies),
        )
    except definitions.Conflicting as error:
        reason = "something exists, but not as the document says: nothing was changed; skip_conflicts goes on without"
        return reply({"error": "conflict", "reason": reason, **await _facts(error.found, full)}, 409)
    return await reply_with({**await _facts(found, full), "summary": summary(found, done=True)})


async def _facts(found: Difference, full: bool) -> dict[str, object]:
    return await trio.to_thread.run_sync(difference_as_json, found, full)


async def _read(request: Request, who: Who, vhost: str | None) -> Definitions:
    if vhost is not None:
        who.parts.on.vhost(vhost)
    return await read(request, vhost)
